/**
 * Synapse in a Python venv: the way that needs nothing but Python and the package index.
 * A marker file is written last, after Synapse was imported once, so that a killed install is never taken for a whole one.
 */
import { existsSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { err, ok, type Result } from '../../src/result.ts';
import { findPython } from './find-python.ts';
import type { CommandResult, RunCommand } from './run-command.ts';
import { type SetupProblem, setupProblem } from './setup-problem.ts';
import { SYNAPSE_VERSION } from './version.ts';

export interface VenvInstall {
  readonly kind: 'venv';
  readonly version: string;
  /** The venv's interpreter. */
  readonly python: string;
}

const MINUTE_MS = 60_000;
const PIP_TIMEOUT_MS = 20 * MINUTE_MS;
/** Packages that Synapse draws in, to tell how far pip is; only for the progress line. */
const PACKAGES_PER_LINE = 5;
export const DIE_WITH_PARENT = join(import.meta.dirname, 'die_with_parent.py');

export const venvDir = (cacheDir: string): string => join(cacheDir, `synapse-${SYNAPSE_VERSION}`);
const markerOf = (dir: string): string => join(dir, 'installed.json');
const pythonOf = (dir: string): string => join(dir, 'bin', 'python');

/** The finished install, if there is one; false alarms (another version, an interpreter that was replaced) count as none. */
export function findVenv(cacheDir: string): VenvInstall | undefined {
  const dir = venvDir(cacheDir);
  const python = pythonOf(dir);
  try {
    const marker = JSON.parse(readFileSync(markerOf(dir), 'utf8')) as { version?: unknown; interpreter?: unknown };
    if (marker.version !== SYNAPSE_VERSION || !existsSync(python) || marker.interpreter !== realpathSync(python)) return undefined;
    return { kind: 'venv', version: SYNAPSE_VERSION, python };
  } catch {
    return undefined;
  }
}

export interface InstallOptions {
  readonly cacheDir: string;
  readonly onProgress: (line: string) => void;
  readonly run: RunCommand;
  readonly signal?: AbortSignal | undefined;
}

/** Installs from nothing; the caller holds the lock. */
export async function installVenv({ cacheDir, onProgress, run, signal }: InstallOptions): Promise<Result<VenvInstall, SetupProblem>> {
  const found = await findPython(run, signal);
  if (signal?.aborted) return err(cancelled());
  if (!found.ok) return err(found.error === 'NO_PYTHON' ? noPython() : withoutVenv());
  const dir = venvDir(cacheDir);
  const logFile = join(cacheDir, 'synapse-install.log');
  rmSync(dir, { recursive: true, force: true });
  await mkdir(cacheDir, { recursive: true });

  onProgress(`installing Synapse ${SYNAPSE_VERSION} into ${dir}, about a minute`);
  const venv = await run(found.value.command, ['-m', 'venv', dir], { timeoutMs: 2 * MINUTE_MS, signal });
  if (venv.code !== 0) return err(explainVenvFailure(venv, logFile));

  const python = pythonOf(dir);
  const pip = await run(python, pipArguments(), { timeoutMs: PIP_TIMEOUT_MS, signal, onLine: countPackages(dir, onProgress) });
  if (pip.code !== 0) return err(explainPipFailure(pip, logFile));

  const check = await run(python, ['-c', 'import synapse.app.homeserver'], { timeoutMs: 2 * MINUTE_MS, signal });
  if (check.code !== 0) return err(explainPipFailure(check, logFile));
  writeMarker(dir, python);
  onProgress(`Synapse ${SYNAPSE_VERSION} is installed`);
  return ok({ kind: 'venv', version: SYNAPSE_VERSION, python });
}

const pipArguments = (): string[] => [
  DIE_WITH_PARENT,
  String(process.pid),
  ...['pip', 'install', '--no-input', '--disable-pip-version-check', '--progress-bar', 'off', '--prefer-binary'],
  ...['--retries', '2', '--timeout', '20', `matrix-synapse==${SYNAPSE_VERSION}`],
];

function countPackages(dir: string, onProgress: (line: string) => void): (line: string) => void {
  let count = 0;
  return (line) => {
    if (line.startsWith('Installing collected packages')) onProgress(`unpacking ${count} packages into ${dir}`);
    if (!line.startsWith('Collecting ')) return;
    count += 1;
    if (count % PACKAGES_PER_LINE === 0)
      onProgress(`installing Synapse ${SYNAPSE_VERSION} into ${dir}, about a minute, ${count} packages so far`);
  };
}

function writeMarker(dir: string, python: string): void {
  const half = `${markerOf(dir)}.half`;
  writeFileSync(half, JSON.stringify({ version: SYNAPSE_VERSION, interpreter: realpathSync(python) }));
  renameSync(half, markerOf(dir));
}

function explainVenvFailure(result: CommandResult, logFile: string): SetupProblem {
  if (/ensurepip|No module named '?venv/iu.test(result.output)) return withoutVenv();
  return explainPipFailure(result, logFile);
}

const NO_SPACE = /No space left on device|Disk quota exceeded|ENOSPC|Errno 28\b/iu;
const NO_NETWORK = new RegExp(
  [
    'Failed to establish a new connection|NewConnectionError|Name or service not known|Temporary failure in name resolution|nodename nor servname',
    'Network is unreachable|No route to host|Connection refused|ConnectTimeout|ReadTimeout|Read timed out|timed out|ProxyError|SSLError',
    'from versions: none',
  ].join('|'),
  'iu',
);

/** Pure but for the log file it leaves behind. */
function explainPipFailure(result: CommandResult, logFile: string): SetupProblem {
  if (result.failure === 'cancelled') return cancelled();
  const more = { logFile: saveLog(result.output, logFile) };
  if (NO_SPACE.test(result.output)) {
    return setupProblem(
      'DISK_FULL',
      'The disk is full: free about 300 MB, or set MATRIX_ORACLE_CACHE to a folder on another disk, and start again.',
      more,
    );
  }
  if (result.failure === 'timed-out' || NO_NETWORK.test(result.output)) {
    return setupProblem(
      'NO_NETWORK',
      'pip cannot reach the Python package index: check the network (or set PIP_INDEX_URL to a mirror) and start again.',
      more,
    );
  }
  return setupProblem(
    'PIP_FAILED',
    `pip could not install Synapse ${SYNAPSE_VERSION}: the last lines of ${logFile} say why (${lastLine(result.output)}).`,
    more,
  );
}

function saveLog(output: string, logFile: string): string {
  try {
    writeFileSync(logFile, output);
  } catch {
    // a full disk; the sentence says so already
  }
  return logFile;
}

const lastLine = (output: string): string => output.trimEnd().split('\n').at(-1)?.trim().slice(0, 300) || 'no output';

const noPython = (): SetupProblem =>
  setupProblem(
    'NO_PYTHON_NO_DOCKER',
    'Synapse needs Docker or Python 3.10 or newer and neither answers here: start Docker, or install Python (Debian: apt-get install python3 python3-venv).',
  );
const withoutVenv = (): SetupProblem =>
  setupProblem(
    'PYTHON_WITHOUT_VENV',
    'This Python cannot make virtual environments: run apt-get install python3-venv (or start Docker) and start again.',
  );
const cancelled = (): SetupProblem => setupProblem('CANCELLED', 'Installing Synapse was cancelled; the next start begins it anew.');
