/**
 * `npm test` and `npm run demo` may both find that Synapse is missing: two pips writing into one venv leave something that half works.
 * A lock file names its owner; it is stale when that process is gone, or, on another machine that shares the folder, when it was not touched for a minute.
 */
import { closeSync, mkdirSync, openSync, readFileSync, rmdirSync, rmSync, statSync, utimesSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';

const POLL_MS = 200;
const TOUCH_MS = 5_000;
const STALE_MS = 60_000;

export interface InstallLock {
  release(): void;
}

/** Waits for the lock without end: whoever holds it is alive and working. `onWait` is called once, with the owner's process id. */
export async function acquireInstallLock(
  path: string,
  options: { onWait?: (pid: number) => void; signal?: AbortSignal | undefined },
): Promise<InstallLock> {
  let said = false;
  while (!tryCreate(path)) {
    const owner = readOwner(path);
    if (owner === 'gone') continue;
    if (owner.stale) {
      removeStale(path);
      continue;
    }
    if (!said) options.onWait?.(owner.pid);
    said = true;
    await wait(POLL_MS, undefined, options.signal === undefined ? {} : { signal: options.signal });
  }
  const timer = setInterval(() => touch(path), TOUCH_MS);
  timer.unref();
  return {
    release() {
      clearInterval(timer);
      rmSync(path, { force: true });
    },
  };
}

function tryCreate(path: string): boolean {
  try {
    const file = openSync(path, 'wx');
    writeSync(file, JSON.stringify({ pid: process.pid, host: hostname() }));
    closeSync(file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

type Owner = { readonly pid: number; readonly stale: boolean };

function readOwner(path: string): Owner | 'gone' {
  try {
    const old = Date.now() - statSync(path).mtimeMs > STALE_MS;
    const { pid, host } = readText(path);
    const dead = host === hostname() && pid > 0 && !isAlive(pid);
    return { pid, stale: old || dead };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'gone';
    throw error;
  }
}

/** Empty or cut text is an owner that is about to write, or died before it could: only its age tells. */
function readText(path: string): { pid: number; host: string } {
  const text = readFileSync(path, 'utf8');
  try {
    return JSON.parse(text) as { pid: number; host: string };
  } catch {
    return { pid: 0, host: '' };
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Two waiters see the same stale file; without this guard the slower one would remove the faster one's fresh lock. */
function removeStale(path: string): void {
  const guard = `${path}.takeover`;
  try {
    mkdirSync(guard);
  } catch {
    removeOldGuard(guard);
    return;
  }
  const owner = readOwner(path);
  if (owner !== 'gone' && owner.stale) rmSync(path, { force: true });
  rmdirSync(guard);
}

/** A guard lives for microseconds; an old one was left by a process that died inside. */
function removeOldGuard(guard: string): void {
  try {
    if (Date.now() - statSync(guard).mtimeMs > STALE_MS) rmdirSync(guard);
  } catch {
    // somebody else removed it
  }
}

function touch(path: string): void {
  try {
    utimesSync(path, new Date(), new Date());
  } catch {
    // the folder was deleted under us; the install itself will say so
  }
}
