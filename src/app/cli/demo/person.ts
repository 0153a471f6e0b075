/**
 * The person of the demo: an ordinary account with an own did:key, whose every line is a signed and encrypted message through the client-server API.
 * Nothing here is known to the oracle in another way, so what the demo shows is what any signing client can do.
 */

import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import type { EncryptedClient } from '../../../../synapse-dev/homeserver/encrypted-client.ts';
import { MatrixError } from '../../../../synapse-dev/homeserver/matrix-request.ts';
import type { RoomWatch } from '../../../../synapse-dev/homeserver/room-watch.ts';
import type { Homeserver } from '../../../../synapse-dev/homeserver/start-synapse.ts';
import { createUserClient, type UserClient } from '../../../../synapse-dev/homeserver/user-client.ts';
import type { UserSession } from '../../../../synapse-dev/homeserver/users.ts';
import { type Did, parseRoomId, parseUserId, type RoomId, type UserId } from '../../../ids.ts';
import { systemClock } from '../../../system-clock.ts';
import { newNonce, signContent } from '../../../ucan/mint.ts';
import { CliError } from '../cli-error.ts';
import type { DemoFolder } from './demo-folder.ts';

export const PERSON = 'demo';
const JOINS_WITHIN_MS = 30_000;

/** Past the oracle's own limit of a run (RUN_DEADLINE_S). */
export const ANSWER_WITHIN_MS = 330_000;

export interface Person {
  readonly userId: UserId;
  readonly did: Did;
  readonly roomId: RoomId;
  /** Nobody but the members reads the room, not even the homeserver. */
  readonly encrypted: boolean;
  readonly watch: RoomWatch;
  /** Signs and sends one line. */
  say(text: string): Promise<{ readonly eventId: string /** By `performance.now()`, just before the send. */; readonly at: number }>;
  /** Whether this event is one that `say` sent: the terminal shows it already. */
  saidHere(event: { readonly unsigned?: Readonly<Record<string, unknown>> }): boolean;
}

/** The kept account, or a new one. A device whose keys are gone cannot go on: it is left behind for a new one. */
export async function signIn(homeserver: Homeserver, folder: DemoFolder): Promise<UserSession> {
  const { session } = folder.state;
  if (session !== undefined && existsSync(folder.personStore(session.deviceId))) {
    if (await tokenWorks(createUserClient({ baseUrl: homeserver.baseUrl, ...session }))) return session;
    await rm(folder.personStore(session.deviceId));
  }
  const { userId, accessToken, deviceId } = await registerOrLogin(homeserver, folder.state.password);
  await folder.keep({ session: { userId, accessToken, deviceId } });
  return { userId, accessToken, deviceId };
}

async function tokenWorks(client: UserClient): Promise<boolean> {
  try {
    await client.request('GET', '/_matrix/client/v3/account/whoami');
    return true;
  } catch (error) {
    if (error instanceof MatrixError && error.errcode === 'M_UNKNOWN_TOKEN') return false;
    throw error;
  }
}

async function registerOrLogin(homeserver: Homeserver, password: string): Promise<UserSession> {
  try {
    // The registration makes a device of its own that nobody uses; the login gives the one that is kept.
    await homeserver.registerUser({ username: PERSON, password, displayName: 'You' });
  } catch (error) {
    if (!(error instanceof MatrixError && error.errcode === 'M_USER_IN_USE')) throw error;
  }
  return homeserver.login({ username: PERSON, password, deviceId: `DEMO_${randomBytes(4).toString('hex').toUpperCase()}` });
}

export interface EnterOptions {
  readonly client: EncryptedClient;
  readonly encrypted: boolean;
  readonly folder: DemoFolder;
  readonly oracle: UserId;
  readonly oracleDid: Did;
}

/** The direct room with the oracle: the kept one as long as both are in it, else a new one; resolves when the oracle has joined. */
export async function enterRoom(options: EnterOptions): Promise<Person> {
  const { client, encrypted, folder, oracle, oracleDid } = options;
  const roomId = branded(parseRoomId((await keptRoom(options)) ?? (await openRoom(options))));
  const userId = branded(parseUserId(client.userId));
  const watch = await client.watchRoom(roomId);
  const joined = () => client.members(roomId).then((members) => members[oracle] === 'join');
  if (!(await joined())) {
    await watch
      .waitFor(
        ({ event }) => event.type === 'm.room.member' && event.state_key === oracle && event.content['membership'] === 'join',
        JOINS_WITHIN_MS,
      )
      .catch((cause: unknown) => {
        throw new CliError(`the oracle did not come into the room within ${JOINS_WITHIN_MS / 1_000} s: ${folder.oracleLog} may say why.`, {
          cause,
        });
      });
  }
  const said = new Set<string>();
  const timezone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return {
    userId,
    did: folder.personKey.did,
    roomId,
    encrypted,
    watch,
    async say(text) {
      const content = signContent(
        {
          key: folder.personKey,
          audience: oracleDid,
          room: roomId,
          sender: userId,
          type: 'm.room.message',
          ts: systemClock.now(),
          nonce: newNonce(),
        },
        { msgtype: 'm.text', body: text.toWellFormed(), 'm.mentions': {}, 'ixo.oracle.turn': { timezone } },
      );
      const txnId = `demo.${newNonce()}`;
      said.add(txnId);
      const at = systemClock.monotonic();
      return { eventId: await client.send(roomId, content, { txnId }), at };
    },
    saidHere: ({ unsigned }) => said.has(String(unsigned?.['transaction_id'])),
  };
}

async function keptRoom({ client, encrypted, folder, oracle }: EnterOptions): Promise<string | undefined> {
  const { roomId } = folder.state;
  if (roomId === undefined) return undefined;
  try {
    if ((await client.isEncrypted(roomId)) !== encrypted) return undefined;
    const members = await client.members(roomId);
    return members[client.userId] === 'join' && (members[oracle] === 'join' || members[oracle] === 'invite') ? roomId : undefined;
  } catch (error) {
    // Not a member any more: the person left it in another client.
    if (error instanceof MatrixError) return undefined;
    throw error;
  }
}

async function openRoom({ client, encrypted, folder, oracle }: EnterOptions): Promise<string> {
  const roomId = await (encrypted ? client : client.wire).createDirectRoom(oracle);
  await folder.keep({ roomId });
  // Element lists a room under People only when the account says that it is direct.
  await client.request('PUT', `/_matrix/client/v3/user/${encodeURIComponent(client.userId)}/account_data/m.direct`, {
    body: { [oracle]: [roomId] },
  });
  return roomId;
}

function branded<T>(parsed: { ok: true; value: T } | { ok: false }): T {
  if (parsed.ok) return parsed.value;
  throw new Error('the homeserver gave an id that is none');
}
