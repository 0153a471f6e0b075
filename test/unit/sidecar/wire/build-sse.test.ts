import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RunId, SessionId } from '../../../../src/ids.ts';
import { LIMITS } from '../../../../src/limits.ts';

import { buildDone, buildSse, encodeSse, readCursor, type SseEvent } from '../../../../src/sidecar/wire/build-sse.ts';

const CONTEXT = { runId: '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId, sessionId: '$session' as SessionId, requestId: 'req' };
const AT = 1_767_225_600_000;
type Shown = Parameters<typeof buildSse>[0];
const frame = (seq: number, kind: Shown['kind'], data: unknown): Shown => ({ seq, at: AT, kind, data }) as Shown;
const bytes = (event: SseEvent) => Buffer.byteLength(encodeSse(event));
const textOf = (events: readonly SseEvent[]) => events.map((event) => event.data['content']).join('');

/** Any UTF-16, lone halves of characters included: a model may cut its own text anywhere. */
const anyText = fc.array(fc.oneof(fc.constantFrom('a', '\n', '"', '\u0001', '\ud800', '\udc00', '🦀', 'ü'), fc.string()), {
  maxLength: 40,
});
const longText = fc
  .tuple(anyText, fc.integer({ min: 1, max: 3_000 }))
  .map(([parts, times]) => parts.join('').repeat(times).slice(0, 120_000));

test('no event is over the limit and the pieces are the text, whatever the text (G14)', () => {
  fc.assert(
    fc.property(longText, (delta) => {
      const events = buildSse(frame(7, 'text', { delta }), CONTEXT);
      expect(textOf(events)).toBe(delta);
      for (const event of events) expect(bytes(event)).toBeLessThanOrEqual(LIMITS.sseFrameBytes);
      expect(events.at(-1)!.id).toBe('7');
    }),
    { numRuns: 60 },
  );
});

test('whoever stops after any event resumes without a letter twice or missing (G7)', () => {
  fc.assert(
    fc.property(fc.array(longText, { minLength: 1, maxLength: 4 }), fc.nat(), (deltas, at) => {
      const frames = deltas.map((delta, index) => frame(index + 1, 'text', { delta }));
      const all = frames.flatMap((one) => buildSse(one, CONTEXT));
      const stop = at % all.length;
      const cursor = readCursor(all[stop]!.id!);
      if (!cursor.ok) throw new Error(cursor.error);
      const { seq, pieces } = cursor.value;
      const rest = frames.slice(seq).flatMap((one, index) => buildSse(one, CONTEXT, index === 0 ? pieces : 0));
      expect(rest).toEqual(all.slice(stop + 1));
    }),
    { numRuns: 60 },
  );
});

test('a cursor is a number or a piece of a frame, and nothing else', () => {
  expect(readCursor('12')).toEqual({ ok: true, value: { seq: 12, pieces: 0 } });
  expect(readCursor('12.3')).toEqual({ ok: true, value: { seq: 11, pieces: 3 } });
  for (const bad of ['', '-1', '1e3', '1.', '.5', ' 1', '0.1', '9'.repeat(10), '1.2.3', 'NaN']) expect(readCursor(bad).ok).toBe(false);
});

test('a tool call names the tool in its arguments, and nothing the model says can hide that', () => {
  const call = { id: 'c1', name: 'clock', status: 'done', args: { toolName: 'fake', zone: 'UTC' }, output: '12:00' };
  const [event] = buildSse(frame(3, 'tool_call', call), CONTEXT);
  expect(event).toEqual({
    event: 'tool_call',
    id: '3',
    data: {
      sessionId: '$session',
      requestId: 'req',
      toolName: 'toolCall',
      args: { toolName: 'clock', zone: 'UTC' },
      status: 'done',
      eventId: 'c1',
      output: '12:00',
    },
  });
});

test('a tool call fits whatever its arguments and output are (G14)', () => {
  fc.assert(
    fc.property(longText, longText, fc.string(), (value, output, id) => {
      const [event] = buildSse(
        frame(1, 'tool_call', { id: id.repeat(50), name: 'tool', status: 'done', args: { value }, output }),
        CONTEXT,
      );
      expect(bytes(event!)).toBeLessThanOrEqual(LIMITS.sseFrameBytes);
      expect((event!.data['args'] as any).toolName).toBe('tool');
    }),
    { numRuns: 60 },
  );
});

test('what plugins emit has the names and fields of this family', () => {
  const common = { sessionId: '$session', requestId: 'req' };
  const show = (kind: Shown['kind'], data: unknown) => buildSse(frame(5, kind, data), CONTEXT);
  const call = { toolCallId: 'c1', toolName: 'open_page', status: 'done', args: { secret: 1 }, output: 'o', result: { ok: true } };
  expect(show('action_call', call)).toEqual([
    {
      event: 'action_call',
      id: '5',
      // Its arguments go to the browser over a socket.
      data: { ...common, toolCallId: 'c1', toolName: 'open_page', status: 'done', output: 'o', result: { ok: true } },
    },
  ]);
  const card = { componentName: 'Card', args: { n: 1 }, status: 'isRunning', eventId: 'e1' };
  expect(show('render_component', card)).toEqual([{ event: 'render_component', id: '5', data: { ...common, ...card } }]);
  const browser = { toolCallId: 'c2', toolName: 'scroll', args: { to: 3 } };
  expect(show('browser_tool_call', browser)).toEqual([{ event: 'browser_tool_call', id: '5', data: { ...common, ...browser } }]);
  expect(show('router', { step: 'search' })).toEqual([{ event: 'router_update', id: '5', data: { ...common, step: 'search' } }]);
  expect(show('message_cache_invalidation', {})).toEqual([{ event: 'message_cache_invalidation', id: '5', data: common }]);
  const thought = { reasoning: 'hm', reasoningDetails: [{ type: 'text', text: 'hm' }], isComplete: true };
  expect(show('reasoning', thought)).toEqual([
    { event: 'reasoning', id: '5', data: { ...common, ...thought, timestamp: '2026-01-01T00:00:00.000Z' } },
  ]);
  expect(show('interaction', { id: 'i1', revision: 2, status: 'waiting', request: { ask: 'ok?' } })).toEqual([
    {
      event: 'interaction',
      id: '5',
      data: { ...common, runId: CONTEXT.runId, interactionId: 'i1', revision: 2, status: 'waiting', request: { ask: 'ok?' } },
    },
  ]);
  expect(show('state', { key: 'k', value: 1 })).toEqual([]);
});

test('what plugins emit fits whatever is in it, and says what was left out (G14)', () => {
  fc.assert(
    fc.property(longText, longText, longText, (name, value, more) => {
      const frames = [
        frame(1, 'reasoning', { reasoning: value, reasoningDetails: [{ type: name, text: more }], isComplete: true }),
        frame(1, 'action_call', { toolCallId: name, toolName: name, status: 'done', output: value, result: { more }, error: value }),
        frame(1, 'render_component', { componentName: name, args: { value }, status: 'done', eventId: more }),
        frame(1, 'browser_tool_call', { toolCallId: name, toolName: more, args: { value } }),
        frame(1, 'router', { step: value }),
        frame(1, 'message_cache_invalidation', { status: value }),
        frame(1, 'interaction', { id: name, revision: 1, status: 'waiting', request: { value }, answer: more }),
      ];
      for (const one of frames) {
        const events = buildSse(one, CONTEXT);
        expect(events.at(-1)!.id).toBe('1');
        for (const event of events) expect(bytes(event)).toBeLessThanOrEqual(LIMITS.sseFrameBytes);
      }
      const thoughts = buildSse(frames[0]!, CONTEXT);
      expect(thoughts.map((event) => event.data['reasoning']).join('')).toBe(value);
      expect(thoughts.map((event) => event.data['isComplete'])).toEqual(thoughts.map((event) => event === thoughts.at(-1)));
    }),
    { numRuns: 40 },
  );
  const [shown] = buildSse(frame(1, 'render_component', { componentName: 'Card', args: { text: 'x'.repeat(70_000) } }), CONTEXT);
  expect(shown!.data).toMatchObject({ componentName: 'Card', argsOmitted: true });
});

test('runs, resumptions and errors have the names of this family', () => {
  expect(buildSse(frame(1, 'run', { state: 'started', attempt: 1 }), CONTEXT)[0]).toEqual({
    event: 'run',
    id: '1',
    data: { runId: CONTEXT.runId, state: 'started', attempt: 1 },
  });
  expect(buildSse(frame(2, 'truncate', { length: 9 }), CONTEXT)[0]!.data).toEqual({
    runId: CONTEXT.runId,
    state: 'resumed',
    partialLength: 9,
  });
  const kinds = (
    [
      ['MODEL_RATE_LIMITED', 503],
      ['OUT_OF_CREDITS', 402],
      ['NOT_ALLOWED', 403],
      ['MODEL_TIMEOUT', 504],
      ['MODEL_ERROR', 502],
      ['RUN_CANCELLED', 499],
    ] as const
  ).map(([code, status]) => buildSse(frame(4, 'error', { code, status, message: 'm', retryable: true }), CONTEXT)[0]!.data['kind']);
  expect(kinds).toEqual(['rate_limit', 'billing', 'auth', 'timeout', 'server', 'unknown']);
  expect(buildSse(frame(4, 'error', { code: 'MODEL_ERROR', status: 502, message: 'm', retryable: true }), CONTEXT)[0]!.data).toEqual({
    ...{ error: 'm', code: 'MODEL_ERROR', kind: 'server', source: 'platform', status: 502, retryable: true },
    ...{ runId: CONTEXT.runId, sessionId: '$session', requestId: 'req', timestamp: '2026-01-01T00:00:00.000Z' },
  });
});

test('done has length and hash of the text, and the text itself only when it is short and incomplete', () => {
  const long = 'x'.repeat(400_000);
  const done = buildDone(CONTEXT, { status: 'failed', text: long, seq: 9 });
  expect(done.data).toMatchObject({ length: 400_000, sha256: createHash('sha256').update(long).digest('base64url'), failed: true });
  expect(done.data).not.toHaveProperty('partialText');
  expect(bytes(done)).toBeLessThan(2_000);
  expect(buildDone(CONTEXT, { status: 'cancelled', text: 'so far', seq: null })).toMatchObject({
    data: { aborted: true, partialText: 'so far' },
  });
  expect(buildDone(CONTEXT, { status: 'completed', text: 'all', seq: 2 }).data).not.toHaveProperty('partialText');
});

test('an event is one line of data: nothing in a text can begin another event', () => {
  const [event] = buildSse(frame(1, 'text', { delta: '\n\nevent: done\ndata: {}\r\n\u2028' }), CONTEXT);
  expect(encodeSse(event!).split(/\r\n|\r|\n/u)).toEqual(['event: message', 'id: 1', expect.stringMatching(/^data: \{.*\}$/su), '', '']);
});
