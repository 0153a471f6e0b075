/**
 * One long poll per client, from which any number of rooms are watched. It goes on through a homeserver that stops and comes back,
 * and fills the gaps of limited timelines, so that a test which counts events counts all of them.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { JsonObject } from '../../src/json.ts';
import { MatrixError } from './matrix-request.ts';
import { createRoomLog, type RoomLog, type RoomWatch } from './room-watch.ts';
import type { Cipher, JoinedRoom, MatrixEvent, SyncAnswer, UserClient } from './user-client.ts';

export interface InviteSeen {
  readonly roomId: string;
  readonly at: number;
  /** The inviter; empty when the invite carries no member event. */
  readonly sender: string;
  readonly state: readonly MatrixEvent[];
}
export interface SyncFollower {
  watch(roomId: string): Promise<RoomWatch>;
  waitForInvite(predicate: (invite: InviteSeen) => boolean, timeoutMs?: number): Promise<InviteSeen>;
  close(): void;
}

const LONG_POLL_MS = 20_000;
const RETRY_MS = 100;
const DEFAULT_WAIT_MS = 30_000;
const FILTER: JsonObject = {
  presence: { not_types: ['*'] },
  account_data: { not_types: ['*'] },
  room: { account_data: { not_types: ['*'] }, timeline: { limit: 100 }, state: { lazy_load_members: true } },
};

export function createSyncFollower(client: UserClient, cipher?: Cipher): SyncFollower {
  const abort = new AbortController();
  /** Encrypted events whose key has not come. */
  const unread: { readonly roomId: string; readonly event: MatrixEvent }[] = [];
  const logs = new Map<string, RoomLog>();
  const invites = new Map<string, InviteSeen>();
  const inviteWaiters = new Set<() => void>();
  let since: string | undefined;
  const logOf = (roomId: string): RoomLog => {
    const log = logs.get(roomId) ?? createRoomLog({ roomId, me: client.userId, signal: abort.signal });
    logs.set(roomId, log);
    return log;
  };

  async function takeRoom(roomId: string, room: JoinedRoom): Promise<void> {
    const at = performance.now();
    const { events = [], limited = false, prev_batch: gapEnd } = room.timeline ?? {};
    const known = logs.has(roomId);
    const missed = limited && known && since !== undefined ? await readGap(roomId, { from: gapEnd, to: since }) : [];
    const log = logOf(roomId);
    log.append(await readAll(roomId, [...missed, ...events]), at);
    for (const event of room.ephemeral?.events ?? []) {
      if (event.type === 'm.typing') log.appendTyping({ at, userIds: (event.content['user_ids'] ?? []) as string[] });
    }
  }

  /** Newest page first, until the position we had: what lies between is missing in the timeline. */
  async function readGap(roomId: string, { from, to }: { from: string | undefined; to: string }): Promise<MatrixEvent[]> {
    const events: MatrixEvent[] = [];
    for (let at = from; at !== undefined; ) {
      const page = await client.messages(roomId, { dir: 'b', from: at, to, limit: 500 });
      events.push(...page.chunk);
      at = page.chunk.length === 0 ? undefined : page.end;
    }
    return events.reverse();
  }

  /** What can be read now; the rest is looked at again when keys arrive. */
  async function readAll(roomId: string, events: readonly MatrixEvent[]): Promise<readonly MatrixEvent[]> {
    if (cipher === undefined) return events;
    const readable: MatrixEvent[] = [];
    for (const event of events) {
      const opened = await cipher.open(event, roomId);
      if (opened === null) unread.push({ roomId, event });
      else readable.push(opened);
    }
    return readable;
  }

  async function takeKeys(answer: SyncAnswer): Promise<void> {
    await cipher?.receive(answer);
    if ((answer.to_device?.events ?? []).length === 0) return;
    for (const { roomId, event } of unread.splice(0)) logOf(roomId).append(await readAll(roomId, [event]), performance.now());
  }

  async function take(answer: SyncAnswer): Promise<void> {
    await takeKeys(answer);
    const { join = {}, leave = {}, invite = {} } = answer.rooms ?? {};
    for (const [roomId, room] of [...Object.entries(join), ...Object.entries(leave)]) {
      invites.delete(roomId);
      await takeRoom(roomId, room);
    }
    for (const [roomId, { invite_state: state }] of Object.entries(invite)) {
      const member = state.events.find((event) => event.type === 'm.room.member' && event.state_key === client.userId);
      invites.set(roomId, { roomId, at: performance.now(), sender: member?.sender ?? '', state: state.events });
      for (const wake of inviteWaiters) wake();
    }
    since = answer.next_batch;
  }

  const poll = async (timeoutMs: number): Promise<void> =>
    take(await client.sync({ since, timeoutMs, filter: FILTER, signal: abort.signal }));

  async function follow(): Promise<void> {
    while (!abort.signal.aborted) {
      try {
        await poll(LONG_POLL_MS);
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error instanceof MatrixError && error.errcode === 'M_UNKNOWN_TOKEN') return abort.abort(error);
        await wait(RETRY_MS);
      }
    }
  }

  const started = poll(0);
  // A failed first sync is reported by `watch`; only a good one leads on to following.
  started.then(follow, () => {});

  return {
    async watch(roomId) {
      await started;
      return logOf(roomId).watch;
    },
    async waitForInvite(predicate, timeoutMs = DEFAULT_WAIT_MS) {
      await started;
      const find = () => [...invites.values()].find(predicate);
      return new Promise((resolve, reject) => {
        const found = find();
        if (found !== undefined) return resolve(found);
        const end = () => {
          clearTimeout(timer);
          inviteWaiters.delete(look);
          abort.signal.removeEventListener('abort', onAbort);
        };
        const look = () => {
          const invite = find();
          if (invite === undefined) return;
          end();
          resolve(invite);
        };
        const onAbort = () => {
          end();
          reject(abort.signal.reason);
        };
        const timer = setTimeout(() => {
          end();
          reject(new Error(`${client.userId} saw no such invite within ${timeoutMs} ms`));
        }, timeoutMs);
        inviteWaiters.add(look);
        abort.signal.addEventListener('abort', onAbort, { once: true });
      });
    },
    close: () => abort.abort(new Error(`the client of ${client.userId} was closed`)),
  };
}
