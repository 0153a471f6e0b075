/**
 * `rtCtx.emit`: frames that a plugin adds to its run's log. Payloads come from plugin code, often straight from a service it asked, so they are
 * checked, bounded and rid of secrets before they become frames that every viewer reads and the disk keeps (G12, G14).
 */
import { z } from 'zod';
import { OracleError, refusal } from '../errors.ts';
import type { EmittedKind, FrameData } from '../runs/run.ts';
import type { RunOutput } from '../runs/runner.ts';
import { jsonWithoutSecrets } from '../runs/without-secrets.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';
import type { RuntimeContext, ToolCallEventPayload } from './runtime-context.ts';

/** As much as one SSE event may be (LIMITS.sseFrameBytes), but for the ids that it gets there. */
const MAX_PAYLOAD_BYTES = 60 * 1024;
/** Of tool calls, which every answer in a room lists. */
const MAX_TOOL_CALL_BYTES = 16 * 1024;
/** A handler in a loop must not fill the disk; a person sees no use of a thousand cards in one answer. */
const MAX_FRAMES_PER_CALL = 1_000;
const MAX_BYTES_PER_CALL = 1024 * 1024;

const id = z.string().min(1).max(200);
const status = z.enum(['isRunning', 'done', 'error']).optional();
const data = z.unknown().optional();
const text = z.string().optional();

// Unknown fields are left out: what is not in the contract is no viewer's business.
const toolCall = z.object({ id, name: id, status: z.enum(['isRunning', 'done', 'error']), args: data, output: text });
const actionCall = z.object({ toolCallId: id, toolName: id, status, args: data, output: text, result: data, error: text });
const renderComponent = z.object({ componentName: id, args: data, status, eventId: id.optional() });
const reasoning = z.object({
  reasoning: z.string(),
  reasoningDetails: z
    .array(z.object({ type: z.string().max(64), text: z.string() }))
    .max(100)
    .optional(),
  isComplete: z.boolean().optional(),
});
const browserToolCall = z.object({ toolCallId: id, toolName: id, args: z.unknown() });
const router = z.object({ step: z.string().min(1).max(200) });
const messageCacheInvalidation = z.object({ status: z.string().max(200).optional() });

export interface EmitGroupSources {
  readonly sendToolCall: (data: FrameData['tool_call']) => void;
  readonly emit: RunOutput['emit'];
  readonly redactor: Pick<SecretRedactor, 'cleanJson'>;
  /** Of the call whose context it is. */
  readonly callId?: string;
}

export function buildEmitGroup({ sendToolCall, emit, redactor, callId }: EmitGroupSources): RuntimeContext['emit'] {
  let sent = 0;
  let sentBytes = 0;
  function read<K extends EmittedKind | 'tool_call'>(
    name: string,
    payload: unknown,
    { schema, needs, maxBytes = MAX_PAYLOAD_BYTES }: { schema: z.ZodType<unknown>; needs: string; maxBytes?: number },
  ): FrameData[K] {
    const parsed = schema.safeParse(payload);
    if (!parsed.success) throw badRequest(`emit.${name} needs ${needs}.`);
    const json = toJson(parsed.data);
    if (json === undefined) throw badRequest(`The payload of emit.${name} is no JSON.`);
    const bytes = Buffer.byteLength(json);
    if (bytes > maxBytes) throw badRequest(`The payload of emit.${name} is too large.`);
    sent += 1;
    sentBytes += bytes;
    if (sent > MAX_FRAMES_PER_CALL || sentBytes > MAX_BYTES_PER_CALL)
      throw badRequest(`One tool call may emit ${MAX_FRAMES_PER_CALL} frames and ${MAX_BYTES_PER_CALL / 1024} KiB.`);
    return redactor.cleanJson(JSON.parse(json)) as FrameData[K];
  }
  const sender =
    <K extends EmittedKind>(kind: K, name: string, rule: { schema: z.ZodType<unknown>; needs: string }) =>
    (payload: FrameData[K]): void =>
      emit(kind, read<K>(name, payload, rule));
  return {
    toolCall: (payload) =>
      sendToolCall(
        read<'tool_call'>('toolCall', inOurWords(payload, callId), {
          schema: toolCall,
          needs: 'id, name and status',
          maxBytes: MAX_TOOL_CALL_BYTES,
        }),
      ),
    actionCall: sender('action_call', 'actionCall', { schema: actionCall, needs: 'toolCallId and toolName' }),
    renderComponent: sender('render_component', 'renderComponent', { schema: renderComponent, needs: 'componentName' }),
    reasoning: sender('reasoning', 'reasoning', { schema: reasoning, needs: 'reasoning' }),
    browserToolCall: sender('browser_tool_call', 'browserToolCall', { schema: browserToolCall, needs: 'toolCallId, toolName and args' }),
    router: sender('router', 'router', { schema: router, needs: 'step' }),
    messageCacheInvalidation: sender('message_cache_invalidation', 'messageCacheInvalidation', {
      schema: messageCacheInvalidation,
      needs: 'a status that is text, or none',
    }),
  };
}

/** Plugins of this family name a call by `toolName` and `eventId` (research of its event protocol); frames by `name` and `id`. */
const inOurWords = (payload: ToolCallEventPayload, callId: string | undefined): unknown => {
  if (typeof payload !== 'object' || payload === null || !('toolName' in payload)) return payload;
  const { toolName: name, eventId: id = callId, status: state = 'isRunning', ...rest } = payload;
  return { ...rest, id, name, status: state };
};

const badRequest = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));

/** A value that refers to itself has none. */
function toJson(value: unknown): string | undefined {
  try {
    return jsonWithoutSecrets(value);
  } catch {
    return undefined;
  }
}
