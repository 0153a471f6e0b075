/** What a guard answers in place of a tool: a message that the model can read and act on. */
import { ToolMessage } from '@langchain/core/messages';
import type { ToolCall } from '../run-tool.ts';

export const failure = ({ id, name }: Pick<ToolCall, 'id' | 'name'>, content: string): ToolMessage =>
  new ToolMessage({ tool_call_id: id, name, status: 'error', content });

export const TOOLS_CLOSED = 'No further tools can be used in this turn: answer now with what you know, and say what is missing.';
