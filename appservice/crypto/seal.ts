/**
 * Makes the content of an `m.room.encrypted` event, after every device of everybody who may read it has the key. Who reads along, who lacks the key and
 * whether it must be a new one (somebody left, its time is over) is settled and used in one go, under one lock: between asking and encrypting nobody
 * else may encrypt for yesterday's readers, and the engine panics when it is asked for ciphertext without a shared key. With nobody new this costs no
 * request. Once the content exists the ratchet behind it is on disk, so the caller keeps it and never asks twice for one message (G4).
 */
import { LRUCache } from 'lru-cache';
import type { RoomId, UserId } from '../../src/ids.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock } from '../../src/time.ts';
import { isMatrixError } from '../matrix-api.ts';
import type { CryptoService, RoomEncryption } from './crypto-service.ts';
import type { Engine } from './engine.ts';
import type { OutgoingRequest } from './engine-request.ts';
import type { Outgoing } from './outgoing.ts';

export interface SealOptions {
  readonly engine: Pick<Engine, 'userId' | 'trackUsers' | 'missingSessions' | 'shareRoomKey' | 'encrypt' | 'sharing'>;
  readonly outgoing: Pick<Outgoing, 'send' | 'askForDevices'>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** All requests of one message together; each has its own, shorter limit. The attempt that waits for it ends a little later. */
const WITHIN_MS = 60_000;
const SLOW_ROOMS = 1_000;

export function createSeal({ engine, outgoing, clock, logger }: SealOptions): CryptoService['seal'] {
  /** Rooms in which the last claim of one-time keys timed out. */
  const slow = new LRUCache<RoomId, true>({ max: SLOW_ROOMS });
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
    await outgoing.askForDevices(signal);
    const claim = await engine.missingSessions(readers);
    if (claim !== null) await tryClaim(claim, room.roomId, signal);
    // All must arrive: the engine refuses to use a key that it has not handed out.
    for (const request of await engine.shareRoomKey(room)) await outgoing.send(request, signal);
  }

  /**
   * Our homeserver answers without the servers that it cannot reach, unless there are many of them. Asked again it knows them and is quick, so the first
   * time-out fails the attempt; but nobody's server may hold back a room for good, and its devices get the key with a later message.
   */
  async function tryClaim(claim: OutgoingRequest, room: RoomId, signal: AbortSignal): Promise<void> {
    try {
      await outgoing.send(claim, signal);
      slow.delete(room);
    } catch (error) {
      const isSlow = isMatrixError(error) && error.errcode === 'TIMEOUT';
      if (!isSlow || !slow.has(room)) {
        if (isSlow) slow.set(room, true);
        throw error;
      }
      logger.warn({ room_id: room, code: error.errcode }, 'some devices do not get the key of a room yet');
    }
  }
}
