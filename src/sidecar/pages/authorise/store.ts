/**
 * What this browser keeps between visits: one key that cannot be taken out, what it may do until when, and whose it is. Never words, never the
 * account's own key, never a grant to the oracle: whoever gets hold of the profile folder has a day of reading and revoking at most (DESIGN §5).
 */
import type { Did } from '../../../ids.ts';
import type { Key } from './account.ts';
import type { SessionGrant } from './grants.ts';

export interface KnownAccount {
  readonly did: Did;
  readonly sessionDid: Did;
  readonly sessionKey: Key;
  readonly sessionGrant: SessionGrant;
  readonly oracleDid: Did;
  readonly matrixUserId: string | null;
  /** The direct room with the oracle: a request that changes something names it. */
  readonly roomId: string | null;
}

export interface AccountStore {
  read(): Promise<KnownAccount | null>;
  /** @returns false when this browser keeps nothing (private mode): the visit goes on without. */
  write(account: KnownAccount): Promise<boolean>;
  forget(): Promise<void>;
}

const DATABASE = 'matrix-oracle-authorise';
const TABLE = 'account';
const ROW = 'current';

export function createAccountStore(): AccountStore {
  const run = async <T>(mode: IDBTransactionMode, ask: (table: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const database = await open();
    try {
      const request = ask(database.transaction(TABLE, mode).objectStore(TABLE));
      return await settled(request);
    } finally {
      database.close();
    }
  };
  return {
    async read() {
      try {
        return (await run<KnownAccount | undefined>('readonly', (table) => table.get(ROW))) ?? null;
      } catch {
        return null;
      }
    },
    async write(account) {
      try {
        await run('readwrite', (table) => table.put(account, ROW));
        return true;
      } catch {
        return false;
      }
    },
    async forget() {
      try {
        await run('readwrite', (table) => table.delete(ROW));
      } catch {
        // Nothing was kept, so nothing is left.
      }
    },
  };
}

function open(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
  return settled(request);
}

const settled = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB said nothing'));
  });
