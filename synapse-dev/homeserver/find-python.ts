/** Finds an interpreter that can run Synapse and make a venv. `python3` may be too old (macOS: 3.9) while a newer one lies beside it. */
import { err, ok, type Result } from '../../src/result.ts';
import type { RunCommand } from './run-command.ts';

const CANDIDATES = ['python3', 'python3.13', 'python3.12', 'python3.11', 'python3.10', 'python3.14', 'python'];
/** Oldest version that Synapse's wheels are built for (`cp310-abi3`). */
const OLDEST = { major: 3, minor: 10 };

export interface Python {
  readonly command: string;
  /** Real path of the interpreter: when it changes under a venv, the venv is broken. */
  readonly executable: string;
}

const PROBE = [
  'import sys, os, importlib.util as u',
  'print(sys.version_info[0], sys.version_info[1], int(bool(u.find_spec("venv") and u.find_spec("ensurepip"))), os.path.realpath(sys.executable))',
].join('\n');

/** The best interpreter, or why none will do: with a good version but without venv the remedy is another one. */
export async function findPython(run: RunCommand, signal?: AbortSignal): Promise<Result<Python, 'NO_PYTHON' | 'PYTHON_WITHOUT_VENV'>> {
  let withoutVenv = false;
  for (const command of CANDIDATES) {
    const result = await run(command, ['-c', PROBE], { timeoutMs: 10_000, signal });
    const probed = readProbe(result.code === 0 ? result.output : '');
    if (probed === undefined || !probed.newEnough) continue;
    if (probed.hasVenv) return ok({ command, executable: probed.executable });
    withoutVenv = true;
  }
  return err(withoutVenv ? 'PYTHON_WITHOUT_VENV' : 'NO_PYTHON');
}

function readProbe(output: string): { newEnough: boolean; hasVenv: boolean; executable: string } | undefined {
  const match = /^(\d+) (\d+) ([01]) (\S.*)$/mu.exec(output);
  if (match === null) return undefined;
  const [, major, minor, venv, executable = ''] = match;
  const newEnough = Number(major) === OLDEST.major && Number(minor) >= OLDEST.minor;
  return { newEnough, hasVenv: venv === '1', executable };
}
