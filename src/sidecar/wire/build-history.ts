/**
 * The transcript as GET /messages shows it: what people and the oracle said, with every tool's output folded into its call. Tool rows
 * never stand alone. Pure.
 */
import { z } from 'zod';
import type { TranscriptEntry } from '../../sessions/transcript.ts';
import type { HistoryMessage } from './schemas.ts';

// What src/agent/turn-messages.ts stores. Not imported from there: that file needs the agent library, and history must be readable before
// it is loaded. Unknown shapes read as plain text.
const storedAi = z.object({
  kind: z.literal('ai'),
  toolCalls: z.array(z.object({ id: z.string(), name: z.string(), args: z.record(z.string(), z.unknown()) })),
});
const storedTool = z.object({ kind: z.literal('tool'), callId: z.string(), status: z.enum(['success', 'error']) });

export function buildHistory(entries: readonly TranscriptEntry[]): HistoryMessage[] {
  const lastAiOfRun = new Map<string, number>();
  const results = new Map<string, { output: string; status: 'done' | 'error' }>();
  for (const { id, role, runId, text, message } of entries) {
    if (role === 'ai' && runId !== null) lastAiOfRun.set(runId, id);
    const tool = role === 'tool' ? storedTool.safeParse(message) : undefined;
    if (tool?.success) {
      results.set(`${runId} ${tool.data.callId}`, { output: text, status: tool.data.status === 'error' ? 'error' : 'done' });
    }
  }
  const messages: HistoryMessage[] = [];
  for (const { id, runId, eventId, role, text, message } of entries) {
    if (role === 'tool') continue;
    if (role === 'human') {
      messages.push({ id: eventId ?? `entry:${id}`, type: 'human', content: text, isComplete: true, isReasoning: false });
      continue;
    }
    const stored = storedAi.safeParse(message);
    const toolCalls = stored.success
      ? stored.data.toolCalls.map((call) => ({ ...call, ...(results.get(`${runId} ${call.id}`) ?? { status: 'error' as const }) }))
      : [];
    messages.push({
      // The answer has its run's id, as in the reply to POST and in `done`; the steps before it have their own.
      id: runId !== null && lastAiOfRun.get(runId) === id ? runId : `entry:${id}`,
      type: 'ai',
      content: text,
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
      isComplete: true,
      isReasoning: false,
    });
  }
  return messages;
}
