/**
 * The built-in runner: one turn of model and tools over LangGraph. The graph's state holds only this turn (G16), is written synchronously
 * before each next step (G5, G6), and the conversation is put in front of it at each model call. The model is streamed here, inside the wrap hook,
 * not through the graph's stream: text, tool frames and retries then have one order, and a token costs less.
 * Importing this file loads the agent library (about a second): import it after listening.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { isGraphDrained, REMOVE_ALL_MESSAGES, RunControl } from '@langchain/langgraph';
import { createAgent, createMiddleware, MiddlewareError } from 'langchain';
import { OracleError, type Refusal, refusal } from '../errors.ts';
import type { RoomId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { LIMITS } from '../limits.ts';
import type { Models } from '../models/models.ts';
import { addUsage, readUsage } from '../models/usage.ts';
import type { Logger } from '../observe/logger.ts';
import type { PluginRegistry } from '../plugin-host/plugin-registry.ts';
import type { Prompt, Run, Usage } from '../runs/run.ts';
import { Drain, type RunJob, type Runner, type RunOutcome } from '../runs/runner.ts';
import type { ToolMarks } from '../runs/tool-marks.ts';
import { buildRuntimeContext } from '../runtime-context/build-runtime-context.ts';
import { buildLocalTime, readTimeZone } from '../runtime-context/local-time.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import type { MergedConfig } from '../runtime-context/runtime-context.ts';
import type { Transcript, TranscriptEntry } from '../sessions/transcript.ts';
import { type CheckpointFiles, createCheckpointFiles } from '../store/checkpoints/checkpoint-files.ts';
import type { PruningSaver } from '../store/checkpoints/pruning-saver.ts';
import { StorageError } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { AuditEntry } from '../turn/audit.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import type { Downstream } from '../ucan/downstream.ts';
import { type AnswerWriter, createAnswerWriter } from './answer-writer.ts';
import { callModel, createToolBinder } from './call-model.ts';
import { OVERHEARD_MAX_MESSAGES, planOverheard, planWindow } from './plan-window.ts';
import { buildSystemPrompt } from './prompt.ts';
import { runTool, type ToolCall, type ToolRunOptions } from './run-tool.ts';
import { createTaint, hasForeignResult, isForeignEntry, type Taint } from './taint.ts';
import { buildMessage, buildTurnMessages, readAnswer, textOf } from './turn-messages.ts';

export interface MainRunnerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transcript: Pick<Transcript, 'newest' | 'overheard'>;
  readonly marks: ToolMarks;
  readonly models: Models;
  readonly registry: PluginRegistry;
  readonly matrix: MatrixAccess;
  readonly authority: Pick<RunAuthority, 'judge' | 'actingGrants'>;
  readonly downstream: Downstream;
  /** Writes a row of the audit log; resolves when it is on disk. */
  readonly audit: (entry: AuditEntry) => Promise<void>;
  /** Folder of the checkpoint files. */
  readonly checkpointFolder: string;
  readonly oracleName: string;
  readonly contextMessages: number;
  readonly contextChars?: number;
  /** What plugins see as `rtCtx.config`: no secrets of the oracle. */
  readonly pluginConfig?: MergedConfig;
  /** Name of a room or of a speaker (principal id) when it is known at once; nothing is fetched during a turn. */
  readonly names?: { room(room: RoomId): string | null; speaker(principal: string): string | null };
  /** 0…1, spreads retries. */
  readonly chance?: () => number;
  /** How long a step may go on after a drain was asked for. */
  readonly drainGraceMs?: number;
  readonly maxOpenCheckpoints?: number;
}
export interface MainRunner extends Runner {
  removeIdleCheckpoints: CheckpointFiles['removeIdle'];
  close(): void;
}

const DEFAULT_CONTEXT_CHARS = 100_000;
const DEFAULT_DRAIN_GRACE_MS = 5_000;
/** Every hook and step counts; our own budget of calls ends a loop long before. */
const RECURSION_LIMIT = 1_000;
const IDENTICAL_ERRORS = 3;
const TOOLS_CLOSED = 'No further tools can be used in this turn: answer now with what you know, and say what is missing.';

/** What we use of the compiled graph. */
interface TurnGraph {
  getState(config: unknown): Promise<{ values: { messages?: BaseMessage[] }; next: readonly string[] }>;
  invoke(input: unknown, config: unknown): Promise<{ messages: BaseMessage[] }>;
}

/** One execution of a turn: what the hooks of the graph share. */
interface Turn {
  readonly job: RunJob;
  readonly run: Run;
  readonly writer: AnswerWriter;
  readonly stop: AbortController;
  readonly window: readonly BaseMessage[];
  readonly system: SystemMessage;
  readonly model: BaseChatModel;
  readonly modelName: string;
  readonly logger: Logger;
  /** The turn so far: prompts, answers, results. Kept beside the graph, so that a stopped turn can be told without reading it back. */
  messages: BaseMessage[];
  modelCalls: number;
  toolCalls: number;
  readonly errors: Map<string, number>;
  toolsClosed: boolean;
  consumed: Promise<void> | undefined;
  /** Ids of the prompts that are marked consumed, or are about to be. */
  readonly consumedIds: Set<string>;
  /** Whether the input of the latest model call held text of strangers: what that model wishes is judged by it. */
  readonly taint: Taint;
  taintWritten: Promise<void> | undefined;
  over: boolean;
}

export function createMainRunner(options: MainRunnerOptions): MainRunner {
  const { clock, logger, transcript, marks, models, registry, matrix, oracleName, contextMessages } = options;
  const contextChars = options.contextChars ?? DEFAULT_CONTEXT_CHARS;
  const chance = options.chance ?? (() => 0.5);
  const files = createCheckpointFiles({
    folder: options.checkpointFolder,
    logger,
    ...(options.maxOpenCheckpoints === undefined ? {} : { maxOpen: options.maxOpenCheckpoints }),
  });
  const bindTools = createToolBinder(registry.tools);
  const takingTurns = new Set<string>();
  const manifests = registry.plugins.map(({ manifest }) => manifest);

  /** The transcript knows speakers by their principal id; of the run's own one the account is known as well. */
  const nameIn =
    (run: Run) =>
    (speaker: string): string => {
      const name = options.names?.speaker(speaker);
      if (name !== undefined && name !== null) return name;
      if (speaker === run.principalId) return run.matrixUserId;
      return speaker.startsWith('matrix:u/') ? `@${speaker.slice('matrix:u/'.length)}` : speaker;
    };

  function startTurn(job: RunJob): Turn {
    const { run } = job;
    const nameOf = nameIn(run);
    const entries = transcript.newest(run.sessionId, { limit: contextMessages, withoutRun: run.id });
    const promptChars = run.prompts.reduce((sum, prompt) => sum + prompt.text.length, 0);
    const rules = {
      maxChars: Math.max(0, contextChars - promptChars),
      onlyDetailsOf: run.direct ? null : run.principalId,
      nameOf: run.direct ? null : nameOf,
      isForeign: (entry: TranscriptEntry) => isForeignEntry(entry, run),
    };
    // A first mention in a group may speak of what was said before it.
    const overheard =
      !run.direct && entries.length === 0 ? planOverheard(transcript.overheard(run.roomId, OVERHEARD_MAX_MESSAGES), nameOf) : [];
    const window = [...overheard, ...planWindow(entries, rules)];
    const taint = createTaint();
    if (run.tainted || window.some(({ isForeign }) => isForeign)) taint.turnOn();
    const zone = readTimeZone(run.hints.timezone);
    const local = buildLocalTime(clock.now(), zone ?? 'UTC');
    const system = buildSystemPrompt({
      oracleName,
      room: { kind: run.direct ? 'direct' : 'group', name: options.names?.room(run.roomId) ?? null },
      user: nameOf(run.principalId),
      plugins: manifests,
      localTime: local.iso,
      weekday: local.weekday,
      timeZone: zone,
    });
    const asked = run.hints.model;
    const isSelectable = asked !== undefined && models.listModels().some(({ id }) => id === asked);
    return {
      job,
      run,
      writer: createAnswerWriter(job.output, job.shownText),
      stop: new AbortController(),
      window: window.map(buildMessage),
      system: new SystemMessage(system),
      model: isSelectable ? models.get('main', { model: asked }) : models.get('main'),
      modelName: isSelectable ? asked : models.nameOf('main'),
      logger: logger.child({ run_id: run.id, session_id: run.sessionId }),
      messages: [],
      modelCalls: 0,
      toolCalls: 0,
      errors: new Map(),
      toolsClosed: false,
      consumed: undefined,
      consumedIds: new Set(),
      taint,
      taintWritten: undefined,
      over: false,
    };
  }

  /** The step that holds the prompts is on disk when a model call begins: synchronous durability writes it before. */
  function consumePrompts(turn: Turn, messages: readonly BaseMessage[]): void {
    const ids = promptIdsOf(messages).filter((id) => !turn.consumedIds.has(id));
    if (ids.length === 0) return;
    for (const id of ids) turn.consumedIds.add(id);
    turn.consumed = turn.job.output.promptsConsumed(ids);
    turn.consumed.catch((error: unknown) => turn.stop.abort(error));
  }

  /** Stops this step of the graph: what came meanwhile is put into the checkpoint first, and the model is asked after that (G2). */
  function takeInputs(turn: Turn, messages: readonly BaseMessage[]): void {
    const known = new Set(promptIdsOf(messages));
    const further = turn.job.output.inputsWaiting().filter(({ id }) => !known.has(id));
    if (further.length > 0) throw new Steered(further);
  }

  /** Frames of later text are committed after this write, so text of a tainted run is never found without its taint. */
  function noteTaint(turn: Turn, shown: readonly BaseMessage[]): void {
    if (hasForeignResult(shown, registry.tools)) turn.taint.turnOn();
    if (!turn.taint.isOn || turn.taintWritten !== undefined) return;
    turn.taintWritten = turn.job.output.tainted();
    turn.taintWritten.catch((error: unknown) => turn.stop.abort(error));
  }

  function requireAuthority({ run }: Turn): void {
    const lost = options.authority.judge(run, clock.now());
    if (lost !== null) throw new OracleError(refusal(lost));
  }

  /** A handler may ask a model as well, and as often as it likes. */
  const judgedGet =
    (turn: Turn): Models['get'] =>
    (role, more) => {
      requireAuthority(turn);
      return models.get(role, more);
    };

  async function answer(turn: Turn, messages: BaseMessage[]): Promise<AIMessage> {
    turn.messages = messages;
    takeInputs(turn, messages);
    turn.modelCalls += 1;
    if (turn.modelCalls > LIMITS.modelCallsPerRun)
      throw new OracleError(refusal('MODEL_ERROR', { message: 'The language model came to no end. Please ask in smaller steps.' }));
    const isFirst = turn.consumedIds.size === 0;
    consumePrompts(turn, messages);
    // Of what came while the run works, nothing reaches the model that was taken back in the last moment.
    if (!isFirst) await turn.consumed;
    noteTaint(turn, messages);
    // Not as a message of its own at the end: some providers take a system message in first place only.
    const system = turn.toolsClosed ? new SystemMessage(`${textOf(turn.system)}\n${TOOLS_CLOSED}`) : turn.system;
    const message = await callModel({
      model: turn.toolsClosed ? (turn.model as never) : bindTools(turn.model),
      modelName: turn.modelName,
      messages: [system, ...turn.window, ...messages],
      messageId: `${turn.run.id}.${turn.run.attempt}.${turn.modelCalls}`,
      usedCallIds: callIdsOf(messages),
      writer: turn.writer,
      signal: turn.stop.signal,
      deadlineAt: turn.run.deadlineAt,
      clock,
      chance,
      logger: turn.logger,
      requireAuthority: () => requireAuthority(turn),
      takingTurns,
      onCall: (model) => turn.job.output.modelCalled(model),
    });
    turn.writer.endMessage();
    turn.messages = [...messages, message];
    await turn.consumed;
    await turn.taintWritten;
    return message;
  }

  const toolOptions = (turn: Turn): ToolRunOptions => ({
    run: turn.run,
    tools: registry.tools,
    marks,
    knownCalls: callIdsOf(turn.messages),
    authority: options.authority,
    tainted: turn.taint.isOn,
    audit: options.audit,
    clock,
    logger: turn.logger,
    signal: turn.stop.signal,
    sendFrame: (data) => {
      if (!turn.over) turn.job.output.toolCall(data);
    },
    buildContext: (asked, tool, { signal, isOver, readsForeign }) =>
      buildRuntimeContext({
        run: turn.run,
        now: () => clock.now(),
        models: { ...models, get: judgedGet(turn) },
        matrix: reportReads(matrix, readsForeign),
        downstream: options.downstream,
        actingGrants: () => options.authority.actingGrants(turn.run, clock.now()),
        isTainted: () => turn.taint.isOn,
        config: options.pluginConfig ?? {},
        plugins: registry.names,
        logger: turn.logger,
        readMessages: () => [...turn.window, ...turn.messages],
        sendToolCall: (data) => turn.job.output.toolCall(data),
        emit: (kind, data) => turn.job.output.emit(kind, data),
        signal,
        isOver: () => turn.over || isOver(),
        plugin: tool.plugin,
        call: {
          id: asked.id,
          tool: asked.name,
          mayWriteExternally: tool.definition.effect === 'write' && tool.definition.reach === 'external',
          capability: tool.definition.capability,
        },
      }),
  });

  async function useTool(turn: Turn, call: ToolCall): Promise<ToolMessage> {
    turn.toolCalls += 1;
    if (turn.toolCalls > LIMITS.toolCallsPerRun) turn.toolsClosed = true;
    const message = turn.toolsClosed
      ? new ToolMessage({ tool_call_id: call.id, name: call.name, status: 'error', content: TOOLS_CLOSED })
      : await runTool(call, toolOptions(turn)).catch((error: unknown) => {
          // It ends the run. Other calls of this step end with it, or the library would put what they throw into one error.
          turn.stop.abort(error);
          throw error;
        });
    turn.messages = [...turn.messages, message];
    noteRepetition(turn, call, message);
    return message;
  }

  /** The compiled graph itself: `ReactAgent.invoke` would load the checkpoint once more for hooks that keep state, which ours do not. */
  const buildGraph = (turn: Turn, saver: PruningSaver): TurnGraph => {
    const agent = createAgent({
      model: turn.model,
      tools: [],
      checkpointer: saver,
      middleware: [
        createMiddleware({
          name: 'turn',
          wrapModelCall: (request) => answer(turn, request.messages),
          wrapToolCall: ({ toolCall }) => useTool(turn, { id: toolCall.id ?? '', name: toolCall.name, args: toolCall.args as JsonObject }),
        }),
      ],
    });
    return agent.graph as unknown as TurnGraph;
  };

  async function runTurn(turn: Turn, saver: PruningSaver): Promise<RunOutcome> {
    const { run } = turn;
    const graph = buildGraph(turn, saver);
    const config = { configurable: { thread_id: run.sessionId } };
    const earlier = run.attempt > 1 ? await readEarlier(graph, config, turn, nameIn(run)) : null;
    turn.messages = earlier?.messages ?? [];
    turn.modelCalls = turn.messages.filter(AIMessage.isInstance).length;
    turn.toolCalls = turn.messages.filter(ToolMessage.isInstance).length;
    turn.writer.repair(readAnswer(turn.messages));
    // What the model was shown before it wished the calls that may still be open.
    noteTaint(turn, turn.messages.slice(0, turn.messages.findLastIndex(AIMessage.isInstance) + 1));
    if (earlier?.isFinished === true) {
      consumePrompts(turn, earlier.messages);
      await turn.consumed;
      return complete(turn, earlier.messages);
    }
    const control = new RunControl();
    const drain = (): void => control.requestDrain();
    turn.job.signal.addEventListener('abort', drain);
    if (turn.job.signal.aborted) drain();
    try {
      let input: unknown = earlier === null ? { messages: buildInput(run, nameIn(run)) } : null;
      for (;;) {
        try {
          const state = await graph.invoke(input, {
            ...config,
            durability: 'sync',
            recursionLimit: RECURSION_LIMIT,
            signal: turn.stop.signal,
            control,
          });
          return complete(turn, state.messages);
        } catch (error) {
          const reason = unwrap(error);
          if (!(reason instanceof Steered)) throw error;
          input = { messages: buildPrompts(run, reason.inputs, nameIn(run)) };
        }
      }
    } finally {
      turn.job.signal.removeEventListener('abort', drain);
    }
  }

  return {
    name: 'main',
    async execute(job) {
      const turn = startTurn(job);
      const detach = followSignal(turn, { clock, graceMs: options.drainGraceMs ?? DEFAULT_DRAIN_GRACE_MS });
      try {
        return await files.use(job.run.owner, (saver) => runTurn(turn, saver));
      } catch (error) {
        return readFailure(turn, error);
      } finally {
        // Results that no model was shown any more are kept as well, and the next turn is shown them.
        noteTaint(turn, turn.messages);
        turn.over = true;
        detach();
      }
    },
    removeIdleCheckpoints: files.removeIdle,
    close: () => files.close(),
  };
}

/** What a handler reads from the room was written by whoever is in it: its result is as untrusted as a web page. */
const reportReads = (matrix: MatrixAccess, report: () => void): MatrixAccess => ({
  ...matrix,
  roomState(room) {
    report();
    return matrix.roomState(room);
  },
  event(room, event) {
    report();
    return matrix.event(room, event);
  },
  readFile(...file) {
    report();
    return matrix.readFile(...file);
  },
});

/** A cancel stops everything now; a drain lets the step come to its end, for a while. */
function followSignal(turn: Turn, { clock, graceMs }: { clock: Clock; graceMs: number }): () => void {
  const { signal } = turn.job;
  let timer: { cancel(): void } | undefined;
  const onAbort = (): void => {
    if (signal.reason instanceof Drain) timer = clock.after(graceMs, () => turn.stop.abort(signal.reason));
    else turn.stop.abort(signal.reason);
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return () => {
    signal.removeEventListener('abort', onAbort);
    timer?.cancel();
  };
}

const callIdsOf = (messages: readonly BaseMessage[]): Set<string> =>
  new Set(messages.filter(AIMessage.isInstance).flatMap((message) => (message.tool_calls ?? []).map((call) => call.id ?? '')));

const promptIdsOf = (messages: readonly BaseMessage[]): string[] => messages.filter(HumanMessage.isInstance).map(({ id }) => id ?? '');

/** Prompts as messages whose ids are the prompts' own: a repeated input replaces itself, and a checkpoint tells whose turn it holds. */
const buildInput = (run: Run, nameOf: (speaker: string) => string): BaseMessage[] => [
  new RemoveMessage({ id: REMOVE_ALL_MESSAGES }),
  ...buildPrompts(run, run.prompts, nameOf),
];
function buildPrompts(run: Run, prompts: readonly Prompt[], nameOf: (speaker: string) => string): BaseMessage[] {
  const prefix = run.direct ? '' : `${nameOf(run.principalId)}: `;
  return prompts.map(({ id, text }) => new HumanMessage({ id, content: `${prefix}${text}` }));
}

const isSame = (one: BaseMessage | undefined, other: BaseMessage): boolean =>
  one !== undefined && one.id === other.id && textOf(one) === textOf(other);

/** Thrown in place of a model call: the principal has said more, and the checkpoint must hold it before the model sees it. */
class Steered extends Error {
  override readonly name = 'Steered';
  readonly inputs: readonly Prompt[];
  constructor(inputs: readonly Prompt[]) {
    super('there is more to take in');
    this.inputs = inputs;
  }
}

/** What an earlier attempt left in the checkpoint; null when it holds another turn, nothing, or cannot be read. */
async function readEarlier(
  graph: TurnGraph,
  config: unknown,
  turn: Turn,
  nameOf: (speaker: string) => string,
): Promise<{ messages: BaseMessage[]; isFinished: boolean } | null> {
  try {
    const { values, next } = await graph.getState(config);
    const messages = values.messages ?? [];
    const prompts = messages.filter(HumanMessage.isInstance);
    const own = buildPrompts(turn.run, turn.run.prompts, nameOf);
    // What came while the run worked may not be in it yet. An edited prompt has the id of the old one, and its turn is another.
    const isOurs = prompts.length > 0 && prompts.every((prompt, at) => isSame(own[at], prompt));
    return isOurs ? { messages, isFinished: next.length === 0 && messages.length > prompts.length } : null;
  } catch (error) {
    turn.logger.warn(
      { reason: error instanceof Error ? error.name : 'thrown value' },
      'the checkpoint of this run cannot be read; the turn starts again',
    );
    return null;
  }
}

function complete(turn: Turn, messages: readonly BaseMessage[]): RunOutcome {
  const text = readAnswer(messages);
  turn.messages = [...messages];
  turn.writer.repair(text);
  return { kind: 'completed', text, messages: buildTurnMessages(messages), ...cost(turn) };
}

/** Summed over the turn's messages, so that what an earlier attempt spent counts as well. */
function cost(turn: Turn): { usage?: Usage; model?: string } {
  let usage: Usage | undefined;
  let model: unknown;
  for (const message of turn.messages.filter(AIMessage.isInstance)) {
    usage = addUsage(usage, readUsage(message.usage_metadata));
    model = message.response_metadata['model_name'] ?? turn.modelName;
  }
  return { ...(usage === undefined ? {} : { usage }), ...(typeof model === 'string' ? { model } : {}) };
}

/** A turn that did not come to its end: stopped by somebody, put off by a shutdown, or failed. A bug is thrown on. */
function readFailure(turn: Turn, error: unknown): RunOutcome {
  const { signal } = turn.job;
  const isDrain = signal.aborted && signal.reason instanceof Drain;
  if (isGraphDrained(error) || (isDrain && turn.stop.signal.aborted)) return { kind: 'suspended' };
  const reason = unwrap(turn.stop.signal.aborted ? turn.stop.signal.reason : error);
  const refused = readRefusal(reason);
  if (refused === null) throw reason;
  const partial = turn.writer.partial;
  const messages = partial === '' ? turn.messages : [...turn.messages, new AIMessage(partial)];
  return { kind: 'failed', refusal: refused, messages: buildTurnMessages(messages), ...cost(turn) };
}

const MAX_WRAPS = 8;
/** The library wraps what hooks throw, once per hook. */
function unwrap(error: unknown): unknown {
  let current = error;
  for (let depth = 0; depth < MAX_WRAPS && MiddlewareError.isInstance(current) && current.cause !== undefined; depth += 1)
    current = current.cause;
  return current;
}

/**
 * What the person is told; null for what is no ending of the turn. A disk that is full or locked is none: the run stays unfinished and goes on
 * when it can be written again, as when a frame cannot be written (DESIGN §4 "Order on disk").
 */
function readRefusal(error: unknown): Refusal | null {
  if (error instanceof OracleError) return error.refusal;
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
  if (/^SQLITE_(FULL|IOERR|READONLY|BUSY|LOCKED)/u.test(code)) throw new StorageError('the checkpoint cannot be written', { cause: error });
  return code.startsWith('SQLITE_') ? refusal('CHECKPOINT_UNAVAILABLE', { cause: error }) : null;
}

/** A model that makes the same mistake again and again gets no further tools: it then answers, instead of spending the whole budget. */
function noteRepetition(turn: Turn, call: ToolCall, message: ToolMessage): void {
  if (message.status !== 'error') return;
  const key = JSON.stringify([call.name, call.args, textOf(message)]);
  const times = (turn.errors.get(key) ?? 0) + 1;
  turn.errors.set(key, times);
  if (times >= IDENTICAL_ERRORS) turn.toolsClosed = true;
}
