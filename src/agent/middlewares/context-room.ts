/**
 * Keeps a request within the model's context: the oldest part of the conversation leaves it before the turn is refused. The innermost call looks again,
 * because plugins may have added to it.
 */
import { type AgentMiddleware, createMiddleware } from 'langchain';
import { OracleError, refusal } from '../../errors.ts';
import { countChars, planRoom } from '../context-budget.ts';
import { type Loop, offeredNow } from '../loop.ts';
import { textOf } from '../turn-messages.ts';

export const contextRoom = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'context-room',
    wrapModelCall(request, handler) {
      const otherChars = textOf(request.systemMessage).length + offeredNow(loop).chars + countChars(loop.messages);
      const room = planRoom(loop.window, { otherChars, fullChars: loop.turn.parts.budget.fullChars });
      if (room === null) throw new OracleError(refusal('CONTEXT_FULL'));
      return handler(room === loop.window ? request : { ...request, messages: [...room, ...loop.messages] });
    },
  });
