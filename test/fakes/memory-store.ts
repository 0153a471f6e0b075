/**
 * The real store on a database in memory, or in a folder that is gone after the test: there is no fake database, because what matters
 * (savepoints, unique rows, one commit per tick) is what SQLite does. The disk of a test can fail on demand.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTask } from 'node:timers/promises';
import type { Compilable } from 'kysely';
import { onTestFinished } from 'vitest';
import { openStore, StorageError, type Store } from '../../src/store/store.ts';
import { FAKE_START_MS } from './fake-clock.ts';

export function memoryStore(): Store {
  const store = openStore({ path: ':memory:', now: FAKE_START_MS });
  onTestFinished(() => store.close());
  return store;
}

/** A folder of this test's own. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A database file: open it again to play a restart. The caller closes. */
export function fileStore(folder: string = tempFolder()): { path: string; open: () => Store } {
  const path = join(folder, 'oracle.db');
  return { path, open: () => openStore({ path, now: FAKE_START_MS }) };
}

const raw = <Row>(sql: string): Compilable<Row> => ({ compile: () => ({ sql, parameters: [] }) }) as unknown as Compilable<Row>;

export const pragma = (store: Store, text: string): unknown => Object.values(store.read.get<object>(raw(`PRAGMA ${text}`)) ?? {})[0];

/** While broken, every statement that changes something fails as on a disk that became read-only; reads go on. */
export function breakDisk(store: Store): { repair(): void } {
  store.read.run(raw('PRAGMA query_only = ON'));
  return { repair: () => void store.read.run(raw('PRAGMA query_only = OFF')) };
}

/** Lets everything that waits for promises and commits go on, without moving any clock. */
export async function settle(ticks = 20): Promise<void> {
  for (let tick = 0; tick < ticks; tick += 1) await nextTask();
}

export interface FailingStore extends Store {
  /** The write after `after` more ones fails, as if the process had died before it; then writes work again. */
  failWrite(after: number): void;
  /** Whether the armed failure happened. */
  readonly failed: boolean;
}
export function failingStore(store: Store = memoryStore()): FailingStore {
  let left = Number.POSITIVE_INFINITY;
  let failed = false;
  return {
    ...store,
    get failed() {
      return failed;
    },
    failWrite(after) {
      left = after;
      failed = false;
    },
    write(change) {
      if (left-- !== 0) return store.write(change);
      failed = true;
      return Promise.reject(new StorageError('the test ends this write'));
    },
  };
}
