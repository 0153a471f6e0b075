/**
 * One loop of model and tools: the turn's own, or a sub-agent's. What the two have in common is the turn; what each has for itself is here, so that one
 * set of middlewares serves both.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type BaseMessage, type SystemMessage } from '@langchain/core/messages';
import { OracleError, refusal } from '../errors.ts';
import type { AnswerWriter } from './answer-writer.ts';
import type { OfferedTools, ToolSet } from './tool-set.ts';
import type { Turn } from './turn.ts';

export interface Loop {
  readonly turn: Turn;
  /** Key of the tool call that a sub-agent answers; null in the main loop. */
  readonly parent: string | null;
  /** Begins the ids of its model's messages. */
  readonly id: string;
  readonly tools: ToolSet;
  readonly system: SystemMessage;
  readonly window: readonly BaseMessage[];
  readonly model: BaseChatModel;
  readonly modelName: string;
  readonly writer: AnswerWriter;
  readonly signal: AbortSignal;
  readonly maxModelCalls: number;
  /** The loop so far: prompts, answers, results. Kept beside the graph, so that a stopped one can be told without reading it back. */
  messages: BaseMessage[];
  modelCalls: number;
  /** By call: what its handler brought besides its text, whatever middlewares make of the result. */
  readonly brought: Map<string, Brought>;
  /** How often a call (its tool and arguments) failed with an error. */
  readonly failures: Map<string, Map<string, number>>;
  /** The model is offered no tools any more: it must answer with what it has. */
  toolsClosed: boolean;
  /** Names of middlewares whose `beforeAgent` has run in this execution. */
  readonly begun: Set<string>;
}

export interface Brought {
  readonly isForeign: boolean;
  /** Keys of the calls that a sub-agent made for it. */
  readonly calls: readonly string[];
}

export function createLoop(
  turn: Turn,
  own: Pick<Loop, 'parent' | 'id' | 'tools' | 'system' | 'window' | 'model' | 'modelName' | 'writer' | 'signal' | 'maxModelCalls'>,
): Loop {
  return { turn, ...own, messages: [], modelCalls: 0, brought: new Map(), failures: new Map(), toolsClosed: false, begun: new Set() };
}

/** What the model is offered now; the same object while nothing changes. */
export const offeredNow = ({ tools, turn }: Loop): OfferedTools => tools.offered(turn.thread.loadedPlugins);

/** Of all sub-agents of a run: each may ask ten times, and a model may call many of them. */
const INNER_MODEL_CALLS = 50;

/** @throws OracleError when the loop has asked often enough. */
export function requireModelCall({ modelCalls, maxModelCalls, parent, turn }: Loop): void {
  if (modelCalls < maxModelCalls && (parent === null || turn.innerModelCalls < INNER_MODEL_CALLS)) return;
  throw new OracleError(refusal('MODEL_ERROR', { message: 'The language model came to no end. Please ask in smaller steps.' }));
}

/** A call as marks, frames and contexts name it. The ids of a sub-agent's model are new in each attempt, so the attempt is part of them. */
export const keyOf = ({ parent, turn: { run } }: Loop, id: string): string =>
  parent === null ? id : `${parent}/${run.attempt > 1 ? `${run.attempt}.` : ''}${id}`;

/** The call of the main loop that a call belongs to: its result takes the changes of the thread into the checkpoint. */
export const rootOf = ({ parent }: Loop, id: string): string => parent ?? id;

export const callIdsOf = (messages: readonly BaseMessage[]): Set<string> =>
  new Set(messages.filter(AIMessage.isInstance).flatMap((message) => (message.tool_calls ?? []).map((call) => call.id ?? '')));
