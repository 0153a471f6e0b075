import { CollectStrategy, EncryptionSettings, RoomId as WasmRoomId, UserId as WasmUserId } from '@matrix-org/matrix-sdk-crypto-wasm';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import type { Decrypted } from '../../../../appservice/crypto/engine.ts';
import { readRequest } from '../../../../appservice/crypto/engine-request.ts';
import { type CiphertextName, readCiphertext } from '../../../../appservice/crypto/read-ciphertext.ts';
import { createReveal, decideProblem, decideRevealed } from '../../../../appservice/crypto/reveal-event.ts';
import { MatrixError } from '../../../../appservice/matrix-api.ts';
import type { EventId, MegolmSessionId, RoomId } from '../../../../src/ids.ts';
import { Unavailable } from '../../../../src/inbox/unavailable.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { giveIdentity } from '../../../fakes/key-identity.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

describe('between real devices', () => {
  let server: FakeKeyServer;
  let oracle: KeyMachine;
  let alice: KeyMachine;
  let reveal: ReturnType<typeof createReveal>;
  const room = encryptedRoom(['@oracle:oracle.local', '@alice:oracle.local']);
  const open: KeyMachine[] = [];

  beforeEach(async () => {
    server = fakeKeyServer({ clock: systemClock });
    oracle = await join('@oracle:oracle.local', 'ORACLE_ABC123');
    alice = await join('@alice:oracle.local', 'ALICE');
    reveal = createReveal({ engine: oracle.engine, outgoing: oracle.outgoing });
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
  const row = (event: JsonObject) => ({ event, eventId: event['event_id'] as EventId, roomId: room.roomId });
  const hello = { msgtype: 'm.text', body: 'hello' };

  test('a message is the event that it stands for, with the name of its ciphertext', async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();

    const revealed = await reveal.reveal(row({ ...event, unsigned: { age: 5 }, user_id: alice.user }));

    const name = readCiphertext(event['content']);
    expect(revealed).toEqual({
      kind: 'clear',
      event: {
        event_id: event['event_id'],
        room_id: room.roomId,
        sender: alice.user,
        origin_server_ts: event['origin_server_ts'],
        unsigned: { age: 5 },
        type: 'm.room.message',
        content: hello,
      },
      trust: 'unverified',
      device: 'ALICE',
      session: name.ok && name.value.session,
      index: 0,
    });
  });

  test('a device that its owner signed is told apart, without anybody having asked before', async () => {
    await giveIdentity(alice);
    const event = await alice.say(room, hello);
    await oracle.sync();

    expect(await reveal.reveal(row(event))).toMatchObject({ kind: 'clear', trust: 'cross-signed' });
  });

  test('the sender is asked for once: the next message costs no request', async () => {
    await alice.say(room, hello);
    const [first, second] = [await alice.say(room, hello), await alice.say(room, hello)];
    await oracle.sync();
    await reveal.reveal(row(first));
    const before = server.calls.length;

    await reveal.reveal(row(second));

    expect(server.calls.length).toBe(before);
  });

  test('our homeserver is away: the row waits, its trust is not guessed', async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();
    server.trouble = () => {
      throw new MatrixError({ errcode: 'UNREACHABLE', status: 0, retryAfterMs: null, certain: true });
    };

    await expect(reveal.reveal(row(event))).rejects.toBeInstanceOf(Unavailable);
  });

  test("another server's devices cannot be asked for: the message is read all the same", async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();
    server.trouble = () => {
      throw new MatrixError({ errcode: 'TIMEOUT', status: 0, retryAfterMs: null, certain: false });
    };

    expect(await reveal.reveal(row(event))).toMatchObject({ kind: 'clear', trust: 'unverified' });
  });

  test('without its key a message waits for that session', async () => {
    const event = await alice.say(room, hello);

    const revealed = await reveal.reveal(row(event));

    const name = readCiphertext(event['content']);
    expect(revealed).toEqual({ kind: 'missing_key', session: name.ok && name.value.session, indexTooOld: false });
  });

  test('a key that begins later is told apart: only the sender can send an older one', async () => {
    const early = await alice.say(encryptedRoom([alice.user]), hello);
    await alice.say(room, hello);
    await oracle.sync();

    expect(await reveal.reveal(row(early))).toMatchObject({ kind: 'missing_key', indexTooOld: true });
  });

  test('the same ciphertext under another event id has the same name', async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();
    const [first, second] = [await reveal.reveal(row(event)), await reveal.reveal(row({ ...event, event_id: '$replayed' }))];

    expect(second).toMatchObject({ kind: 'clear', event: { event_id: '$replayed' } });
    expect(first.kind === 'clear' && second.kind === 'clear' && [second.session, second.index]).toEqual(
      first.kind === 'clear' && [first.session, first.index],
    );
  });

  test("somebody else's name on the outside is a forgery", async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();

    expect(await reveal.reveal(row({ ...event, sender: '@mallory:oracle.local' }))).toEqual({ kind: 'refused', reason: 'forged_sender' });
  });

  test('a ciphertext that was carried into another room is not read there', async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();

    const elsewhere = await reveal.reveal({ ...row(event), roomId: '!other:oracle.local' as RoomId });

    expect(elsewhere.kind).not.toBe('clear');
  });

  test('a damaged ciphertext is refused, and the session goes on', async () => {
    const event = await alice.say(room, hello);
    const next = await alice.say(room, hello);
    await oracle.sync();
    const content = event['content'] as { ciphertext: string };
    const damaged = {
      ...event,
      content: { ...content, ciphertext: `${content.ciphertext.slice(0, 60)}AAAA${content.ciphertext.slice(64)}` },
    };

    expect(await reveal.reveal(row(damaged))).toEqual({ kind: 'refused', reason: 'unreadable' });
    expect(await reveal.reveal(row(next))).toMatchObject({ kind: 'clear' });
    expect(oracle.fatal).toEqual([]);
  });

  test('no ciphertext cut at any place is read, and none harms the engine', async () => {
    const event = await alice.say(room, hello);
    await oracle.sync();
    const content = event['content'] as { ciphertext: string };

    await fc.assert(
      fc.asyncProperty(fc.nat(content.ciphertext.length - 1), async (at) => {
        const cut = { ...event, content: { ...content, ciphertext: content.ciphertext.slice(0, at) } };

        expect((await reveal.reveal(row(cut))).kind).toBe('refused');
      }),
      { numRuns: 40 },
    );
    expect(oracle.fatal).toEqual([]);
  });

  test('what only a homeserver may say is not taken from inside', async () => {
    const redaction = await alice.say(room, { redacts: '$answer' }, 'm.room.redaction');
    const member = await alice.say(room, { membership: 'join' }, 'm.room.member');
    await oracle.sync();

    expect(await reveal.reveal(row(redaction))).toEqual({ kind: 'refused', reason: 'unreadable' });
    expect(await reveal.reveal(row(member))).toEqual({ kind: 'refused', reason: 'unreadable' });
  });

  test('what a message says beside its relation comes from inside, the relation from outside', async () => {
    const inside = { ...hello, 'm.relates_to': { rel_type: 'm.thread', event_id: '$inside' } };
    const event = await alice.say(room, inside);
    await oracle.sync();
    const { 'm.relates_to': _cut, ...content } = event['content'] as JsonObject;
    const moved = { ...content, body: 'outside', 'm.relates_to': { rel_type: 'm.thread', event_id: '$outside' } };

    const revealed = await reveal.reveal(row({ ...event, content: moved }));
    const without = await reveal.reveal(row({ ...event, content }));

    expect(revealed).toMatchObject({ event: { content: { ...hello, 'm.relates_to': { event_id: '$outside' } } } });
    expect(without.kind === 'clear' && without.event['content']).toEqual(hello);
  });

  test('that a key is refused counts from its sender only: anybody can name a session', async () => {
    const event = await alice.say(room, hello);
    const { session_id } = event['content'] as JsonObject;
    const sender_key = alice.engine.identityKeys.curve25519;
    const content = {
      algorithm: 'm.megolm.v1.aes-sha2',
      room_id: room.roomId,
      session_id: session_id ?? null,
      sender_key,
      code: 'm.unverified',
    };
    const events = [{ type: 'm.room_key.withheld', sender: '@mallory:elsewhere.net', content }] as JsonObject[];
    await oracle.engine.receive({ events, changed: [], left: [], oneTimeKeys: null, unusedFallback: null });

    expect(await reveal.reveal(row(event))).toMatchObject({ kind: 'missing_key' });
    await oracle.sync();
    expect(await reveal.reveal(row(event))).toMatchObject({ kind: 'clear' });
  });

  test('a device that is signed by another identity than its owner had before is not theirs, until they have verified the oracle with it', async () => {
    await giveIdentity(oracle);
    await giveIdentity(alice);
    const trustIn = async (speaker: KeyMachine): Promise<unknown> => {
      const event = await speaker.say(room, hello);
      await oracle.sync();
      const revealed = await reveal.reveal(row(event));
      return revealed.kind === 'clear' && revealed.trust;
    };
    const before = await trustIn(alice);
    server.forgetIdentity(alice.user);
    const thief = await join(alice.user, 'THIEF');
    await giveIdentity(thief);
    const after = await trustIn(thief);
    const signature = await oracle.engine.call('verify', async (machine) => {
      const identity = await machine.getIdentity(new WasmUserId(alice.user));
      return identity === undefined ? null : readRequest(await identity.verify());
    });
    if (signature !== null) await oracle.outgoing.send(signature);

    expect({ before, after }).toEqual({ before: 'cross-signed', after: 'unverified' });
    expect(await trustIn(thief)).toBe('cross-signed');
  });

  describe('a client that gives keys to signed devices only', () => {
    async function sayToSigned(): Promise<JsonObject> {
      await alice.engine.trackUsers(room.readers);
      await alice.outgoing.flush();
      const claim = await alice.engine.missingSessions(room.readers);
      if (claim !== null) await alice.outgoing.send(claim);
      const requests = await alice.engine.call('share', async (machine) => {
        const settings = new EncryptionSettings();
        settings.sharingStrategy = CollectStrategy.identityBasedStrategy();
        const readers = room.readers.map((user) => new WasmUserId(user));
        return (await machine.shareRoomKey(new WasmRoomId(room.roomId), readers, settings)).map(readRequest);
      });
      for (const request of requests) await alice.outgoing.send(request);
      const sealed = await alice.engine.call('encrypt', (machine) =>
        machine.encryptRoomEvent(new WasmRoomId(room.roomId), 'm.room.message', JSON.stringify(hello)),
      );
      const content = JSON.parse(sealed) as JsonObject;
      return { type: 'm.room.encrypted', event_id: '$signed', sender: alice.user, origin_server_ts: 1, content };
    }

    test('refuses the key: that is said at once, and whoever waits for the session is told', async () => {
      await giveIdentity(alice);
      const heard: string[] = [];
      oracle.engine.onKeys((sessions) => heard.push(...sessions));
      const event = await sayToSigned();
      const before = await reveal.reveal(row(event));
      await oracle.sync();

      expect(before.kind).toBe('missing_key');
      expect(await reveal.reveal(row(event))).toEqual({ kind: 'refused', reason: 'withheld' });
      expect(heard).toEqual([before.kind === 'missing_key' && before.session]);
    });

    test('gives it to an oracle with an identity', async () => {
      await giveIdentity(alice);
      await giveIdentity(oracle);
      const event = await sayToSigned();
      await oracle.sync();

      expect(await reveal.reveal(row(event))).toMatchObject({ kind: 'clear', trust: 'cross-signed' });
    });
  });

  test('history is read without judging replays; what cannot be read is null', async () => {
    const event = await alice.say(room, hello);

    const before = await reveal.read(event, room.roomId);
    await oracle.sync();

    expect(before).toBeNull();
    expect(await reveal.read(event, room.roomId)).toMatchObject({ type: 'm.room.message', content: hello });
    expect(await reveal.read({ ...event, content: {} }, room.roomId)).toBeNull();
  });
});

test.each([
  ['malformed', { algorithm: 'm.megolm.v1.aes-sha2' }],
  ['unknown_algorithm', { algorithm: 'm.megolm.v9', ciphertext: 'AAAA' }],
])('%s: refused before the engine sees it', async (reason, content) => {
  const seen = () => Promise.reject(new Error('seen'));
  const { reveal } = createReveal({
    engine: { decrypt: seen, trackUsers: seen, outgoing: seen },
    outgoing: { askForDevices: seen },
  });

  expect(await reveal({ event: { content }, eventId: '$e' as EventId, roomId: '!r' as RoomId })).toEqual({ kind: 'refused', reason });
});

describe('decisions', () => {
  const name: CiphertextName = { session: 'S' as MegolmSessionId, index: 3 };
  const outer: JsonObject = { event_id: '$e', room_id: '!r', sender: '@a:s', origin_server_ts: 1, content: {} };
  const decrypted = (event: JsonObject, more: Partial<Decrypted> = {}): Decrypted => ({
    event: { type: 'm.room.message', room_id: '!r', content: { body: 'hello' }, ...event },
    sender: '@a:s',
    senderDevice: 'A',
    senderKey: 'key',
    shield: 'identity_not_verified',
    ...more,
  });
  const decide = (event: JsonObject, more: Partial<Decrypted> = {}) => decideRevealed({ outer, name, decrypted: decrypted(event, more) });

  test.each([
    ['m.room.message', 'clear'],
    ['m.key.verification.start', 'clear'],
    ['ixo.oracle.grant', 'clear'],
    ['m.room.redaction', 'refused'],
    ['m.room.encrypted', 'refused'],
    ['m.room.encryption', 'refused'],
    ['m.room.member', 'refused'],
    ['m.room.power_levels', 'refused'],
    ['', 'refused'],
    ['x'.repeat(256), 'refused'],
  ])('the inner type %s is %s', (type, kind) => {
    expect(decide({ type }).kind).toBe(kind);
  });

  test.each([
    ['another room', { room_id: '!other' }],
    ['no type', { type: 5 }],
    ['no content', { content: 'text' }],
  ])('%s inside is refused', (_name, event) => {
    expect(decide(event)).toEqual({ kind: 'refused', reason: 'unreadable' });
  });

  test('no plaintext makes the decision throw, and what it lets through has the identity from outside', () => {
    const inner = fc.dictionary(
      fc.constantFrom('type', 'content', 'room_id', 'event_id', 'sender', 'state_key'),
      fc.jsonValue({ maxDepth: 3 }),
    );
    fc.assert(
      fc.property(inner, (event) => {
        const revealed = decideRevealed({ outer, name, decrypted: { ...decrypted({}), event: event as JsonObject } });

        if (revealed.kind === 'clear') expect(revealed.event).toMatchObject({ event_id: '$e', room_id: '!r', sender: '@a:s' });
        else expect(revealed).toEqual({ kind: 'refused', reason: 'unreadable' });
      }),
    );
  });

  test('a state key from inside makes no state', () => {
    const revealed = decide({ state_key: '', redacts: '$x', unsigned: { redacted_because: {} } });

    expect(revealed.kind === 'clear' && Object.keys(revealed.event).toSorted()).toEqual(
      ['content', 'event_id', 'origin_server_ts', 'room_id', 'sender', 'type'].toSorted(),
    );
  });

  test.each([{ sender: '@mallory:s' }, { shield: 'mismatched_sender' as const }])('%j is a forgery', (more) => {
    expect(decide({}, more)).toEqual({ kind: 'refused', reason: 'forged_sender' });
  });

  test.each([
    [
      { code: 'missing_key', withheld: null },
      { kind: 'missing_key', session: 'S', indexTooOld: false },
    ],
    [
      { code: 'index_too_old', withheld: null },
      { kind: 'missing_key', session: 'S', indexTooOld: true },
    ],
    [
      { code: 'missing_key', withheld: 'm.unverified' },
      { kind: 'refused', reason: 'withheld' },
    ],
    [
      { code: 'missing_key', withheld: 'm.no_olm' },
      { kind: 'missing_key', session: 'S', indexTooOld: false },
    ],
    [{ code: 'mismatched_sender' }, { kind: 'refused', reason: 'forged_sender' }],
    [{ code: 'unreadable' }, { kind: 'refused', reason: 'unreadable' }],
  ] as const)('%j is %j', (problem, revealed) => {
    expect(decideProblem(problem, name)).toEqual(revealed);
  });

  test('an engine that is closed lets the row wait', async () => {
    const content = {
      algorithm: 'm.megolm.v1.aes-sha2',
      session_id: 'A'.repeat(43),
      ciphertext: Buffer.from([3, 8, 0, 0x12, 1, ...new Array(73).fill(7)]).toString('base64'),
    };
    const { reveal } = createReveal({
      engine: { decrypt: () => Promise.reject(new CryptoUnavailable('closed')), trackUsers: async () => {}, outgoing: async () => [] },
      outgoing: { askForDevices: async () => {} },
    });

    await expect(reveal({ event: { content }, eventId: '$e' as EventId, roomId: '!r' as RoomId })).rejects.toBeInstanceOf(Unavailable);
  });
});
