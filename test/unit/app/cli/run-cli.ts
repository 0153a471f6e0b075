/** Runs the executable as an operator does: as a process, in a folder of its own, with nothing of our environment but PATH. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..', '..', '..', '..');

export interface CliResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
export interface CliFolder {
  readonly dir: string;
  run(args: readonly string[], environment?: Readonly<Record<string, string>>): Promise<CliResult>;
  remove(): void;
}

export function createCliFolder(): CliFolder {
  const dir = mkdtempSync(join(tmpdir(), 'matrix-oracle-cli-'));
  return {
    dir,
    run(args, environment = {}) {
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
      });
      child.stderr.on('data', (chunk) => {
        stderr += chunk;
      });
      return new Promise((resolve, reject) => {
        child.on('error', reject);
        child.on('close', (status) => resolve({ status, stdout, stderr }));
      });
    },
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}
