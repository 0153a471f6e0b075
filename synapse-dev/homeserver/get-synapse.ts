/**
 * Gets a real Synapse onto a stranger's machine: Docker when an engine answers, otherwise a Python venv. Nothing here is needed twice:
 * what an earlier call fetched is found by reading one small file.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { err, ok, type Result } from '../../src/result.ts';
import { type DockerInstall, dockerAnswers, pullImage } from './docker.ts';
import { acquireInstallLock } from './install-lock.ts';
import { findVenv, installVenv, type VenvInstall } from './install-venv.ts';
import { type RunCommand, runCommand } from './run-command.ts';
import { type SetupProblem, setupProblem } from './setup-problem.ts';
import { SYNAPSE_VERSION } from './version.ts';

export type SynapseInstall = VenvInstall | DockerInstall;

export interface GetSynapseOptions {
  readonly cacheDir?: string;
  /** Short lines for a person who waits. */
  readonly onProgress?: (line: string) => void;
  readonly signal?: AbortSignal | undefined;
  /** `auto`: what is already here, else Docker, else a venv. */
  readonly using?: 'auto' | 'venv' | 'docker';
  /** Ports for tests. */
  readonly run?: RunCommand;
  readonly docker?: DockerPort;
}
export interface DockerPort {
  /** Whether an engine answers within about two seconds. */
  answers(): Promise<boolean>;
  pull(onProgress: (line: string) => void): Promise<Result<DockerInstall, SetupProblem>>;
}

const realDocker: DockerPort = { answers: dockerAnswers, pull: pullImage };

/** `.cache/` of the clone (in .gitignore), unless MATRIX_ORACLE_CACHE names another folder. */
export const defaultCacheDir = (): string => process.env['MATRIX_ORACLE_CACHE'] || join(import.meta.dirname, '..', '..', '.cache');

export async function getSynapse(options: GetSynapseOptions = {}): Promise<Result<SynapseInstall, SetupProblem>> {
  const { cacheDir = defaultCacheDir(), onProgress = () => {}, signal, using = 'auto', run = runCommand, docker = realDocker } = options;
  if (using !== 'docker') {
    const found = findVenv(cacheDir);
    if (found !== undefined) return ok(found);
  }
  if (using !== 'venv' && (await docker.answers())) {
    const pulled = await docker.pull(onProgress);
    if (pulled.ok || using === 'docker') return pulled;
    onProgress(`${pulled.error.message} Trying Python instead.`);
  }
  if (using === 'docker') return err(setupProblem('DOCKER_FAILED', 'No Docker engine answers: start Docker and start again.'));
  return installOnce({ cacheDir, onProgress, signal, run });
}

async function installOnce(options: Parameters<typeof installVenv>[0]): Promise<Result<SynapseInstall, SetupProblem>> {
  const { cacheDir, onProgress, signal } = options;
  try {
    await mkdir(cacheDir, { recursive: true });
    const lock = await acquireInstallLock(join(cacheDir, `synapse-${SYNAPSE_VERSION}.lock`), {
      signal,
      onWait: (pid) => onProgress(`another process (${pid}) is installing Synapse; waiting for it`),
    });
    try {
      const found = findVenv(cacheDir);
      return found === undefined ? await installVenv(options) : ok(found);
    } finally {
      lock.release();
    }
  } catch (error) {
    return err(explainCacheFailure(error, { cacheDir, signal }));
  }
}

function explainCacheFailure(error: unknown, { cacheDir, signal }: { cacheDir: string; signal?: AbortSignal | undefined }): SetupProblem {
  if (signal?.aborted) return setupProblem('CANCELLED', 'Installing Synapse was cancelled; the next start begins it anew.');
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return setupProblem(
      'DISK_FULL',
      'The disk is full: free about 300 MB, or set MATRIX_ORACLE_CACHE to a folder on another disk, and start again.',
      { cause: error },
    );
  }
  if (code === undefined) throw error;
  return setupProblem(
    'CACHE_NOT_WRITABLE',
    `${cacheDir} cannot be written (${code}): set MATRIX_ORACLE_CACHE to a folder of your own and start again.`,
    { cause: error },
  );
}
