/**
 * Where a turn begins: with its prompts in the place of whatever the checkpoint holds, or where an earlier attempt of the same turn stopped (G5). Prompts
 * have ids of their own, so a repeated input replaces itself, and a checkpoint tells whose turn it holds.
 */
import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages';
import { REMOVE_ALL_MESSAGES } from '@langchain/langgraph';
import type { Prompt, Run } from '../runs/run.ts';
import { textOf } from './turn-messages.ts';

export type NameOf = (speaker: string) => string;

export const buildInput = (run: Run, nameOf: NameOf): BaseMessage[] => [
  new RemoveMessage({ id: REMOVE_ALL_MESSAGES }),
  ...buildPrompts(run, run.prompts, nameOf),
];
export function buildPrompts(run: Run, prompts: readonly Prompt[], nameOf: NameOf): BaseMessage[] {
  const prefix = run.direct ? '' : `${nameOf(run.principalId)}: `;
  return prompts.map(({ id, text }) => new HumanMessage({ id, content: `${prefix}${text}` }));
}

export interface Earlier {
  readonly messages: BaseMessage[];
  readonly isFinished: boolean;
}

/** What an earlier attempt left; null when the checkpoint holds another turn or nothing. */
export function readEarlier(
  { values, next }: { readonly values: { readonly messages?: readonly BaseMessage[] }; readonly next: readonly string[] },
  run: Run,
  nameOf: NameOf,
): Earlier | null {
  const messages = [...(values.messages ?? [])];
  const prompts = messages.filter(HumanMessage.isInstance);
  const own = buildPrompts(run, run.prompts, nameOf);
  // What came while the run worked may not be in it yet. An edited prompt has the id of the old one, and its turn is another.
  if (prompts.length === 0 || !prompts.every((prompt, at) => isSame(own[at], prompt))) return null;
  if (next.length > 0) return { messages, isFinished: false };
  // A step that no longer exists, because a plugin is gone, cannot be gone on with; what it had done is answered from its marks (G6).
  return isAnswer(messages.at(-1)) ? { messages, isFinished: true } : null;
}

const isAnswer = (message: BaseMessage | undefined): boolean => AIMessage.isInstance(message) && (message.tool_calls ?? []).length === 0;

const isSame = (one: BaseMessage | undefined, other: BaseMessage): boolean =>
  one !== undefined && one.id === other.id && textOf(one) === textOf(other);
