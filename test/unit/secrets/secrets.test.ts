import { createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { CompactEncrypt } from 'jose';
import { expect, test } from 'vitest';
import type { EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import type { RoomStateEvent } from '../../../src/runtime-context/matrix-access.ts';
import { createSecrets, MAX_SECRETS, readSecretIndex } from '../../../src/secrets/secrets.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const ROOM = '!room:test' as RoomId;
const ALICE = '@alice:test' as UserId;
const MALLORY = '@mallory:test' as UserId;
const OWNER = { room: ROOM, user: ALICE };
const DAY_MS = 24 * 60 * 60_000;

const seal = (value: string, key: KeyObject = privateKey): Promise<string> =>
  new CompactEncrypt(Buffer.from(value)).setProtectedHeader({ alg: 'ECDH-ES+A256KW', enc: 'A256GCM' }).encrypt(createPublicKey(key));

/** A room whose state and events are in memory; counts what it is asked. */
function fakeRoom() {
  const state: RoomStateEvent[] = [];
  const events = new Map<string, JsonObject>();
  let reads = 0;
  return {
    state,
    events,
    get reads() {
      return reads;
    },
    async put(name: string, value: string, { by = ALICE, id = `$${name}.${events.size}`, key = privateKey } = {}) {
      events.set(`${ROOM} ${id}`, { type: 'ixo.room.secret', sender: by, content: { value: await seal(value, key) } });
      this.point(name, id, by);
      return id;
    },
    point(name: string, eventId: string, by: UserId = ALICE) {
      const old = state.findIndex(({ stateKey }) => stateKey === name);
      if (old >= 0) state.splice(old, 1);
      state.push({ type: 'ixo.room.secret.index', stateKey: name, sender: by, content: { eventId, publicKeyId: 'k1' } });
    },
    access: {
      roomState: async () => state,
      event: async (room: RoomId, event: EventId) => {
        reads += 1;
        const found = events.get(`${room} ${event}`);
        if (found === undefined) throw Object.assign(new Error('M_NOT_FOUND'), { status: 404 });
        return found;
      },
    },
  };
}

function setUp(key: KeyObject | null = privateKey) {
  const room = fakeRoom();
  const clock = fakeClock();
  const logger = fakeLogger();
  return { room, clock, logger, secrets: createSecrets({ matrix: room.access, key, monotonic: () => clock.monotonic(), logger }) };
}
const valuesOf = async (secrets: ReturnType<typeof setUp>['secrets'], names: string[], owner = OWNER) =>
  Object.fromEntries(await secrets.values(owner, names));

test('names are listed, and values are those that were asked for', async () => {
  const { room, secrets } = setUp();
  await room.put('GITHUB', 'ghp_1');
  await room.put('SLACK', 'xoxb_1');

  expect(await secrets.index(OWNER)).toEqual([
    { name: 'GITHUB', eventId: '$GITHUB.0', publicKeyId: 'k1' },
    { name: 'SLACK', eventId: '$SLACK.1', publicKeyId: 'k1' },
  ]);
  expect(await valuesOf(secrets, ['SLACK', 'OTHER'])).toEqual({ SLACK: 'xoxb_1' });
});

test('without a key names are listed and there are no values', async () => {
  const { room, secrets } = setUp(null);
  await room.put('GITHUB', 'ghp_1');

  expect(await secrets.index(OWNER)).toHaveLength(1);
  expect(await valuesOf(secrets, ['GITHUB'])).toEqual({});
  expect(room.reads).toBe(0);
});

test('a value is read once a day, and again when its entry names another event', async () => {
  const { room, secrets, clock } = setUp();
  await room.put('A', 'one');

  await valuesOf(secrets, ['A']);
  clock.advance(DAY_MS - 1);
  expect(await valuesOf(secrets, ['A'])).toEqual({ A: 'one' });
  expect(room.reads).toBe(1);
  await room.put('A', 'two');
  expect(await valuesOf(secrets, ['A'])).toEqual({ A: 'two' });
  expect(room.reads).toBe(2);
  clock.advance(DAY_MS + 1);
  await valuesOf(secrets, ['A']);
  expect(room.reads).toBe(3);
});

test('after a redaction in the room nothing is kept of it', async () => {
  const { room, secrets } = setUp();
  const id = await room.put('A', 'one');
  await valuesOf(secrets, ['A']);

  room.events.set(`${ROOM} ${id}`, { type: 'ixo.room.secret', sender: ALICE, content: {} });
  secrets.forget(ROOM);

  expect(await valuesOf(secrets, ['A'])).toEqual({});
  expect(secrets.known(ROOM)).toEqual([]);
});

test('a secret that is taken back while it is on its way is not kept', async () => {
  const { room, secrets } = setUp();
  const id = await room.put('A', 'one');
  const asked = valuesOf(secrets, ['A']);
  while (room.reads === 0) await Promise.resolve();

  room.events.set(`${ROOM} ${id}`, { type: 'ixo.room.secret', sender: ALICE, content: {} });
  secrets.forget(ROOM);
  await asked;

  expect(await valuesOf(secrets, ['A'])).toEqual({});
});

test('a deleted secret has no name and no value', async () => {
  const { room, secrets } = setUp();
  await room.put('A', 'one');
  room.state[0] = { type: 'ixo.room.secret.index', stateKey: 'A', sender: ALICE, content: {} };

  expect(await secrets.index(OWNER)).toEqual([]);
  expect(await valuesOf(secrets, ['A'])).toEqual({});
});

test("nobody's entry counts for another: a token of one's own cannot be slipped into somebody else's runs (G13)", async () => {
  const { room, secrets } = setUp();
  await room.put('GITHUB', 'mine');
  await room.put('GITHUB', 'evil', { by: MALLORY });

  expect(await valuesOf(secrets, ['GITHUB'])).toEqual({});
  expect(await valuesOf(secrets, ['GITHUB'], { room: ROOM, user: MALLORY })).toEqual({ GITHUB: 'evil' });
});

test("an entry that points to another's value gets nothing, also when that value is in the cache (G13)", async () => {
  const { room, secrets } = setUp();
  const id = await room.put('MINE', 'of-alice');
  await valuesOf(secrets, ['MINE']);

  room.point('STOLEN', id, MALLORY);

  expect(await valuesOf(secrets, ['STOLEN'], { room: ROOM, user: MALLORY })).toEqual({});
});

test('what was encrypted to another key is left out, and said in the log without its content (G12)', async () => {
  const { room, secrets, logger } = setUp();
  await room.put('A', 'one', { key: generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey });
  await room.put('B', 'two');

  expect(await valuesOf(secrets, ['A', 'B'])).toEqual({ B: 'two' });
  expect(logger.said('warn')).toHaveLength(1);
  expect(JSON.stringify(logger.lines)).not.toContain('eyJ');
});

test('a value that is gone is left out; an outage is none of that', async () => {
  const { room, secrets } = setUp();
  await room.put('A', 'one');
  room.point('GONE', '$nowhere');
  expect(await valuesOf(secrets, ['A', 'GONE'])).toEqual({ A: 'one' });

  const down = createSecrets({
    matrix: { ...room.access, event: () => Promise.reject(Object.assign(new Error('bad gateway'), { status: 502 })) },
    key: privateKey,
    monotonic: () => 0,
    logger: fakeLogger(),
  });
  await expect(down.values(OWNER, ['A'])).rejects.toThrow('bad gateway');
});

test('an event of another type is no value', async () => {
  const { room, secrets } = setUp();
  const id = await room.put('A', 'one');
  room.events.set(`${ROOM} ${id}`, { ...room.events.get(`${ROOM} ${id}`), type: 'm.room.message' } as JsonObject);

  expect(await valuesOf(secrets, ['A'])).toEqual({});
});

test('a value that is too large is left out', async () => {
  const { room, secrets } = setUp();
  await room.put('AT', 'x'.repeat(8 * 1024));
  await room.put('OVER', 'x'.repeat(8 * 1024 + 1));

  expect(Object.keys(await valuesOf(secrets, ['AT', 'OVER']))).toEqual(['AT']);
});

test('an index is bounded, and hostile entries are none (G14)', () => {
  const entry = (stateKey: string, content: JsonObject): RoomStateEvent => ({
    type: 'ixo.room.secret.index',
    stateKey,
    sender: ALICE,
    content,
  });
  const many = Array.from({ length: MAX_SECRETS + 50 }, (_, at) => entry(`n${at}`, { eventId: `$${at}` }));

  expect(readSecretIndex(many, ALICE)).toHaveLength(MAX_SECRETS);
  expect(
    readSecretIndex(
      [
        entry('', { eventId: '$1' }),
        entry('a\nb', { eventId: '$1' }),
        entry('x'.repeat(201), { eventId: '$1' }),
        entry('no id', { eventId: 5 }),
        entry('bad id', { eventId: 'nope' }),
        entry('key id', { eventId: '$1', publicKeyId: 5 }),
      ],
      ALICE,
    ),
  ).toEqual([{ name: 'key id', eventId: '$1', publicKeyId: null }]);
});

test("what a person's runs were given is known for that person and room, to be masked in later ones (G13)", async () => {
  const { room, secrets } = setUp();
  await room.put('A', 'one-value');
  await valuesOf(secrets, ['A']);

  expect(secrets.known(ROOM, ALICE)).toEqual(['one-value']);
  expect(secrets.known(ROOM, MALLORY)).toEqual([]);
  expect(secrets.known('!other:test' as RoomId)).toEqual([]);
});
