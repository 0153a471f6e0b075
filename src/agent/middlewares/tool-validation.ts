/**
 * Arguments that do not fit are answered here, with what does not fit: no plugin's hook sees them, nothing is run, and the model has its one chance to
 * correct them before the repetition guard ends that (the family's "one retry": ours is the model's, a call is never run again by itself).
 */
import { type AgentMiddleware, createMiddleware } from 'langchain';
import type { JsonObject } from '../../json.ts';
import type { Loop } from '../loop.ts';
import { readToolArguments } from '../run-tool.ts';
import { failure } from './failure.ts';

export const toolValidation = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'tool-validation',
    wrapToolCall(request, handler) {
      const { id = '', name, args } = request.toolCall;
      const tool = loop.tools.all.get(name);
      const read = tool === undefined ? null : readToolArguments(tool.definition.schema, args as JsonObject);
      return read === null || read.ok ? handler(request) : failure({ id, name }, read.why);
    },
  });
