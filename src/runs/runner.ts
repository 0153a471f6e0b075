/**
 * The port between a run and the agent that executes it. The run owns durability (frames, marks, terminal transaction); the runner owns
 * the model and tool loop and its checkpoint. `main` (src/agent) is the built-in one; the test runner of the crash tests is another.
 */
import type { Refusal } from '../errors.ts';
import type { EmittedKind, FrameData, Prompt, Run, Usage } from './run.ts';

export interface RunJob {
  readonly run: Run;
  /** Answer text already shown by earlier attempts; '' on the first. The runner must emit a truncate before it differs. */
  readonly shownText: string;
  /** Aborted with an `OracleError` (cancel, deadline, lost lease) or a `Drain` (shutdown). */
  readonly signal: AbortSignal;
  readonly output: RunOutput;
}

/** Where a runner writes. All calls are synchronous and cheap; durability is by group commit within 50 ms (frames), sooner for tools. */
export interface RunOutput {
  text(delta: string): void;
  /** Cuts the shown text back to `length` UTF-16 units: a model call that was not checkpointed is generated again. */
  truncate(length: number): void;
  toolCall(data: FrameData['tool_call']): void;
  /** A frame of a plugin; checked, bounded and without secrets (`rtCtx.emit`). */
  emit<K extends EmittedKind>(kind: K, data: FrameData[K]): void;
  /**
   * What the principal said since the run began and the model was not shown, in order. Asked before each model call; it stays until it is marked
   * consumed, and what is never taken is answered by another run.
   */
  inputsWaiting(): readonly Prompt[];
  /**
   * The model's input holding these prompts is on disk: marks them consumed. What came while the run works is marked before the model sees it:
   * rejects when it was taken back in between.
   */
  promptsConsumed(ids: readonly string[]): Promise<void>;
  /**
   * The model's input holds text that the principal did not write: what the run says from here on carries that on. Written before any later
   * frame, so that no crash leaves text without it.
   */
  tainted(): Promise<void>;
  /** The first byte for the model has been asked for; metrics only. */
  modelCalled(model: string): void;
}

/** What the turn adds to the conversation, in order, beside the prompts (those were written with admission). */
export interface TurnMessage {
  readonly role: 'ai' | 'tool';
  readonly text: string;
  /** Stored LangChain message as JSON object; null when the text says it all. */
  readonly message: unknown;
}

export type RunOutcome =
  | {
      readonly kind: 'completed';
      readonly text: string;
      readonly messages: readonly TurnMessage[];
      readonly usage?: Usage;
      readonly model?: string;
    }
  /** The text shown so far is kept with a marker; `messages` are valid for any provider (no dangling tool call, G15). */
  | {
      readonly kind: 'failed';
      readonly refusal: Refusal;
      readonly messages: readonly TurnMessage[];
      readonly usage?: Usage;
      readonly model?: string;
    }
  /** Stopped at a checkpoint for a shutdown; goes on at the next start. */
  | { readonly kind: 'suspended' };

export interface Runner {
  readonly name: string;
  execute(job: RunJob): Promise<RunOutcome>;
}

/** Abort reason at shutdown: finish the step, reach a checkpoint, stop. */
export class Drain extends Error {
  override readonly name = 'Drain';
}
