/**
 * `ixo.oracle.run` ties a message in a room to the run that wrote it. It is read back from the room when our own database is younger than the
 * room (DESIGN §2: a restored database must not answer twice), so it is written into every version of the message and read as carefully as a
 * stranger's: an event of our account may come from an older release or from somebody who held our token.
 */
import { z } from 'zod';
import { type EventId, parseEventId, parseRunId, parseSessionId, type RunId, type SessionId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject, jsonBytes } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { type RunStatus, TERMINAL, type Usage } from '../../src/runs/run.ts';

export const RUN_KEY = 'ixo.oracle.run';

export interface RunField {
  readonly runId: RunId;
  readonly sessionId: SessionId;
  /** The events this answer is for: more than one after a burst. */
  readonly prompts: readonly EventId[];
  /** From 1. */
  readonly part: number;
  /** Sequence number of the newest frame that the text holds. */
  readonly seq: number;
  readonly status: RunStatus;
  /** Names of the tools used, each once. */
  readonly tools?: readonly string[];
  readonly usage?: Usage;
}

/** The field stands twice in an edit; these bounds keep both copies small beside the text (LIMITS.partEventBytes). */
const PROMPTS_BYTES = 4_000;
const TOOLS = 20;
const TOOL_CHARS = 64;

export function buildRunField(field: RunField): JsonObject {
  const tools = [...new Set(field.tools ?? [])].slice(0, TOOLS).map((name) => name.slice(0, TOOL_CHARS).toWellFormed());
  return {
    run_id: field.runId,
    session_id: field.sessionId,
    prompts: boundedPrompts(field.prompts),
    part: wholeNumber(field.part),
    seq: wholeNumber(field.seq),
    status: field.status,
    ...(tools.length === 0 ? {} : { tools }),
    ...(field.usage === undefined
      ? {}
      : { usage: { input_tokens: wholeNumber(field.usage.inputTokens), output_tokens: wholeNumber(field.usage.outputTokens) } }),
  };
}

/** The newest prompts that fit: an answer is looked up by any of them. */
function boundedPrompts(prompts: readonly EventId[]): string[] {
  const kept: string[] = [];
  let bytes = 0;
  for (const prompt of prompts.toReversed()) {
    bytes += jsonBytes(prompt) + 1;
    if (bytes > PROMPTS_BYTES) break;
    kept.unshift(prompt);
  }
  return kept;
}

/** The homeserver refuses floats (M_BAD_JSON), and one bad count of tokens must not lose an answer. */
const wholeNumber = (value: number): number =>
  Number.isFinite(value) ? Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.round(value))) : 0;

const STATUSES = [
  'queued',
  'running',
  'waiting',
  'completed',
  'failed',
  'cancelled',
  'interrupted',
  'expired',
] as const satisfies readonly RunStatus[];
const count = z.number().int().nonnegative();
const id = z.string().max(255);

const RunFieldSchema = z.object({
  run_id: z.string().transform(parsedBy(parseRunId)),
  session_id: z.string().transform(parsedBy(parseSessionId)),
  prompts: z.array(id.transform(parsedBy(parseEventId))).max(1_000),
  part: count.min(1),
  seq: count,
  status: z.enum(STATUSES),
  tools: z.array(z.string().max(TOOL_CHARS)).max(TOOLS).optional(),
  usage: z.object({ input_tokens: count, output_tokens: count }).optional(),
});

function parsedBy<T>(parse: (text: string) => Result<T, string>): (text: string, context: z.RefinementCtx) => T {
  return (text, context) => {
    const parsed = parse(text);
    if (parsed.ok) return parsed.value;
    context.addIssue({ code: 'custom', message: parsed.error });
    return z.NEVER;
  };
}

/** Absent, valid and broken are three answers. Reads the outer content of a message or of an edit: both carry the field. */
export function readRunField(content: unknown): Result<RunField | undefined, 'BAD_RUN_FIELD'> {
  if (!isJsonObject(content) || !Object.hasOwn(content, RUN_KEY)) return ok(undefined);
  const parsed = RunFieldSchema.safeParse(content[RUN_KEY]);
  if (!parsed.success) return err('BAD_RUN_FIELD');
  const { run_id: runId, session_id: sessionId, prompts, part, seq, status, tools, usage } = parsed.data;
  return ok({
    runId,
    sessionId,
    prompts,
    part,
    seq,
    status,
    ...(tools === undefined ? {} : { tools }),
    ...(usage === undefined ? {} : { usage: { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens } }),
  });
}

export const isTerminal = (field: RunField): boolean => TERMINAL.has(field.status);
