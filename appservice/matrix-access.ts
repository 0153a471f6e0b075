/**
 * The slice of Matrix that a running turn may use, on the outbox: a tool that sends is a tool that may be asked twice after a crash, so its
 * event has a txn id derived from the call and is confirmed before the tool says "done" (G4, G6). The rules about whose rights count stand
 * in `rtCtx.matrix`, in front of this.
 */
import { NotAvailableError } from '../src/errors.ts';
import type { EventId, OutboxTxnId, RoomId, UserId } from '../src/ids.ts';
import type { JsonObject } from '../src/json.ts';
import type { Outbox } from '../src/outbox/outbox.ts';
import type { MatrixAccess } from '../src/runtime-context/matrix-access.ts';
import type { Store } from '../src/store/store.ts';
import type { Clock } from '../src/time.ts';
import { type MatrixApi, matrixPath } from './matrix-api.ts';
import type { Media } from './media.ts';
import { openEvent, type ReadSealed } from './open-event.ts';
import type { Rooms } from './rooms.ts';

export interface MatrixAccessOptions {
  readonly api: MatrixApi;
  readonly outbox: Outbox;
  readonly store: Store;
  readonly rooms: Rooms;
  readonly clock: Clock;
  /** Without it encrypted events are given as they are. */
  readonly read?: ReadSealed;
  /** Without it there are no files. */
  readonly media?: Media;
}

/** The homeserver refused the event, or it could not be delivered in time; its text is for the model. */
export class SendRefused extends Error {
  override readonly name = 'SendRefused';
}

export function createMatrixAccess({ api, outbox, store, rooms, clock, read, media }: MatrixAccessOptions): MatrixAccess {
  const whyNot = (txnId: OutboxTxnId): string =>
    store.read.get(store.sql.selectFrom('outbox').select('error').where('txn_id', '=', txnId))?.error ?? 'given up';
  async function eventOf(room: RoomId, event: EventId): Promise<JsonObject> {
    const found = await api.request<JsonObject>('GET', matrixPath`/_matrix/client/v3/rooms/${room}/event/${event}`);
    return openEvent(found, room, read);
  }
  const files = (): Media => {
    if (media === undefined) throw new NotAvailableError('files');
    return media;
  };
  return {
    async send({ roomId, runId, txnId, eventType, stateKey, content }, signal): Promise<EventId> {
      signal.throwIfAborted();
      await store.write((tx) => {
        outbox.insert(
          tx,
          {
            txnId,
            // Not the answer's lane: a refused tool call must not hold back the answer that says so.
            lane: `tool.${runId}`,
            roomId,
            kind: 'tool',
            eventType,
            ...(stateKey === undefined ? {} : { stateKey }),
            content,
            runId,
          },
          clock.now(),
        );
      });
      outbox.wake();
      const eventId = await outbox.settled(txnId, signal);
      if (eventId === null) throw new SendRefused(`The homeserver did not accept the event (${whyNot(txnId)}).`);
      return eventId;
    },
    roomState: (room) => rooms.state(room),
    event: eventOf,
    readFile: async (room, event, signal) => files().read(await eventOf(room, event), signal),
    uploadFile: (place, file, signal) => files().upload(place, file, signal),
    mayUserSend: (user: UserId, room: RoomId, event) => rooms.maySend(room, user, event),
    areJoined: (user, room) => rooms.areJoined(room, user),
  };
}
