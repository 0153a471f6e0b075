/**
 * Everything a model can do wrong, with the real client of the agent and real rooms: each failure has its own code, what was said before it stays
 * with a marker, and the next turn of the same conversation works, because what is stored is valid for a provider (G15). The scripted model is as
 * strict as the strictest one: a history that a provider would refuse is a refused request here.
 * All at once, each in a room of its own: the whole costs as long as the slowest.
 */
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { ChatRequest } from '../../synapse-dev/model/chat-request.ts';
import { type Reply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { type Answer, errorOf, messagesIn, type TestOracle, useWorld } from './harness.ts';

const world = useWorld({ oracles: 1 });
const WORDS = Array.from({ length: 50 }, (_, index) => `word${index} `);
const EUROS = Array.from({ length: 50 }, (_, index) => `${index}€ `);
const FAILED = '*The answer ends here because something went wrong. Please try again.*';
const IDLE_S = 2;

interface Fault {
  /** What the model does when it is asked, the first time and whenever it is asked again for the same prompt. */
  readonly replies: readonly Reply[];
  readonly expected: {
    readonly status: string;
    /** The whole text; for a partial answer the model's text that it is a beginning of. */
    readonly text?: string;
    readonly beginningOf?: readonly string[];
    readonly code?: string;
    /** How often the model was asked. */
    readonly asked?: number;
  };
}
const failed = (code: string, more: Omit<Fault['expected'], 'status' | 'code'> = {}): Fault['expected'] => ({
  status: 'failed',
  code,
  ...more,
});
const completed = (text: string, asked = 1): Fault['expected'] => ({ status: 'completed', text, asked });
const PACE = { chunkChars: 8, delayMs: 10 };

const FAULTS: Readonly<Record<string, Fault>> = {
  'stalls after half of its answer': {
    replies: [{ kind: 'stall', text: WORDS, afterChunks: 25, pace: PACE }],
    expected: failed('MODEL_TIMEOUT', { beginningOf: WORDS.slice(0, 25), asked: 1 }),
  },
  'stalls before its first word': {
    replies: [{ kind: 'stall', text: WORDS, afterChunks: 0 }],
    expected: failed('MODEL_TIMEOUT', { asked: 1 }),
  },
  'is slow and says so with comments': {
    replies: [{ kind: 'stall', text: ['Slow ', 'but sure.'], afterChunks: 1, forMs: IDLE_S * 1_500, keepAliveMs: 500 }],
    expected: completed('Slow but sure.'),
  },
  'resets the connection in the middle of a character': {
    replies: [{ kind: 'errorMidStream', text: EUROS, how: 'reset_in_piece', pace: PACE }],
    expected: failed('MODEL_ERROR', { beginningOf: EUROS.slice(0, 30), asked: 1 }),
  },
  'writes half a character at the end of each chunk': {
    replies: [{ kind: 'splitUtf8', text: 'Smør, Größe, 5 €, 你好, 🦊 and 👩‍👩‍👧.' }],
    expected: completed('Smør, Größe, 5 €, 你好, 🦊 and 👩‍👩‍👧.'),
  },
  'fails after 60 %': {
    replies: [{ kind: 'errorMidStream', text: WORDS, how: 'sse_error', pace: PACE }],
    expected: failed('MODEL_ERROR', { beginningOf: WORDS.slice(0, 30), asked: 1 }),
  },
  'closes its answer without an end': {
    replies: [{ kind: 'cut', text: WORDS, pace: PACE }],
    expected: failed('MODEL_ERROR', { beginningOf: WORDS, asked: 1 }),
  },
  'is always overloaded': {
    replies: [{ kind: 'status', status: 429, retryAfterS: 1 }],
    expected: failed('MODEL_RATE_LIMITED'),
  },
  'is overloaded once': {
    replies: [{ kind: 'status', status: 429 }, textReply('Sorry for the wait.')],
    expected: completed('Sorry for the wait.', 2),
  },
  'fails twice before its first word': {
    replies: [
      { kind: 'status', status: 503 },
      { kind: 'errorMidStream', text: WORDS, how: 'reset', fraction: 0 },
      textReply('Third time lucky.'),
    ],
    expected: completed('Third time lucky.', 3),
  },
  'refuses the key': { replies: [{ kind: 'status', status: 401 }], expected: failed('MODEL_REFUSED', { asked: 1 }) },
  // The person has cancelled nothing.
  'speaks of an abort': {
    replies: [{ kind: 'status', status: 400, message: 'Request was aborted.', type: 'AbortError', code: 'aborted' }],
    expected: failed('MODEL_REFUSED', { asked: 1 }),
  },
  'sends an empty stream': { replies: [{ kind: 'empty', how: 'no_text' }], expected: failed('EMPTY_ANSWER') },
  'sends nothing but its end': { replies: [{ kind: 'empty', how: 'only_done' }], expected: failed('EMPTY_ANSWER') },
  'sends no byte at all': { replies: [{ kind: 'empty', how: 'no_body' }], expected: failed('MODEL_ERROR') },
  'calls a tool without arguments': {
    replies: [toolCallsReply({ name: 'count_notes', args: '' }), textReply('Counted.')],
    expected: completed('Counted.', 2),
  },
  'calls a tool with half of its arguments': {
    replies: [toolCallsReply({ name: 'write_note', args: '{"note":"half' }), textReply('That did not work.')],
    expected: completed('That did not work.', 2),
  },
  'calls two tools at once': {
    replies: [
      toolCallsReply({ name: 'write_note', args: { note: 'first of two' } }, { name: 'write_note', args: { note: 'second of two' } }),
      textReply('Both are written.'),
    ],
    expected: completed('Both are written.', 2),
  },
  'calls a tool and then stalls': {
    replies: [
      toolCallsReply({ name: 'write_note', args: { note: 'before the stall' } }),
      { kind: 'stall', text: WORDS, afterChunks: 10, pace: PACE },
    ],
    expected: failed('MODEL_TIMEOUT', { beginningOf: WORDS.slice(0, 10), asked: 2 }),
  },
  'does not say what it used': {
    replies: [{ kind: 'text', text: 'Free of charge.', withoutUsage: true }],
    expected: completed('Free of charge.'),
  },
};

const notes: string[] = [];
const notebook = defineOraclePlugin({
  name: 'notebook',
  version: '1.0.0',
  manifest: { title: 'Notebook', summary: 'Keeps notes.', whenToUse: ['The user wants something noted.'], visibility: 'always' },
  getTools: () => [
    defineTool({
      name: 'write_note',
      description: 'Writes a note down.',
      schema: z.object({ note: z.string() }),
      effect: 'write',
      reach: 'own',
      handler: async ({ note }) => {
        notes.push(note);
        return 'written';
      },
    }),
    defineTool({ name: 'count_notes', description: 'Counts.', schema: z.object({}), handler: async () => 'there are some' }),
  ],
});

function createScript(): (request: ChatRequest) => Reply {
  const asked = new Map<string, number>();
  return ({ lastUserText }) => {
    const fault = FAULTS[lastUserText];
    if (fault === undefined) return textReply('All well again.');
    const times = asked.get(lastUserText) ?? 0;
    asked.set(lastUserText, times + 1);
    return fault.replies[Math.min(times, fault.replies.length - 1)] ?? textReply('?');
  };
}

test('whatever the model does wrong is seen with its own code, and the next turn works (G15)', async () => {
  const oracle = await world.oracle({ MODEL_IDLE_TIMEOUT_S: String(IDLE_S), RATE_LIMIT: '1000', MAX_CONCURRENT_RUNS: '64' }, [notebook]);
  await oracle.start();
  oracle.model.respond(createScript());

  await Promise.all(
    Object.entries(FAULTS).map(async ([name, { expected }]) => {
      const talk = await (await world.person()).direct(oracle);
      const answer = await talk.ask(name);
      const said = expect.soft;

      said(endOf(oracle, answer), `${name}: end`).toEqual({ status: expected.status, code: expected.code ?? null });
      expectText(name, answer, expected);
      said(answer.parts, `${name}: parts`).toHaveLength(1);
      if (expected.asked !== undefined) said(timesAsked(oracle, name), `${name}: asked`).toBe(expected.asked);
      const next = await talk.ask('And now?');
      said([next.status, next.text], `${name}: next turn`).toEqual(['completed', 'All well again.']);
      said(messagesIn(await talk.history(), oracle.userId), `${name}: messages`).toHaveLength(2);
    }),
  );

  expect(notes.toSorted()).toEqual(['before the stall', 'first of two', 'second of two']);
  expect(oracle.model.requests.filter(({ refused }) => refused !== undefined).map(({ refused }) => refused?.message)).toEqual([]);
  // Of the answer whose provider counted nothing it is said that its usage is an estimate.
  const estimated = oracle.rows<{ n: number }>(
    "SELECT count(*) AS n FROM runs WHERE status = 'completed' AND json_extract(usage, '$.estimated') = 1",
  );
  expect(estimated).toEqual([{ n: 1 }]);
});

function expectText(name: string, { text }: Answer, { text: whole, beginningOf }: Fault['expected']): void {
  if (whole !== undefined) expect.soft(text, name).toBe(whole);
  if (beginningOf === undefined) return;
  expect.soft(text.endsWith(`\n\n${FAILED}`), `${name}: marker; it said ${text}`).toBe(true);
  const kept = text.slice(0, -FAILED.length).trim();
  // A reset may take along what lay unread in the socket.
  expect.soft(beginningOf.join('').startsWith(kept), `${name}: it kept ${kept}`).toBe(true);
  expect.soft(kept.split(' ').length, `${name}: it kept ${kept}`).toBeGreaterThanOrEqual(beginningOf.length / 2);
}

/**
 * How it ended, as the record has it and as the room shows it: an answer says its status, a notice in place of one its code. They must not
 * contradict each other.
 */
function endOf(oracle: TestOracle, { prompt, status: shownStatus, parts }: Answer): { status: string; code: string | null } | string {
  const [row] = oracle.rows<{ status: string; error: string | null }>(
    'SELECT r.status, r.error FROM runs r JOIN pending_inputs p ON p.run_id = r.run_id WHERE p.prompt_id = ?',
    prompt,
  );
  const code = row?.error == null ? null : (JSON.parse(row.error) as { code: string }).code;
  const shownCode = errorOf(parts.at(-1)?.content ?? {})?.['code'];
  if (row === undefined || (shownStatus ?? row.status) !== row.status || (shownCode ?? code) !== code)
    return `${String(shownStatus)} ${String(shownCode)} in the room, ${row?.status} ${code} in the record`;
  return { status: row.status, code };
}
const timesAsked = ({ model }: TestOracle, name: string): number => model.requests.filter(({ chat }) => chat?.lastUserText === name).length;
