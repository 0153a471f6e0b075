/**
 * A runner that does what a test says and remembers every job. `held()` is a script that waits for the test and obeys its signal as the
 * built-in agent does: an `OracleError` ends it as failed with what it said, a `Drain` suspends it.
 */
import { OracleError } from '../../src/errors.ts';
import type { RunJob, Runner, RunOutcome } from '../../src/runs/runner.ts';

export type Script = (job: RunJob) => Promise<RunOutcome> | RunOutcome;
export interface ScriptedRunner extends Runner {
  readonly jobs: RunJob[];
  /** What the next jobs do, in order; the last one is repeated. */
  script(...scripts: Script[]): void;
}

export const completed = (text: string): RunOutcome => ({ kind: 'completed', text, messages: [{ role: 'ai', text, message: null }] });

export const answering =
  (text: string): Script =>
  (job) => {
    job.output.text(text);
    return completed(text);
  };

export function scriptedRunner(...first: Script[]): ScriptedRunner {
  let scripts: Script[] = first.length === 0 ? [answering('Hello.')] : first;
  const jobs: RunJob[] = [];
  return {
    name: 'scripted',
    jobs,
    script(...next) {
      scripts = next;
    },
    async execute(job) {
      jobs.push(job);
      const script = scripts.length > 1 ? scripts.shift() : scripts[0];
      if (script === undefined) throw new Error('no script');
      return await script(job);
    },
  };
}

export interface Held {
  readonly script: Script;
  /** Lets every job that waits, and every later one, go on. */
  release(outcome?: RunOutcome): void;
  readonly started: number;
}
export function held(partial = ''): Held {
  let started = 0;
  let outcome: RunOutcome | null = null;
  const waiting = new Set<(outcome: RunOutcome) => void>();
  return {
    get started() {
      return started;
    },
    release(given = completed(partial)) {
      outcome = given;
      for (const go of waiting) go(given);
    },
    script(job) {
      started += 1;
      job.output.text(partial);
      if (outcome !== null) return outcome;
      return new Promise((resolve) => {
        waiting.add(resolve);
        const onAbort = (): void => {
          const { reason } = job.signal;
          if (reason instanceof OracleError)
            resolve({ kind: 'failed', refusal: reason.refusal, messages: [{ role: 'ai', text: partial, message: null }] });
          else resolve({ kind: 'suspended' });
        };
        if (job.signal.aborted) onAbort();
        else job.signal.addEventListener('abort', onAbort, { once: true });
      });
    },
  };
}
