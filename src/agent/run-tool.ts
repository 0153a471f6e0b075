/**
 * The one place where a tool's handler is called. Everything between the model's wish and the effect happens here, in this order: is there such a tool,
 * do the arguments fit, may this run do it (G8), was it done before (G6), then the handler with a deadline and a signal.
 * Whatever goes wrong becomes a message that the model can read; only a cancel leaves as a throw.
 */
import { ToolMessage } from '@langchain/core/messages';
import type { z } from 'zod';
import { OracleError, readThrown, refusal } from '../errors.ts';
import { canonicalJson, type JsonObject, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { Logger } from '../observe/logger.ts';
import type { RegisteredTool } from '../plugin-host/registered-tool.ts';
import type { FrameData, Run } from '../runs/run.ts';
import type { ToolCallKey, ToolMarks } from '../runs/tool-marks.ts';
import { jsonWithoutSecrets } from '../runs/without-secrets.ts';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';
import type { Clock } from '../time.ts';
import type { AuditEntry } from '../turn/audit.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import { covers } from '../ucan/downstream.ts';
import { decideTool, isAudited } from './decide-tool.ts';
import { BAD_ARGUMENTS } from './read-model-stream.ts';
import { RunOver } from './stop-reason.ts';
import { buildArtifact } from './taint.ts';

export interface ToolCall {
  /** In the conversation with the model. */
  readonly id: string;
  /** In marks, frames and contexts, where calls of sub-agents stand beside those of the main loop. Default: `id`. */
  readonly key?: string;
  readonly name: string;
  readonly args: JsonObject;
}
/** What the host itself answers: a meta tool, a sub-agent. */
export interface HostCall {
  readonly key: string;
  readonly context: RuntimeContext;
  readonly signal: AbortSignal;
  readonly readsForeign: () => void;
}
export interface HostAnswer {
  readonly text: string;
  /** Keys of the calls that were made on the way. */
  readonly calls?: readonly string[];
}
export type HostHandler = (args: Record<string, unknown>, asked: HostCall) => Promise<HostAnswer>;

/** A tool as it is run: of a plugin, or one that the host answers itself. */
export interface RunnableTool extends RegisteredTool {
  readonly answer?: HostHandler;
  /** Default LIMITS.toolTimeoutMs. */
  readonly timeoutMs?: number;
}
export interface ToolRunOptions {
  readonly run: Run;
  readonly tools: { get(name: string): RunnableTool | undefined };
  readonly marks: ToolMarks;
  /** Keys of all calls in the turn's messages: a mark without one of them was left by an attempt whose checkpoint is lost (G6). */
  readonly knownCalls: ReadonlySet<string>;
  readonly authority: Pick<RunAuthority, 'judge' | 'actingGrants'>;
  /** Whether the model that wishes this call was shown text of strangers. */
  readonly tainted: boolean;
  /** Resolves when it is on disk. */
  readonly audit: (entry: AuditEntry) => Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Cancels the run. */
  readonly signal: AbortSignal;
  /** Whether the run may spend more; asked before a tool that has a price. */
  readonly mayPay: () => Promise<boolean>;
  /** What it costs, once it has worked. */
  readonly pay: (credits: number) => Promise<void>;
  /** Masks what plugins were given in secret. */
  readonly clean?: (text: string) => string;
  readonly sendFrame: (data: FrameData['tool_call']) => void;
  /** `readsForeign` hears that the handler was given text of strangers by the host: its result is then as untrusted as a web page. */
  readonly buildContext: (
    call: ToolCall & { readonly key: string },
    tool: RunnableTool,
    more: { signal: AbortSignal; isOver: () => boolean; readsForeign: () => void },
  ) => RuntimeContext;
}

interface ToolResult {
  readonly status: 'success' | 'error';
  readonly text: string;
  /** The handler read text of strangers, although its tool does not say so. */
  readonly foreign?: boolean;
  readonly calls?: readonly string[];
}
const failed = (text: string): ToolResult => ({ status: 'error', text });

export const UNKNOWN_OUTCOME =
  'This call was started before and was interrupted. Its outcome is unknown, so it was not run again. Tell the user that it may or may not have happened.';

export async function runTool(call: ToolCall, options: ToolRunOptions): Promise<ToolMessage> {
  const tool = options.tools.get(call.name);
  const result =
    tool === undefined
      ? failed(`There is no tool named ${JSON.stringify(call.name.slice(0, 80))}.`)
      : await runKnownTool(call, tool, options);
  const isForeign = tool?.definition.untrusted === true || result.foreign === true;
  return new ToolMessage({
    tool_call_id: call.id,
    name: call.name,
    content: result.text,
    status: result.status,
    ...buildArtifact({ isForeign, calls: result.calls ?? [] }),
  });
}

async function runKnownTool(call: ToolCall, tool: RunnableTool, options: ToolRunOptions): Promise<ToolResult> {
  const key = call.key ?? call.id;
  const args = readToolArguments(tool.definition.schema, call.args);
  if (!args.ok) return failed(args.why);
  const refused = await authorise(tool, options);
  if (refused !== null) return refused;
  const { billing } = tool.definition;
  if (billing !== undefined && !(await options.mayPay())) throw new RunOver(refusal('OUT_OF_CREDITS'));
  options.signal.throwIfAborted();
  const mark: ToolCallKey = { runId: options.run.id, toolCallId: key, tool: call.name, argsHash: hashArguments(call.args) };
  const isWrite = tool.definition.effect === 'write';
  if (isWrite) {
    const decision = await options.marks.begin(mark, options.run.attempt, options.knownCalls);
    if (decision.kind === 'stored') return readStoredResult(decision.result);
    if (decision.kind === 'unknown_outcome') return failed(UNKNOWN_OUTCOME);
  }
  options.sendFrame({ id: key, name: call.name, status: 'isRunning', args: buildFrameArguments(call.args) });
  const result = await callHandler({ ...call, key }, tool, args.value, {
    ...options,
    finish: async (done) => {
      if (isWrite) await options.marks.finish(mark, JSON.stringify({ v: 1, ...done }));
      if (billing !== undefined && done.status === 'success') await options.pay(billing.credits);
    },
  });
  options.sendFrame({
    id: key,
    name: call.name,
    status: result.status === 'error' ? 'error' : 'done',
    output: cut(result.text, MAX_FRAME_OUTPUT_CHARS),
  });
  return result;
}

/**
 * Null when this run may call the tool now; else what the model is told. What was decided is in the audit log before anything happens (G8).
 * @throws RunOver when the run has lost its authority: it ends.
 */
async function authorise({ definition }: RegisteredTool, options: ToolRunOptions): Promise<ToolResult | null> {
  const { run, authority, tainted, clock } = options;
  const { capability, name } = definition;
  const at = clock.now();
  const asked = capability === undefined ? undefined : { can: capability.action, with: capability.resource };
  const grant =
    asked === undefined
      ? undefined
      : authority.actingGrants(run, at).find(({ capabilities }) => capabilities.some((granted) => covers(granted, asked)));
  const decision = decideTool({
    tool: definition,
    tier: run.tier,
    tainted,
    holdsCapability: grant !== undefined,
    authority: authority.judge(run, at),
  });
  if (isAudited(definition, decision)) {
    await options.audit({
      at,
      event_id: run.prompts[0]?.id ?? null,
      run_id: run.id,
      token_id: grant?.tokenId ?? null,
      principal_id: run.principalId,
      matrix_user_id: run.matrixUserId,
      tier: run.tier,
      capability: capability?.action ?? `tool/${name}`,
      resource: capability?.resource ?? run.roomId,
      decision: decision.kind === 'run' ? 'allowed' : 'refused',
      code: decision.kind === 'run' ? null : decision.code,
      tainted: tainted ? 1 : 0,
    });
  }
  if (decision.kind === 'stop') throw new RunOver(refusal(decision.code));
  return decision.kind === 'refuse' ? failed(decision.text) : null;
}

export function readToolArguments(
  schema: z.ZodObject,
  args: JsonObject,
): { ok: true; value: Record<string, unknown> } | { ok: false; why: string } {
  const unreadable = args[BAD_ARGUMENTS];
  if (typeof unreadable === 'string') return { ok: false, why: `Not run: ${unreadable}.` };
  let parsed: ReturnType<typeof schema.safeParse>;
  try {
    parsed = schema.safeParse(args);
  } catch (error) {
    // A transform of the author's own that throws at what the model wrote, or a check that waits: the call's failure, not the turn's.
    return { ok: false, why: cut(`Not run: the arguments cannot be read. ${readToolError(error)}`, MAX_ERROR_CHARS) };
  }
  if (parsed.success) return { ok: true, value: parsed.data };
  const issues = parsed.error.issues.slice(0, 5).map((issue) => `${issue.path.join('.') || 'arguments'}: ${issue.message}`);
  return { ok: false, why: cut(`Not run: the arguments do not fit. ${issues.join('; ')}`, MAX_ERROR_CHARS) };
}

/** Floats have no canonical Matrix JSON; within one program any stable order serves. */
export function hashArguments(args: JsonObject): string {
  const canonical = canonicalJson(args);
  return sha256Base64Url(canonical.ok ? canonical.value : JSON.stringify(args, (_key, value: unknown) => sortKeys(value)));
}
const sortKeys = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    : value;

const MAX_ERROR_CHARS = 1_000;
const MAX_FRAME_OUTPUT_CHARS = 2_000;
const MAX_FRAME_ARGS_CHARS = 2_000;

interface HandlerOptions extends ToolRunOptions {
  /** Writes down what came out, also when nobody waits any more. */
  readonly finish: (result: ToolResult) => Promise<void>;
}

async function callHandler(
  call: ToolCall & { readonly key: string },
  tool: RunnableTool,
  args: Record<string, unknown>,
  options: HandlerOptions,
): Promise<ToolResult> {
  const { signal, clock, logger, clean = (text) => text } = options;
  signal.throwIfAborted();
  let over = false;
  let foreign = false;
  const own = new AbortController();
  const both = AbortSignal.any([signal, own.signal]);
  const readsForeign = (): void => {
    foreign = true;
  };
  const context = options.buildContext(call, tool, { signal: both, isOver: () => over, readsForeign });
  const work = (async (): Promise<ToolResult> => {
    let result: ToolResult;
    try {
      result =
        tool.answer === undefined
          ? { status: 'success', text: buildResultText(await tool.definition.handler(args, context), clean) }
          : { status: 'success', ...bounded(await tool.answer(args, { key: call.key, context, signal: both, readsForeign }), clean) };
    } catch (thrown) {
      // An effect that was cut short by a cancel is left as "started": nobody knows whether it happened.
      if (both.aborted) throw thrown;
      const error = readThrown(thrown);
      result = failed(cut(clean(`The tool failed: ${readToolError(error)}`), MAX_ERROR_CHARS));
      logger.warn({ tool: call.name, plugin: tool.plugin, reason: error instanceof Error ? error.name : 'thrown value' }, 'a tool failed');
    }
    const told = foreign ? { ...result, foreign } : result;
    await options.finish(told);
    return told;
  })();
  const stop = Promise.withResolvers<ToolResult>();
  const onAbort = (): void => stop.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  const timeoutMs = tool.timeoutMs ?? LIMITS.toolTimeoutMs;
  const timer = clock.after(timeoutMs, () => {
    own.abort(new Error('tool timeout'));
    const unknown = tool.definition.effect === 'write' ? ' Its outcome is unknown; do not repeat it, tell the user.' : '';
    stop.resolve(failed(`The tool did not finish within ${timeoutMs / 1_000} s.${unknown}`));
  });
  // Whoever loses the race goes on alone; its failure is nobody's any more.
  work.catch(() => undefined);
  stop.promise.catch(() => undefined);
  try {
    return await Promise.race([work, stop.promise]);
  } finally {
    over = true;
    timer.cancel();
    signal.removeEventListener('abort', onAbort);
  }
}

type Clean = (text: string) => string;

/** Masked before it is cut: half a secret would be known to nobody as one. */
const bounded = (answer: HostAnswer, clean: Clean): HostAnswer => ({
  ...answer,
  text: cut(clean(answer.text).toWellFormed(), LIMITS.toolResultChars),
});

function buildResultText(value: unknown, clean: Clean): string {
  const text = typeof value === 'string' ? value : value === undefined ? 'Done.' : (JSON.stringify(value) ?? String(value));
  return cut(clean(text).toWellFormed(), LIMITS.toolResultChars);
}

const readToolError = (error: unknown): string =>
  error instanceof OracleError ? error.refusal.message : error instanceof Error ? error.message : 'unknown error';

const cut = (text: string, maxChars: number): string =>
  text.length <= maxChars ? text : `${text.slice(0, maxChars - 40).toWellFormed()}… [cut; ${text.length} characters]`;

function readStoredResult(stored: string): ToolResult {
  const value = JSON.parse(stored) as { status?: unknown; text?: unknown; foreign?: unknown };
  const result: ToolResult = {
    status: value.status === 'error' ? 'error' : 'success',
    text: typeof value.text === 'string' ? value.text : '',
  };
  return value.foreign === true ? { ...result, foreign: true } : result;
}

/** Arguments as viewers may see them: bounded, and without values whose names say that they are secret (G12). */
export function buildFrameArguments(args: JsonObject): unknown {
  const text = jsonWithoutSecrets(args) ?? '{}';
  return text.length <= MAX_FRAME_ARGS_CHARS ? JSON.parse(text) : cut(text, MAX_FRAME_ARGS_CHARS);
}
