/**
 * Somebody's device with the real engine, at a fake key server: the oracle's own, and those of the people it talks to. Its store is in memory unless a
 * path is given.
 */
import { type CryptoDb, openCryptoDb } from '../../appservice/crypto/crypto-db.ts';
import type { RoomEncryption } from '../../appservice/crypto/crypto-service.ts';
import { type Engine, openEngine } from '../../appservice/crypto/engine.ts';
import type { OutgoingRequest } from '../../appservice/crypto/engine-request.ts';
import { createOutgoing, type Outgoing } from '../../appservice/crypto/outgoing.ts';
import type { MatrixApi } from '../../appservice/matrix-api.ts';
import type { DeviceId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { systemClock } from '../../src/system-clock.ts';
import type { Clock } from '../../src/time.ts';
import type { FakeKeyServer } from './fake-key-server.ts';
import { type FakeLogger, fakeLogger } from './fake-logger.ts';

export interface KeyMachine {
  readonly user: UserId;
  readonly device: DeviceId;
  readonly engine: Engine;
  readonly outgoing: Outgoing;
  readonly api: MatrixApi;
  readonly db: CryptoDb;
  readonly logger: FakeLogger;
  readonly fatal: string[];
  /** Messages of verifications, which a test sends on. */
  readonly roomMessages: Extract<OutgoingRequest, { kind: 'room_message' }>[];
  /** One look for keys without waiting, and what it gave the device to say. */
  sync(): Promise<void>;
  /** The room's key to everybody's devices. */
  share(room: RoomEncryption): Promise<void>;
  /** Shares and encrypts as one; an event as the homeserver would pass it on. */
  say(room: RoomEncryption, content: JsonObject, type?: string): Promise<JsonObject>;
  close(): Promise<void>;
}

export interface KeyMachineOptions {
  readonly server: FakeKeyServer;
  readonly user: string;
  readonly device: string;
  readonly path?: string;
  readonly storeKey?: Uint8Array;
  readonly clock?: Clock;
  /** Whether its keys are on the homeserver when it is open; else that is the test's business. */
  readonly uploads?: boolean;
}

let events = 0;

export async function openKeyMachine({
  server,
  user,
  device,
  path = ':memory:',
  storeKey,
  clock = systemClock,
  uploads = true,
}: KeyMachineOptions): Promise<KeyMachine> {
  const db = openCryptoDb(path);
  if (!db.ok) throw new Error(db.error.code, { cause: db.error.cause });
  const logger = fakeLogger();
  const fatal: string[] = [];
  const identity = { userId: user as UserId, deviceId: device as DeviceId };
  const opened = await openEngine({
    ...identity,
    db: db.value,
    storeKey: storeKey ?? new Uint8Array(32).fill(7),
    clock,
    logger,
    onFatal: (reason) => void fatal.push(reason),
  });
  if (!opened.ok) {
    db.value.close();
    throw new Error(opened.error.code, { cause: opened.error.cause });
  }
  const engine = opened.value;
  server.addDevice(user, device);
  const api = server.api(identity);
  const roomMessages: KeyMachine['roomMessages'] = [];
  const outgoing = createOutgoing({ engine, api, onRoomMessage: (request) => void roomMessages.push(request) });
  let since: string | null = null;

  const machine: KeyMachine = {
    user: identity.userId,
    device: identity.deviceId,
    engine,
    outgoing,
    api,
    db: db.value,
    logger,
    fatal,
    roomMessages,
    async sync() {
      const answer: any = await api.request('GET', '/_matrix/client/v3/sync', { query: since === null ? {} : { since } });
      await engine.receive({
        events: answer.to_device.events,
        changed: answer.device_lists.changed,
        left: answer.device_lists.left,
        oneTimeKeys: answer.device_one_time_keys_count,
        unusedFallback: answer.device_unused_fallback_key_types,
      });
      since = answer.next_batch;
      await outgoing.flush();
    },
    async share(room) {
      await engine.trackUsers(room.readers);
      await outgoing.flush();
      const claim = await engine.missingSessions(room.readers);
      if (claim !== null) await outgoing.send(claim);
      for (const request of await engine.shareRoomKey(room)) await outgoing.send(request);
    },
    say: (room, content, type = 'm.room.message') =>
      engine.sharing(async () => {
        await machine.share(room);
        const sealed = await engine.encrypt(room.roomId, { type, content });
        events += 1;
        return {
          type: 'm.room.encrypted',
          event_id: `$event${events}`,
          room_id: room.roomId,
          sender: user,
          origin_server_ts: clock.now(),
          content: sealed,
        };
      }),
    async close() {
      await engine.close();
      db.value.close();
    },
  };
  if (uploads) await outgoing.flush();
  return machine;
}

/** A room as its state says it, with everybody in it. */
export const encryptedRoom = (readers: readonly string[], more: Partial<RoomEncryption> = {}): RoomEncryption => ({
  roomId: '!room:oracle.local' as RoomId,
  readers: readers as readonly UserId[],
  historyVisibility: 'shared',
  rotationPeriodMs: null,
  rotationPeriodMessages: null,
  ...more,
});
