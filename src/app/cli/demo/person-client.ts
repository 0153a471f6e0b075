/**
 * The client of the demo's person, with the keys of its device in a file of the demo's folder: a later start reads what an earlier one began. The keys
 * lie there in the clear; only the folder's owner may read them. Loaded while the homeserver starts, because the engine takes its moment.
 */
import { chmodSync } from 'node:fs';
import { initAsync } from '@matrix-org/matrix-sdk-crypto-wasm';
import Sqlite from 'better-sqlite3';
import { IDB_TABLES, mountIndexedDb } from '../../../../appservice/crypto/durable-idb.ts';
import { createEncryptedClient, type EncryptedClient } from '../../../../synapse-dev/homeserver/encrypted-client.ts';
import type { UserSession } from '../../../../synapse-dev/homeserver/users.ts';
import { CliError } from '../cli-error.ts';

export interface PersonClientOptions {
  /** Holds the keys of exactly this device. */
  readonly file: string;
  readonly onFatal: (error: CliError) => void;
  readonly cleanup: AsyncDisposableStack;
}

/** The engine of person and oracle, which are one process here. */
export const loadEngine = initAsync;

export async function openPersonClient(
  session: UserSession & { readonly baseUrl: string },
  { file, onFatal, cleanup }: PersonClientOptions,
): Promise<EncryptedClient> {
  const sqlite = new Sqlite(file);
  cleanup.defer(() => void sqlite.close());
  chmodSync(file, 0o600);
  sqlite.exec(IDB_TABLES);
  const keys = await mountIndexedDb({
    sqlite,
    onFatal: (cause) => onFatal(new CliError(`the keys of the conversation could not be written to ${file}.`, { cause })),
  });
  cleanup.defer(() => keys.close());
  const client = await createEncryptedClient({ session, store: keys.name });
  cleanup.defer(() => client.end());
  return client;
}
