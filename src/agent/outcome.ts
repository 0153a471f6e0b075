/** What a turn came to, as the run writes it down: its answer, or why there is none; both with what was spent, also by earlier attempts. */
import { AIMessage, type BaseMessage } from '@langchain/core/messages';
import { isGraphDrained } from '@langchain/langgraph';
import { refusal } from '../errors.ts';
import type { Usage } from '../runs/run.ts';
import { Drain, type RunOutcome } from '../runs/runner.ts';
import type { Loop } from './loop.ts';
import { readRefusal, unwrap } from './stop-reason.ts';
import type { Turn } from './turn.ts';
import { buildTurnMessages, hasText, readAnswer } from './turn-messages.ts';

export function complete(loop: Loop, messages: readonly BaseMessage[]): RunOutcome {
  const text = readAnswer(messages);
  loop.messages = [...messages];
  loop.writer.repair(text);
  const more = { messages: buildTurnMessages(messages), ...cost(loop.turn) };
  // A hook ended the loop and left no answer.
  return hasText(text) ? { kind: 'completed', text, ...more } : { kind: 'failed', refusal: refusal('EMPTY_ANSWER'), ...more };
}

/** Of everything the run asked a model for, up to now. */
export function cost({ main, usage }: Turn): { usage?: Usage; model?: string } {
  const last = main?.messages.filter(AIMessage.isInstance).at(-1);
  const model: unknown = last === undefined ? undefined : (last.response_metadata['model_name'] ?? main?.modelName);
  return { ...(usage === undefined ? {} : { usage }), ...(typeof model === 'string' ? { model } : {}) };
}

/** A turn that did not come to its end: stopped by somebody, put off by a shutdown, or failed. A bug is thrown on. */
export function readFailure(turn: Turn, error: unknown): RunOutcome {
  const { signal } = turn.job;
  const isDrain = signal.aborted && signal.reason instanceof Drain;
  if (isGraphDrained(error) || (isDrain && turn.stop.signal.aborted)) return { kind: 'suspended' };
  const reason = unwrap(turn.stop.signal.aborted ? turn.stop.signal.reason : error);
  const refused = readRefusal(reason);
  if (refused === null) throw reason;
  const messages = turn.main?.messages ?? [];
  const partial = turn.main?.writer.partial ?? '';
  const told = partial === '' ? messages : [...messages, new AIMessage(partial)];
  return { kind: 'failed', refusal: refused, messages: buildTurnMessages(told), ...cost(turn) };
}
