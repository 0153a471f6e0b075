/**
 * `npm run demo`: the first thing a newcomer runs. What it starts (synapse-dev) is not in the published package, so nothing of it is imported
 * before we know that this is a clone; without that look the command would end in a module-not-found stack.
 */
import { existsSync } from 'node:fs';
import { CliError } from './cli-error.ts';

export interface DemoOptions {
  /** Left out: a chat in the terminal. */
  readonly say?: readonly string[];
  readonly json: boolean;
  readonly data: string;
  /** The conversation is in the clear. */
  readonly unencrypted?: boolean;
  /** Port of the homeserver; left out, a free one that is kept. */
  readonly port?: number;
}

export async function runDemo(options: DemoOptions): Promise<void> {
  if (!existsSync(new URL('../../../synapse-dev/', import.meta.url))) {
    throw new CliError('the demo runs only in a clone of the repository: git clone it, then `npm ci && npm run demo`.');
  }
  if (options.json && options.say === undefined) throw new CliError('--json needs --say "…": a chat in the terminal has no JSON.');
  if (options.say?.some((text) => text.trim() === '')) throw new CliError('--say needs a text: --say "hello".');
  await (await import('./demo/run-demo.ts')).runDemoInClone(options);
}
