/**
 * A ratchet that goes back by one step encrypts two messages with one key, and one that is lost leaves people with messages that nobody can read. So the
 * process is killed in the moment a ciphertext has left it, or at a request while keys are being shared, again and again on one store.
 * CRYPTO_KILLS=100 does more of it.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readCiphertext } from '../../appservice/crypto/read-ciphertext.ts';
import { isMatrixError, type MatrixMethod } from '../../appservice/matrix-api.ts';
import type { JsonObject } from '../../src/json.ts';
import { systemClock } from '../../src/system-clock.ts';
import { fakeKeyServer } from '../fakes/fake-key-server.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../fakes/key-machine.ts';
import type { FromOracle, ToOracle } from './crypto-store-process.ts';

const KILLS = Number(process.env['CRYPTO_KILLS'] ?? 20);
const PROGRAM = join(import.meta.dirname, 'crypto-store-process.ts');
const ORACLE = '@oracle:oracle.local';
const EACH_MS = 10_000;

/** When a process ends: after so many ciphertexts, or at so many-th request, before it is handled or when its answer is on the way. */
type Moment = { at: 'sealed'; left: number } | { at: 'request' | 'answer'; left: number };
/** Three in four when a ciphertext leaves; the others wander through the requests of a start and of sharing. */
function momentOf(round: number): Moment {
  if (round % 4 !== 3) return { at: 'sealed', left: 1 + (round % 5) };
  return { at: round % 8 === 3 ? 'request' : 'answer', left: 1 + (round % 13) };
}

test(
  `${KILLS} kills: no message key is used twice, everything can be read by both sides, and the device stays itself`,
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'crypto-kills-'));
    const server = fakeKeyServer({ clock: systemClock });
    const alice = await openKeyMachine({ server, user: '@alice:oracle.local', device: 'ALICE' });
    const room = encryptedRoom([ORACLE, alice.user], { rotationPeriodMessages: 2 });
    const world = { folder, server, alice };
    const sealed: { content: JsonObject; round: number }[] = [];
    const toRead = new Map<string, JsonObject>();
    const devices = new Set<string>();

    /** Something for the oracle to read, whose key comes while it is down. */
    async function write(round: number): Promise<void> {
      await alice.sync();
      const event = await alice.say(room, { msgtype: 'm.text', body: `for round ${round}` });
      toRead.set(event['event_id'] as string, event);
    }
    for (let round = 0; round < KILLS; round += 1) {
      // Before its first life it has no device that a key could be sent to.
      if (devices.size > 0) await write(round);
      const said = await live(world, { moment: momentOf(round), events: [...toRead.values()] });
      sealed.push(...said.sealed.map((content) => ({ content, round })));
      for (const id of said.read) toRead.delete(id);
      for (const device of said.devices) devices.add(device);
    }
    await write(KILLS);
    const last = await live(world, { moment: null, events: [...toRead.values()] });
    sealed.push(...last.sealed.map((content) => ({ content, round: KILLS })));
    for (const id of last.read) toRead.delete(id);
    for (const device of last.devices) devices.add(device);

    const used = new Map<string, number[]>();
    for (const { content, round } of sealed) {
      const name = readCiphertext(content);
      if (!name.ok) throw new Error(name.error);
      const key = `${name.value.session}#${name.value.index}`;
      used.set(key, [...(used.get(key) ?? []), round]);
    }
    const reused = [...used].filter(([, rounds]) => rounds.length > 1);
    const unreadable = await readAll(alice, sealed);
    const bySession = Map.groupBy(sealed, ({ content }) => content['session_id']);
    const surviving = [...bySession.values()].filter((all) => new Set(all.map(({ round }) => round)).size > 1).length;
    console.log(
      `${KILLS} kills: ${sealed.length} ciphertexts in ${bySession.size} sessions, ${surviving} of which went on after a kill; ${reused.length} reused, ${unreadable.length} unreadable, ${toRead.size} of the person's not read`,
    );
    expect(reused).toEqual([]);
    expect(unreadable).toEqual([]);
    expect([...toRead.keys()]).toEqual([]);
    expect(devices.size).toBe(1);
    // Or every start would have begun a new session, and proved nothing about the old ones.
    expect(surviving).toBeGreaterThan(0);

    await alice.close();
    rmSync(folder, { recursive: true });
  },
  60_000 + KILLS * EACH_MS,
);

interface World {
  readonly folder: string;
  readonly server: ReturnType<typeof fakeKeyServer>;
  readonly alice: KeyMachine;
}
interface Life {
  readonly sealed: JsonObject[];
  readonly read: string[];
  /** What it called itself. */
  readonly devices: string[];
}

/** One life of the oracle. With no moment it ends when it has read everything. */
async function live({ folder, server, alice }: World, { moment, events }: { moment: Moment | null; events: JsonObject[] }): Promise<Life> {
  const life: Life = { sealed: [], read: [], devices: [] };
  const child = fork(PROGRAM, [folder, ORACLE, alice.user], { execArgv: ['--conditions=matrix-oracle-source'] });
  let left = moment?.left ?? Number.POSITIVE_INFINITY;
  const pass = (at: Moment['at']): void => {
    if (moment?.at === at && --left === 0) child.kill('SIGKILL');
  };
  child.on('message', (message: FromOracle) => {
    if (message.kind === 'request') void answer(message);
    if (message.kind === 'ready') {
      life.devices.push(`${message.deviceId} ${message.fingerprint}`);
      for (const event of events) tell(child, { kind: 'event', event });
    }
    if (message.kind === 'sealed') {
      life.sealed.push(message.content);
      pass('sealed');
    }
    if (message.kind === 'read') {
      const expected = events.find((event) => event['event_id'] === message.eventId);
      expect(message.body, JSON.stringify(expected?.['event_id'])).toMatch(/^for round \d+$/u);
      life.read.push(message.eventId);
      if (moment === null && life.read.length === events.length) child.kill('SIGKILL');
    }
  });
  async function answer({ id, identity, method, path, query, body }: Extract<FromOracle, { kind: 'request' }>): Promise<void> {
    pass('request');
    if (child.killed) return;
    const request = { ...(query === undefined ? {} : { query: query as never }), ...(body === undefined ? {} : { body: body as object }) };
    try {
      const given = await server.api(identity).request<object>(method as MatrixMethod, path, request);
      pass('answer');
      tell(child, { kind: 'answer', id, answer: given });
    } catch (error) {
      if (!isMatrixError(error)) throw error;
      const { errcode, status, certain } = error;
      tell(child, { kind: 'answer', id, error: { errcode, status, certain } });
    }
  }
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  // Its own end would be a failure that no kill caused.
  expect({ code, signal }).toEqual({ code: null, signal: 'SIGKILL' });
  return life;
}

function tell(child: ChildProcess, message: ToOracle): void {
  if (child.connected) child.send(message, () => undefined);
}

/** Those that the person cannot read. */
async function readAll(alice: KeyMachine, sealed: readonly { content: JsonObject }[]): Promise<JsonObject[]> {
  for (let round = 0; round < 20; round += 1) await alice.sync();
  const { roomId } = encryptedRoom([]);
  const unreadable: JsonObject[] = [];
  for (const [index, { content }] of sealed.entries()) {
    const event = { type: 'm.room.encrypted', event_id: `$sealed${index}`, room_id: roomId, sender: ORACLE, origin_server_ts: 1, content };
    const result = await alice.engine.decrypt(event, roomId);
    if (!result.ok) unreadable.push({ index, code: result.error.code });
  }
  return unreadable;
}
