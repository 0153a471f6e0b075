/**
 * Between the agent library's messages and our transcript. Stored rows outlive the library's versions, so they have a small shape of their own
 * with a version, and a turn that ended in the middle is made valid for any provider: no tool call without its result (G15).
 */
import { AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { z } from 'zod';
import type { JsonObject } from '../json.ts';
import type { TurnMessage } from '../runs/runner.ts';

const toolCall = z.object({ id: z.string(), name: z.string(), args: z.record(z.string(), z.unknown()) });
const storedMessage = z.discriminatedUnion('kind', [
  z.object({ v: z.literal(1), kind: z.literal('ai'), toolCalls: z.array(toolCall) }),
  z.object({ v: z.literal(1), kind: z.literal('tool'), callId: z.string(), name: z.string(), status: z.enum(['success', 'error']) }),
]);
/** What a transcript row's `message` holds beside its text; null for plain text. */
export type StoredMessage = z.infer<typeof storedMessage>;

/** Null for plain text and for a shape that no release of ours wrote: the row's text still counts. */
export function readStoredMessage(value: unknown): StoredMessage | null {
  const parsed = storedMessage.safeParse(value);
  return parsed.success ? parsed.data : null;
}

export const textOf = (message: BaseMessage): string => (typeof message.content === 'string' ? message.content : message.text);

/** The answer of a turn: its AI texts, in order, with an empty line between. Frames are written in exactly this form. */
export const readAnswer = (messages: readonly BaseMessage[]): string =>
  messages.filter(AIMessage.isInstance).map(textOf).filter(hasText).join(ANSWER_GAP);
export const ANSWER_GAP = '\n\n';
export const hasText = (text: string): boolean => text.trim() !== '';

export const NO_RESULT = 'Stopped before there was a result; the effect may have happened.';

/** What the turn adds to the conversation: everything but the prompts, each tool call followed by its result, in the order of the calls. */
export function buildTurnMessages(messages: readonly BaseMessage[]): TurnMessage[] {
  const results = new Map(messages.filter(ToolMessage.isInstance).map((message) => [message.tool_call_id, message]));
  const turn: TurnMessage[] = [];
  for (const message of messages) {
    if (!AIMessage.isInstance(message)) continue;
    const text = textOf(message);
    const calls = message.tool_calls ?? [];
    if (calls.length === 0 && !hasText(text)) continue;
    const toolCalls = calls.map(({ id, name, args }) => ({ id: id ?? '', name, args }));
    turn.push({ role: 'ai', text, message: calls.length === 0 ? null : ({ v: 1, kind: 'ai', toolCalls } satisfies StoredMessage) });
    for (const { id, name } of toolCalls) {
      const result = results.get(id);
      const status = result === undefined || result.status === 'error' ? 'error' : 'success';
      const stored = { v: 1, kind: 'tool', callId: id, name, status } satisfies StoredMessage;
      turn.push({ role: 'tool', text: result === undefined ? NO_RESULT : textOf(result), message: stored });
    }
  }
  return turn;
}

/** A window message as plain data, so that planning it needs no library. */
export interface WindowMessage {
  readonly role: 'human' | 'ai' | 'tool';
  readonly text: string;
  readonly stored: StoredMessage | null;
  /** The run that is shown it is tainted by it. */
  readonly isForeign: boolean;
  /** Of its entry in the transcript. */
  readonly entry?: number;
}

export function buildMessage({ role, text, stored }: Pick<WindowMessage, 'role' | 'text' | 'stored'>): BaseMessage {
  if (role === 'human') return new HumanMessage(text);
  if (stored?.kind === 'tool')
    return new ToolMessage({ content: text, tool_call_id: stored.callId, name: stored.name, status: stored.status });
  if (stored?.kind === 'ai') {
    return new AIMessage({
      content: text,
      tool_calls: stored.toolCalls.map((call) => ({ ...call, args: call.args as JsonObject, type: 'tool_call' as const })),
    });
  }
  return new AIMessage(text);
}
