/**
 * The model server in a process of its own, for the bench: in the same process its writes would be measured as the oracle's.
 * The child ends when this process ends, however it ends, because its standard input closes then.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Pace } from './reply.ts';
import { ModelServerError } from './server.ts';

export interface ModelServerProcess {
  /** With `/v1`. */
  readonly baseUrl: string;
  readonly pid: number;
  /** Ends the child; safe to call twice. */
  stop(): Promise<void>;
}

export interface ModelServerProcessOptions {
  /** 0 or absent: a free one. */
  readonly port?: number;
  readonly pace?: 'instant' | Extract<Pace, { tokensPerSecond: number }>;
  /** Every request is answered with a text of this many tokens; absent: the persona answers. */
  readonly answerTokens?: number;
}

const START_TIMEOUT_MS = 20_000;
const STOP_TIMEOUT_MS = 2_000;

/** @throws ModelServerError `PORT_TAKEN`, `NO_PERMISSION` or `START_FAILED`. */
export async function startModelServerProcess(options: ModelServerProcessOptions = {}): Promise<ModelServerProcess> {
  const args = [fileURLToPath(new URL('./main.ts', import.meta.url)), '--until-stdin-ends', '--port', String(options.port ?? 0)];
  if (options.pace !== undefined) args.push('--pace', options.pace === 'instant' ? 'instant' : String(options.pace.tokensPerSecond));
  if (options.answerTokens !== undefined) args.push('--answer-tokens', String(options.answerTokens));
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const baseUrl = await waitForUrl(child);
  return {
    baseUrl,
    pid: child.pid ?? 0,
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGTERM');
      const force = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await exited;
      clearTimeout(force);
    },
  };
}

function waitForUrl(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let output = '';
    let complaints = '';
    const fail = (code: ModelServerError['code'], message: string) => {
      clearTimeout(timer);
      child.kill('SIGKILL');
      reject(new ModelServerError(code, message));
    };
    const timer = setTimeout(() => fail('START_FAILED', `the model server did not start within ${START_TIMEOUT_MS} ms`), START_TIMEOUT_MS);
    child.stdout?.on('data', (data: Buffer) => {
      output = (output + data.toString()).slice(-2_000);
      const url = /model server: (\S+)\n/.exec(output)?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    child.stderr?.on('data', (data: Buffer) => {
      complaints = (complaints + data.toString()).slice(-2_000);
    });
    child.once('error', (error) => fail('START_FAILED', `the model server cannot be started: ${error.message}`));
    // `close`, not `exit`: only then has everything that the child said arrived.
    child.once('close', (code) => {
      const said = /^(PORT_TAKEN|NO_PERMISSION|START_FAILED): (.*)$/m.exec(complaints);
      fail(
        (said?.[1] as ModelServerError['code'] | undefined) ?? 'START_FAILED',
        said?.[2] ?? `the model server ended with ${code}: ${complaints.trim()}`,
      );
    });
  });
}
