/**
 * Makes the content of an `m.room.encrypted` event, after every device of everybody who may read it has the key. Whether the key must be a new one
 * (somebody left, its time is over), who lacks it and the encryption itself are one piece of work under one lock: nobody else may encrypt for yesterday's
 * readers in between, and the engine panics when it is asked for ciphertext without a shared key. What may hang on other servers, finding devices and
 * opening a channel to them, happens before, so that a dead server of one room holds back no other. With nobody new this costs no request. Once the
 * content exists the ratchet behind it is on disk, so the caller keeps it and never asks twice for one message (G4).
 */
import { LRUCache } from 'lru-cache';
import type { RoomId } from '../../src/ids.ts';
import type { Logger } from '../../src/observe/logger.ts';
import { isMatrixError } from '../matrix-api.ts';
import type { CryptoService, RoomEncryption } from './crypto-service.ts';
import type { Engine } from './engine.ts';
import type { OutgoingRequest } from './engine-request.ts';
import { findDevices } from './find-devices.ts';
import { createLock } from './lock.ts';
import type { Outgoing } from './outgoing.ts';

export interface SealOptions {
  readonly engine: Pick<Engine, 'userId' | 'trackUsers' | 'outgoing' | 'missingSessions' | 'shareRoomKey' | 'encrypt' | 'sharing'>;
  readonly outgoing: Pick<Outgoing, 'send' | 'askForDevices'>;
  readonly logger: Logger;
}

const SLOW_ROOMS = 1_000;

export function createSeal({ engine, outgoing, logger }: SealOptions): CryptoService['seal'] {
  /** Two claims side by side would use up two keys of each device. */
  const claiming = createLock();
  /** Rooms in which the last claim of one-time keys timed out. */
  const slow = new LRUCache<RoomId, true>({ max: SLOW_ROOMS });

  return async (event, room) => {
    if (!room.readers.includes(engine.userId)) throw new Error('the oracle is not among the readers of the room');
    await findDevices(room.readers, { engine, outgoing });
    await openChannels(room);
    return engine.sharing(async () => {
      // All must arrive: the engine refuses to use a key that it has not handed out.
      for (const request of await engine.shareRoomKey(room)) await outgoing.send(request);
      return engine.encrypt(room.roomId, event);
    });
  };

  async function openChannels({ roomId, readers }: RoomEncryption): Promise<void> {
    if ((await engine.missingSessions(readers)) === null) return;
    await claiming(async () => {
      // Somebody else's claim may have brought them meanwhile.
      const claim = await engine.missingSessions(readers);
      if (claim !== null) await tryClaim(claim, roomId);
    });
  }

  /**
   * Our homeserver answers without the servers that it cannot reach, unless there are many of them. Asked again it knows them and is quick, so the first
   * time-out fails the attempt; but nobody's server may hold back a room for good, and its devices get the key with a later message.
   */
  async function tryClaim(claim: OutgoingRequest, room: RoomId): Promise<void> {
    try {
      await outgoing.send(claim);
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
