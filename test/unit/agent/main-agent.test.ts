import { afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { FREE } from '../../../src/agent/spending.ts';
import { OracleError, refusal } from '../../../src/errors.ts';
import { Drain } from '../../../src/runs/runner.ts';
import { StorageError } from '../../../src/store/store.ts';
import { systemClock } from '../../../src/system-clock.ts';
import { createGate, heldReply, textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { type Bench, fakeOutput, fakeRun, startBench, tool } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});
const start = async (more: Parameters<typeof startBench>[0] = {}): Promise<Bench> => {
  bench = await startBench(more);
  return bench;
};
const bodyOf = (
  one: Bench,
  number: number,
): { messages: { role: string; content: unknown; tool_calls?: unknown[] }[]; tools?: unknown[]; model: string } =>
  one.server.requests[number - 1]?.body as never;
/** Under the tier of `fakeRun`, in a run that read nothing else. */
const SAID = { tier: 'signed' as const, tainted: false };
const clockTool = tool({ name: 'now', description: 'time', schema: z.object({}), handler: () => 'noon' });

describe('a turn', () => {
  test('streams the answer as frames that fold to the outcome', async () => {
    const one = await start();
    one.server.enqueue({ kind: 'text', text: 'Hello there, Alice. How are you?', pace: { tokensPerSecond: 20 } });

    const { outcome, output } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Hello there, Alice. How are you?', model: 'demo' });
    expect(output.folded().text).toBe('Hello there, Alice. How are you?');
    expect(output.calls.filter((call) => call === 'text').length).toBeGreaterThan(2);
    expect(outcome.kind === 'completed' && outcome.messages).toEqual([
      { role: 'ai', text: 'Hello there, Alice. How are you?', message: null },
    ]);
    expect(outcome.kind === 'completed' && outcome.usage?.outputTokens).toBeGreaterThan(0);
  });

  test('the model sees system prompt, window and prompts, and strings as content', async () => {
    const one = await start();
    one.transcript.push(
      {
        id: 1,
        runId: null,
        eventId: '$a',
        role: 'human',
        speaker: 'did:key:zAlice',
        text: 'earlier question',
        message: null,
        at: 0,
        ...SAID,
      },
      { id: 2, runId: null, eventId: '$b', role: 'ai', speaker: 'oracle', text: 'earlier answer', message: null, at: 0, ...SAID },
    );
    one.server.enqueue(textReply('ok'));

    await one.execute({ run: fakeRun({ text: 'now' }) });

    expect(bodyOf(one, 1).messages.map(({ role, content }) => [role, role === 'system' ? typeof content : content])).toEqual([
      ['system', 'string'],
      ['user', 'earlier question'],
      ['assistant', 'earlier answer'],
      ['user', 'now'],
    ]);
  });

  test('runs a tool, and the texts before and after it become one answer', async () => {
    const one = await start({ tools: [clockTool] });
    one.server.enqueue({ kind: 'toolCalls', text: 'Let me look.', calls: [{ name: 'now', args: {}, id: 'c1' }] }, textReply('It is noon.'));

    const { outcome, output } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'Let me look.\n\nIt is noon.' });
    expect(output.folded().text).toBe('Let me look.\n\nIt is noon.');
    expect(output.tools.map(({ status }) => status)).toEqual(['isRunning', 'done']);
    expect(outcome.kind === 'completed' && outcome.messages.map(({ role, text }) => [role, text])).toEqual([
      ['ai', 'Let me look.'],
      ['tool', 'noon'],
      ['ai', 'It is noon.'],
    ]);
    expect(output.calls.indexOf('consumed')).toBeLessThan(output.calls.indexOf('tool now isRunning'));
  });

  test('the next turn of a session sends only its own prompt beside the window (G16)', async () => {
    const one = await start();
    one.server.enqueue(textReply('first'), textReply('second'));
    await one.execute({ run: fakeRun({ text: 'one' }) });

    await one.execute({ run: fakeRun({ text: 'two' }) });

    expect(
      bodyOf(one, 2)
        .messages.map(({ content }) => content)
        .slice(1),
    ).toEqual(['two']);
  });
});

describe('tools', () => {
  test('what others notice needs a signed message, in a direct chat and in a group (G8)', async () => {
    let ran = 0;
    const external = tool({
      name: 'post',
      description: 'd',
      schema: z.object({}),
      effect: 'write',
      reach: 'external',
      handler: () => void ++ran,
    });
    const one = await start({ tools: [external] });
    one.server.respond((request) =>
      request.messages.at(-1)?.role === 'tool' ? textReply('refused') : toolCallsReply({ name: 'post', args: {} }),
    );

    await one.execute({ run: fakeRun({ tier: 'listed' }) });
    await one.execute({ run: fakeRun({ tier: 'sender-bound', direct: false }) });
    expect(ran).toBe(0);

    await one.execute({ run: fakeRun() });
    await one.execute({ run: fakeRun({ direct: false }) });
    expect(ran).toBe(2);
  });

  test('bad arguments, unknown tools, broken JSON and a throwing handler are messages to the model', async () => {
    const strict = tool({
      name: 'strict',
      description: 'd',
      schema: z.object({ n: z.number() }),
      handler: () => {
        throw new Error('boom');
      },
    });
    const one = await start({ tools: [strict] });
    one.server.enqueue(
      toolCallsReply(
        { name: 'strict', args: { n: 'x' } },
        { name: 'nosuch', args: {} },
        { name: 'strict', args: '{"n":' },
        { name: 'strict', args: { n: 1 } },
      ),
      textReply('done'),
    );

    const { outcome } = await one.execute();

    const results = outcome.kind === 'completed' ? outcome.messages.filter(({ role }) => role === 'tool').map(({ text }) => text) : [];
    expect(results[0]).toContain('n: ');
    expect(results[1]).toContain('no tool named');
    expect(results[2]).toContain('not valid JSON');
    expect(results[3]).toContain('boom');
  });

  test('a finished write is answered from its mark and an interrupted one is not run again (G6)', async () => {
    let ran = 0;
    const write = tool({ name: 'write', description: 'd', schema: z.object({}), effect: 'write', handler: () => `run ${++ran}` });
    const one = await start({ tools: [write] });
    one.marks.rows.set('done', { state: 'finished', result: JSON.stringify({ v: 1, status: 'success', text: 'stored result' }) });
    one.marks.rows.set('half', { state: 'started', result: null });
    one.server.enqueue(
      toolCallsReply(
        { name: 'write', args: {}, id: 'done' },
        { name: 'write', args: {}, id: 'half' },
        { name: 'write', args: {}, id: 'new' },
      ),
      textReply('ok'),
    );

    const { outcome } = await one.execute();

    const results = outcome.kind === 'completed' ? outcome.messages.filter(({ role }) => role === 'tool').map(({ text }) => text) : [];
    expect(results).toEqual(['stored result', expect.stringContaining('unknown'), 'run 1']);
    expect(one.marks.rows.get('new')?.state).toBe('finished');
  });

  test('a provider that repeats its call ids does not meet the mark of another call (G6)', async () => {
    let ran = 0;
    const write = tool({ name: 'write', description: 'd', schema: z.object({}), effect: 'write', handler: () => `run ${++ran}` });
    const one = await start({ tools: [write] });
    one.server.enqueue(
      toolCallsReply({ name: 'write', args: {}, id: 'call_0' }),
      toolCallsReply({ name: 'write', args: {}, id: 'call_0' }),
      textReply('ok'),
    );

    await one.execute();

    expect(ran).toBe(2);
  });

  test('the same mistake three times closes the tools, and the model answers; the third time it is not made', async () => {
    let ran = 0;
    const bad = tool({
      name: 'bad',
      description: 'd',
      schema: z.object({}),
      handler: () => {
        ran += 1;
        throw new Error('always');
      },
    });
    const one = await start({ tools: [bad] });
    one.server.respond((request) => (request.tools.length === 0 ? textReply('I cannot.') : toolCallsReply({ name: 'bad', args: {} })));

    const { outcome } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'completed', text: 'I cannot.' });
    expect(one.server.requests.length).toBe(4);
    expect(ran).toBe(2);
  });
});

describe('failures', () => {
  test('a cut stream after partial text keeps the text and fails; the next turn works (G15)', async () => {
    const one = await start();
    one.server.enqueue({ kind: 'cut', text: ['Half ', 'an answer'], fraction: 0.5 }, textReply('whole'));

    const { outcome, output } = await one.execute();
    expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'MODEL_ERROR' }, messages: [{ role: 'ai', text: 'Half ' }] });
    expect(output.folded().text).toBe('Half ');

    expect((await one.execute()).outcome).toMatchObject({ kind: 'completed', text: 'whole' });
  });

  test('an error before the first token is tried again, one after it is not', async () => {
    // Back-off without waiting; the idle time-out is longer and stays.
    const clock = {
      ...systemClock,
      after: (delayMs: number, callback: () => void) => systemClock.after(delayMs < 1_000 ? 0 : delayMs, callback),
    };
    const one = await start({ clock });
    one.server.enqueue({ kind: 'status', status: 500 }, textReply('recovered'), {
      kind: 'errorMidStream',
      text: 'abcdef ghijkl mnopqr',
      how: 'sse_error',
    });

    expect((await one.execute()).outcome).toMatchObject({ kind: 'completed', text: 'recovered' });
    expect((await one.execute()).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'MODEL_ERROR' } });
    expect(one.server.requests.length).toBe(3);
  });

  test('a refusal of the provider is not tried again and says nothing of what it wrote (G12)', async () => {
    const one = await start();
    one.server.enqueue({ kind: 'status', status: 401, message: 'Incorrect API key provided: sk-secret' });

    const { outcome } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'MODEL_REFUSED' } });
    expect(JSON.stringify(outcome) + String((outcome as { refusal: { cause: Error } }).refusal.cause.stack)).not.toContain('sk-secret');
    expect(one.server.requests.length).toBe(1);
  });

  test('a silent model ends with MODEL_TIMEOUT and its socket is closed', async () => {
    const one = await start({ idleTimeoutMs: 60 });
    one.server.enqueue({ kind: 'stall', text: ['some ', 'text'], afterChunks: 1 });

    const { outcome } = await one.execute();

    expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: 'MODEL_TIMEOUT' } });
    expect(await one.server.waitForRequest((request) => request.ended === 'client_disconnected')).toBeTruthy();
  });

  test.each(['no_text', 'only_done'] as const)('an empty answer (%s) is an error, not silence', async (how) => {
    const one = await start();
    one.server.enqueue({ kind: 'empty', how });

    expect((await one.execute()).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'EMPTY_ANSWER' }, messages: [] });
  });
});

describe('storage', () => {
  test('what cannot be written down leaves as itself, so that the run can wait for the disk', async () => {
    const write = tool({ name: 'write', description: 'd', schema: z.object({}), effect: 'write', handler: () => 'x' });
    const full = new StorageError('full');
    const one = await start({ tools: [write], options: { marks: { begin: () => Promise.reject(full), finish: async () => undefined } } });
    one.server.enqueue(toolCallsReply({ name: 'write', args: {} }));

    await expect(one.execute()).rejects.toBe(full);
  });

  test('prompts that cannot be marked consumed stop the turn before its answer counts', async () => {
    const one = await start();
    one.server.enqueue(textReply('hello'));
    const full = new StorageError('full');
    const output = { ...fakeOutput(), promptsConsumed: () => Promise.reject(full) };

    await expect(one.execute({ output })).rejects.toBe(full);
  });

  test('a checkpoint file on a full disk puts the run off, and the next attempt answers (G5)', async () => {
    let pages = 0;
    const bad = tool({
      name: 'fill',
      description: 'd',
      schema: z.object({}),
      handler: () => {
        pages += 1;
        return 'x'.repeat(15_000);
      },
    });
    const one = await start({ tools: [bad] });
    const { PruningSaver } = await import('../../../src/store/checkpoints/pruning-saver.ts');
    const put = PruningSaver.prototype.put;
    PruningSaver.prototype.put = function (this: InstanceType<typeof PruningSaver>, ...args: Parameters<typeof put>) {
      // No page more than there are: SQLITE_FULL, as on a full disk.
      if (pages === 1) this.db.pragma(`max_page_count = ${this.db.pragma('page_count', { simple: true })}`);
      return put.apply(this, args);
    };
    one.server.enqueue(toolCallsReply({ name: 'fill', args: {} }), textReply('done'));
    const run = fakeRun();
    try {
      await expect(one.execute({ run })).rejects.toBeInstanceOf(StorageError);
    } finally {
      PruningSaver.prototype.put = put;
    }
    one.restart();

    expect((await one.execute({ run: { ...run, attempt: 2 } })).outcome).toMatchObject({ kind: 'completed', text: 'done' });
  });
});

describe('stopping', () => {
  test('a cancel closes the socket, keeps the partial text, and the next turn works (G9, G15)', async () => {
    const one = await start();
    const gate = createGate();
    one.server.enqueue(heldReply(gate, 'Part of ', 'it'), textReply('next'));
    const abort = new AbortController();
    const output = fakeOutput();
    const turn = one.execute({ signal: abort.signal, output });
    await gate.reached;
    await expect.poll(() => output.folded().text).toBe('Part of ');

    abort.abort(new OracleError(refusal('RUN_CANCELLED')));

    expect((await turn).outcome).toMatchObject({
      kind: 'failed',
      refusal: { code: 'RUN_CANCELLED' },
      messages: [{ role: 'ai', text: 'Part of ' }],
    });
    await one.server.waitForRequest((request) => request.ended === 'client_disconnected');
    expect((await one.execute()).outcome).toMatchObject({ kind: 'completed', text: 'next' });
  });

  test('a cancel while a tool runs leaves no call without a result, and the next turn works (G15)', async () => {
    const abort = new AbortController();
    const slow = tool({
      name: 'slow',
      description: 'd',
      schema: z.object({}),
      handler: (_args, ctx) => {
        abort.abort(new OracleError(refusal('RUN_CANCELLED')));
        return new Promise((resolve) => ctx.abortSignal.addEventListener('abort', resolve));
      },
    });
    const one = await start({ tools: [slow] });
    one.server.enqueue(toolCallsReply({ name: 'slow', args: {}, id: 'c1' }), textReply('next'));

    const { outcome } = await one.execute({ signal: abort.signal });

    expect(outcome).toMatchObject({
      kind: 'failed',
      messages: [{ role: 'ai' }, { role: 'tool', text: expect.stringContaining('Stopped') }],
    });
    expect((await one.execute()).outcome).toMatchObject({ kind: 'completed', text: 'next' });
    expect(bodyOf(one, 2).messages.map(({ role }) => role)).toEqual(['system', 'user']);
  });

  test('a drain lets the tool step finish, suspends, and the next attempt goes on without running it again (G5)', async () => {
    const abort = new AbortController();
    let ran = 0;
    const work = tool({
      name: 'work',
      description: 'd',
      schema: z.object({}),
      handler: async () => {
        ran += 1;
        abort.abort(new Drain());
        return 'worked';
      },
    });
    const one = await start({ tools: [work] });
    one.server.enqueue({ kind: 'toolCalls', text: 'Working.', calls: [{ name: 'work', args: {} }] }, textReply('Done.'));
    const first = await one.execute({ signal: abort.signal });
    expect(first.outcome).toEqual({ kind: 'suspended' });
    one.restart();

    const second = await one.execute({ run: { ...first.run, attempt: 2 }, shownText: 'Working.' });

    expect(second.outcome).toMatchObject({ kind: 'completed', text: 'Working.\n\nDone.' });
    expect(second.output.folded().text).toBe('Working.\n\nDone.');
    expect(ran).toBe(1);
  });

  test('an answer that was not checkpointed is generated again in the place of what was shown (G5)', async () => {
    const one = await start({ options: { drainGraceMs: 0 } });
    const gate = createGate();
    one.server.enqueue(heldReply(gate, 'Lost ', 'text'), textReply('Fresh text'));
    const abort = new AbortController();
    const output = fakeOutput();
    const turn = one.execute({ signal: abort.signal, output });
    await expect.poll(() => output.folded().text).toBe('Lost ');
    abort.abort(new Drain());
    const { outcome, run } = await turn;
    expect(outcome).toEqual({ kind: 'suspended' });

    const second = await one.execute({ run: { ...run, attempt: 2 }, shownText: 'Lost ' });

    expect(second.output.calls[0]).toBe('truncate 0');
    expect(second.output.folded().text).toBe('Fresh text');
  });

  test('a finished checkpoint gives the answer without a model call', async () => {
    const one = await start();
    one.server.enqueue(textReply('The answer.'));
    const { run } = await one.execute();

    const again = await one.execute({ run: { ...run, attempt: 2 }, shownText: 'The ans' });

    expect(again.outcome).toMatchObject({ kind: 'completed', text: 'The answer.' });
    expect(again.output.folded().text).toBe('The answer.');
    expect(again.output.calls).toContain('consumed');
    expect(one.server.requests.length).toBe(1);
  });

  test('a second attempt that finds the checkpoint of another turn starts afresh', async () => {
    const one = await start();
    one.server.enqueue(textReply('old'), textReply('new'));
    await one.execute();

    const { outcome } = await one.execute({ run: fakeRun({ attempt: 2, text: 'mine' }) });

    expect(outcome).toMatchObject({ kind: 'completed', text: 'new' });
  });
});

test('in a group the speaker is named in front of the prompt', async () => {
  const one = await start();
  one.server.enqueue(textReply('ok'));

  await one.execute({
    run: fakeRun({ direct: false, text: 'hi', principalId: 'matrix:u/bob:test' as never, matrixUserId: '@bob:test' as never }),
  });

  expect(bodyOf(one, 1).messages.at(-1)?.content).toBe('@bob:test: hi');
});

test('a first mention in a group sees what was said before it, a later one its own thread only', async () => {
  const one = await start();
  const entry = { runId: null, eventId: null, role: 'human' as const, message: null, at: 0, tier: null, tainted: false };
  one.overheard.push({ ...entry, id: 1, speaker: 'matrix:u/bob:test', text: 'Pizza or pasta?' });
  one.server.enqueue(textReply('a'), textReply('b'), textReply('c'));
  const sent = (number: number) =>
    bodyOf(one, number)
      .messages.slice(1)
      .map(({ content }) => content);

  await one.execute({ run: fakeRun({ direct: false, text: 'what do you think?' }) });
  await one.execute({ run: fakeRun({ text: 'in a direct room' }) });
  one.transcript.push({ ...entry, id: 2, speaker: 'did:key:zAlice', text: 'earlier' });
  await one.execute({ run: fakeRun({ direct: false, text: 'and now?' }) });

  expect(sent(1)).toEqual([expect.stringContaining('@bob:test: Pizza or pasta?'), '@alice:test: what do you think?']);
  expect(sent(2)).toEqual(['in a direct room']);
  expect(sent(3)).toEqual(['@alice:test: earlier', '@alice:test: and now?']);
});

test('a turn may ask for another model of the list, and for no other', async () => {
  const one = await start();
  one.server.enqueue(textReply('a'), textReply('b'));
  await one.execute({ run: fakeRun({ hints: { model: 'other' } }) });
  await one.execute({ run: fakeRun({ hints: { model: 'expensive' } }) });

  expect([bodyOf(one, 1).model, bodyOf(one, 2).model]).toEqual(['other', 'demo']);
});

test('a price that cannot be written down puts the run off, and is no failure of the model', async () => {
  const full = new StorageError('full');
  const one = await start({ options: { spending: { ...FREE, spend: () => Promise.reject(full) } } });
  one.server.enqueue(textReply('hello'));

  await expect(one.execute()).rejects.toBe(full);
});

test('a turn whose credits are used up asks no model (402)', async () => {
  const one = await start({ options: { spending: { ...FREE, maySpend: async () => false } } });

  expect((await one.execute()).outcome).toMatchObject({ kind: 'failed', refusal: { code: 'OUT_OF_CREDITS', status: 402 } });
  expect(one.server.requests).toHaveLength(0);
});
