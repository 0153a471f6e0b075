/**
 * Only tools of loaded plugins are offered, and only what is offered can be called: a model that names another tool, because it saw it earlier or was
 * told of it, is told how to load it. Taking a tool out of a request alone would not stop the call (research/langgraph.md §5).
 */
import { SystemMessage } from '@langchain/core/messages';
import { type AgentMiddleware, createMiddleware } from 'langchain';
import { type Loop, offeredNow } from '../loop.ts';
import { textOf } from '../turn-messages.ts';
import { failure, TOOLS_CLOSED } from './failure.ts';

export const capabilityGate = (loop: Loop): AgentMiddleware =>
  createMiddleware({
    name: 'capability-gate',
    wrapModelCall(request, handler) {
      if (!loop.toolsClosed) return handler(request);
      // Not as a message of its own at the end: some providers take a system message in first place only.
      const systemMessage = new SystemMessage(`${textOf(request.systemMessage)}\n${TOOLS_CLOSED}`);
      return handler({ ...request, systemMessage, tools: [] });
    },
    wrapToolCall(request, handler) {
      const { id = '', name } = request.toolCall;
      const tool = loop.tools.all.get(name);
      if (tool === undefined || offeredNow(loop).names.has(name)) return handler(request);
      const names = JSON.stringify([tool.plugin]);
      return failure(
        { id, name },
        `Not run: ${name} belongs to a plugin that is not loaded. Call load_capability({"names":${names}}) first.`,
      );
    },
  });
