import { describe, expect, test } from 'vitest';
import { createDispatcher } from '../../../src/inbox/dispatcher.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { Unavailable } from '../../../src/inbox/unavailable.ts';
import { LIMITS } from '../../../src/limits.ts';
import { buildCore, type Core, type CoreOptions } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, incoming, ORACLE, OTHER_ROOM, ROOM, STRANGER } from '../../fakes/events.ts';
import { encrypted, session } from '../../fakes/fake-reveal.ts';
import { breakDisk, settle } from '../../fakes/memory-store.ts';

async function encryptedRoom(options: CoreOptions = {}, kind: 'direct' | 'group' = 'direct'): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  core.rooms.room(ROOM, { kind, encryption: 'encrypted' });
  core.execute = null;
  return core;
}
/** The same with everything that goes on by itself. */
async function running(options: CoreOptions = {}, kind: 'direct' | 'group' = 'direct') {
  const core = await encryptedRoom(options, kind);
  const { inbox, store, clock, logger, admit, watch } = core;
  const dispatcher = createDispatcher({
    ...{ inbox, store, clock, logger },
    handle: admit.handle,
    giveUp: admit.giveUp,
    heldUntil: () => null,
    maxRooms: 4,
  });
  watch.start();
  dispatcher.start();
  return {
    core,
    async receive(...events: IncomingEvent[]) {
      await inbox.receive(events);
      await settle();
    },
    async pass(ms: number) {
      for (let left = ms; left > 0; left -= 1_000) {
        await clock.advanceAsync(Math.min(1_000, left));
        await settle();
      }
    },
    async stop() {
      await watch.stop();
      await dispatcher.stop();
    },
  };
}
const prompts = (core: Core): string[] =>
  core.store.read.all(core.store.sql.selectFrom('pending_inputs').select('text').orderBy('id')).map(({ text }) => text);
const states = (core: Core): string[] =>
  core.store.read
    .all(core.store.sql.selectFrom('inbox').select(['event_id', 'state']).orderBy('ord'))
    .map((row) => `${row.event_id} ${row.state}`);
const codes = (core: Core): unknown[] => core.said().map(({ content }) => content['code']);

describe('an encrypted message', () => {
  test('is answered like a clear one; the device’s trust stands in run and audit', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s', { trust: 'unverified' });

    expect(await core.take(encrypted('a', { session: 's', index: 0, content: { msgtype: 'm.text', body: 'hi' } }))).toEqual([
      'admitted:direct',
    ]);

    expect(prompts(core)).toEqual(['hi']);
    const { read, sql } = core.store;
    expect(read.all(sql.selectFrom('runs').select('trust'))).toEqual([{ trust: 'unverified' }]);
    expect(read.all(sql.selectFrom('audit').select(['event_id', 'trust']))).toEqual([{ event_id: '$a', trust: 'unverified' }]);
  });

  test('is timed once, from its receipt to its first decryption, and a replay is not', async () => {
    const times: number[] = [];
    const core = await encryptedRoom({ admit: { onDecrypted: (ms) => times.push(ms) } });
    core.crypto.bring('s');
    const once = encrypted('a', { session: 's', index: 0 });
    await core.inbox.receive([once]);
    core.clock.jump(700);

    await core.admit.handle(core.claim());
    await core.take({ ...once, eventId: eventId('b'), event: { ...once.event, event_id: '$b' } });

    expect(times).toEqual([700]);
  });

  test('proves that a direct room is encrypted, whatever its state says (G11); of a group one member does not decide that', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    core.rooms.room(ROOM, { encryption: 'none' });
    core.rooms.room(OTHER_ROOM, { kind: 'group', encryption: 'none' });

    await core.take(encrypted('a', { session: 's', index: 0 }));
    await core.take(encrypted('b', { session: 's', index: 1 }, { roomId: OTHER_ROOM }));

    expect((await core.rooms.facts(ROOM)).encryption).toBe('encrypted');
    expect((await core.rooms.facts(OTHER_ROOM)).encryption).toBe('none');
  });

  test('takes its relation from the clear part', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    await core.take(encrypted('root', { session: 's', index: 0 }));

    await core.take(encrypted('a', { session: 's', index: 1, relation: { rel_type: 'm.thread', event_id: '$root' } }));

    expect(core.store.read.all(core.store.sql.selectFrom('sessions').select('session_id'))).toEqual([{ session_id: '$root' }]);
  });

  test('that is repeated under another event id is a replay, also after a restart; the same event again is not', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    const once = encrypted('a', { session: 's', index: 7, content: { msgtype: 'm.text', body: 'pay' } });
    await core.take(once);
    const again = { ...once, eventId: eventId('b'), event: { ...once.event, event_id: '$b' } };

    expect(await core.take(again)).toEqual(['ignored:replayed']);

    const next = buildCore({ store: core.store, fence: 2 });
    next.rooms.room(ROOM, { encryption: 'encrypted' });
    next.execute = null;
    next.crypto.bring('s');
    const third = { ...once, eventId: eventId('c'), event: { ...once.event, event_id: '$c' } };
    expect(await next.take(third)).toEqual(['ignored:replayed']);
    expect(prompts(core)).toEqual(['pay']);
  });

  test.each([
    ['in somebody else’s name', { by: BOB }, 'forged_sender'],
    ['cut short', { ciphertext: '{' }, 'malformed'],
    ['of another room', { room: OTHER_ROOM }, 'unreadable'],
    ['of an unknown algorithm', { algorithm: 'm.rot13' }, 'unknown_algorithm'],
    ['that is encrypted inside again', { type: 'm.room.encrypted' }, 'unreadable'],
  ])('%s is refused with its reason, and the room goes on (G17)', async (_name, how: Record<string, string>, reason) => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    const bad = encrypted('bad', {
      session: 's',
      index: 0,
      ...(how['by'] === undefined ? {} : { by: how['by'] }),
      ...(how['type'] === undefined ? {} : { type: how['type'] }),
    });
    const content = { ...(bad.event['content'] as object) } as Record<string, string>;
    if (how['ciphertext'] !== undefined) content['ciphertext'] = 'x';
    if (how['algorithm'] !== undefined) content['algorithm'] = how['algorithm'];
    if (how['room'] !== undefined) content['ciphertext'] = String(content['ciphertext']).replace(ROOM, how['room']);

    const outcomes = await core.take({ ...bad, event: { ...bad.event, content } }, encrypted('good', { session: 's', index: 1 }));

    expect(outcomes).toEqual([`ignored:${reason}`, 'admitted:direct']);
    expect([core.count('inbox'), core.count('outbox')]).toEqual([0, 0]);
  });

  test('whose plaintext is no event is skipped', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');

    expect(await core.take(encrypted('a', { session: 's', index: 0, content: { msgtype: 7 } }))).toEqual(['ignored:unreadable']);
  });

  test('beyond the bucket costs no cryptography (G14)', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    await core.take(...Array.from({ length: 32 }, (_value, n) => encrypted(`m${n}`, { session: 's', index: n })));

    expect(core.crypto.looks).toBe(30);
  });

  test('waits while the engine is closed (G1)', async () => {
    const core = await encryptedRoom();
    core.crypto.closed = true;
    await core.inbox.receive([encrypted('a', { session: 's', index: 0 })]);

    await expect(core.admit.handle(core.claim())).rejects.toBeInstanceOf(Unavailable);
    expect(states(core)).toEqual(['$a ready']);
  });

  test('of somebody else from before the join is history, and is not even looked at', async () => {
    const core = await encryptedRoom();

    expect(await core.take(encrypted('a', { session: 's', index: 0 }, { source: 'backfill', sender: BOB }))).toEqual(['ignored:history']);
    expect(core.crypto.looks).toBe(0);
  });

  test('that the inviter wrote before the join is answered (G1)', async () => {
    const core = buildCore();
    core.execute = null;
    core.crypto.bring('s');
    core.rooms.room(ROOM, { kind: 'direct', membership: 'invite', encryption: 'encrypted' });
    core.rooms.onReadBack = async () => {
      await core.inbox.receive([encrypted('hello', { session: 's', index: 0 }, { source: 'backfill' })]);
      return true;
    };
    const invite = incoming('invite', { type: 'm.room.member', content: { membership: 'invite', is_direct: true } });
    await core.inbox.receive([{ ...invite, event: { ...invite.event, state_key: ORACLE } }]);

    for (const _ of ['invite', 'hello']) await core.admit.handle(core.claim());

    expect(core.admitted).toEqual(['joined:direct', 'admitted:direct']);
    expect(prompts(core)).toEqual(['hello']);
  });

  test('whose app does not give its key is told so', async () => {
    const core = await encryptedRoom();
    core.crypto.withhold('s');

    expect(await core.take(encrypted('a', { session: 's', index: 0 }))).toEqual(['refused:CANNOT_READ']);
    expect(core.said()).toMatchObject([{ content: { code: 'CANNOT_READ', body: expect.stringContaining('your app does not give me') } }]);
  });

  test('that fails for good is given up with a word in a direct room', async () => {
    const core = await encryptedRoom();
    await core.inbox.receive([encrypted('a', { session: 's', index: 0 })]);

    await core.admit.giveUp(core.claim());

    expect(codes(core)).toEqual(['GAVE_UP']);
    expect(states(core)).toEqual(['$a dead']);
  });
});

describe('a message that overtook its key', () => {
  test('keeps its room’s order for three seconds, and no other room waits (G3)', async () => {
    const { core, receive, pass, stop } = await running();
    core.rooms.room(OTHER_ROOM, { kind: 'direct' });
    await receive(encrypted('a', { session: 's', index: 0 }), incoming('b'), incoming('elsewhere', { roomId: OTHER_ROOM }));
    expect(core.admitted).toEqual(['admitted:direct']);

    await pass(1_000);
    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual(['elsewhere', 'a', 'b']);
    expect(core.admitted).not.toContain('parked:missing_key');
    await stop();
  });

  test('stands aside then, and is answered when its key comes, before what waits (G1, G3)', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }), incoming('b'));
    await pass(3_000);
    expect(core.admitted).toEqual(['parked:missing_key', 'admitted:direct']);
    expect(core.inbox.depth()).toMatchObject({ rows: 0, parked: 1 });

    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual(['b', 'a']);
    expect(core.inbox.depth()).toMatchObject({ rows: 0, parked: 0 });
    await stop();
  });

  test('does not wait for its room when the key begins later: only its sender can send an older one', async () => {
    const { core, receive, stop } = await running();
    core.crypto.bring('s', { fromIndex: 5 });

    await receive(encrypted('a', { session: 's', index: 0 }), encrypted('b', { session: 's', index: 5 }));

    expect(core.admitted).toEqual(['parked:index_too_old', 'admitted:direct']);
    await stop();
  });

  test('costs none of its attempts, however often its room is looked at meanwhile', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }));
    for (let n = 0; n < 20; n += 1) {
      await receive(incoming(`x${n}`, { type: 'm.reaction', content: {} }));
      await pass(100);
    }
    await pass(2_000);
    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual(['a']);
    await stop();
  });

  test.each(['before it is put off', 'before it is set aside'])('is taken up although its key came %s', async (moment) => {
    const { core, receive, pass, stop } = await running();
    let looks = 0;
    core.crypto.onLook = (id) => {
      looks += 1;
      // The look has its answer already; the key is told while nothing waits for it.
      if (looks === (moment === 'before it is put off' ? 1 : 3)) core.crypto.bring(id);
    };
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);

    expect(prompts(core)).toEqual(['a']);
    await stop();
  });

  test('is no later for having waited: lateness counts until it was set aside', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }), encrypted('old', { session: 's', index: 1 }, { ageMs: 16 * 60_000 }));
    await pass(3_000);
    await core.clock.advanceAsync(2 * 3_600_000);
    core.crypto.bring('s');
    await settle();

    expect(core.admitted.slice(-2)).toEqual(['admitted:direct', 'refused:TOO_LATE']);
    await stop();
  });

  test('of somebody who may not use the oracle is not kept, nor answered', async () => {
    const { core, receive, pass, stop } = await running({}, 'group');
    await receive(encrypted('a', { session: 's', index: 0 }, { sender: STRANGER }));
    await pass(3_000);

    expect(core.admitted).toEqual(['ignored:not_allowed']);
    await pass(120_000);
    expect(core.said()).toEqual([]);
    await stop();
  });

  test('is not kept where the oracle is not, nor when it is history', async () => {
    const core = await encryptedRoom();
    core.rooms.room(ROOM, { admissionCursor: core.clock.now() + 1 });
    expect(await core.take(encrypted('a', { session: 's', index: 0 }, { source: 'sync' }))).toEqual(['ignored:history']);
    core.rooms.room(ROOM, { membership: 'leave' });
    core.rooms.forget(ROOM);
    expect(await core.take(encrypted('b', { session: 's', index: 0 }))).toEqual(['ignored:not_joined']);
  });

  test('is corrected a bounded number of times while it waits (G14)', async () => {
    const core = await encryptedRoom({ admit: { flood: { allows: () => true } } });
    const relation = { rel_type: 'm.replace', event_id: '$a' };
    const content = { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' }, 'm.relates_to': relation };
    const edits = Array.from({ length: LIMITS.parkedPerSenderAndRoom + 1 }, (_value, n) => incoming(`e${n}`, { content }));
    await core.inbox.receive([encrypted('a', { session: 's', index: 0 }), ...edits]);
    core.clock.advance(3_000);
    await core.admit.handle(core.claim());
    for (const _ of edits) await core.admit.handle(core.claim());

    expect(states(core)).toHaveLength(LIMITS.parkedPerSenderAndRoom);
    expect(core.admitted.at(-1)).toBe('ignored:edit_too_late');
  });

  test('is one of a bounded number (G14)', async () => {
    const core = await encryptedRoom({ admit: { flood: { allows: () => true } } });
    const events = Array.from({ length: LIMITS.parkedPerSenderAndRoom + 1 }, (_value, n) =>
      encrypted(`m${n}`, { session: `s${n}`, index: 0 }),
    );
    await core.inbox.receive(events);
    core.clock.advance(3_000);
    for (const _ of events) await core.admit.handle(core.claim());

    expect(core.admitted.filter((outcome) => outcome === 'parked:missing_key')).toHaveLength(LIMITS.parkedPerSenderAndRoom);
    expect(core.admitted.at(-1)).toBe('ignored:too_many_unreadable');
  });

  test('survives a full disk: what could not be taken up is taken up later (G1)', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);
    const disk = breakDisk(core.store);
    core.crypto.bring('s');
    await pass(3_000);
    expect(prompts(core)).toEqual([]);

    disk.repair();
    await pass(3_000);

    expect(prompts(core)).toEqual(['a']);
    await stop();
  });

  test('is taken back before it is answered', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);
    const redaction = incoming('r', { type: 'm.room.redaction' });
    await receive({ ...redaction, event: { ...redaction.event, redacts: '$a', content: { redacts: '$a' } } });
    expect(states(core)).toEqual([]);

    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual([]);
    await stop();
  });

  test('is not taken back by just anybody', async () => {
    const { core, receive, pass, stop } = await running({}, 'group');
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);
    const redaction = incoming('r', { type: 'm.room.redaction', sender: BOB });
    await receive({ ...redaction, event: { ...redaction.event, redacts: '$a', content: { redacts: '$a' } } });

    expect(states(core)).toEqual(['$a parked']);
    await stop();
  });

  test('is answered as it was corrected meanwhile', async () => {
    const { core, receive, pass, stop } = await running();
    core.crypto.bring('new');
    await receive(encrypted('a', { session: 'old', index: 0 }));
    await pass(3_000);
    const content = { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' } };
    await receive(encrypted('e', { session: 'new', index: 0, content, relation: { rel_type: 'm.replace', event_id: '$a' } }));
    expect(states(core)).toEqual(['$a parked', '$e parked']);

    core.crypto.bring('old');
    await settle();

    expect(core.admitted.slice(-2)).toEqual(['admitted:direct', 'amended:edit']);
    expect(prompts(core)).toEqual(['b']);
    await stop();
  });

  test('is not corrected by somebody else', async () => {
    const { core, receive, pass, stop } = await running({}, 'group');
    core.crypto.bring('bobs');
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);
    const content = { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' } };
    const relation = { rel_type: 'm.replace', event_id: '$a' };
    await receive(encrypted('e', { session: 'bobs', index: 0, content, relation }, { sender: BOB }));

    expect(states(core)).toEqual(['$a parked']);
    await stop();
  });
});

describe('what its sender is told', () => {
  test('once per room and session, a minute later and not before keys were looked for; in its thread', async () => {
    const { core, receive, pass, stop } = await running();
    const relation = { rel_type: 'm.thread', event_id: '$root' };
    await receive(encrypted('a', { session: 's', index: 0, relation }), encrypted('b', { session: 's', index: 1, relation }));
    await pass(70_000);
    expect(core.said()).toEqual([]);

    core.crypto.sync();
    await pass(10_000);
    expect(core.said()).toMatchObject([{ lane: 'notice.$b', content: { code: 'CANNOT_READ' } }]);
    await receive(encrypted('c', { session: 's', index: 2 }));
    await pass(120_000);

    expect(core.said()).toHaveLength(1);
    expect(core.admitted.filter((outcome) => outcome === 'refused:CANNOT_READ')).toHaveLength(1);
    await stop();
  });

  test('nothing, when the key comes first', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(50_000);
    core.crypto.sync();
    core.crypto.bring('s');
    await pass(120_000);

    expect(core.said()).toEqual([]);
    expect(prompts(core)).toEqual(['a']);
    await stop();
  });

  test('again for a new session, and never more than one a minute, whatever the sender sends (G14)', async () => {
    const { core, receive, pass, stop } = await running();
    for (let n = 0; n < 100; n += 1) {
      await receive(encrypted(`m${n}`, { session: `s${n}`, index: 0 }));
      await pass(2_000);
      core.crypto.sync();
    }
    await pass(60_000);

    expect(core.said().length).toBeGreaterThanOrEqual(2);
    expect(core.said().length).toBeLessThanOrEqual(5);
    await stop();
  });

  test('does not depend on a stranger who claims the same session (G14)', async () => {
    const { core, receive, pass, stop } = await running({}, 'group');
    await receive(encrypted('x', { session: 's', index: 0 }, { sender: BOB }));
    await pass(30_000);
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(64_000);
    core.crypto.sync();
    await pass(120_000);

    expect(core.said().map(({ lane }) => lane)).toEqual(['notice.$x', 'notice.$a']);
    await stop();
  });

  test('and after a day the message ends, told or not', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(3_000);
    for (let hour = 0; hour < 24; hour += 1) await core.clock.advanceAsync(3_600_000).then(() => settle());
    await pass(10_000);

    expect(core.admitted.slice(-2)).toEqual(['refused:CANNOT_READ', 'ignored:never_readable']);
    expect([core.count('inbox'), codes(core)]).toEqual([0, ['CANNOT_READ']]);
    await stop();
    expect(core.clock.pending()).toBe(0);
  });

  test.each<[string, (receive: (...events: IncomingEvent[]) => Promise<void>) => Promise<void>, string[]]>([
    ['has said nothing since: it is answered', async () => undefined, ['a']],
    ['has sent it again: only that is answered (G2)', (receive) => receive(encrypted('again', { session: 'new', index: 0 })), ['again']],
    ['has sent it again in the clear', (receive) => receive(incoming('again')), ['again']],
    ['waits again: the newest are answered', (receive) => receive(encrypted('b', { session: 's', index: 1 })), ['b']],
    ['heard somebody else speak', (receive) => receive(incoming('other', { sender: BOB, type: 'm.reaction', content: {} })), ['a']],
  ])('and its key comes after all, when it %s', async (_name, since, expected) => {
    const { core, receive, pass, stop } = await running();
    core.crypto.bring('new');
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(4_000);
    core.crypto.sync();
    await pass(70_000);
    expect(codes(core)).toEqual(['CANNOT_READ']);
    await since(receive);
    await pass(5_000);

    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual(expected);
    expect(core.count('inbox')).toBe(0);
    await stop();
  });

  test('a correction is not a second message: what it corrects is answered, as it reads by then', async () => {
    const { core, receive, pass, stop } = await running();
    core.crypto.bring('new');
    await receive(encrypted('a', { session: 's', index: 0 }));
    await pass(4_000);
    core.crypto.sync();
    await pass(70_000);
    const content = { msgtype: 'm.text', body: '* b', 'm.new_content': { msgtype: 'm.text', body: 'b' } };
    await receive(encrypted('e', { session: 'new', index: 0, content, relation: { rel_type: 'm.replace', event_id: '$a' } }));

    core.crypto.bring('s');
    await settle();

    expect(codes(core)).toEqual(['CANNOT_READ']);
    expect(prompts(core)).toEqual(['b']);
    await stop();
  });

  test('two that were named by one notice are both answered when their key comes after all', async () => {
    const { core, receive, pass, stop } = await running();
    await receive(encrypted('a', { session: 's', index: 0 }), encrypted('b', { session: 's', index: 1 }));
    await pass(4_000);
    core.crypto.sync();
    await pass(70_000);
    expect(codes(core)).toEqual(['CANNOT_READ']);

    core.crypto.bring('s');
    await settle();

    expect(prompts(core)).toEqual(['a', 'b']);
    await stop();
  });

  test('a chatter in a group counts as having said more', async () => {
    const { core, receive, pass, stop } = await running({}, 'group');
    const content = { msgtype: 'm.text', body: 'Oracle: a' };
    await receive(encrypted('a', { session: 's', index: 0, content }));
    await pass(4_000);
    core.crypto.sync();
    await pass(70_000);
    await receive(incoming('nevermind'));
    core.crypto.bring('s');
    await settle();

    expect(core.admitted.at(-1)).toBe('ignored:sent_again');
    await stop();
  });
});

describe('after a restart', () => {
  test('everything that was set aside is looked at again: its key may have come in the last moment (G1)', async () => {
    const first = await running();
    await first.receive(encrypted('a', { session: 's', index: 0 }), encrypted('b', { session: 't', index: 0 }));
    await first.pass(3_000);
    first.core.crypto.bring('s', { untold: true });
    await first.stop();

    const next = buildCore({ store: first.core.store, clock: first.core.clock, fence: 2 });
    next.rooms.room(ROOM, { encryption: 'encrypted' });
    next.execute = null;
    next.crypto.bring('s', { untold: true });
    const { inbox, store, clock, logger, admit } = next;
    const dispatcher = createDispatcher({
      inbox,
      store,
      clock,
      logger,
      handle: admit.handle,
      giveUp: admit.giveUp,
      heldUntil: () => null,
      maxRooms: 4,
    });
    next.watch.start();
    dispatcher.start();
    await settle();

    expect(prompts(next)).toEqual(['a']);
    expect(states(next)).toEqual(['$b parked']);
    next.crypto.sync();
    await clock.advanceAsync(60_000).then(() => settle());
    expect(codes(next)).toEqual(['CANNOT_READ']);
    await next.watch.stop();
    await dispatcher.stop();
  });
});

describe('CRYPTO_TRUST=cross-signed', () => {
  const strict: CoreOptions = { admit: { cryptoTrust: 'cross-signed' } };
  test('what nobody signed for is refused with a sentence when it is addressed, and is audited', async () => {
    const core = await encryptedRoom(strict);
    core.crypto.bring('s', { trust: 'unverified' });

    expect(await core.take(encrypted('a', { session: 's', index: 0 }), incoming('b'))).toEqual([
      'refused:UNVERIFIED_DEVICE',
      'refused:NOT_ENCRYPTED',
    ]);

    expect(codes(core)).toEqual(['UNVERIFIED_DEVICE', 'NOT_ENCRYPTED']);
    const rows = core.store.read.all(core.store.sql.selectFrom('audit').select(['code', 'trust', 'decision']));
    expect(rows).toEqual([
      { code: 'UNVERIFIED_DEVICE', trust: 'unverified', decision: 'refused' },
      { code: 'NOT_ENCRYPTED', trust: 'clear', decision: 'refused' },
    ]);
    expect(core.count('runs')).toBe(0);
  });

  test('what others say in a group stays without an answer', async () => {
    const core = await encryptedRoom(strict, 'group');
    core.crypto.bring('s', { trust: 'unverified' });

    expect(await core.take(encrypted('a', { session: 's', index: 0 }))).toEqual(['overheard:not_addressed']);
    expect(core.said()).toEqual([]);
  });

  test('a signed device is obeyed, and anybody in a room without encryption', async () => {
    const core = await encryptedRoom(strict);
    core.crypto.bring('s');
    expect(await core.take(encrypted('a', { session: 's', index: 0 }))).toEqual(['admitted:direct']);
    core.rooms.room(OTHER_ROOM, { kind: 'direct', encryption: 'none' });
    expect(await core.take(incoming('b', { roomId: OTHER_ROOM }))).toEqual(['admitted:direct']);
  });

  test('the same holds for commands and grants, not for !stop, 🛑 and !verify, which give nothing away', async () => {
    const core = await encryptedRoom(strict);
    const stop = { 'm.relates_to': { rel_type: 'm.annotation', event_id: '$x', key: '\u{1F6D1}' } };

    const outcomes = await core.take(
      incoming('a', { text: '!grants' }),
      incoming('b', { type: 'ixo.oracle.grant', content: { v: 1, dlg: 'CAR', body: 'x' } }),
      incoming('c', { type: 'ixo.oracle.revoke', content: { token_id: 'A'.repeat(43) } }),
      incoming('d', { text: '!mode steer' }),
      incoming('e', { text: '!stop' }),
      incoming('f', { type: 'm.reaction', content: stop }),
      incoming('g', { text: '!verify' }),
    );

    expect(outcomes.slice(0, 4)).toEqual(Array.from({ length: 4 }, () => 'refused:NOT_ENCRYPTED'));
    expect(outcomes.slice(4)).toEqual(['command:nothing_to_stop', expect.stringMatching(/^ignored:/u), 'command:verify']);
  });
});

describe('an edit', () => {
  const change = (body: string) => ({ msgtype: 'm.text', body: `* ${body}`, 'm.new_content': { msgtype: 'm.text', body } });
  const relation = { rel_type: 'm.replace', event_id: '$a' };

  test('of an encrypted prompt is read from inside', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    await core.take(encrypted('a', { session: 's', index: 0 }));

    expect(await core.take(encrypted('e', { session: 's', index: 1, content: change('b'), relation }))).toEqual(['amended:edit']);
    expect(prompts(core)).toEqual(['b']);
  });

  test.each(['any', 'cross-signed'] as const)(
    'in the clear of what was encrypted is a homeserver’s, and refused (%s)',
    async (cryptoTrust) => {
      const core = await encryptedRoom({ admit: { cryptoTrust } });
      core.crypto.bring('s');
      await core.take(encrypted('a', { session: 's', index: 0 }));

      expect(await core.take(incoming('e', { content: { ...change('b'), 'm.relates_to': relation } }))).toEqual(['ignored:edit_refused']);
      expect(prompts(core)).toEqual(['a']);
      const refused = core.store.read.get(core.store.sql.selectFrom('audit').select(['code', 'trust']).where('decision', '=', 'refused'));
      expect(refused).toEqual({ code: 'NOT_ENCRYPTED', trust: 'clear' });
    },
  );

  test('from a device that is less sure than the prompt’s is refused', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    core.crypto.bring('t', { trust: 'unverified' });
    await core.take(encrypted('a', { session: 's', index: 0 }));

    expect(await core.take(encrypted('e', { session: 't', index: 0, content: change('b'), relation }))).toEqual(['ignored:edit_refused']);
  });
});

test('messages of one person from devices of different trust are not answered under one', async () => {
  const core = await encryptedRoom();
  core.crypto.bring('s');
  core.crypto.bring('t', { trust: 'unverified' });
  await core.take(
    encrypted('a', { session: 's', index: 0 }),
    encrypted('b', { session: 't', index: 0 }),
    encrypted('c', { session: 't', index: 1 }),
  );

  const runs = core.store.read.all(core.store.sql.selectFrom('runs').select('trust').orderBy('run_id'));
  expect(runs).toEqual([{ trust: 'cross-signed' }, { trust: 'unverified' }]);
});

describe('files', () => {
  const file = (more: object = {}) => ({ msgtype: 'm.file', body: 'a.csv', info: { mimetype: 'text/csv', size: 3 }, ...more });
  const texts = (core: Core) => core.store.read.all(core.store.sql.selectFrom('transcript').select(['text', 'session_id']).orderBy('id'));

  test('without a word is context of the conversation that goes on, and with one it is a prompt', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');
    await core.take(encrypted('a', { session: 's', index: 0 }));

    const outcomes = await core.take(
      encrypted('f', { session: 's', index: 1, content: file() }),
      encrypted('g', { session: 's', index: 2, content: file({ filename: 'a.csv', body: 'Sum it up' }) }),
    );

    expect(outcomes).toEqual(['overheard:file', 'admitted:direct']);
    expect(texts(core)).toEqual([
      { text: 'a', session_id: '$a' },
      { text: '[file a.csv (text/csv, 3 bytes), event $f]', session_id: '$a' },
      { text: 'Sum it up\n[file a.csv (text/csv, 3 bytes), event $g]', session_id: '$a' },
    ]);
  });

  test('in a group are context like any talk, also with a mention and no word', async () => {
    const core = await encryptedRoom({}, 'group');

    expect(await core.take(incoming('f', { sender: BOB, content: file({ 'm.mentions': { user_ids: [ORACLE] } }) }))).toEqual([
      'overheard:file',
    ]);
    expect(core.transcript.overheard(ROOM, 5).map(({ text }) => text)).toEqual(['[file a.csv (text/csv, 3 bytes), event $f]']);
  });

  test('of who may not use the oracle are not put into a direct conversation', async () => {
    const core = await encryptedRoom();

    expect(await core.take(incoming('f', { sender: STRANGER, content: file() }))).toEqual(['ignored:not_allowed']);
    expect(texts(core)).toEqual([]);
  });
});

describe('verification', () => {
  const request = { msgtype: 'm.key.verification.request', body: 'verify me', to: ORACLE, from_device: 'PHONE', methods: ['m.sas.v1'] };

  test('steps go to the crypto service as they were before encryption, with the right of who sent them', async () => {
    const core = await encryptedRoom();
    core.crypto.bring('s');

    const outcomes = await core.take(
      incoming('r', { content: request }),
      encrypted('k', {
        session: 's',
        index: 0,
        type: 'm.key.verification.key',
        content: { key: 'k' },
        relation: { rel_type: 'm.reference', event_id: '$r' },
      }),
      incoming('x', { sender: STRANGER, content: request }),
    );

    expect(outcomes).toEqual(['verification:step', 'verification:step', 'verification:step']);
    const { received } = core.crypto.verification;
    expect(received.map(({ event, user, mayVerify }) => [event['event_id'], event['type'], user, mayVerify])).toEqual([
      ['$r', 'm.room.message', ALICE, true],
      ['$k', 'm.key.verification.key', ALICE, true],
      ['$x', 'm.room.message', STRANGER, false],
    ]);
    expect(core.count('inbox')).toBe(0);
  });

  test('!verify shows the fingerprint in groups of four, in any room', async () => {
    for (const kind of ['direct', 'group'] as const) {
      const core = await encryptedRoom({}, kind);

      expect(await core.take(incoming('v', { text: kind === 'direct' ? '!verify' : 'Oracle: !verify' }))).toEqual(['command:verify']);

      const body = String(core.said()[0]?.content['body']);
      expect(body).toContain('AbCd EfGh IjKl MnOp QrSt UvWx Yz01 2345 6789 +/Ab CdE');
      expect(body).toContain('ORACLE_ABC123');
    }
  });

  test('!verify says so while there are no keys, and is refused to who may not use the oracle', async () => {
    const core = await encryptedRoom();
    core.crypto.own = null;

    expect(await core.take(incoming('v', { text: '!verify' }), incoming('x', { text: '!verify', sender: STRANGER }))).toEqual([
      'command:verify',
      'refused:NOT_ALLOWED',
    ]);
    expect(String(core.said()[0]?.content['body'])).toContain('not ready');
  });
});

test('the key of a message that is put off is told to its room only, by its session', async () => {
  const { core, receive, pass, stop } = await running();
  await receive(encrypted('a', { session: 's', index: 0 }));
  core.watch.keysArrived([session('unrelated')]);
  await settle();
  expect(states(core)).toEqual(['$a ready']);
  await pass(3_000);
  expect(states(core)).toEqual(['$a parked']);
  await stop();
});
