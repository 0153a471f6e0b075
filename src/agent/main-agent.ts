/**
 * The built-in runner: one turn of model and tools over LangGraph. The graph's state holds only this turn (G16) and what the thread keeps, is written
 * synchronously before each next step (G5, G6), and the conversation is put in front of it at each model call.
 * Importing this file loads the agent library (about a second): import it after listening.
 */
import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { RunControl } from '@langchain/langgraph';
import { OracleError, refusal } from '../errors.ts';
import { addUsage, readUsage } from '../models/usage.ts';
import { Drain, type RunJob, type Runner, type RunOutcome } from '../runs/runner.ts';
import { type CheckpointFiles, createCheckpointFiles, isDamaged } from '../store/checkpoints/checkpoint-files.ts';
import type { PruningSaver } from '../store/checkpoints/pruning-saver.ts';
import type { Clock } from '../time.ts';
import type { AgentParts, MainRunnerOptions } from './agent-parts.ts';
import { buildGraph, type LoopGraph, RECURSION_LIMIT } from './build-graph.ts';
import { buildContextBudget } from './context-budget.ts';
import type { Loop } from './loop.ts';
import { buildMetaTools } from './meta-tools.ts';
import { complete, cost, readFailure } from './outcome.ts';
import { buildInput, buildPrompts, type Earlier, readEarlier } from './resume.ts';
import { FREE } from './spending.ts';
import { nameIn, startLoop } from './start-turn.ts';
import { isLoadFailure, nameOfError, Steered, sqliteCode, unwrap } from './stop-reason.ts';
import { buildSubAgentTool } from './sub-agent.ts';
import { createThreadState, type ThreadState } from './thread-state.ts';
import { type AgentTool, createToolBinder, createToolSet } from './tool-set.ts';
import { consumePrompts, createTurn, noteTaint, type Turn } from './turn.ts';
import { readAnswer } from './turn-messages.ts';

export interface MainRunner extends Runner {
  removeIdleCheckpoints: CheckpointFiles['removeIdle'];
  close(): void;
}

const DEFAULT_DRAIN_GRACE_MS = 5_000;

export function createMainRunner(options: MainRunnerOptions): MainRunner {
  const { clock, logger } = options;
  const parts = buildParts(options);
  const files = createCheckpointFiles({
    folder: options.checkpointFolder,
    logger,
    ...(options.maxOpenCheckpoints === undefined ? {} : { maxOpen: options.maxOpenCheckpoints }),
  });

  async function execute(job: RunJob, isAgain: boolean): Promise<RunOutcome> {
    const turn = createTurn(job, { parts, logger: logger.child({ run_id: job.run.id, session_id: job.run.sessionId }) });
    const detach = followSignal(turn, { clock, graceMs: options.drainGraceMs ?? DEFAULT_DRAIN_GRACE_MS });
    try {
      const outcome = await files.use(job.run.owner, (saver) => runTurn(turn, saver));
      if (outcome.kind !== 'completed' || turn.summary === undefined) return outcome;
      await turn.summary.settle();
      return { ...outcome, ...cost(turn) };
    } catch (error) {
      // Found damaged while it was read: the file is set aside now, and the turn goes on without what it held.
      if (isDamaged(error) && turn.main === undefined && !isAgain) return await execute(job, true);
      // A conversation that goes on with less than it had would overwrite what may be read again in a moment.
      const isUnread = turn.main === undefined && isLoadFailure(error);
      return readFailure(turn, isUnread ? new OracleError(refusal('CHECKPOINT_UNAVAILABLE', { cause: error })) : error);
    } finally {
      // Results that no model was shown any more are kept as well, and the next turn is shown them.
      if (turn.main !== undefined) noteTaint(turn, turn.main.messages, turn.tools);
      turn.summary?.stop();
      turn.over = true;
      detach();
    }
  }

  return {
    name: 'main',
    execute: (job) => execute(job, false),
    removeIdleCheckpoints: files.removeIdle,
    close: () => files.close(),
  };
}

function buildParts(options: MainRunnerOptions): AgentParts {
  const { host } = options;
  const tools = new Map<string, AgentTool>(host.tools);
  for (const agent of host.subAgents.values()) tools.set(agent.toolName, buildSubAgentTool(agent));
  for (const tool of buildMetaTools(host)) tools.set(tool.definition.name, tool);
  return {
    options,
    host,
    clock: options.clock,
    spending: options.spending ?? FREE,
    budget: buildContextBudget(options.contextTokens),
    chance: options.chance ?? (() => 0.5),
    bootTools: createToolSet(tools, host.visibilityOf),
    bindTools: createToolBinder(),
    takingTurns: new Set(),
  };
}

async function runTurn(turn: Turn, saver: PruningSaver): Promise<RunOutcome> {
  const { run, parts } = turn;
  const nameOf = nameIn(run, parts.options.names);
  const config = { configurable: { thread_id: run.sessionId } };
  turn.thread = await readThread(turn, saver, config);
  const loop = await startLoop(turn);
  const graph = buildGraph(loop, { saver });
  const earlier = run.attempt > 1 ? await loadEarlier(turn, graph, config) : null;
  takeUp(loop, earlier);
  if (earlier?.isFinished === true) {
    consumePrompts(turn, earlier.messages.filter(HumanMessage.isInstance));
    await turn.consumed;
    return complete(loop, earlier.messages);
  }
  const control = new RunControl();
  const drain = (): void => control.requestDrain();
  turn.job.signal.addEventListener('abort', drain);
  if (turn.job.signal.aborted) drain();
  try {
    let input: unknown = earlier === null ? { messages: buildInput(run, nameOf) } : null;
    for (;;) {
      try {
        const state = await graph.invoke(input, {
          ...config,
          durability: 'sync',
          recursionLimit: RECURSION_LIMIT,
          signal: turn.stop.signal,
          control,
        });
        return complete(loop, state.messages);
      } catch (error) {
        const reason = unwrap(error);
        if (!(reason instanceof Steered)) throw error;
        input = { messages: buildPrompts(run, reason.inputs, nameOf) };
      }
    }
  } finally {
    turn.job.signal.removeEventListener('abort', drain);
    if (!turn.thread.isEmpty) saver.markLasting();
  }
}

/** Goes on where an earlier attempt stopped. */
function takeUp(loop: Loop, earlier: Earlier | null): void {
  const { turn } = loop;
  loop.messages = earlier?.messages ?? [];
  loop.modelCalls = loop.messages.filter(AIMessage.isInstance).length;
  // What an earlier attempt spent counts as well.
  for (const message of loop.messages.filter(AIMessage.isInstance))
    turn.usage = addUsage(turn.usage, readUsage(message.usage_metadata, message.response_metadata));
  turn.toolCalls = loop.messages.filter(ToolMessage.isInstance).length;
  loop.writer.repair(readAnswer(loop.messages));
  // What the model was shown before it wished the calls that may still be open.
  noteTaint(turn, loop.messages.slice(0, loop.messages.findLastIndex(AIMessage.isInstance) + 1), loop.tools);
}

/** The part of the checkpoint that outlives turns. Results of a step that is not over count only for the run that goes on with it. */
async function readThread({ run }: Turn, saver: PruningSaver, config: { configurable: { thread_id: string } }): Promise<ThreadState> {
  const tuple = await saver.getTuple(config);
  return createThreadState(tuple?.checkpoint.channel_values, {
    principal: run.principalId,
    pending: run.attempt > 1 ? tuple?.pendingWrites : [],
  });
}

/** Null when it holds another turn, nothing, or what no release of ours wrote. */
async function loadEarlier({ run, parts, logger }: Turn, graph: LoopGraph, config: unknown): Promise<Earlier | null> {
  try {
    return readEarlier(await graph.getState(config), run, nameIn(run, parts.options.names));
  } catch (error) {
    if (sqliteCode(error) !== '') throw new OracleError(refusal('CHECKPOINT_UNAVAILABLE', { cause: error }));
    logger.warn({ reason: nameOfError(error) }, 'the checkpoint of this run cannot be read; the turn starts again');
    return null;
  }
}

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
