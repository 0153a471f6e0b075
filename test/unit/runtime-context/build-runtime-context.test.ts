import { HumanMessage } from '@langchain/core/messages';
import { describe, expect, test } from 'vitest';
import type { EventId } from '../../../src/ids.ts';
import { createModels } from '../../../src/models/models.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import type { FrameData } from '../../../src/runs/run.ts';
import { buildRuntimeContext, type RuntimeContextSources } from '../../../src/runtime-context/build-runtime-context.ts';
import { createTestAuthority } from '../../../src/testing-authority.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';

/** An oracle without a key. */
const noDownstream = createTestAuthority({ granted: [], canSign: false, now: () => 0 }).downstream;

function setUp(more: Partial<RuntimeContextSources> = {}) {
  const lines: string[] = [];
  const frames: FrameData['tool_call'][] = [];
  const emitted: { kind: string; data: unknown }[] = [];
  let over = false;
  const clock = fakeClock();
  const context = buildRuntimeContext({
    run: fakeRun({ hints: { timezone: 'Asia/Kolkata' } }),
    now: () => clock.now(),
    models: createModels({ clock, apiKey: 'k', roles: { main: 'demo' }, idleTimeoutMs: 1 }),
    matrix: noMatrix,
    config: { CITY: 'Bonn' },
    plugins: new Set(['clock']),
    logger: createLogger({ level: 'debug', format: 'json', destination: { write: (line) => lines.push(line) } }),
    readMessages: () => [new HumanMessage('one'), new HumanMessage('two'), new HumanMessage('three')],
    sendToolCall: (data) => frames.push(data),
    emit: (kind, data) => emitted.push({ kind, data }),
    signal: new AbortController().signal,
    actingGrants: () => [],
    downstream: noDownstream,
    isTainted: () => false,
    isOver: () => over,
    plugin: 'clock',
    call: { id: 'c1', tool: 'current_time', mayWriteExternally: false },
    ...more,
  });
  const end = (): void => {
    over = true;
  };
  return { context, lines, frames, emitted, end };
}

test("the seed's fields are there", () => {
  const { context } = setUp();

  expect(context.user).toMatchObject({
    did: 'did:key:zAlice',
    matrixUserId: '@alice:test',
    ucanDelegation: { raw: '' },
    timezone: 'Asia/Kolkata',
  });
  expect(context.user.currentTime).toBe('2026-01-01T05:30:00+05:30');
  expect(context.session).toMatchObject({ id: '$session', client: 'matrix', requestId: 'req', roomId: '!room:test' });
  expect(context.history.recent(2).map(({ text }) => text)).toEqual(['two', 'three']);
  expect(context.history.recent(0)).toEqual([]);
  expect(context.history.state).toMatchObject({ loadedPlugins: ['clock'], userContext: {} });
  expect(context.config).toEqual({ CITY: 'Bonn' });
  expect([...context.availablePlugins, ...context.loadedPlugins]).toEqual(['clock', 'clock']);
  expect(context.llm.get('main')).toBeDefined();
  expect(context.toolCallId).toBe('c1');
  expect(context.abortSignal.aborted).toBe(false);
});

test('a run without grants has no capability, and asking for one is a typed error (G8)', () => {
  const { context } = setUp();

  expect(context.ucan.hasCapability('ixo:oracle', '*')).toBe(false);
  expect(context.ucan.hasSigningKey()).toBe(false);
  expect(() => context.ucan.requireCapability('ixo:oracle', '*')).toThrow(
    expect.objectContaining({ refusal: expect.objectContaining({ code: 'NEEDS_GRANT' }) }),
  );
});

describe('parts that are not built yet name themselves', () => {
  const { context } = setUp();
  test.each<[string, () => unknown]>([
    ['secrets.getIndex', () => context.secrets.getIndex()],
    ['secrets.getValues', () => context.secrets.getValues(['a'])],
    ['blobStore.put', () => context.blobStore.put({ userDid: 'd', name: 'n', value: 'v' })],
    ['blobStore.isValidBlobId', () => context.blobStore.isValidBlobId('x')],
    ['shared.memory', () => (context.shared as Record<string, unknown>)['memory']],
  ])('%s', async (part, use) => {
    await expect(async () => use()).rejects.toMatchObject({ refusal: { code: 'NOT_AVAILABLE', details: { part } } });
  });
});

test('after the turn every property and every method throws, also one taken out before', async () => {
  const { context, end } = setUp();
  const { getRoomState } = context.matrix;
  const { recent } = context.history;
  const { emit } = context;
  end();

  const stale = expect.objectContaining({ refusal: expect.objectContaining({ code: 'STALE_CONTEXT' }) });
  for (const key of [
    'user',
    'session',
    'history',
    'config',
    'matrix',
    'ucan',
    'llm',
    'emit',
    'logger',
    'abortSignal',
    'shared',
    'toolCallId',
  ] as const)
    expect(() => context[key]).toThrow(stale);
  expect(() => getRoomState('!room:test')).toThrow(stale);
  expect(() => recent(1)).toThrow(stale);
  expect(() => emit.toolCall).toThrow(stale);
});

test('a plugin cannot change what others read', () => {
  const { context } = setUp();

  expect(() => Object.assign(context, { user: { did: 'did:key:zMallory' } })).toThrow(TypeError);
  expect(() => Object.assign(context.user, { did: 'did:key:zMallory' })).toThrow(TypeError);
  expect(() => Object.assign(context.config as object, { CITY: 'x' })).toThrow(TypeError);
  expect(context.user.did).toBe('did:key:zAlice');
});

test('nor what is known of the person, however deep: the next plugin and the prompt read it as well', () => {
  const known = { identity: ['Alice'] };
  const { context } = setUp({ readUserContext: () => known });

  (context.history.userContext['identity'] as string[]).push('an administrator');
  (context.history.state.userContext['identity'] as string[]).push('an administrator');

  expect(known).toEqual({ identity: ['Alice'] });
});

test('a payload of emit.toolCall is checked and bounded (G14)', () => {
  const { context, frames } = setUp();
  context.emit.toolCall({ id: 'x', name: 'step', status: 'done' });

  expect(frames).toEqual([{ id: 'x', name: 'step', status: 'done' }]);
  expect(() => context.emit.toolCall({ id: 'x', name: 'step', status: 'other' as 'done' })).toThrow('id, name and status');
  expect(() => context.emit.toolCall({ id: 'x', name: 'step', status: 'done', output: 'y'.repeat(20_000) })).toThrow('too large');
});

test('emit.toolCall is understood in the words of this family as well, and means the call that runs', () => {
  const { context, frames } = setUp();
  context.emit.toolCall({ toolName: 'step', args: { a: 1 } });
  context.emit.toolCall({ toolName: 'step', eventId: 'x', status: 'done', output: 'ok' });

  expect(frames).toEqual([
    { id: 'c1', name: 'step', status: 'isRunning', args: { a: 1 } },
    { id: 'x', name: 'step', status: 'done', output: 'ok' },
  ]);
});

test('every kind of frame that a plugin emits is checked, bounded and rid of secrets (G12, G14)', () => {
  const { context, emitted } = setUp();
  const { emit } = context;
  emit.actionCall({ toolCallId: 'a', toolName: 'open', args: { apiKey: 'k', page: 1 }, unknown: 'left out' } as never);
  emit.renderComponent({ componentName: 'Card', args: { nested: [{ access_token: 't', title: 'x' }] }, eventId: 'e' });
  emit.reasoning({ reasoning: 'hm', reasoningDetails: [{ type: 'text', text: 'hm' }], isComplete: true });
  emit.browserToolCall({ toolCallId: 'b', toolName: 'navigate', args: { url: '/' } });
  emit.router({ step: 'working' });
  emit.messageCacheInvalidation({});

  expect(emitted).toEqual([
    { kind: 'action_call', data: { toolCallId: 'a', toolName: 'open', args: { apiKey: '[secret]', page: 1 } } },
    {
      kind: 'render_component',
      data: { componentName: 'Card', args: { nested: [{ access_token: '[secret]', title: 'x' }] }, eventId: 'e' },
    },
    { kind: 'reasoning', data: { reasoning: 'hm', reasoningDetails: [{ type: 'text', text: 'hm' }], isComplete: true } },
    { kind: 'browser_tool_call', data: { toolCallId: 'b', toolName: 'navigate', args: { url: '/' } } },
    { kind: 'router', data: { step: 'working' } },
    { kind: 'message_cache_invalidation', data: {} },
  ]);
  expect(() => emit.actionCall({ toolName: 'x' } as never)).toThrow('toolCallId and toolName');
  expect(() => emit.router({ step: '' })).toThrow('step');
  expect(() => emit.renderComponent({ componentName: 'Card', args: 'y'.repeat(70_000) })).toThrow('too large');
  const round: Record<string, unknown> = {};
  round['self'] = round;
  expect(() => emit.actionCall({ toolCallId: 'a', toolName: 'x', args: round })).toThrow('no JSON');
  expect(() => {
    for (let n = 0; n < 1_001; n += 1) emit.router({ step: `${n}` });
  }).toThrow('1000 frames');
  expect(emitted).toHaveLength(1_000);
  const large = setUp();
  expect(() => {
    for (let n = 0; n < 30; n += 1) large.context.emit.renderComponent({ componentName: 'Card', args: 'y'.repeat(60_000) });
  }).toThrow('1024 KiB');
  expect(large.emitted).toHaveLength(17);
});

test('a plugin logs facts of the list and nothing else (G12)', () => {
  const { context, lines } = setUp();

  context.logger.info('looked up', { count: 2, prompt: 'secret text', code: 'OK' });

  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ msg: 'looked up', plugin: 'clock', tool: 'current_time', count: 2, code: 'OK' });
  expect(lines.join()).not.toContain('secret text');
});

test('of Matrix a turn sees its own room only (G13)', async () => {
  const { context } = setUp({ matrix: { ...noMatrix, send: async () => '$x' as EventId } });

  await expect(context.matrix.getRoomState('!other:test')).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  await expect(context.matrix.getEventById('!other:test', '$e')).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  await expect(context.matrix.getEventById('!room:test', 'no id')).rejects.toMatchObject({ refusal: { code: 'BAD_REQUEST' } });
  await expect(context.matrix.postToRoom('!room:test', { msgtype: 'm.text', body: 'x' })).rejects.toMatchObject({
    refusal: { code: 'NOT_ALLOWED' },
  });
  expect(await context.matrix.getRoomState('!room:test')).toEqual({ roomId: '!room:test', events: [] });
});
