import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { RoomEncryption } from '../../../../appservice/crypto/crypto-service.ts';
import { readCiphertext } from '../../../../appservice/crypto/read-ciphertext.ts';
import { createSeal } from '../../../../appservice/crypto/seal.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import type { RoomId } from '../../../../src/ids.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const TEXT = { type: 'm.room.message', content: { msgtype: 'm.text', body: 'hello' } };

let server: FakeKeyServer;
let oracle: KeyMachine;
let alice: KeyMachine;
let bob: KeyMachine;
let room: RoomEncryption;
let logger = fakeLogger();
let seal: ReturnType<typeof createSeal>;
const open: KeyMachine[] = [];
let events = 0;

beforeEach(async () => {
  server = fakeKeyServer({ clock: systemClock });
  oracle = await join('@oracle:oracle.local', 'ORACLE_ABC123');
  alice = await join('@alice:oracle.local', 'ALICE');
  bob = await join('@bob:oracle.local', 'BOB');
  room = encryptedRoom([oracle.user, alice.user]);
  logger = fakeLogger();
  seal = createSeal({ engine: oracle.engine, outgoing: oracle.outgoing, logger });
});
afterEach(async () => {
  for (const machine of open.splice(0)) await machine.close();
});
async function join(user: string, device: string): Promise<KeyMachine> {
  const machine = await openKeyMachine({ server, user, device });
  open.push(machine);
  await machine.sync();
  return machine;
}
const asEvent = (content: JsonObject): JsonObject => ({
  type: 'm.room.encrypted',
  event_id: `$e${++events}`,
  room_id: room.roomId,
  sender: oracle.user,
  origin_server_ts: 1,
  content,
});
async function readBy(reader: KeyMachine, content: JsonObject): Promise<unknown> {
  await reader.sync();
  const result = await reader.engine.decrypt(asEvent(content), room.roomId);
  return result.ok ? result.value.event['content'] : result.error.code;
}
const nameOf = (content: JsonObject) => {
  const name = readCiphertext(content);
  if (!name.ok) throw new Error(name.error);
  return name.value;
};
const callsSince = (from: number) =>
  server.calls.slice(from).map(({ method, path }) => `${method} ${path.split('/').slice(4, 6).join('/')}`);
const failOnce = (part: string, errcode: string, status = 0) => {
  let left = 1;
  server.trouble = ({ path }) => {
    if (!path.includes(part) || left-- <= 0) return undefined;
    throw new MatrixError({ errcode, status, retryAfterMs: null, certain: false });
  };
};
const failAlways = (part: string, errcode: string) => {
  server.trouble = ({ path }) => {
    if (!path.includes(part)) return undefined;
    throw new MatrixError({ errcode, status: 0, retryAfterMs: null, certain: false });
  };
};

test('what is sealed is read by the members, and by nobody else', async () => {
  const content = await seal(TEXT, room);

  expect(JSON.stringify(content)).not.toContain('hello');
  expect(await readBy(alice, content)).toEqual(TEXT.content);
  expect(await readBy(bob, content)).toBe('missing_key');
});

test('the relation stands outside, where servers follow it', async () => {
  const relation = { rel_type: 'm.replace', event_id: '$answer' };

  const content = await seal({ ...TEXT, content: { ...TEXT.content, 'm.relates_to': relation } }, room);

  expect(content['m.relates_to']).toEqual(relation);
});

test('a second message to the same readers costs no request', async () => {
  await seal(TEXT, room);
  const before = server.calls.length;

  const content = await seal(TEXT, room);

  expect(callsSince(before)).toEqual([]);
  expect(nameOf(content).index).toBe(1);
});

test('a new device of a member reads from the next message on, with the same session', async () => {
  const first = await seal(TEXT, room);
  const phone = await join(alice.user, 'PHONE');
  await oracle.sync();

  const second = await seal(TEXT, room);

  expect(nameOf(second).session).toBe(nameOf(first).session);
  expect(await readBy(phone, second)).toEqual(TEXT.content);
  expect(await readBy(phone, first)).toBe('index_too_old');
});

test('whoever left does not read on', async () => {
  const three = { ...room, readers: [...room.readers, bob.user] };
  const before = await seal(TEXT, three);

  const after = await seal(TEXT, room);

  expect(await readBy(bob, before)).toEqual(TEXT.content);
  expect(nameOf(after).session).not.toBe(nameOf(before).session);
  expect(await readBy(bob, after)).toBe('missing_key');
  expect(await readBy(alice, after)).toEqual(TEXT.content);
});

test('whoever comes reads on, and nothing before', async () => {
  const before = await seal(TEXT, room);

  const after = await seal(TEXT, { ...room, readers: [...room.readers, bob.user] });

  expect(await readBy(bob, after)).toEqual(TEXT.content);
  expect(await readBy(bob, before)).toBe('index_too_old');
});

test('the room says after how many messages the key is a new one', async () => {
  const strict = { ...room, rotationPeriodMessages: 2 };
  const names = [];
  for (let count = 0; count < 5; count += 1) names.push(nameOf(await seal(TEXT, strict)));

  expect(names.map(({ index }) => index)).toEqual([0, 1, 0, 1, 0]);
  expect(new Set(names.map(({ session }) => session)).size).toBe(3);
});

test('twenty messages at once have twenty names: nothing is encrypted twice with one key', async () => {
  const contents = await Promise.all(Array.from({ length: 20 }, () => seal(TEXT, room)));

  const names = new Set(contents.map((content) => JSON.stringify(nameOf(content))));
  expect(names.size).toBe(20);
  expect(await readBy(alice, contents[19] as JsonObject)).toEqual(TEXT.content);
});

test('readers without the oracle are a mistake of ours, and nothing is shared', async () => {
  const before = server.calls.length;

  await expect(seal(TEXT, { ...room, readers: [alice.user] })).rejects.toThrow('readers');

  expect(callsSince(before)).toEqual([]);
});

describe('when the homeserver has trouble', () => {
  test.each(['keys/query', 'keys/claim', 'sendToDevice'])(
    '%s fails: nothing is sealed, and the next attempt is complete (G11)',
    async (part) => {
      failOnce(part, 'CONNECTION_LOST');

      await expect(seal(TEXT, room)).rejects.toBeInstanceOf(MatrixError);
      const content = await seal(TEXT, room);

      expect(nameOf(content).index).toBe(0);
      expect(await readBy(alice, content)).toEqual(TEXT.content);
    },
  );

  test('the answer to a sent key is lost: the same key is sent again, once', async () => {
    let lost = false;
    server.trouble = ({ path }) => {
      if (!path.includes('sendToDevice') || lost) return undefined;
      lost = true;
      return 'lose';
    };

    await expect(seal(TEXT, room)).rejects.toBeInstanceOf(MatrixError);
    await seal(TEXT, room);

    expect(server.inbox(alice.user, alice.device).filter(({ type }) => type === 'm.room.encrypted').length).toBe(1);
  });

  test('devices whose server never gives a key hold back one attempt, not the room', async () => {
    failAlways('keys/claim', 'TIMEOUT');

    await expect(seal(TEXT, room)).rejects.toBeInstanceOf(MatrixError);
    const content = await seal(TEXT, room);

    expect(typeof content['ciphertext']).toBe('string');
    expect(logger.said('warn')).toEqual(['some devices do not get the key of a room yet']);
  });

  test("devices of another room's dead server hold back no other room", async () => {
    await seal(TEXT, room);
    const other = { ...room, roomId: '!other:oracle.local' as RoomId, readers: [oracle.user, bob.user] };
    const answered = Promise.withResolvers<undefined>();
    server.trouble = ({ path, body }) =>
      path.includes('/keys/') && JSON.stringify(body).includes(bob.user) ? answered.promise : undefined;
    const waiting = seal(TEXT, other);
    const content = await seal(TEXT, room);

    answered.resolve(undefined);
    await waiting;

    expect(nameOf(content).index).toBe(1);
    expect(await readBy(alice, content)).toEqual(TEXT.content);
  });

  test('two messages at once claim one key of a device', async () => {
    const before = server.oneTimeKeys(alice.user, alice.device).left;

    await Promise.all([seal(TEXT, room), seal(TEXT, { ...room, roomId: '!other:oracle.local' as RoomId })]);

    expect(server.oneTimeKeys(alice.user, alice.device).left).toBe(before - 1);
  });

  test('a failed message does not stop the ones behind it', async () => {
    failOnce('keys/query', 'TIMEOUT');

    const [first, second] = await Promise.allSettled([seal(TEXT, room), seal(TEXT, room)]);

    expect([first?.status, second?.status]).toEqual(['rejected', 'fulfilled']);
  });
});
