/**
 * Some providers take a conversation only when user and assistant take turns, and say so with a refusal; to all others neighbours of one role are
 * fine and are left as they were said. So nothing is merged before a provider has asked for it (G15). Pure.
 */
import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { hasText, textOf } from './turn-messages.ts';

export function mergeNeighbours(messages: readonly BaseMessage[]): BaseMessage[] {
  const merged: BaseMessage[] = [];
  for (const message of messages) {
    const last = merged.at(-1);
    const both = last === undefined ? null : mergeTwo(last, message);
    if (both === null) merged.push(message);
    else merged[merged.length - 1] = both;
  }
  return merged;
}

function mergeTwo(one: BaseMessage, other: BaseMessage): BaseMessage | null {
  const content = [textOf(one), textOf(other)].filter(hasText).join('\n\n');
  if (HumanMessage.isInstance(one) && HumanMessage.isInstance(other)) return new HumanMessage(content);
  // A message with calls is followed by their results: only its text can have come before it.
  if (!AIMessage.isInstance(one) || !AIMessage.isInstance(other) || (one.tool_calls ?? []).length > 0) return null;
  return new AIMessage({ content, tool_calls: other.tool_calls ?? [] });
}
