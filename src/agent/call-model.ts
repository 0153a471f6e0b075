/**
 * One model call with our own retries: only before the first token was shown, because a second answer cannot follow half of a first one.
 * The library's retries wait out an abort and cannot know what was shown.
 */
import type { AIMessage, AIMessageChunk, BaseMessage } from '@langchain/core/messages';
import { OracleError, refusal } from '../errors.ts';
import { demandsTurns, planModelRetry, readModelError } from '../models/read-model-error.ts';
import type { Logger } from '../observe/logger.ts';
import { type Clock, sleep } from '../time.ts';
import type { AnswerWriter } from './answer-writer.ts';
import { mergeNeighbours } from './merge-neighbours.ts';
import { readModelStream } from './read-model-stream.ts';
import { hasText, textOf } from './turn-messages.ts';

/** What can be asked: a chat model with or without tools. */
export interface AskableModel {
  stream(messages: BaseMessage[], options: { signal: AbortSignal }): Promise<AsyncIterable<AIMessageChunk>>;
}

export interface ModelCall {
  readonly model: AskableModel;
  readonly modelName: string;
  readonly messages: BaseMessage[];
  readonly messageId: string;
  readonly usedCallIds: ReadonlySet<string>;
  readonly writer: AnswerWriter;
  readonly signal: AbortSignal;
  /** Wall clock ms, or null. */
  readonly deadlineAt: number | null;
  readonly clock: Clock;
  readonly chance: () => number;
  readonly logger: Logger;
  /** Throws when the run has lost its authority; asked before each request (G8). */
  readonly requireAuthority: () => void;
  /** Names of models whose provider takes a conversation only when the roles take turns; learned from its refusal. */
  readonly takingTurns: Set<string>;
  /** The request leaves now. */
  readonly onCall: (model: string) => void;
}

/** Whoever waits for longer is told why. */
const SAY_AFTER_MS = 10_000;
const describeWait = (waitMs: number): string => `*The language model is busy. I will try again in ${Math.ceil(waitMs / 1_000)} s.*`;

/** @throws OracleError with what the person is told, or the signal's reason. */
export async function callModel(call: ModelCall): Promise<AIMessage> {
  try {
    return await callUntilAnswered(call);
  } finally {
    call.writer.endAside();
  }
}

async function callUntilAnswered(call: ModelCall): Promise<AIMessage> {
  const { clock, signal, writer, takingTurns } = call;
  let waitedMs = 0;
  for (let attempt = 1; ; attempt += 1) {
    signal.throwIfAborted();
    call.requireAuthority();
    writer.startMessage();
    call.onCall(call.modelName);
    try {
      const messages = takingTurns.has(call.modelName) ? mergeNeighbours(call.messages) : call.messages;
      const chunks = await call.model.stream(messages, { signal });
      const message = await readModelStream(chunks, { id: call.messageId, usedCallIds: call.usedCallIds, onText: writer.push });
      signal.throwIfAborted();
      if (!hasText(textOf(message)) && (message.tool_calls ?? []).length === 0) throw new OracleError(refusal('EMPTY_ANSWER'));
      return message;
    } catch (error) {
      // What the library throws on an abort says nothing; the reason does.
      if (signal.aborted) throw signal.reason;
      const refused = readModelError(error);
      if (writer.partial === '' && !takingTurns.has(call.modelName) && demandsTurns(error)) {
        takingTurns.add(call.modelName);
        continue;
      }
      const remainingMs = call.deadlineAt === null ? Number.POSITIVE_INFINITY : call.deadlineAt - clock.now();
      const waitMs = writer.partial === '' ? planModelRetry(error, { attempt, remainingMs, chance: call.chance() }) : null;
      // As it was thrown, when it is ours: that the run is over is no failure of its model.
      if (waitMs === null) throw error instanceof OracleError ? error : new OracleError(refused);
      call.logger.warn(
        { code: refused.code, attempt, model: call.modelName, duration_ms: Math.round(waitMs) },
        'model call failed before its first token; trying again',
      );
      waitedMs += waitMs;
      if (waitedMs > SAY_AFTER_MS) writer.aside(describeWait(waitMs));
      await sleep(clock, waitMs, signal);
    }
  }
}
