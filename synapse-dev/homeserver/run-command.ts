/**
 * Runs one program to its end. A port, so that "pip cannot reach the index" and "no Python" are unit tests and not machines.
 */
import { spawn } from 'node:child_process';

export interface CommandResult {
  /** Exit code; undefined when it never ran or was ended by a signal. */
  readonly code: number | undefined;
  /** stdout and stderr in order of arrival, the last 256 KiB. */
  readonly output: string;
  readonly failure?: 'not-found' | 'timed-out' | 'cancelled' | 'not-started';
}
export interface CommandOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly onLine?: (line: string) => void;
}
export type RunCommand = (command: string, args: readonly string[], options: CommandOptions) => Promise<CommandResult>;

const KEPT_CHARS = 256 * 1024;

export const runCommand: RunCommand = (command, args, { timeoutMs, signal, onLine }) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve({ code: undefined, output: '', failure: 'cancelled' });
    let output = '';
    let line = '';
    let failure: CommandResult['failure'];
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const end = (why: 'timed-out' | 'cancelled') => {
      failure ??= why;
      child.kill('SIGKILL');
    };
    const timer = setTimeout(() => end('timed-out'), timeoutMs);
    const onAbort = () => end('cancelled');
    signal?.addEventListener('abort', onAbort, { once: true });
    const take = (chunk: string) => {
      output = (output + chunk).slice(-KEPT_CHARS);
      const lines = (line + chunk).split('\n');
      line = (lines.pop() ?? '').slice(-4_096);
      for (const whole of lines) onLine?.(whole);
    };
    child.stdout.setEncoding('utf8').on('data', take);
    child.stderr.setEncoding('utf8').on('data', take);
    child.on('error', (error: NodeJS.ErrnoException) => {
      failure ??= error.code === 'ENOENT' ? 'not-found' : 'not-started';
      output += error.message;
      if (child.pid === undefined) finish(null);
    });
    child.on('close', (code) => finish(code));
    function finish(code: number | null) {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      resolve({ code: code ?? undefined, output, ...(failure === undefined ? {} : { failure }) });
    }
  });
