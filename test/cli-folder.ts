/** Runs the executable as an operator does: as a process, in a folder of its own, with nothing of our environment but PATH. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');

export interface CliResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
/** A command that goes on until it is signalled. */
export interface CliProcess {
  readonly child: ChildProcess;
  /** Resolves when stdout or stderr holds the text; rejects with everything that was said when it ends before. */
  said(text: string): Promise<void>;
  readonly ended: Promise<CliResult>;
}
export interface CliFolder {
  readonly dir: string;
  start(args: readonly string[], environment?: Readonly<Record<string, string>>): CliProcess;
  run(args: readonly string[], environment?: Readonly<Record<string, string>>): Promise<CliResult>;
  remove(): void;
}

export function createCliFolder(): CliFolder {
  const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-cli-'));
  const start: CliFolder['start'] = (args, environment = {}) => {
    const program = join(ROOT, 'src/app/cli/bin.mjs');
    const child = spawn(process.execPath, ['--conditions=matrix-oracle-source', program, ...args], {
      cwd: dir,
      env: { PATH: process.env['PATH'], ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => {
      stdout += chunk;
      child.emit('said');
    });
    child.stderr.on('data', (chunk) => {
      stderr += chunk;
      child.emit('said');
    });
    const ended = new Promise<CliResult>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (status) => resolve({ status, stdout, stderr }));
    });
    const said = (text: string) =>
      new Promise<void>((resolve, reject) => {
        const look = () => {
          if (!stdout.includes(text) && !stderr.includes(text)) return;
          child.off('said', look);
          resolve();
        };
        child.on('said', look);
        look();
        void ended.then(() => reject(new Error(`ended without saying "${text}":\n${stdout}${stderr}`)));
      });
    return { child, said, ended };
  };
  return {
    dir,
    start,
    run: (args, environment) => start(args, environment).ended,
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}
