/**
 * Makes the content of an `m.room.encrypted` event, after every device of everybody who may read it has the key. Who reads along, who lacks the key and
 * whether it must be a new one (somebody left, its time is over) is settled and used in one go, under one lock: between asking and encrypting nobody
 * else may encrypt for yesterday's readers, and the engine panics when it is asked for ciphertext without a shared key. With nobody new this costs no
 * request. Once the content exists the ratchet behind it is on disk, so the caller keeps it and never asks twice for one message (G4).
 */
import type { UserId } from '../../src/ids.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock } from '../../src/time.ts';
import { isMatrixError } from '../matrix-api.ts';
import type { CryptoService, RoomEncryption } from './crypto-service.ts';
import type { Engine } from './engine.ts';
import type { OutgoingRequest } from './engine-request.ts';
import type { Outgoing } from './outgoing.ts';

export interface SealOptions {
  readonly engine: Pick<Engine, 'userId' | 'outgoing' | 'trackUsers' | 'missingSessions' | 'shareRoomKey' | 'encrypt' | 'sharing'>;
  readonly outgoing: Pick<Outgoing, 'send'>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** All requests of one message together; each has its own, shorter limit. The attempt that waits for it ends a little later. */
const WITHIN_MS = 60_000;

export function createSeal({ engine, outgoing, clock, logger }: SealOptions): CryptoService['seal'] {
  return (event, room) =>
    engine.sharing(async () => {
      if (!room.readers.includes(engine.userId)) throw new Error('the oracle is not among the readers of the room');
      const deadline = new AbortController();
      const timer = clock.after(WITHIN_MS, () => deadline.abort(new Error('sharing a room key took too long')));
      try {
        await share(room, deadline.signal);
        return await engine.encrypt(room.roomId, event);
      } finally {
        timer.cancel();
      }
    });

  async function share(room: RoomEncryption, signal: AbortSignal): Promise<void> {
    const readers: readonly UserId[] = room.readers;
    await engine.trackUsers(readers);
    // Whose devices we never asked for, or who changed them. What else waits is none of this message's business.
    for (const request of await engine.outgoing()) if (request.kind === 'keys_query') await attempt(request, { room, signal });
    const claim = await engine.missingSessions(readers);
    if (claim !== null) await attempt(claim, { room, signal });
    // All must arrive: the engine refuses to use a key that it has not handed out.
    for (const request of await engine.shareRoomKey(room)) await outgoing.send(request, signal);
  }

  /** Another server that does not answer must not hold back a message: its devices get the key with a later one. */
  async function attempt(request: OutgoingRequest, { room, signal }: { room: RoomEncryption; signal: AbortSignal }): Promise<void> {
    try {
      await outgoing.send(request, signal);
    } catch (error) {
      if (!isMatrixError(error) || error.errcode !== 'TIMEOUT') throw error;
      logger.warn({ room_id: room.roomId, type: request.kind, code: error.errcode }, 'some devices do not get the key of a room yet');
    }
  }
}
