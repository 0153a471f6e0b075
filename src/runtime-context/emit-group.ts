/**
 * `rtCtx.emit`: frames that a plugin adds to its run's log. Payloads come from plugin code, often straight from a service it asked, so they are
 * checked and bounded before they become frames that every viewer reads.
 */
import { z } from 'zod';
import { NotAvailableError, OracleError, refusal } from '../errors.ts';
import type { FrameData } from '../runs/run.ts';
import type { RuntimeContext } from './runtime-context.ts';

const MAX_PAYLOAD_BYTES = 16 * 1024;
const toolCall = z.object({
  id: z.string().min(1).max(200),
  name: z.string().min(1).max(200),
  status: z.enum(['isRunning', 'done', 'error']),
  args: z.unknown().optional(),
  output: z.string().optional(),
});

export function buildEmitGroup({ sendToolCall }: { sendToolCall: (data: FrameData['tool_call']) => void }): RuntimeContext['emit'] {
  const missing = (name: string) => (): never => {
    throw new NotAvailableError(`emit.${name}`);
  };
  return {
    toolCall(payload) {
      const parsed = toolCall.safeParse(payload);
      if (!parsed.success) throw new OracleError(refusal('BAD_REQUEST', { message: 'emit.toolCall needs id, name and status.' }));
      if (Buffer.byteLength(JSON.stringify(parsed.data)) > MAX_PAYLOAD_BYTES)
        throw new OracleError(refusal('BAD_REQUEST', { message: 'The payload of emit.toolCall is too large.' }));
      sendToolCall(parsed.data as FrameData['tool_call']);
    },
    actionCall: missing('actionCall'),
    renderComponent: missing('renderComponent'),
    reasoning: missing('reasoning'),
    browserToolCall: missing('browserToolCall'),
    router: missing('router'),
    messageCacheInvalidation: missing('messageCacheInvalidation'),
  };
}
