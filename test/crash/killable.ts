/** An oracle as a process that a test kills, at a named point or at any moment, and everything that must hold afterwards whatever happened. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { type FrameRow, readFrameRow } from '../../src/runs/compact-frames.ts';
import { MAX_ATTEMPTS } from '../../src/runs/recovery.ts';
import type { ChatRequest } from '../../synapse-dev/model/chat-request.ts';
import type { Pace, Reply } from '../../synapse-dev/model/reply.ts';
import { messagesIn, type OracleProcess, type ProcessOptions, type Talk, type TestOracle } from '../e2e/harness.ts';

const PROGRAM = join(import.meta.dirname, 'oracle-process.ts');

export interface Killable {
  readonly oracle: TestOracle;
  start(options?: Pick<ProcessOptions, 'waits'>): Promise<OracleProcess>;
  /** The process kills itself at the `left`-th step whose name fits (1: the next). */
  killAt(fits: string, left?: number): void;
  /** Whether the ordered kill has not come yet. */
  readonly isOrdered: boolean;
  /** What the write tool has written, once for each time it ran. */
  effects(): string[];
}

export function createKillable(oracle: TestOracle): Killable {
  const order = `${oracle.dataDir}-kill-order`;
  const effects = `${oracle.dataDir}-effects`;
  return {
    oracle,
    start: (options = {}) => oracle.startProcess({ KILL_ORDER: order, EFFECTS: effects }, { program: PROGRAM, ...options }),
    killAt: (fits, left = 1) => writeFileSync(order, JSON.stringify({ fits, left })),
    get isOrdered() {
      return existsSync(order);
    },
    effects: () => (existsSync(effects) ? readFileSync(effects, 'utf8').trimEnd().split('\n') : []),
  };
}

const BEFORE_THE_TOOL = 'I write that down.';
/** Long enough for several edits, and telling which prompts the model was given. */
const answerTo = (prompts: readonly string[]): string =>
  `I have read ${prompts.join(' and ')}. ${Array.from({ length: 20 }, (_, word) => `word${word}`).join(' ')}.`;

/**
 * The whole text of an answer to these prompts: what such a model says. Prompts that were given up right before without a word stand unanswered in
 * its history, and it speaks of them as well.
 */
function answersTo(prompts: readonly string[], unanswered: readonly string[]): string[] {
  return [...unanswered.keys(), unanswered.length].map((from) => {
    const read = [...unanswered.slice(from), ...prompts];
    return `${read.some((text) => text.startsWith('write')) ? `${BEFORE_THE_TOOL}\n\n` : ''}${answerTo(read)}`;
  });
}

/** A model that writes down what begins with `write`, and then answers. */
export function replyWith(pace: Pace): (request: ChatRequest) => Reply {
  return ({ messages }) => {
    const lastAnswer = messages.findLastIndex(({ role, toolCalls }) => role === 'assistant' && toolCalls.length === 0);
    const turn = messages.slice(lastAnswer + 1);
    const prompts = turn.filter(({ role }) => role === 'user').map(({ text }) => text);
    const toWrite = prompts.filter((text) => text.startsWith('write'));
    if (toWrite.length > 0 && !turn.some(({ role }) => role === 'tool'))
      return { kind: 'toolCalls', text: BEFORE_THE_TOOL, calls: toWrite.map((note) => ({ name: 'write_note', args: { note } })) };
    return { kind: 'text', text: answerTo(prompts), pace };
  };
}

export interface Said {
  readonly id: string;
  readonly text: string;
}

/**
 * One answer for each prompt, which is the model's text to the letter; nothing else said; each note written at most once, and exactly once unless
 * nobody can know. @returns how many runs were given up after their last attempt, which is seen in the room.
 */
export async function expectAnswered({ oracle }: Killable, talk: Talk, prompts: readonly Said[], timeoutMs = 60_000): Promise<number> {
  const givenUp = new Set<unknown>();
  const seen = new Set<unknown>();
  let unanswered: string[] = [];
  for (const { id, text: prompt } of prompts) {
    const { text, parts, prompts: named, status, runId } = await talk.answerTo(id, timeoutMs);
    expect(parts, prompt).toHaveLength(1);
    const texts = named.map((one) => prompts.find((said) => said.id === one)?.text ?? '?');
    expect(texts).toContain(prompt);
    const [run] = oracle.rows<{ attempt: number }>('SELECT attempt FROM runs WHERE run_id = ?', String(runId));
    // Its log line may have died with the process.
    if (status === 'interrupted' && (run?.attempt ?? 0) > MAX_ATTEMPTS) {
      if (!givenUp.has(runId)) unanswered.push(...texts);
      givenUp.add(runId);
      expect({ status, text }).toEqual({
        status: 'interrupted',
        text: expect.stringMatching(/\*This answer was interrupted and could not be continued\.\*$/u),
      });
      continue;
    }
    if (seen.has(runId)) continue;
    seen.add(runId);
    expect(status, text).toBe('completed');
    expect(answersTo(texts, unanswered)).toContain(text);
    unanswered = [];
  }
  // As the homeserver has it: each prompt in one message, in their order, and no message that names none.
  const newest = new Map(talk.watch.messages(oracle.userId).map(({ eventId, content }) => [eventId, content]));
  const named = messagesIn(await talk.history(), oracle.userId).flatMap(({ event_id, content }) => {
    const run = (newest.get(event_id) ?? content)['ixo.oracle.run'] as { prompts?: string[] } | undefined;
    return run?.prompts ?? [null];
  });
  expect(named.slice(-prompts.length)).toEqual(prompts.map(({ id }) => id));
  return givenUp.size;
}

/** G7 and G10: every run has ended, its log is contiguous and says so once, and no call of a write tool stands in it twice. */
export function expectSoundLog({ oracle }: Killable): void {
  const open = oracle.rows("SELECT run_id, status FROM runs WHERE status IN ('queued', 'running', 'waiting')");
  expect(open).toEqual([]);
  const rows = oracle.rows<FrameRow & { run_id: string }>('SELECT run_id, seq, kind, data, at FROM frames ORDER BY run_id, seq');
  for (const [run, own] of Map.groupBy(rows, ({ run_id }) => run_id)) {
    const frames = own.flatMap(readFrameRow);
    expect(
      frames.map(({ seq }) => seq),
      run,
    ).toEqual(frames.map((_, index) => index + 1));
    expect(
      frames.filter(({ kind }) => kind === 'end'),
      run,
    ).toHaveLength(1);
    expect(frames.at(-1)?.kind, run).toBe('end');
  }
  const twice = oracle.rows('SELECT prompt_id, count(*) AS n FROM pending_inputs GROUP BY prompt_id HAVING n > 1');
  expect(twice).toEqual([]);
}
