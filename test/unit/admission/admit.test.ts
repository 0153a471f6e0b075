import { describe, expect, test } from 'vitest';
import type { EventId, RoomId, SessionId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { Unavailable } from '../../../src/inbox/unavailable.ts';
import type { JsonObject } from '../../../src/json.ts';
import { createSummaries } from '../../../src/sessions/summaries.ts';
import { StorageError } from '../../../src/store/store.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { ALICE_KEY, buildCore, type Core, type CoreOptions, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, incoming, ORACLE, OTHER_ROOM, ROOM, STRANGER } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { failingStore, settle } from '../../fakes/memory-store.ts';
import { held } from '../../fakes/scripted-runner.ts';

const state = (name: string, type: string, stateKey: string, content: JsonObject, change: Partial<IncomingEvent> = {}): IncomingEvent => {
  const sender = change.sender ?? ALICE;
  const event = {
    event_id: `$${name}`,
    room_id: change.roomId ?? ROOM,
    sender,
    type,
    state_key: stateKey,
    origin_server_ts: FAKE_START_MS,
    content,
    ...(change.event ?? {}),
  };
  return incoming(name, { type, ...change, event });
};
const invite = (change: Partial<IncomingEvent> = {}) =>
  state('invite', 'm.room.member', ORACLE, { membership: 'invite', is_direct: true }, change);
const edit = (name: string, target: string, text: string, change: Partial<IncomingEvent> & { content?: JsonObject } = {}) =>
  incoming(name, {
    ...change,
    content: {
      msgtype: 'm.text',
      body: `* ${text}`,
      'm.new_content': { msgtype: 'm.text', body: text },
      'm.relates_to': { rel_type: 'm.replace', event_id: `$${target}` },
      ...change.content,
    },
  });
const redaction = (name: string, target: string, change: Partial<IncomingEvent> = {}): IncomingEvent => {
  const base = incoming(name, { type: 'm.room.redaction', ...change });
  return { ...base, event: { ...base.event, redacts: `$${target}`, content: { redacts: `$${target}` } } };
};
const signed = (core: Core, content: JsonObject, change: { edits?: EventId } = {}): JsonObject =>
  signContent(
    {
      key: ALICE_KEY,
      audience: ORACLE_KEY.did,
      room: ROOM,
      sender: ALICE,
      type: 'm.room.message',
      ts: core.clock.now(),
      nonce: newNonce(),
      ...change,
    },
    content,
  );

async function inDirectRoom(options: CoreOptions = {}): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  core.execute = null;
  return core;
}
async function inGroup(options: CoreOptions = {}): Promise<Core> {
  const core = await inDirectRoom(options);
  core.rooms.room(ROOM, { kind: 'group' });
  return core;
}
const prompts = (core: Core): string[] =>
  core.store.read.all(core.store.sql.selectFrom('pending_inputs').select('text').orderBy('id')).map(({ text }) => text);
const statuses = (core: Core): string[] =>
  core.store.read.all(core.store.sql.selectFrom('runs').select('status').orderBy('run_id')).map(({ status }) => status);

describe('messages', () => {
  test('an admitted message becomes a run, and its row is gone', async () => {
    const core = await inDirectRoom();

    expect(await core.take(incoming('hello'))).toEqual(['admitted:direct']);

    expect([core.count('runs'), core.count('inbox'), core.count('audit'), core.count('transcript')]).toEqual([1, 0, 1, 1]);
    expect(core.rooms.log).toEqual([`read ${ROOM} $hello`]);
  });

  test('what cannot be read is skipped with its reason, and the rest goes on (G17)', async () => {
    const core = await inDirectRoom();
    const broken = incoming('broken', { event: { event_id: '$broken', room_id: ROOM, type: 7 } as never });

    expect(await core.take(broken, incoming('hello'))).toEqual(['ignored:unreadable', 'admitted:direct']);

    expect(core.count('inbox')).toBe(0);
  });

  test('what is not for the oracle in a group is kept as context, of the thread when it has a session', async () => {
    const core = await inGroup();
    await core.take(incoming('mention', { text: 'Oracle: hi' }));
    const inThread = { 'm.relates_to': { rel_type: 'm.thread', event_id: '$mention' }, msgtype: 'm.text', body: 'aside' };

    expect(await core.take(incoming('aside', { sender: BOB, content: inThread }), incoming('noise', { sender: BOB }))).toEqual([
      'overheard:not_addressed',
      'overheard:not_addressed',
    ]);

    expect(core.transcript.overheard(ROOM, 10).map(({ text }) => text)).toEqual(['noise']);
    expect(core.transcript.newest('$mention' as never, { limit: 10 }).map(({ text }) => text)).toEqual(['Oracle: hi', 'aside']);
    expect(core.count('runs')).toBe(1);
  });

  test('the room’s own name is not the oracle’s', async () => {
    const core = await inGroup();

    expect(await core.take(incoming('a', { text: 'A room: hello' }))).toEqual(['overheard:not_addressed']);
  });

  test('a late message gets no run and one notice per room', async () => {
    const core = await inDirectRoom();

    const outcomes = await core.take(
      incoming('a', { ageMs: 900_001 }),
      incoming('b', { ageMs: 900_001 }),
      incoming('c', { ageMs: 900_000 }),
    );

    expect(outcomes).toEqual(['refused:TOO_LATE', 'refused:TOO_LATE', 'admitted:direct']);
    expect(core.said()).toMatchObject([{ lane: 'notice.$a', content: { code: 'TOO_LATE' } }]);
    expect([core.count('inbox'), core.count('audit')]).toEqual([0, 3]);
  });

  test('somebody who may not use it is told once and no authority is looked at', async () => {
    const core = await inDirectRoom();

    const outcomes = await core.take(incoming('a', { sender: STRANGER }), incoming('b', { sender: STRANGER }));

    expect(outcomes).toEqual(['refused:NOT_ALLOWED', 'refused:NOT_ALLOWED']);
    expect(core.said()).toMatchObject([{ content: { code: 'NOT_ALLOWED' } }]);
    expect([core.count('runs'), core.count('inbox'), core.count('transcript')]).toEqual([0, 0, 0]);
  });

  test('a message without authority is refused with a notice, later ones with a lock', async () => {
    const core = await inDirectRoom({ rules: { unsignedUsers: [] } });

    await core.take(incoming('a'), incoming('b'));

    expect(core.said().map(({ content }) => content['code'] ?? content['key'])).toEqual(['NO_AUTHORITY', '🔒']);
    expect(core.count('runs')).toBe(0);
  });

  test('a notice that could not be sent is not remembered as said', async () => {
    const core = await inDirectRoom({ rules: { unsignedUsers: [] } });
    await core.take(incoming('a'));
    const [row] = core.outbox.due(core.clock.now(), { limit: 1, busy: new Set() });
    await core.outbox.park(row as never, 'gone');
    await settle();

    await core.take(incoming('b'));

    expect(core.said().at(-1)?.content).toMatchObject({ code: 'NO_AUTHORITY' });
  });

  test('while the room cannot be looked up a message waits, and is neither dropped nor overheard (G1, G11)', async () => {
    const core = await inDirectRoom();
    core.rooms.forget(ROOM);
    core.rooms.down = true;
    await core.inbox.receive([incoming('a')]);

    await expect(core.admit.handle(core.claim())).rejects.toBeInstanceOf(Unavailable);
    core.rooms.down = false;
    await core.admit.handle(core.claim());

    expect(core.admitted).toEqual(['admitted:direct']);
    expect(core.said()).toEqual([]);
  });

  test('a room that it left and cannot look up is simply not joined', async () => {
    const core = await inDirectRoom();
    core.rooms.forget(ROOM);
    core.rooms.down = true;
    await core.store.write((tx) => core.known.left(tx, ROOM));

    expect(await core.take(incoming('a'))).toEqual(['ignored:not_joined']);
  });

  test('beyond the bucket events are ignored without a word, and a retry does not pay again (G14)', async () => {
    const core = await inDirectRoom();
    await core.inbox.receive(Array.from({ length: 32 }, (_, n) => incoming(`m${n}`)));
    const first = core.claim();
    core.rooms.down = true;
    core.rooms.forget(ROOM);
    for (let time = 0; time < 3; time += 1) {
      await core.admit.handle(time === 0 ? first : core.claim()).catch(() => undefined);
      await core.inbox.retry(first, core.clock.now(), 'Unavailable', 0);
    }
    core.rooms.down = false;
    for (let n = 0; n < 32; n += 1) await core.admit.handle(core.claim());

    expect(core.admitted.filter((outcome) => outcome === 'admitted:direct')).toHaveLength(30);
    expect(core.admitted.filter((outcome) => outcome === 'ignored:flood')).toHaveLength(2);
    expect(core.said()).toEqual([]);
  });

  test('two bots that answer each other stop within the budget', async () => {
    const core = await inDirectRoom({ admit: { botHopBudget: 5 } });
    let outcome = '';
    let turns = 0;
    while (turns < 50 && outcome !== 'ignored:bot_loop') {
      [outcome = ''] = await core.take(incoming(`bot${turns++}`));
      core.clock.advance(1_000);
      await core.store.write((tx) =>
        tx.run(core.store.sql.updateTable('runs').set({ status: 'completed', ended_at: core.clock.now() }).where('ended_at', 'is', null)),
      );
      core.clock.advance(1_000);
    }

    expect(turns).toBe(6);
    core.clock.advance(5_000);
    expect(await core.take(incoming('person'))).toEqual(['admitted:direct']);
  });
});

describe('invites', () => {
  test('an accepted one joins, reads back, and greets groups only', async () => {
    for (const [kind, greeted] of [
      ['direct', []],
      ['group', [ROOM]],
    ] as const) {
      const core = buildCore();
      core.rooms.room(ROOM, { kind, membership: 'invite' });

      expect(await core.take(invite())).toEqual([`joined:${kind}`]);

      expect(core.rooms.log).toEqual([`join ${ROOM}`, `back ${ROOM}`]);
      expect(core.greeted).toEqual(greeted);
      expect(core.known.of(ROOM)).toMatchObject({
        membership: 'joined',
        inviter: ALICE,
        is_direct: 1,
        invited_at: FAKE_START_MS,
        first_read: 1,
      });
      expect(core.count('inbox')).toBe(0);
    }
  });

  test.each([['by a stranger', {}, invite({ sender: STRANGER }), 'not_allowed']])(
    'one that is %s is declined with its reason in the leave',
    async (_name, _options, event, because) => {
      const core = buildCore();
      core.rooms.room(ROOM, { membership: 'invite' });

      expect(await core.take(event)).toEqual([`declined:${because}`]);

      expect(core.rooms.log).toEqual([expect.stringMatching(/^leave .* This oracle/u)]);
      expect([core.count('inbox'), core.count('outbox')]).toEqual([0, 0]);
      expect(core.known.of(ROOM)?.membership).not.toBe('joined');
    },
  );

  test('a server that never answers holds a few declines and no other room (G14)', async () => {
    const waiting: (() => void)[] = [];
    const rooms = Array.from({ length: 20 }, (_value, n) => `!trap${n}:elsewhere.net` as RoomId);
    const core = buildCore();
    const leave = core.rooms.leave;
    core.rooms.leave = async (room, reason) => {
      await new Promise<void>((resolve) => waiting.push(resolve));
      await leave(room, reason);
    };
    await core.inbox.receive(rooms.map((roomId, n) => ({ ...invite({ sender: STRANGER, roomId }), eventId: eventId(`i${n}`) })));

    const handled = rooms.map((room) => core.admit.handle(core.claim(room)));
    const later = handled.slice(2).map((row) => expect(row).rejects.toBeInstanceOf(Unavailable));
    await Promise.all(later);
    expect(waiting).toHaveLength(2);
    // Nor does it take the place of another server.
    const other = '!other:third.net' as RoomId;
    await core.inbox.receive([{ ...invite({ sender: '@x:third.net', roomId: other }), eventId: eventId('i99') }]);
    const third = core.admit.handle(core.claim(other));
    await settle();
    expect(waiting).toHaveLength(3);

    core.rooms.room(ROOM, { kind: 'direct', membership: 'invite' });
    expect(await core.take(invite())).toEqual(['joined:direct']);
    for (const go of waiting) go();
    await Promise.all([...handled.slice(0, 2), third]);
    expect(core.count('inbox')).toBe(18);
  });

  test('one that was taken back ends quietly', async () => {
    const core = buildCore();
    core.rooms.room(ROOM, { membership: 'leave' });

    expect(await core.take(invite())).toEqual(['declined:not_joined']);
    expect(core.known.of(ROOM)?.membership).toBe('left');
  });

  test('an encrypted room is joined like any other, and greeted when it is a group', async () => {
    const core = buildCore();
    core.rooms.room(ROOM, { kind: 'group', membership: 'invite', encryption: 'encrypted' });
    const unsigned = {
      invite_room_state: [{ type: 'm.room.encryption', state_key: '', sender: ALICE, content: { algorithm: 'm.megolm.v1.aes-sha2' } }],
    };

    expect(await core.take(invite({ event: { unsigned } as never }))).toEqual(['joined:group']);
    expect(core.greeted).toEqual([ROOM]);
  });

  test('nothing is said to a room whose encryption is unknown: the invite is tried again (G11)', async () => {
    const core = buildCore();
    core.rooms.room(ROOM, { membership: 'invite', kind: 'group', encryption: 'unknown' });
    await core.inbox.receive([invite()]);

    await expect(core.admit.handle(core.claim())).rejects.toBeInstanceOf(Unavailable);

    expect(core.greeted).toEqual([]);
    expect(core.count('inbox')).toBe(1);
    core.rooms.room(ROOM, { encryption: 'none' });
    core.rooms.forget(ROOM);
    await core.admit.handle(core.claim());
    expect(core.greeted).toEqual([ROOM]);
  });

  test('what the inviter wrote before the join is answered, what others wrote is not', async () => {
    const core = buildCore();
    core.execute = null;
    core.rooms.room(ROOM, { membership: 'invite', kind: 'direct' });
    core.rooms.onReadBack = async () => {
      await core.inbox.receive([incoming('hello', { source: 'backfill' }), incoming('bob', { source: 'backfill', sender: BOB })]);
      return true;
    };
    await core.inbox.receive([invite(), incoming('after')]);

    for (const _ of ['invite', 'hello', 'bob', 'after']) await core.admit.handle(core.claim());

    expect(core.admitted).toEqual(['joined:direct', 'admitted:direct', 'ignored:history', 'admitted:direct']);
    expect(prompts(core)).toEqual(['hello', 'after']);
  });

  test('a room that becomes encrypted is looked at again before anything is said in it (G11)', async () => {
    const core = await inDirectRoom();
    expect((await core.rooms.facts(ROOM)).encryption).toBe('none');
    core.rooms.room(ROOM, { encryption: 'encrypted' });

    expect(await core.take(state('a', 'm.room.encryption', '', { algorithm: 'm.megolm.v1.aes-sha2' }))).toEqual(['ignored:membership']);
    expect((await core.rooms.facts(ROOM)).encryption).toBe('encrypted');
    expect(core.known.of(ROOM)?.membership).toBe('joined');
  });

  test('being thrown out is noted', async () => {
    const core = await inDirectRoom();
    core.rooms.room(ROOM, { membership: 'leave' });

    await core.take(state('kick', 'm.room.member', ORACLE, { membership: 'leave' }, { sender: BOB }));

    expect(core.known.of(ROOM)?.membership).toBe('left');
  });

  test('a leave that a stuck push brings after we were invited again changes nothing', async () => {
    const core = await inDirectRoom();

    await core.take(state('old', 'm.room.member', ORACLE, { membership: 'leave' }, { sender: BOB }));

    expect(core.known.of(ROOM)?.membership).toBe('joined');
    expect(core.inbox.depth().rows).toBe(0);
  });
});

describe('edits', () => {
  test('before the turn starts an edit amends the prompt and the transcript (DESIGN §7)', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a', { text: 'wrnog' }));

    expect(await core.take(edit('e', 'a', 'right'))).toEqual(['amended:edit']);

    expect(prompts(core)).toEqual(['right']);
    expect(core.transcript.newest('$a' as never, { limit: 5 })[0]?.text).toBe('right');
    expect([core.count('runs'), core.count('inbox')]).toEqual([1, 0]);
  });

  test.each<[string, IncomingEvent, string]>([
    ['of somebody else', edit('e', 'a', 'evil', { sender: BOB }), 'ignored:edit_of_another'],
    ['of nothing', edit('e', 'unknown', 'x'), 'ignored:edit_too_late'],
    ['to nothing', edit('e', 'a', '  '), 'ignored:empty_body'],
  ])('an edit %s changes nothing', async (_name, event, outcome) => {
    const core = await inDirectRoom();
    await core.take(incoming('a'));

    expect(await core.take(event)).toEqual([outcome]);

    expect(prompts(core)).toEqual(['a']);
  });

  test('an edit of an earlier prompt is too late', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a'));
    await core.store.write((tx) => {
      const [run] = core.runs.unfinished(1, new Set());
      core.runs.start(tx, run?.id as never, { now: 0, leaseUntil: 0, deadlineAt: 1 });
    });
    await core.take(incoming('b'));

    expect(await core.take(edit('e', 'a', 'late'))).toEqual(['ignored:edit_too_late']);
    expect(prompts(core)).toEqual(['a', 'b']);
  });

  test('a signed prompt is amended only by a signed edit of that very prompt, and its token is spent', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a', { content: signed(core, { msgtype: 'm.text', body: 'a' }) }));
    const content = {
      msgtype: 'm.text',
      body: '* b',
      'm.new_content': { msgtype: 'm.text', body: 'b' },
    };
    const relation = { 'm.relates_to': { rel_type: 'm.replace', event_id: '$a' } };

    const outcomes = await core.take(
      edit('plain', 'a', 'b'),
      incoming('other', { content: { ...signed(core, content, { edits: eventId('z') }), ...relation } }),
      incoming('none', { content: { ...signed(core, content), ...relation } }),
      incoming('good', { content: { ...signed(core, content, { edits: eventId('a') }), ...relation } }),
    );

    expect(outcomes).toEqual(['ignored:edit_of_another', 'ignored:edit_of_another', 'ignored:edit_of_another', 'amended:edit']);
    expect(prompts(core)).toEqual(['b']);
    expect(core.count('replay_marks')).toBe(2);
  });
});

describe('redactions', () => {
  test('of what was said before the window nothing is retold that holds it (G12)', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a', { text: 'my secret' }));
    const summaries = createSummaries({ store: core.store, transcript: core.transcript, clock: core.clock });
    const session = '$a' as SessionId;
    await summaries.write(session, { upTo: 1, text: 'She told a secret.', tainted: false, tier: 'listed', speaker: null });

    await core.take(redaction('r1', 'a'));

    expect(summaries.read(session)).toBeNull();
  });

  test('a prompt taken back before its turn leaves the run, and an empty run is cancelled', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a'), incoming('b'));
    expect(statuses(core)).toEqual(['queued']);

    expect(await core.take(redaction('r1', 'a'))).toEqual(['redacted:redaction']);
    expect(prompts(core)).toEqual(['b']);
    await core.take(redaction('r2', 'b'));

    expect(statuses(core)).toEqual(['cancelled']);
    expect(core.transcript.newest('$a' as never, { limit: 5 })).toEqual([]);
  });

  test('a prompt taken back while it is answered stops the run, and its text is gone (G9)', async () => {
    const core = buildCore();
    await core.joinDirect();
    const holding = held('part of an ans');
    core.runner.script(holding.script);
    await core.take(incoming('a', { text: 'secret' }));
    await settle();
    expect(holding.started).toBe(1);

    expect(await core.take(redaction('r', 'a'))).toEqual(['redacted:redaction']);
    await settle();

    expect(statuses(core)).toEqual(['cancelled']);
    expect(prompts(core)).toEqual(['']);
    expect(core.projection.views[0]?.ended).toMatchObject({ text: 'part of an ans', error: { code: 'RUN_CANCELLED' } });
  });

  test('a prompt taken back while nobody executes its run is not answered at the next start', async () => {
    const core = buildCore();
    const { execute } = core;
    core.execute = null;
    await core.joinDirect();
    await core.take(incoming('a', { text: 'secret' }));
    await core.store.write((tx) => {
      const [run] = core.runs.unfinished(1, new Set());
      core.runs.start(tx, run?.id as never, { now: 0, leaseUntil: 0, deadlineAt: core.clock.now() + 1_000 });
    });
    await core.take(redaction('r', 'a'));

    core.execute = execute;
    core.scheduler.wake();
    await settle();

    expect(statuses(core)).toEqual(['cancelled']);
    expect(core.runner.jobs).toEqual([]);
  });

  test('a moderator of the room takes a prompt and what was overheard back, one of another room does not (G9)', async () => {
    const core = await inGroup();
    core.rooms.room(OTHER_ROOM, { levels: new Map([[STRANGER, 100]]) });
    core.rooms.room(ROOM, { levels: new Map([[BOB, 50]]) });
    await core.take(incoming('noise', { text: 'something bad' }), incoming('a', { text: 'Oracle: something worse' }));

    expect(await core.take(redaction('r1', 'a', { sender: STRANGER, roomId: OTHER_ROOM }))).toEqual(['ignored:redaction']);
    expect([prompts(core), core.transcript.overheard(ROOM, 10).length]).toEqual([['Oracle: something worse'], 1]);

    expect(await core.take(redaction('r2', 'a', { sender: BOB }), redaction('r3', 'noise', { sender: BOB }))).toEqual([
      'redacted:redaction',
      'ignored:redaction',
    ]);
    expect([prompts(core), statuses(core), core.transcript.overheard(ROOM, 10)]).toEqual([[], ['cancelled'], []]);
    expect(core.store.read.all(core.store.sql.selectFrom('transcript').select('text').where('text', '!=', ''))).toEqual([]);
  });

  test('somebody else cannot take a prompt back', async () => {
    const core = await inDirectRoom();
    await core.take(incoming('a'));

    expect(await core.take(redaction('r', 'a', { sender: BOB }))).toEqual(['ignored:redaction']);

    expect(prompts(core)).toEqual(['a']);
  });

  test('what was only overheard is forgotten when its author takes it back, and only then', async () => {
    const core = await inGroup();
    await core.take(incoming('noise', { sender: BOB }));
    await core.take(redaction('r1', 'noise', { sender: ALICE }));
    expect(core.transcript.overheard(ROOM, 5)).toHaveLength(1);

    await core.take(redaction('r2', 'noise', { sender: BOB }));

    expect(core.transcript.overheard(ROOM, 5)).toEqual([]);
    expect(core.store.read.get(core.store.sql.selectFrom('transcript').select('text'))?.text).toBe('');
  });
});

test('an event that is given up is buried and its writer is told, if it was for the oracle (G1)', async () => {
  const core = await inDirectRoom();
  await core.inbox.receive([incoming('a'), state('name', 'm.room.name', '', { name: 'x' })]);
  await core.admit.giveUp(core.claim());
  await core.admit.giveUp(core.claim());

  expect(core.said()).toMatchObject([{ lane: 'notice.$a', content: { code: 'GAVE_UP' } }]);
  expect(core.inbox.depth()).toMatchObject({ rows: 0, dead: 2 });
});

test('what was given up and taken back is not kept for a requeue', async () => {
  const core = await inDirectRoom();
  await core.inbox.receive([incoming('a', { text: 'my secret' })]);
  await core.admit.giveUp(core.claim());

  await core.take(redaction('r1', 'a', { sender: BOB }));
  expect(core.inbox.depth().dead).toBe(1);
  await core.take(redaction('r2', 'a'));

  expect([core.inbox.depth().dead, core.count('inbox')]).toEqual([0, 0]);
});

test('nothing secret reaches the logs: no text, no token (G12)', async () => {
  const core = await inDirectRoom();
  const content = signed(core, { msgtype: 'm.text', body: 'my secret' });
  await core.take(incoming('a', { content }), incoming('b', { content }), incoming('c', { text: 'my secret', sender: STRANGER }));

  const logged = JSON.stringify(core.logger.lines);

  expect(logged).not.toContain('secret');
  expect(logged).not.toContain(JSON.stringify(content['ixo.oracle.ucan']).slice(20, 60));
});

describe('a crash before any write of a step repeats the whole step or nothing (G1, G2, G4)', () => {
  type Setup = { options?: CoreOptions; before?: (core: Core) => Promise<unknown>; event: (core: Core) => IncomingEvent; room?: RoomId };
  const cases: Record<string, Setup> = {
    'an admitted message': { event: () => incoming('a') },
    'a signed message': { event: (core) => incoming('a', { content: signed(core, { msgtype: 'm.text', body: 'a' }) }) },
    'a message that joins a waiting run': { before: (core) => core.take(incoming('first')), event: () => incoming('a') },
    'a late one': { event: () => incoming('a', { ageMs: 1e9 }) },
    'a refused one': { options: { rules: { unsignedUsers: [] } }, event: () => incoming('a') },
    'one past the rate': { options: { rate: { limit: 0, windowMs: 60_000 } }, event: () => incoming('a') },
    'an overheard one': { before: async (core) => core.rooms.room(ROOM, { kind: 'group' }), event: () => incoming('a') },
    'an unreadable one': { event: () => incoming('a', { event: { type: 7 } as never }) },
    'an accepted invite': {
      before: async (core) => core.rooms.room(OTHER_ROOM, { kind: 'group', membership: 'invite' }),
      event: () => invite({ roomId: OTHER_ROOM }),
      room: OTHER_ROOM,
    },
    'a declined invite': {
      before: async (core) => core.rooms.room(OTHER_ROOM, { membership: 'invite' }),
      event: () => invite({ roomId: OTHER_ROOM, sender: STRANGER }),
      room: OTHER_ROOM,
    },
    'an edit': { before: (core) => core.take(incoming('first')), event: () => edit('a', 'first', 'changed') },
    'a redaction': { before: (core) => core.take(incoming('first')), event: () => redaction('a', 'first') },
    'a room that becomes encrypted': { event: () => state('a', 'm.room.encryption', '', { algorithm: 'x' }) },
  };

  /** Everything but ids that are made anew and times. */
  function digest(core: Core): unknown {
    const { read, sql } = core.store;
    return {
      inbox: read.all(sql.selectFrom('inbox').select(['event_id', 'state'])),
      runs: read.all(sql.selectFrom('runs').select(['session_id', 'status', 'tier'])),
      inputs: read.all(sql.selectFrom('pending_inputs').select(['prompt_id', 'text']).orderBy('id')),
      transcript: read.all(sql.selectFrom('transcript').select(['event_id', 'text', 'redacted']).orderBy('id')),
      outbox: read.all(sql.selectFrom('outbox').select(['txn_id', 'content']).orderBy('seq')),
      audit: read.all(sql.selectFrom('audit').select(['event_id', 'decision', 'code']).orderBy('id')),
      marks: core.count('replay_marks'),
      counts: core.count('rate_counts'),
      links: core.count('links'),
      rooms: read.all(sql.selectFrom('rooms').select(['room_id', 'membership', 'first_read']).orderBy('room_id')),
    };
  }
  async function play({ options = {}, before, event, room = ROOM }: Setup, failAt: number): Promise<{ end: unknown; failed: boolean }> {
    const store = failingStore();
    const core = await inDirectRoom({ ...options, store });
    await before?.(core);
    await core.inbox.receive([event(core)]);
    const row = core.claim(room);
    store.failWrite(failAt);
    const outcome = await core.admit.handle(row).then(
      () => 'done',
      (error: unknown) => error,
    );
    const { failed } = store;
    if (failed) {
      expect(outcome).toBeInstanceOf(StorageError);
      expect(core.inbox.depth().rows).toBe(1);
      store.failWrite(Number.POSITIVE_INFINITY);
      await core.admit.handle(core.claim(room));
    } else expect(outcome).toBe('done');
    return { end: digest(core), failed };
  }

  test.each(Object.entries(cases))('%s', async (_name, setup) => {
    const straight = await play(setup, Number.POSITIVE_INFINITY);
    expect((straight.end as { inbox: unknown[] }).inbox).toEqual([]);
    let writes = 0;
    for (; writes < 10; writes += 1) {
      const crashed = await play(setup, writes);
      if (!crashed.failed) break;
      expect(crashed.end).toEqual(straight.end);
    }
    expect(writes).toBeGreaterThan(0);
  });
});
