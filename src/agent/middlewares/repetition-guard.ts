/**
 * A model that makes the same mistake again and again would spend the whole budget on it: what failed twice in the same way is not run a third time, and
 * then no tools are offered any more, so that it has to answer. Counted are calls of the same tool with the same arguments and the same
 * error, so that a service which was only busy may be asked again. Refused calls count as well: the guards in front of this one answer them.
 */
import type { ToolMessage } from '@langchain/core/messages';
import { type AgentMiddleware, createMiddleware } from 'langchain';
import type { JsonObject } from '../../json.ts';
import type { Loop } from '../loop.ts';
import { hashArguments, type ToolCall } from '../run-tool.ts';
import { textOf } from '../turn-messages.ts';
import { failure } from './failure.ts';

const IDENTICAL_ERRORS = 3;

export const repetitionGuard = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'tool-repetition-guard',
    wrapToolCall(request, handler) {
      const { id = '', name, args } = request.toolCall;
      const times = Math.max(0, ...(loop.failures.get(keyOfCall({ name, args: args as JsonObject }))?.values() ?? []));
      if (times < IDENTICAL_ERRORS - 1) return handler(request);
      loop.toolsClosed = true;
      return failure({ id, name }, 'Not run: this very call has failed in the same way before.');
    },
  });

/** Told of every result, whoever gave it. */
export function noteResult(loop: Loop, call: ToolCall, result: ToolMessage): void {
  if (result.status !== 'error') return;
  const key = keyOfCall(call);
  const errors = loop.failures.get(key) ?? new Map<string, number>();
  loop.failures.set(key, errors);
  const times = (errors.get(textOf(result)) ?? 0) + 1;
  errors.set(textOf(result), times);
  if (times >= IDENTICAL_ERRORS) loop.toolsClosed = true;
}

const keyOfCall = ({ name, args }: Pick<ToolCall, 'name' | 'args'>): string => `${name} ${hashArguments(args)}`;
