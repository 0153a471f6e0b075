import { beforeEach, describe, expect, test } from 'vitest';
import { createAttachments } from '../../../appservice/crypto/attachments.ts';
import { createMatrixAccess } from '../../../appservice/matrix-access.ts';
import { createMedia } from '../../../appservice/media.ts';
import { createRooms } from '../../../appservice/rooms.ts';
import { createSender, type Sender } from '../../../appservice/sender.ts';
import type { DeviceId, OutboxTxnId, RoomId, RunId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { createOutbox } from '../../../src/outbox/outbox.ts';
import type { MatrixAccess } from '../../../src/runtime-context/matrix-access.ts';
import { openStore } from '../../../src/store/store.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';
import { type FakeSealer, fakeSealer } from '../../fakes/fake-sealer.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const DEVICE = 'ORACLE' as DeviceId;
const ALICE = '@alice:oracle.local' as UserId;
let homeserver: FakeHomeserver;
let access: MatrixAccess;
let sender: Sender;
let sealer: FakeSealer;
let room: RoomId;

beforeEach(async () => {
  const clock = systemClock;
  const logger = createLogger({ level: 'silent', format: 'json' });
  homeserver = createFakeHomeserver({ clock });
  const connection = homeserver.connection();
  await registerOracle(connection);
  const api = connection.as({ userId: ORACLE, deviceId: DEVICE });
  const store = openStore({ path: ':memory:', now: clock.now() });
  const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: DEVICE } });
  const rooms = createRooms({ api, store, oracle: ORACLE, clock, logger });
  sealer = fakeSealer();
  const attachments = createAttachments({ onFatal: (reason) => expect.fail(reason) });
  access = createMatrixAccess({
    api,
    outbox,
    store,
    rooms,
    clock,
    read: sealer.read,
    media: createMedia({ api, rooms, attachments }),
  });
  sender = createSender({ outbox, connection, clock, logger, encryption: rooms.encryption, seal: sealer.seal });
  sender.start();
  room = homeserver.createRoom({ creator: ALICE, invite: [ORACLE] }) as RoomId;
  homeserver.join(room, ORACLE);
});
const topic = (text: string) => ({
  roomId: room,
  runId: 'R' as RunId,
  txnId: `tool.${text}` as OutboxTxnId,
  eventType: 'm.room.topic',
  stateKey: '',
  content: { topic: text },
});
const never = new AbortController().signal;

test('an event is confirmed before the call returns, and a repeated call is the same event (G4, G6)', async () => {
  const first = await access.send(topic('a'), never);
  const second = await access.send(topic('a'), never);

  expect(second).toBe(first);
  expect(homeserver.timeline(room).filter(({ type }) => type === 'm.room.topic')).toHaveLength(1);
});

test('a refusal is an error that says why, without content (G12)', async () => {
  const big = { ...topic('b'), content: { topic: 'x'.repeat(70_000) } };

  await expect(access.send(big, never)).rejects.toThrow('M_TOO_LARGE 413');
});

test('a cancelled turn does not wait, and sends nothing that it had not asked for', async () => {
  const abort = AbortSignal.abort(new Error('cancelled'));

  await expect(access.send(topic('c'), abort)).rejects.toThrow('cancelled');
  expect(homeserver.timeline(room).filter(({ type }) => type === 'm.room.topic')).toEqual([]);
});

test('state, events and the own power of a user can be read', async () => {
  const id = await access.send(topic('d'), never);

  expect(await access.roomState(room)).toContainEqual({ type: 'm.room.topic', stateKey: '', sender: ORACLE, content: { topic: 'd' } });
  expect(await access.event(room, id)).toMatchObject({ event_id: id });
  expect(await access.mayUserSend(ALICE, room, { type: 'm.room.topic', isState: true })).toBe(true);
  expect(await access.mayUserSend('@bob:oracle.local' as UserId, room, { type: 'm.room.topic', isState: true })).toBe(false);
});

describe('in an encrypted room', () => {
  beforeEach(() => void homeserver.setState(room, ALICE, 'm.room.encryption', { algorithm: 'm.megolm.v1.aes-sha2' }));
  const message = (content: JsonObject) => ({
    roomId: room,
    runId: 'R' as RunId,
    txnId: 'tool.R.c.1' as OutboxTxnId,
    eventType: 'm.room.message',
    content,
  });

  test('an event is read decrypted, its identity from outside', async () => {
    const id = await access.send(message({ msgtype: 'm.text', body: 'secret' }), never);

    expect(homeserver.timeline(room).at(-1)?.type).toBe('m.room.encrypted');
    expect(await access.event(room, id)).toMatchObject({
      event_id: id,
      sender: ORACLE,
      type: 'm.room.message',
      content: { body: 'secret' },
    });
  });

  test('an event without its key is given as it is', async () => {
    const id = await access.send(message({ msgtype: 'm.text', body: 'secret' }), never);
    sealer.forgetKeys();

    expect(await access.event(room, id)).toMatchObject({ event_id: id, type: 'm.room.encrypted' });
  });

  test('a file goes out and comes back, and the homeserver sees neither its bytes nor its name (G11)', async () => {
    const file = { name: 'diary.txt', mimeType: 'text/plain', bytes: Buffer.from('dear diary') };
    const content = await access.uploadFile({ roomId: room, threadRoot: null, askedEncrypted: false }, file, never);
    const id = await access.send(message(content), never);

    expect(await access.readFile(room, id, never)).toEqual({ ...file, bytes: new Uint8Array(file.bytes) });
    const seen = JSON.stringify([homeserver.requests.map(({ body, query }) => [String(body), query]), homeserver.timeline(room)]);
    expect(seen).not.toContain('diary');
  });
});
