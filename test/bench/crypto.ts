/**
 * What encryption costs: the engine with its durable store by itself, the opening of a large store, and the whole way of a message on a real Synapse in an
 * encrypted room beside one in the clear, turn by turn in one run. The person's own cryptography is left out of that way.
 */
import { execFile } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { RoomEncryption } from '../../appservice/crypto/crypto-service.ts';
import { createSeal } from '../../appservice/crypto/seal.ts';
import type { RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { systemClock } from '../../src/system-clock.ts';
import { createEncryptedClient } from '../../synapse-dev/homeserver/encrypted-client.ts';
import { fakeKeyServer } from '../fakes/fake-key-server.ts';
import { fakeLogger } from '../fakes/fake-logger.ts';
import { openKeyMachine } from '../fakes/key-machine.ts';
import type { Opening } from './crypto-open.ts';
import { measureFsync } from './fsync.ts';
import { median, round } from './measure.ts';
import { openSetting, type Setting } from './setting.ts';

const MESSAGES = 300;
const READERS = 10;
const KEYS = 20_000;
const ROUNDS = 40;
const ORACLE = '@oracle:bench';
const ROOM = '!bench:bench' as RoomId;
const STORE_KEY = new Uint8Array(32).fill(7);

export async function benchCrypto(onProgress: (line: string) => void): Promise<Record<string, number>> {
  const dir = await mkdtemp(join(tmpdir(), 'matrix-oracle-bench-crypto-'));
  try {
    onProgress(`sealing and opening ${MESSAGES} messages of a room with ${READERS} people`);
    const engine = await measureEngine(join(dir, 'crypto.db'));
    onProgress(`a store of ${KEYS} keys`);
    const opened = await measureOpening(join(dir, 'large.db'));
    const way = await measureWay(onProgress);
    return { ...engine, ...way, ...opened, fsync_ms: round(await measureFsync(), 2) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** As the sender seals and admission opens: sharing looked after, the ratchet on disk. */
async function measureEngine(path: string): Promise<Record<string, number>> {
  const server = fakeKeyServer({ clock: systemClock });
  const oracle = await openKeyMachine({ server, user: ORACLE, device: 'O', path });
  const people = await Promise.all(
    Array.from({ length: READERS - 1 }, (_, index) => openKeyMachine({ server, user: `@person${index}:bench`, device: `P${index}` })),
  );
  const [person] = people;
  if (person === undefined) throw new Error('nobody is there');
  const room: RoomEncryption = {
    roomId: ROOM,
    readers: [ORACLE, ...people.map(({ user }) => user)] as UserId[],
    historyVisibility: 'shared',
    rotationPeriodMs: null,
    // The usual hundred would measure sharing as well.
    rotationPeriodMessages: 10_000,
  };
  const seal = createSeal({ engine: oracle.engine, outgoing: oracle.outgoing, logger: fakeLogger() });
  const message = (index: number) => ({ type: 'm.room.message', content: { msgtype: 'm.text', body: `word ${index} `.repeat(100) } });
  await seal(message(0), room);
  const sealing: number[] = [];
  for (let index = 0; index < MESSAGES; index += 1) sealing.push(await timed(() => seal(message(index), room)));
  const events: JsonObject[] = [];
  for (let index = 0; index < MESSAGES; index += 1) events.push(await person.say(room, message(index).content));
  await oracle.sync();
  const opening: number[] = [];
  for (const event of events) {
    opening.push(
      await timed(async () => {
        const opened = await oracle.engine.decrypt(event, ROOM);
        if (!opened.ok) throw new Error(opened.error.code);
      }),
    );
  }
  for (const machine of [oracle, ...people]) await machine.close();
  return { encrypt_p50_ms: round(median(sealing), 2), decrypt_p50_ms: round(median(opening), 2) };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const from = performance.now();
  await work();
  return performance.now() - from;
}

async function measureOpening(path: string): Promise<Record<string, number>> {
  const server = fakeKeyServer({ clock: systemClock });
  const machine = await openKeyMachine({ server, user: ORACLE, device: 'O', path, storeKey: STORE_KEY });
  const keys = JSON.stringify(Array.from({ length: KEYS }, buildExportedKey));
  await machine.engine.call('import', (engine) => engine.importExportedRoomKeys(keys, () => undefined));
  await machine.close();
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--conditions=matrix-oracle-source',
    join(import.meta.dirname, 'crypto-open.ts'),
    path,
    ORACLE,
    'O',
    Buffer.from(STORE_KEY).toString('base64'),
  ]);
  const { openMs, rssMib, roomKeys } = JSON.parse(stdout) as Opening;
  if (roomKeys < KEYS) throw new Error(`only ${roomKeys} keys are in the store`);
  return { store_open_ms_20000_keys: round(openMs, 0), rss_20000_keys_mib: round(rssMib) };
}

const SIGNED_KEY_BYTES = 32;
const RATCHET_BYTES = 128;
const unpadded = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/u, '');

/** One session as clients export it: a version, the index, the ratchet, and the key that signs its messages. */
function buildExportedKey(_: unknown, index: number): JsonObject {
  const { publicKey } = generateKeyPairSync('ed25519');
  const signing = publicKey.export({ type: 'spki', format: 'der' }).subarray(-SIGNED_KEY_BYTES);
  const sessionKey = Buffer.concat([Buffer.from([1, 0, 0, 0, 0]), randomBytes(RATCHET_BYTES), signing]);
  return {
    algorithm: 'm.megolm.v1.aes-sha2',
    room_id: `!room${index % 200}:bench`,
    sender_key: unpadded(randomBytes(SIGNED_KEY_BYTES)),
    sender_claimed_keys: { ed25519: unpadded(signing) },
    session_id: unpadded(signing),
    session_key: unpadded(sessionKey),
    forwarding_curve25519_key_chain: [],
  };
}

/** One person's direct room, in the clear or not. */
interface Lane {
  /** Ms from the send until the last version of the answer arrived, both without the client's own cryptography. */
  ask(text: string): Promise<number>;
  end(): Promise<void>;
}

async function measureWay(onProgress: (line: string) => void): Promise<Record<string, number>> {
  const setting = await openSetting(onProgress);
  const lanes: Lane[] = [];
  try {
    const oracle = await setting.startOracle();
    const clear = await openClearLane(setting);
    lanes.push(clear);
    const encrypted = await openEncryptedLane(setting);
    lanes.push(encrypted);
    for (const lane of lanes) await lane.ask('short warm up');
    onProgress(`${ROUNDS} short answers in each of two rooms, in turn`);
    const times: { clear: number[]; encrypted: number[] } = { clear: [], encrypted: [] };
    for (let index = 0; index < ROUNDS; index += 1) {
      times.clear.push(await clear.ask(`short clear ${index}`));
      times.encrypted.push(await encrypted.ask(`short encrypted ${index}`));
    }
    await oracle.stop();
    return {
      clear_prompt_to_final_p50_ms: round(median(times.clear)),
      encrypted_prompt_to_final_p50_ms: round(median(times.encrypted)),
      added_prompt_to_final_p50_ms: round(median(times.encrypted) - median(times.clear)),
    };
  } finally {
    for (const lane of lanes) await lane.end();
    await setting.close();
  }
}

async function openClearLane(setting: Setting): Promise<Lane> {
  const { client, roomId, watch } = await setting.room('clear', setting.oracle);
  return {
    async ask(body) {
      const at = performance.now();
      return lastAt(await watch.waitForAnswerTo(await client.send(roomId, { msgtype: 'm.text', body }))) - at;
    },
    end: async () => client.close(),
  };
}

async function openEncryptedLane({ homeserver, oracle }: Setting): Promise<Lane> {
  const session = await homeserver.registerUser({ username: 'encrypted', password: 'encrypted-password' });
  const client = await createEncryptedClient({ session: { baseUrl: homeserver.baseUrl, ...session } });
  const roomId = await client.createDirectRoom(oracle.userId);
  const watch = await client.watchRoom(roomId);
  await watch.waitFor(({ event }) => event.state_key === oracle.userId && event.content['membership'] === 'join');
  return {
    async ask(body) {
      const sealed = await client.seal(roomId, { type: 'm.room.message', content: { msgtype: 'm.text', body } });
      const at = performance.now();
      return lastAt(await watch.waitForAnswerTo(await client.wire.send(roomId, sealed.content, { type: sealed.type }))) - at;
    },
    end: () => client.end(),
  };
}

const lastAt = (messages: readonly { readonly versions: readonly { readonly at: number }[] }[]): number =>
  Math.max(...messages.flatMap(({ versions }) => versions.map(({ at }) => at)));
