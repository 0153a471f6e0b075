import { describe, expect, test } from 'vitest';
import type { RunId, SessionId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import { mayReplace, type Replaceable } from '../../../src/runs/replace.ts';
import type { RunJob } from '../../../src/runs/runner.ts';
import { createToolMarks } from '../../../src/runs/tool-marks.ts';
import { NO_GRANTS, type RestsOn } from '../../../src/turn/principal.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { ALICE_KEY, buildCore, type Core, type CoreOptions, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, listed, ROOM, roomId } from '../../fakes/events.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fileStore, settle } from '../../fakes/memory-store.ts';
import { answering, held } from '../../fakes/scripted-runner.ts';

async function setUp(options: CoreOptions = {}): Promise<Core> {
  const core = buildCore(options);
  await core.joinDirect();
  return core;
}
const edit = (name: string, target: string, text: string, change: Partial<IncomingEvent> = {}) =>
  incoming(name, {
    content: {
      msgtype: 'm.text',
      body: `* ${text}`,
      'm.new_content': { msgtype: 'm.text', body: text },
      'm.relates_to': { rel_type: 'm.replace', event_id: target },
    },
    ...change,
  });
const redaction = (name: string, target: string): IncomingEvent => {
  const base = incoming(name, { type: 'm.room.redaction' });
  return { ...base, event: { ...base.event, redacts: target, content: { redacts: target } } };
};
const runsOf = ({ store }: Core): string[] =>
  store.read
    .all(store.sql.selectFrom('runs').select(['run_id', 'status', 'replaces']).orderBy('run_id'))
    .map(({ run_id, status, replaces }) => {
      const prompts = store.read.all(store.sql.selectFrom('pending_inputs').select('text').where('run_id', '=', run_id).orderBy('id'));
      return `${status}${replaces === null ? '' : ' anew'}: ${prompts.map(({ text }) => text).join('+')}`;
    });
const conversation = (core: Core): string[] =>
  core.transcript.newest('$a' as SessionId, { limit: 20 }).map(({ role, text }) => `${role}: ${text}`);
const asked = (core: Core): string[][] => core.runner.jobs.map(({ run }) => run.prompts.map(({ text }) => text));

test('an edit of the last prompt is answered anew, and the old answer is no part of the conversation (DESIGN §7)', async () => {
  const core = await setUp();
  core.runner.script(answering('old answer'), answering('new answer'));
  await core.take(incoming('a', { text: 'old' }));
  await settle();

  expect(await core.take(edit('e', '$a', 'new'))).toEqual(['admitted:edit']);
  await settle();

  expect(runsOf(core)).toEqual(['completed: ', 'completed anew: new']);
  expect(asked(core)).toEqual([['old'], ['new']]);
  expect(conversation(core)).toEqual(['human: new', 'ai: new answer']);
  expect(core.count('inbox')).toBe(0);
});

test('an edit while its run works ends that run first; nothing of it is kept', async () => {
  const core = await setUp();
  core.runner.script(held('Half').script, answering('new answer'));
  await core.take(incoming('a', { text: 'old' }));
  await settle();

  await core.take(edit('e', '$a', 'new'));
  await settle();

  expect(runsOf(core)).toEqual(['cancelled: ', 'completed anew: new']);
  expect(conversation(core)).toEqual(['human: new', 'ai: new answer']);
});

test('prompts that were answered together stay together', async () => {
  const core = await setUp();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a'), incoming('b'));
  core.execute = execute;
  core.scheduler.wake();
  await settle();

  await core.take(edit('e', '$b', 'better'));
  await settle();

  expect(asked(core)).toEqual([
    ['a', 'b'],
    ['a', 'better'],
  ]);
  expect(conversation(core)).toEqual(['human: a', 'human: better', 'ai: Hello.']);
});

test('edited again and again, also in the middle: one run each, and the last one counts', async () => {
  const core = await setUp();
  core.runner.script(answering('one'), held('tw').script, answering('three'));
  await core.take(incoming('a', { text: '1' }));
  await settle();
  await core.take(edit('e1', '$a', '2'));
  await settle();
  await core.take(edit('e2', '$a', '3'));
  await settle();

  expect(runsOf(core)).toEqual(['completed: ', 'cancelled anew: ', 'completed anew: 3']);
  expect(conversation(core)).toEqual(['human: 3', 'ai: three']);
});

describe('an edit changes nothing', () => {
  test.each<[string, (core: Core) => Promise<unknown>, IncomingEvent, string]>([
    ['of somebody else (G13)', async () => undefined, edit('e', '$a', 'evil', { sender: BOB }), 'ignored:edit_of_another'],
    ['that says the same', async () => undefined, edit('e', '$a', 'a'), 'ignored:edit_of_nothing'],
    ['after a further message', (core) => core.take(incoming('b')), edit('e', '$a', 'x'), 'ignored:edit_too_late'],
    [
      'of what was taken back',
      (core) => core.take(incoming('r', { type: 'm.room.redaction', content: { redacts: '$a' } })),
      edit('e', '$a', 'x'),
      'ignored:edit_too_late',
    ],
    ['that was under way for too long', async () => undefined, edit('e', '$a', 'x', { ageMs: 16 * 60_000 }), 'ignored:edit_too_late'],
    ['into a command', async () => undefined, edit('e', '$a', '!revoke all'), 'ignored:not_a_prompt'],
    ['into nothing', async () => undefined, edit('e', '$a', ' '), 'ignored:empty_body'],
  ])('%s', async (_name, before, event, outcome) => {
    const core = await setUp();
    await core.take(incoming('a'));
    await settle();
    await before(core);
    await settle();
    const runs = core.count('runs');

    expect(await core.take(event)).toEqual([outcome]);
    await settle();

    expect(core.count('runs')).toBe(runs);
    expect(core.count('inbox')).toBe(0);
  });

  test('past the limit of turns (G14)', async () => {
    const core = await setUp({ rate: { limit: 1, windowMs: 60_000 } });
    await core.take(incoming('a'));
    await settle();

    expect(await core.take(edit('e', '$a', 'b'))).toEqual(['ignored:edit_refused']);
    expect(runsOf(core)).toEqual(['completed: a']);
  });

  test('of a bot that goes on editing as fast as it is answered', async () => {
    const core = await setUp({ admit: { botHopBudget: 3 } });
    await core.take(incoming('a'));
    await settle();
    const outcomes: string[] = [];
    for (const text of ['b', 'c', 'd']) {
      outcomes.push(...(await core.take(edit(text, '$a', text))));
      await settle();
    }

    expect(outcomes).toEqual(['admitted:edit', 'admitted:edit', 'ignored:bot_loop']);
    core.clock.advance(5_000);
    expect(await core.take(edit('e', '$a', 'e'))).toEqual(['admitted:edit']);
  });

  test('unsigned, of a signed prompt: it needs an authority of its own (G8)', async () => {
    const core = await setUp();
    const content = signContent(
      {
        key: ALICE_KEY,
        audience: ORACLE_KEY.did,
        room: ROOM,
        sender: ALICE,
        type: 'm.room.message',
        ts: core.clock.now(),
        nonce: newNonce(),
      },
      { msgtype: 'm.text', body: 'a' },
    );
    await core.take(incoming('a', { content }));
    await settle();

    expect(await core.take(edit('e', '$a', 'x'))).toEqual(['ignored:edit_of_another']);
    expect(runsOf(core)).toEqual(['completed: a']);
  });
});

const ANOTHER_GRANT: RestsOn = { path: [{ tokenId: 't', cid: 'c', issuer: 'i', audience: 'a', expiresAt: 1 } as never], until: 1 };
test.each([
  ['the same', {}, {}, true],
  ['another principal', { principalId: 'did:key:zBob' as never }, {}, false],
  ['another account', { matrixUserId: BOB }, {}, false],
  ['another room', { roomId: roomId('other') }, {}, false],
  ['a higher tier', {}, { tier: 'signed' }, true],
  ['a higher tier, with other prompts beside it', { hasOthers: true }, { tier: 'signed' }, false],
  ['resting on another grant', {}, { grants: ANOTHER_GRANT }, true],
  ['resting on another grant, with other prompts beside it', { hasOthers: true }, { grants: ANOTHER_GRANT }, false],
  ['a lower tier', { tier: 'signed' }, {}, false],
] as const)('who may have it answered anew: %s', (_name, run, principal, expected) => {
  const old = {
    runId: 'r' as RunId,
    sessionId: '$a' as SessionId,
    roomId: ROOM,
    threadRoot: null,
    owner: listed().id,
    matrixUserId: ALICE,
    principalId: listed().id,
    tier: 'listed',
    hints: {},
    direct: true,
    trust: null,
    grants: NO_GRANTS,
    isWorking: false,
    text: 'a',
    hasOthers: false,
    ...run,
  } satisfies Replaceable;
  expect(mayReplace({ ...listed(), ...principal }, ROOM, old)).toBe(expected);
});

test('what the tools of the old run wrote counts as done, once (G6)', async () => {
  const core = await setUp();
  const marks = createToolMarks({ store: core.store, clock: core.clock });
  const decisions: string[] = [];
  const call = (runId: RunId, toolCallId: string, argsHash = 'h') => ({ runId, toolCallId, tool: 'pay', argsHash });
  core.runner.script(
    async (job) => {
      await marks.begin(call(job.run.id, 'c1'), 1);
      await marks.finish(call(job.run.id, 'c1'), 'paid');
      return answering('old')(job);
    },
    async (job) => {
      for (const [id, hash] of [
        ['c1', 'h'],
        ['c2', 'h'],
        ['c3', 'other'],
      ] as const) {
        const decision = await marks.begin(call(job.run.id, id, hash), job.run.attempt);
        decisions.push(`${id} ${decision.kind}${decision.kind === 'stored' ? ` ${decision.result}` : ''}`);
      }
      return answering('new')(job);
    },
  );
  await core.take(incoming('a'));
  await settle();
  await core.take(edit('e', '$a', 'b'));
  await settle();

  expect(decisions).toEqual(['c1 stored paid', 'c2 run', 'c3 run']);
});

test('also when the run in between never started: nothing is written twice (G6)', async () => {
  const core = await setUp();
  const marks = createToolMarks({ store: core.store, clock: core.clock });
  const decisions: string[] = [];
  const pays = async (job: RunJob) => {
    const key = { runId: job.run.id, toolCallId: `c${decisions.length}`, tool: 'pay', argsHash: 'h' };
    const decision = await marks.begin(key, job.run.attempt);
    if (decision.kind === 'run') await marks.finish(key, 'paid');
    decisions.push(decision.kind);
    return answering('done')(job);
  };
  core.runner.script(pays, pays, pays);
  await core.take(incoming('a'));
  await settle();
  const { execute } = core;
  core.execute = null;
  await core.take(edit('e1', '$a', 'b'), incoming('s', { text: '!stop' }));
  core.execute = execute;
  await core.take(edit('e2', '$a', 'c'));
  await settle();

  expect(runsOf(core)).toEqual(['completed: ', 'cancelled anew: ', 'completed anew: c']);
  expect(decisions).toEqual(['run', 'stored']);
});

test('a turn of which a prompt was taken back is not answered anew: what its tools wrote is not known any more (G6)', async () => {
  const core = await setUp();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a'), incoming('b'));
  core.execute = execute;
  core.scheduler.wake();
  await settle();
  await core.take(redaction('r', '$a'));
  await settle();

  expect(await core.take(edit('e', '$b', 'better'))).toEqual(['ignored:edit_too_late']);
});

test('a run that starts while an edit is looked at is answered anew, not with what was corrected', async () => {
  const core = await setUp();
  const { execute } = core;
  core.execute = null;
  await core.take(incoming('a', { text: 'old' }));
  const checks = core.checks as { authenticate: Core['checks']['authenticate'] };
  const { authenticate } = checks;
  checks.authenticate = async (message) => {
    core.execute = execute;
    core.scheduler.wake();
    await settle();
    return authenticate(message);
  };

  expect(await core.take(edit('e', '$a', 'new'))).toEqual(['admitted:edit']);
  await settle();

  expect(runsOf(core)).toEqual(['completed: ', 'completed anew: new']);
  expect(core.count('inbox')).toBe(0);
});

test('a crash between the edit and the end of the old run: only the edited prompt is answered (G2, G5)', async () => {
  const clock = fakeClock();
  const { open } = fileStore();
  const first = await setUp({ store: open(), clock });
  first.runner.script(() => new Promise(() => undefined));
  await first.take(incoming('a', { text: 'old' }));
  await settle();
  await first.take(edit('e', '$a', 'new'));

  const second = buildCore({ store: open(), clock, fence: 2 });
  second.runner.script(answering('new answer'));
  second.scheduler.wake();
  await settle();

  expect(runsOf(second)).toEqual(['cancelled: ', 'completed anew: new']);
  expect(asked(second)).toEqual([['new']]);
  expect(conversation(second)).toEqual(['human: new', 'ai: new answer']);
});
