/**
 * What the sidecar may do in Matrix: open a conversation (the event that the session is named after) and show a portal's prompt in the room
 * before its answer. Both go through the outbox with an id derived from the caller's token, so a request sent twice opens one session and
 * is mirrored once (G4).
 */
import { buildMirror, buildNotice } from '../../appservice/content/build-notice.ts';
import type { Place } from '../../appservice/content/relations.ts';
import { isMatrixError, type MatrixApi } from '../../appservice/matrix-api.ts';
import type { KnownRooms } from '../admission/known-rooms.ts';
import { refusal } from '../errors.ts';
import { type Did, type EventId, noticeTxnId, type OutboxTxnId, type RoomId, sessionIdOf, type UserId } from '../ids.ts';
import type { Outbox } from '../outbox/outbox.ts';
import { err, ok } from '../result.ts';
import type { SidecarDeps } from '../sidecar/deps.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Links } from '../turn/links.ts';
import { createOpenDirectRoom } from './open-direct-room.ts';

export interface PortalOptions {
  readonly store: Store;
  readonly outbox: Outbox;
  readonly api: MatrixApi;
  readonly known: KnownRooms;
  readonly links: Links;
  readonly clock: Clock;
  readonly oracleName: string;
  /** Unlike any other. */
  readonly newId: () => string;
  /** Ends waiting when the process does. */
  readonly ending: AbortSignal;
}

/** A caller waits for the homeserver's answer no longer than a proxy waits for ours. */
const OPEN_WITHIN_MS = 25_000;

export function createPortal(options: PortalOptions): Pick<SidecarDeps, 'openSession' | 'mirrorPrompt'> {
  const { store, outbox, known, links, clock, ending } = options;
  const rooms = createOpenDirectRoom(options);
  /** Two first requests at once must not open two direct rooms. */
  const opening = new Map<UserId, Promise<RoomId>>();

  async function openRoom(userId: UserId, did: Did): Promise<RoomId> {
    const room = await rooms.open(userId);
    await store.write((tx) => {
      const at = clock.now();
      known.invited(tx, room, { inviter: userId, isDirect: true, at });
      known.joined(tx, room, at);
      links.prove(tx, { did, userId, directRoom: room }, at);
      rooms.opened(tx, userId);
    });
    return room;
  }
  function directRoom(userId: UserId, did: Did): Promise<RoomId> {
    const present = opening.get(userId);
    if (present !== undefined) return present;
    const room = openRoom(userId, did).finally(() => opening.delete(userId));
    opening.set(userId, room);
    return room;
  }

  async function settledInTime(txnId: OutboxTxnId): Promise<EventId | null> {
    const timeUp = new AbortController();
    const timer = clock.after(OPEN_WITHIN_MS, () => timeUp.abort(new Error('the homeserver did not confirm in time')));
    try {
      return await outbox.settled(txnId, AbortSignal.any([timeUp.signal, ending]));
    } catch {
      return null;
    } finally {
      timer.cancel();
    }
  }

  return {
    async openSession({ roomId, userId, did, tokenId }) {
      try {
        const room = roomId ?? (await directRoom(userId, did));
        const txnId = noticeTxnId('session', tokenId);
        await store.write((tx) => {
          const content = buildNotice({ text: NEW_CONVERSATION });
          outbox.insert(
            tx,
            { txnId, lane: `session.${tokenId}`, roomId: room, kind: 'session', eventType: 'm.room.message', content },
            clock.now(),
          );
        });
        outbox.wake();
        const eventId = await settledInTime(txnId);
        return eventId === null ? err(refusal('HOMESERVER_UNAVAILABLE')) : ok({ sessionId: sessionIdOf(eventId), roomId: room });
      } catch (error) {
        if (isMatrixError(error)) return err(refusal('HOMESERVER_UNAVAILABLE', { cause: error }));
        throw error;
      }
    },
    mirrorPrompt(tx, { runId, roomId, threadRoot, text, did, requestId, promptId }) {
      const place: Place = threadRoot === null ? {} : { thread: { root: threadRoot } };
      const content = buildMirror({ text, did, requestId, ...place });
      // The answer's lane: the prompt stands before its answer.
      outbox.insert(
        tx,
        { txnId: noticeTxnId('mirror', promptId), lane: `run.${runId}`, roomId, kind: 'mirror', eventType: 'm.room.message', content },
        clock.now(),
      );
    },
  };
}

const NEW_CONVERSATION = 'New conversation started from the portal.';
