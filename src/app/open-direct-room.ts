/**
 * Opens the direct room of a person who comes from a portal and has none. `createRoom` knows no transaction id: when its answer is lost, or the
 * process dies before it is written down, a second call would leave the person two rooms (G4). So the intent is on disk first, and it stands in
 * the room itself, in `m.room.create`, which nobody can change: whoever comes back with an open intent looks for that room before making one.
 * Cost: one commit more per first conversation of a person; after a crash one request per joined room that is not known as invited.
 */
import { isMatrixError, type MatrixApi, matrixPath } from '../../appservice/matrix-api.ts';
import type { KnownRooms } from '../admission/known-rooms.ts';
import { parseRoomId, type RoomId, type UserId } from '../ids.ts';
import { isJsonObject } from '../json.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';

export interface OpenDirectRoomOptions {
  readonly store: Store;
  readonly api: MatrixApi;
  readonly known: Pick<KnownRooms, 'of'>;
  readonly clock: Clock;
  readonly oracleName: string;
  /** Unlike any other. */
  readonly newId: () => string;
}
export interface OpenDirectRoom {
  /** Call `opened` in the transaction that writes the room down. @throws MatrixError */
  open(user: UserId): Promise<RoomId>;
  opened(tx: Tx, user: UserId): void;
}

/** In the creation content: `{ intent }`. */
const DIRECT_KEY = 'ixo.oracle.direct';
const SCOPE = 'portal';
const KEY = 'opening_room';

export function createOpenDirectRoom({ store, api, known, clock, oracleName, newId }: OpenDirectRoomOptions): OpenDirectRoom {
  const { sql } = store;
  const ofUser = (user: UserId) => ({ scope: SCOPE, scope_id: user, key: KEY });
  const openIntent = (user: UserId): string | null => {
    const row = store.read.get(
      sql.selectFrom('state').select('value').where('scope', '=', SCOPE).where('scope_id', '=', user).where('key', '=', KEY),
    );
    const value: unknown = row === undefined ? null : JSON.parse(row.value);
    return isJsonObject(value) && typeof value['intent'] === 'string' ? value['intent'] : null;
  };

  async function begin(user: UserId): Promise<string> {
    const intent = newId();
    const value = JSON.stringify({ v: 1, intent });
    await store.write((tx) => {
      tx.run(
        sql
          .insertInto('state')
          .values({ ...ofUser(user), value, updated_at: clock.now() })
          .onConflict((oc) => oc.columns(['scope', 'scope_id', 'key']).doUpdateSet({ value, updated_at: clock.now() })),
      );
    });
    return intent;
  }

  async function create(user: UserId, intent: string): Promise<RoomId> {
    const body = {
      preset: 'private_chat',
      is_direct: true,
      invite: [user],
      name: oracleName,
      creation_content: { [DIRECT_KEY]: { intent } },
    };
    const created = await api.request<{ room_id?: unknown }>('POST', '/_matrix/client/v3/createRoom', { body });
    const room = parseRoomId(created.room_id);
    if (!room.ok) throw new Error('the homeserver answered createRoom without a room id');
    return room.value;
  }

  async function find(intent: string): Promise<RoomId | null> {
    const { joined_rooms: joined } = await api.request<{ joined_rooms?: unknown }>('GET', '/_matrix/client/v3/joined_rooms');
    for (const id of Array.isArray(joined) ? joined : []) {
      const room = parseRoomId(id);
      // Somebody else made the rooms that we were invited to.
      if (!room.ok || typeof known.of(room.value)?.inviter === 'string') continue;
      const created = await stateOf(room.value, 'm.room.create', '');
      const mark = created === null ? undefined : created[DIRECT_KEY];
      if (isJsonObject(mark) && mark['intent'] === intent) return room.value;
    }
    return null;
  }

  /** The homeserver may have died between making the room and inviting. @returns whether the person can use it. */
  async function ensureInvited(room: RoomId, user: UserId): Promise<boolean> {
    const member = await stateOf(room, 'm.room.member', user);
    if (member !== null) return member['membership'] === 'invite' || member['membership'] === 'join';
    const path = matrixPath`/_matrix/client/v3/rooms/${room}/state/m.room.member/${user}`;
    await api.request('PUT', path, { body: { membership: 'invite', is_direct: true } });
    return true;
  }

  async function stateOf(room: RoomId, type: string, key: string): Promise<Record<string, unknown> | null> {
    try {
      return await api.request('GET', matrixPath`/_matrix/client/v3/rooms/${room}/state/${type}/${key}`);
    } catch (error) {
      if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return null;
      throw error;
    }
  }

  return {
    async open(user) {
      const unfinished = openIntent(user);
      if (unfinished === null) return create(user, await begin(user));
      const room = await find(unfinished);
      if (room === null) return create(user, unfinished);
      // Declined meanwhile: that room is over, and another one is asked for.
      return (await ensureInvited(room, user)) ? room : create(user, await begin(user));
    },
    opened(tx, user) {
      tx.run(sql.deleteFrom('state').where('scope', '=', SCOPE).where('scope_id', '=', user).where('key', '=', KEY));
    },
  };
}
