import {
  type OtherUserIdentity,
  Sas,
  VerificationMethod,
  EventId as WasmEventId,
  RoomId as WasmRoomId,
  UserId as WasmUserId,
} from '@matrix-org/matrix-sdk-crypto-wasm';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import { type OutgoingRequest, readRequest } from '../../../../appservice/crypto/engine-request.ts';
import { createOutgoing } from '../../../../appservice/crypto/outgoing.ts';
import { createVerification, type Verification } from '../../../../appservice/crypto/verification.ts';
import { createVerificationMailbox, type VerificationMessage } from '../../../../appservice/crypto/verification-mailbox.ts';
import type { EventId, RoomId, UserId } from '../../../../src/ids.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';
import { giveIdentity } from '../../../fakes/key-identity.ts';
import { type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const ROOM = '!room:oracle.local' as RoomId;
const ALICE = '@alice:oracle.local' as UserId;
const ORACLE = '@oracle:oracle.local' as UserId;

let server: FakeKeyServer;
let oracle: KeyMachine;
let alice: KeyMachine;
let verification: Verification;
let outbox: VerificationMessage[];
let mayVerify = true;
let logger = fakeLogger();
let clock: FakeClock;
let nextId = 1;

beforeEach(async () => {
  server = fakeKeyServer({ clock: systemClock });
  oracle = await openKeyMachine({ server, user: ORACLE, device: 'ORACLE_ABC123' });
  alice = await openKeyMachine({ server, user: ALICE, device: 'ALICE' });
  for (const machine of [oracle, alice]) await giveIdentity(machine);
  await oracle.engine.trackUsers([ALICE]);
  await alice.engine.trackUsers([ORACLE]);
  for (const machine of [oracle, alice]) await machine.sync();
  outbox = [];
  mayVerify = true;
  logger = fakeLogger();
  // The outbox takes a txn id once.
  const post = async (message: VerificationMessage) => {
    if (!outbox.some(({ txnId }) => txnId === message.txnId)) outbox.push(message);
  };
  const { engine, api } = oracle;
  clock = fakeClock();
  const mailbox = createVerificationMailbox({ post, clock, logger });
  const outgoing = createOutgoing({ engine, api, onRoomMessage: mailbox.post });
  verification = createVerification({ engine, outgoing, post, mailbox, mayVerify: async () => mayVerify, logger });
});
afterEach(async () => {
  await oracle.close();
  await alice.close();
});

const asEvent = (sender: string, type: string, content: JsonObject, id = `$v${nextId++}`): JsonObject => ({
  type,
  content,
  event_id: id,
  sender,
  room_id: ROOM,
  origin_server_ts: Date.now(),
});
const hear = (event: JsonObject) => verification.receive(event, ROOM, { user: event['sender'] as UserId, mayVerify });
/** What alice's client sends into the room. */
async function aliceSends(request: OutgoingRequest): Promise<void> {
  if (request.kind !== 'room_message') return void (await alice.outgoing.send(request));
  const event = asEvent(ALICE, request.eventType, JSON.parse(request.body));
  await hear(event);
  await alice.engine.markSent(request, JSON.stringify({ event_id: event['event_id'] }));
}
/** What the oracle has in its outbox becomes events, until nobody has anything to say. */
async function deliver(): Promise<JsonObject[]> {
  const sent: JsonObject[] = [];
  for (let round = 0; round < 10; round += 1) {
    for (const message of outbox.splice(0)) {
      const event = asEvent(ORACLE, message.type, message.content);
      sent.push(event);
      if (message.type.startsWith('m.key.'))
        await alice.engine.call('hear', (m) => m.receiveVerificationEvent(JSON.stringify(event), new WasmRoomId(ROOM)));
      await verification.sent(message.txnId, event['event_id'] as EventId);
    }
    for (const request of await alice.engine.outgoing()) await aliceSends(request);
  }
  return sent;
}
async function request(methods = [VerificationMethod.SasV1]): Promise<string> {
  const id = `$request${nextId++}`;
  const content = await alice.engine.call('request', async (machine) => {
    const identity = (await machine.getIdentity(new WasmUserId(ORACLE))) as OtherUserIdentity;
    identity.requestVerification(new WasmRoomId(ROOM), new WasmEventId(id), methods);
    return identity.verificationRequestContent(methods);
  });
  await hear(asEvent(ALICE, 'm.room.message', JSON.parse(content), id));
  return id;
}
const aliceStarts = async (id: string): Promise<void> => {
  const start = await alice.engine.call('start', async (machine) => {
    const started = await machine.getVerificationRequest(new WasmUserId(ORACLE), id)?.startSas();
    if (started === undefined) throw new Error('cannot start');
    return readRequest(started[1]);
  });
  await aliceSends(start);
};
const aliceSees = (id: string): Promise<string | null> =>
  alice.engine.call('see', (machine) => {
    const sas = machine.getVerification(new WasmUserId(ORACLE), id);
    return sas instanceof Sas
      ? (sas
          .emoji()
          ?.map(({ symbol }) => symbol)
          .join(' ') ?? null)
      : null;
  });
const confirmationOf = (id: string): Promise<OutgoingRequest[]> =>
  alice.engine.call('confirm', async (machine) => {
    const sas = machine.getVerification(new WasmUserId(ORACLE), id);
    return sas instanceof Sas ? (await sas.confirm()).map(readRequest) : [];
  });
const aliceConfirms = async (id: string): Promise<void> => {
  for (const one of await confirmationOf(id)) await aliceSends(one);
};
const aliceTrusts = (): Promise<boolean | undefined> =>
  alice.engine.call('trust', async (machine) => (await machine.getIdentity(new WasmUserId(ORACLE)))?.isVerified());
const typesOf = (events: readonly { type: unknown }[]) => events.map(({ type }) => type);

test('a person verifies the oracle in a room: both see the same emoji, and the client trusts it', async () => {
  const id = await request();
  const ready = await deliver();
  await aliceStarts(id);
  const during = await deliver();
  const seen = await aliceSees(id);
  const trustedBefore = await aliceTrusts();
  await aliceConfirms(id);
  const after = await deliver();
  await alice.sync();

  const said = during.find(({ type }) => type === 'm.room.message')?.['content'] as JsonObject;
  expect(typesOf(ready as never)).toEqual(['m.key.verification.ready']);
  expect(typesOf(during as never)).toEqual(['m.key.verification.accept', 'm.key.verification.key', 'm.room.message']);
  expect(seen?.split(' ').length).toBe(7);
  for (const symbol of seen?.split(' ') ?? []) expect(said['body']).toContain(symbol);
  expect(said['msgtype']).toBe('m.notice');
  expect(typesOf(after as never)).toEqual(['m.key.verification.mac', 'm.key.verification.done']);
  expect([trustedBefore, await aliceTrusts()]).toEqual([false, true]);
  expect(logger.said('info')).toEqual(['a verification shows these emoji', 'a person has verified the oracle']);
  expect(logger.said('warn')).toEqual([]);
});

test('a person whom the oracle never met is asked for at the first request', async () => {
  const carol = { user: '@carol:oracle.local' as UserId, device: 'CAROL' };
  const stranger = await openKeyMachine({ server, ...carol });
  await giveIdentity(stranger);
  const content = { msgtype: 'm.key.verification.request', body: 'verify', from_device: 'CAROL', methods: ['m.sas.v1'], to: ORACLE };

  await hear(asEvent(carol.user, 'm.room.message', content));

  expect(typesOf(outbox)).toEqual(['m.key.verification.ready']);
  await stranger.close();
});

test('a request of somebody who may not verify is declined, and nothing is shown', async () => {
  mayVerify = false;

  await request();

  expect(typesOf(outbox)).toEqual(['m.key.verification.cancel']);
});

test('a request without emoji is declined', async () => {
  await request([VerificationMethod.QrCodeShowV1]);

  expect(typesOf(outbox)).toEqual(['m.key.verification.cancel']);
});

test('the right is judged at every step: who lost it is shown no emoji', async () => {
  const id = await request();
  await deliver();
  mayVerify = false;

  await aliceStarts(id);

  expect(typesOf(outbox)).toEqual(['m.key.verification.cancel']);
});

test('an event that comes twice changes nothing', async () => {
  const content = await alice.engine.call('request', async (machine) => {
    const identity = (await machine.getIdentity(new WasmUserId(ORACLE))) as OtherUserIdentity;
    return identity.verificationRequestContent([VerificationMethod.SasV1]);
  });
  const event = asEvent(ALICE, 'm.room.message', JSON.parse(content));

  await hear(event);
  await hear(event);

  expect(typesOf(outbox)).toEqual(['m.key.verification.ready']);
});

test.each([
  ['no content', { type: 'm.key.verification.start', content: {} }],
  [
    'a verification that nobody knows',
    { type: 'm.key.verification.mac', content: { 'm.relates_to': { rel_type: 'm.reference', event_id: '$no' } } },
  ],
  ['a request without a body', { type: 'm.room.message', content: { msgtype: 'm.key.verification.request' } }],
  ['no type', { type: 5, content: {} }],
])('%s is answered with nothing, and does no harm', async (_name, { type, content }) => {
  await hear(asEvent(ALICE, type as string, content));

  expect(outbox).toEqual([]);
  expect(oracle.fatal).toEqual([]);
});

test('a message that was sent for a verification of an earlier process is no trouble', async () => {
  await verification.sent('verify.forgotten', '$e' as EventId);
  await verification.sent('notice.$other', '$e' as EventId);

  expect(logger.lines).toEqual([]);
});

describe('the last message waits for theirs, because a client may drop it beside the one before', () => {
  const untilTheyConfirm = async (): Promise<OutgoingRequest[]> => {
    const id = await request();
    await deliver();
    await aliceStarts(id);
    await deliver();
    return confirmationOf(id);
  };

  test('theirs came: it goes at once', async () => {
    const [mac] = await untilTheyConfirm();
    await aliceSends(mac as OutgoingRequest);
    const atOnce = typesOf(outbox);

    const sent = await deliver();

    expect(atOnce).toEqual(['m.key.verification.mac']);
    expect(typesOf(sent as never)).toEqual(['m.key.verification.mac', 'm.key.verification.done']);
    expect(clock.pending()).toBe(0);
  });

  test('theirs does not come: it goes all the same', async () => {
    const [mac] = await untilTheyConfirm();
    await aliceSends(mac as OutgoingRequest);

    await clock.advanceAsync(5_000);

    expect(typesOf(outbox)).toEqual(['m.key.verification.mac', 'm.key.verification.done']);
  });
});

test('a person may verify again at once: what is over does not count as going on', async () => {
  for (const _time of [1, 2]) {
    const id = await request();
    await deliver();
    await aliceStarts(id);
    await deliver();
    await aliceConfirms(id);
    await deliver();
    // Her client forgets them as it syncs.
    await alice.sync();
  }

  await request();

  expect(typesOf(outbox)).toEqual(['m.key.verification.ready']);
  expect(logger.said('info').filter((line) => line === 'a person has verified the oracle').length).toBe(2);
});

test('an engine that is closed is no reason to fail whoever handed the event over', async () => {
  const closed = () => Promise.reject(new CryptoUnavailable('closed'));
  const engine = { userId: ORACLE, call: closed, markSent: closed, receive: closed, trackUsers: closed, outgoing: closed };
  const unused = { post: async () => {}, mailbox: { release: () => {} } };
  const stuck = createVerification({ engine, outgoing: oracle.outgoing, ...unused, mayVerify: async () => true, logger });

  await stuck.receive(asEvent(ALICE, 'm.key.verification.start', {}), ROOM, { user: ALICE, mayVerify });

  expect(logger.lines).toMatchObject([{ level: 'warn', code: 'CRYPTO_UNAVAILABLE' }]);
});

describe('by to-device messages', () => {
  const receive = async (): Promise<void> => {
    const answer: any = await oracle.api.request('GET', '/_matrix/client/v3/sync', {});
    const events = answer.to_device.events.filter(({ sender }: { sender: string }) => sender === ALICE);
    await verification.received(await oracle.engine.receive({ events, changed: [], left: [], oneTimeKeys: null, unusedFallback: null }));
  };
  const aliceAsks = async (): Promise<void> => {
    const raw = await alice.engine.call('request', async (machine) => {
      const [device] = (await machine.getUserDevices(new WasmUserId(ORACLE))).devices();
      if (device === undefined) throw new Error('no device');
      return readRequest(device.requestVerification([VerificationMethod.SasV1])[1]);
    });
    await alice.outgoing.send(raw);
  };

  test('a request is accepted there, and nothing is said in a room', async () => {
    await aliceAsks();

    await receive();

    const answers = server.inbox(ALICE, 'ALICE').map(({ type }) => type);
    expect(answers).toEqual(['m.key.verification.ready']);
    expect(outbox).toEqual([]);
  });

  test('a request of somebody who may not verify is declined there', async () => {
    mayVerify = false;
    await aliceAsks();

    await receive();

    expect(server.inbox(ALICE, 'ALICE').map(({ type }) => type)).toEqual(['m.key.verification.cancel']);
  });
});

test("another device of the oracle's own account is never verified: it could ask for its secrets", async () => {
  const intruder = await openKeyMachine({ server, user: ORACLE, device: 'INTRUDER' });
  await oracle.sync();
  await oracle.engine.trackUsers([ORACLE]);
  await oracle.outgoing.flush();
  const content: JsonObject = {
    from_device: 'INTRUDER',
    methods: ['m.sas.v1'],
    transaction_id: 'flow',
    timestamp: Date.now(),
  };

  const seen = await oracle.engine.receive({
    events: [{ type: 'm.key.verification.request', sender: ORACLE, content }],
    changed: [],
    left: [],
    oneTimeKeys: null,
    unusedFallback: null,
  });
  await verification.received(seen);
  await hear(asEvent(ORACLE, 'm.key.verification.ready', content));

  expect(seen.length).toBe(1);
  expect(server.inbox(ORACLE, 'INTRUDER')).toEqual([]);
  expect(outbox).toEqual([]);
  await intruder.close();
});
