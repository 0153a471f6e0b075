/**
 * One execution of a turn, as its loops share it: the main one and those of sub-agents. What bounds a run (authority, taint, credits, budgets, the signal
 * that ends it) stands here once, so that no loop has a way around it (research/ixo.md §9.4: sub-agents of this family had almost none of these).
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { BaseMessage, HumanMessage } from '@langchain/core/messages';
import { refusal } from '../errors.ts';
import type { CallUsage, ModelRole } from '../models/models.ts';
import { addUsage } from '../models/usage.ts';
import type { Logger } from '../observe/logger.ts';
import type { PluginHost } from '../plugin-host/plugin-host.ts';
import type { Prompt, Run, Usage } from '../runs/run.ts';
import type { RunJob } from '../runs/runner.ts';
import type { UserContextData } from '../runtime-context/runtime-context.ts';
import { createRedactor, type SecretRedactor } from '../secrets/redactor.ts';
import type { AgentParts } from './agent-parts.ts';
import type { Loop } from './loop.ts';
import { RunOver } from './stop-reason.ts';
import type { SummaryMaking } from './summary.ts';
import { createTaint, hasForeignResult, type Taint } from './taint.ts';
import { createThreadState, type ThreadState } from './thread-state.ts';
import type { ToolSet } from './tool-set.ts';

export interface Turn {
  readonly parts: AgentParts;
  readonly host: PluginHost;
  readonly job: RunJob;
  readonly run: Run;
  readonly logger: Logger;
  /** Ends all of it. */
  readonly stop: AbortController;
  /** Of the checkpoint; read before anything else. */
  thread: ThreadState;
  /** Whether the input of the latest model call held text of strangers: what that model wishes is judged by it. */
  readonly taint: Taint;
  taintWritten: Promise<void> | undefined;
  /** Of all loops. */
  toolCalls: number;
  /** Of sub-agents, all together. */
  innerModelCalls: number;
  /** Of all model calls, also of those that broke off, of sub-agents and of plugins. */
  usage: Usage | undefined;
  /** Knows what plugins of this run were given in secret. */
  readonly redactor: SecretRedactor;
  consumed: Promise<void> | undefined;
  /** Ids of the prompts that are marked consumed, or are about to be. */
  readonly consumedIds: Set<string>;
  /** What plugins know of the person; settled before the first model call. */
  userContext: UserContextData;
  /** Boot tools and those of this turn alone. */
  tools: ToolSet;
  /** Set as soon as there is one. */
  main: Loop | undefined;
  /** Is being made beside the answer. */
  summary: SummaryMaking | undefined;
  over: boolean;
}

export function createTurn(job: RunJob, { parts, logger }: { parts: AgentParts; logger: Logger }): Turn {
  return {
    parts,
    host: parts.host,
    job,
    run: job.run,
    logger,
    stop: new AbortController(),
    thread: createThreadState({}, { principal: job.run.principalId }),
    taint: createTaint(),
    taintWritten: undefined,
    toolCalls: 0,
    innerModelCalls: 0,
    usage: undefined,
    redactor: createRedactor(parts.options.services.secrets.known(job.run.roomId, job.run.matrixUserId)),
    consumed: undefined,
    consumedIds: new Set(),
    userContext: Object.freeze({}),
    tools: parts.bootTools,
    main: undefined,
    summary: undefined,
    over: false,
  };
}

/** @throws RunOver with the code of what was lost. */
export function requireAuthority({ run, parts }: Turn): void {
  const lost = parts.options.authority.judge(run, parts.clock.now());
  if (lost !== null) throw new RunOver(refusal(lost));
}

/** @throws RunOver when the run may not ask a model any more: its authority is lost, or nothing is left to spend. */
export async function requireModel(turn: Turn): Promise<void> {
  requireAuthority(turn);
  if (!(await turn.parts.spending.maySpend(turn.run, turn.parts.clock.now()))) throw new RunOver(refusal('OUT_OF_CREDITS'));
}

/** Told of every model call of the run, once. */
export async function charge(turn: Turn, { model, ...usage }: CallUsage): Promise<void> {
  turn.usage = addUsage(turn.usage, {
    inputTokens: usage.inputTokens,
    outputTokens: usage.outputTokens,
    ...(usage.estimated ? { estimated: true } : {}),
  });
  try {
    await turn.parts.spending.spend(turn.run, { model, inputTokens: usage.inputTokens, outputTokens: usage.outputTokens });
  } catch (error) {
    // What cannot be written down is no failure of the model that was asked.
    turn.stop.abort(error);
    throw error;
  }
}

/** The model of a role, for this turn: it tells of each call, and is shown nothing that plugins were given in secret, wherever that stands (G12). */
export const modelFor = (turn: Turn, role: ModelRole, model?: string): BaseChatModel =>
  turn.parts.options.models.get(role, model === undefined ? undefined : { model }, {
    onUsage: (usage) => charge(turn, usage),
    clean: turn.redactor.cleanJson,
  });

/** Frames of later text are committed after this write, so text of a tainted run is never found without its taint. */
export function noteTaint(turn: Turn, shown: readonly BaseMessage[], tools: ToolSet): void {
  if (hasForeignResult(shown, tools.all)) turn.taint.turnOn();
  writeTaint(turn);
}

/** A plugin was given text of strangers for what it adds to the prompt or does with the model's input. */
export function taintTurn(turn: Turn): void {
  turn.taint.turnOn();
  writeTaint(turn);
}

export function writeTaint(turn: Turn): void {
  if (!turn.taint.isOn || turn.taintWritten !== undefined) return;
  turn.taintWritten = turn.job.output.tainted();
  turn.taintWritten.catch((error: unknown) => turn.stop.abort(error));
}

/** The step that holds the prompts is on disk when a model call begins: synchronous durability writes it before. */
export function consumePrompts(turn: Turn, prompts: readonly HumanMessage[]): void {
  const ids = prompts.map(({ id }) => id ?? '').filter((id) => !turn.consumedIds.has(id));
  if (ids.length === 0) return;
  for (const id of ids) turn.consumedIds.add(id);
  turn.consumed = turn.job.output.promptsConsumed(ids);
  turn.consumed.catch((error: unknown) => turn.stop.abort(error));
}

/** What came and is not among these. */
export function furtherInputs(turn: Turn, prompts: readonly HumanMessage[]): readonly Prompt[] {
  const known = new Set(prompts.map(({ id }) => id));
  return turn.job.output.inputsWaiting().filter(({ id }) => !known.has(id));
}
