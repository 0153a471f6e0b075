/**
 * What can go wrong on a stranger's machine before the first message, as values with one clear sentence and a remedy each.
 * A newcomer who meets a Python traceback here never sees the oracle.
 */
export type SetupProblemCode =
  | 'NO_PYTHON_NO_DOCKER'
  | 'PYTHON_WITHOUT_VENV'
  | 'NO_NETWORK'
  | 'DISK_FULL'
  | 'CACHE_NOT_WRITABLE'
  | 'PIP_FAILED'
  | 'DOCKER_FAILED'
  | 'PORT_TAKEN'
  | 'START_FAILED'
  | 'START_TIMEOUT'
  | 'CANCELLED';

export interface SetupProblem {
  readonly code: SetupProblemCode;
  /** One sentence with the remedy. */
  readonly message: string;
  readonly logFile?: string;
  readonly cause?: unknown;
}

export const setupProblem = (code: SetupProblemCode, message: string, more: { logFile?: string; cause?: unknown } = {}): SetupProblem => ({
  code,
  message,
  ...more,
});

/** The same problem where only a throw can travel: `startSynapse`, hooks of tests. */
export class SetupError extends Error {
  override readonly name = 'SetupError';
  readonly problem: SetupProblem;
  constructor(problem: SetupProblem) {
    super(problem.message, problem.cause === undefined ? undefined : { cause: problem.cause });
    this.problem = problem;
  }
}
