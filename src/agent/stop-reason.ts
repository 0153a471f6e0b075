/**
 * What a thrown value means for a turn: an ending that is the host's alone to decide (cancel, lost authority, no credits, a disk that cannot be written,
 * something to take in first), or a failure that somebody between may answer in another way. Without the difference a plugin that catches
 * everything would swallow a cancel.
 */
import { isGraphBubbleUp } from '@langchain/langgraph';
import { MiddlewareError } from 'langchain';
import { OracleError, type Refusal, refusal } from '../errors.ts';
import type { Prompt } from '../runs/run.ts';
import { StorageError } from '../store/store.ts';

/** Thrown in place of a model call: the principal has said more, and the checkpoint must hold it before the model sees it. */
export class Steered extends Error {
  override readonly name = 'Steered';
  readonly inputs: readonly Prompt[];
  constructor(inputs: readonly Prompt[]) {
    super('there is more to take in');
    this.inputs = inputs;
  }
}

/** The run itself may not go on: its authority is lost, or nothing is left to spend. What is refused to a plugin is another matter. */
export class RunOver extends OracleError {}

const MAX_WRAPS = 64;
/** The library wraps what hooks throw, once per hook. */
export function unwrap(error: unknown): unknown {
  let current = error;
  try {
    for (let depth = 0; depth < MAX_WRAPS && MiddlewareError.isInstance(current) && current.cause !== undefined; depth += 1)
      current = current.cause;
  } catch {
    return new Error('what was thrown cannot be read');
  }
  return current;
}

/** Whether nobody but the runner may answer it: not a model call that failed, nor what a plugin tried through its context and was refused. */
export function isHostStop(error: unknown, signal: AbortSignal): boolean {
  if (signal.aborted) return true;
  const reason = unwrap(error);
  return reason instanceof RunOver || reason instanceof Steered || reason instanceof StorageError || isGraphBubbleUp(reason);
}

/**
 * What the person is told; null for what is no ending of the turn. A disk that is full or locked is none: the run stays unfinished and goes on
 * when it can be written again, as when a frame cannot be written (DESIGN §4 "Order on disk").
 */
export function readRefusal(error: unknown): Refusal | null {
  if (error instanceof OracleError) return error.refusal;
  const code = sqliteCode(error);
  if (/^SQLITE_(FULL|IOERR|READONLY|BUSY|LOCKED)/u.test(code)) throw new StorageError('the checkpoint cannot be written', { cause: error });
  return code === '' ? null : refusal('CHECKPOINT_UNAVAILABLE', { cause: error });
}

/** What a database that cannot be read at the moment throws; one that cannot be written is another matter. */
export const isLoadFailure = (error: unknown): boolean => sqliteCode(error) !== '' && !/^SQLITE_(FULL|READONLY)/u.test(sqliteCode(error));

/** '' for what the database did not throw. */
export const sqliteCode = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('SQLITE_') ? error.code : '';

export function nameOfError(error: unknown): string {
  const reason = unwrap(error);
  return reason instanceof Error ? reason.name : 'thrown value';
}
