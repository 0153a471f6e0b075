/**
 * How much of the model's context window a request may fill. A single result must not push the conversation out (12 %), the conversation gives way
 * before the turn does, and what cannot fit is refused by us with a code that says so, instead of by the provider with one that does not.
 * Counted in characters, four to a token: exact counting needs a tokenizer per model, and the largest of them is fetched from the network.
 */
import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { textOf } from './turn-messages.ts';

const CHARS_PER_TOKEN = 4;
export const DEFAULT_CONTEXT_TOKENS = 128_000;
const RESULT_SHARE = 0.12;
const FULL_SHARE = 0.95;
/** Of what the conversation may fill before the turn begins: the rest is for prompts, tools and results. */
const WINDOW_SHARE = 0.5;
/** What a message costs beside its text: role, ids, brackets. */
const MESSAGE_CHARS = 40;

export interface ContextBudget {
  readonly resultChars: number;
  readonly windowChars: number;
  readonly fullChars: number;
}
export const buildContextBudget = (tokens: number = DEFAULT_CONTEXT_TOKENS): ContextBudget => ({
  resultChars: Math.floor(tokens * CHARS_PER_TOKEN * RESULT_SHARE),
  windowChars: Math.floor(tokens * CHARS_PER_TOKEN * WINDOW_SHARE),
  fullChars: Math.floor(tokens * CHARS_PER_TOKEN * FULL_SHARE),
});

/** Messages are never changed, and the same ones are counted at each call of a turn. */
const counted = new WeakMap<BaseMessage, number>();
function charsOf(message: BaseMessage): number {
  const known = counted.get(message);
  if (known !== undefined) return known;
  const calls = AIMessage.isInstance(message) ? (message.tool_calls ?? []) : [];
  const chars = MESSAGE_CHARS + textOf(message).length + (calls.length === 0 ? 0 : JSON.stringify(calls).length);
  counted.set(message, chars);
  return chars;
}
export const countChars = (messages: readonly BaseMessage[]): number => messages.reduce((sum, message) => sum + charsOf(message), 0);

/**
 * What is left of the conversation in front of a turn that fills `otherChars`: its newest part that fits, from a human message on, so that no result
 * loses its call. Null when the turn alone is too much.
 */
export function planRoom(
  window: readonly BaseMessage[],
  { otherChars, fullChars }: { otherChars: number; fullChars: number },
): readonly BaseMessage[] | null {
  if (otherChars > fullChars) return null;
  let chars = otherChars + countChars(window);
  let from = 0;
  while (chars > fullChars) {
    const next = window.findIndex((message, at) => at > from && HumanMessage.isInstance(message));
    const end = next === -1 ? window.length : next;
    chars -= countChars(window.slice(from, end));
    from = end;
  }
  return from === 0 ? window : window.slice(from);
}

/** @returns the text itself when it fits. */
export function cutResult(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  const note = `\n[cut: ${text.length} characters are more than one result may have here; ask for less at once]`;
  return `${text.slice(0, Math.max(0, maxChars - note.length)).toWellFormed()}${note}`;
}
