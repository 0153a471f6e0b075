/**
 * What plugins keep for a person, in one table. The key of a row begins with the plugin and the person, and both come from the host: a plugin cannot
 * name another's (G13). A value written by a run that had read text of strangers says so for ever: whoever reads it is tainted (DESIGN §5 "Taint").
 */
import { sql as raw } from 'kysely';
import { OracleError, refusal } from '../errors.ts';
import type { PrincipalId } from '../ids.ts';
import { MATCHES_PER_WORD, matchOf, OWN_PER_WORD, planWords, rankByWords } from '../store/search-words.ts';
import type { Store } from '../store/store.ts';

export interface StorageOwner {
  readonly plugin: string;
  readonly principal: PrincipalId;
}
export interface StoredValue {
  readonly key: string;
  readonly value: string;
  readonly tainted: boolean;
}
export interface PluginStore {
  get(owner: StorageOwner, key: string): StoredValue | undefined;
  /** @throws OracleError BAD_REQUEST when the value is too large or the person has too many. */
  put(owner: StorageOwner, row: StoredValue): Promise<void>;
  delete(owner: StorageOwner, key: string): Promise<boolean>;
  /** Newest first. */
  list(owner: StorageOwner, options: { readonly prefix?: string | undefined; readonly limit?: number | undefined }): readonly StoredValue[];
  /** By words, best first. */
  search(owner: StorageOwner, query: string, limit?: number): readonly StoredValue[];
}

export const STORAGE_LIMITS = { keyChars: 200, valueBytes: 32 * 1024, keysPerOwner: 1_000, listed: 1_000, found: 50 } as const;
const DEFAULT_LISTED = 100;
const DEFAULT_FOUND = 10;

export function createPluginStore({ store, now }: { store: Store; now: () => number }): PluginStore {
  const { sql } = store;
  const own = ({ plugin, principal }: StorageOwner) =>
    sql.selectFrom('plugin_storage').where('plugin', '=', plugin).where('principal_id', '=', principal);
  const columns = ['key', 'value', 'tainted'] as const;
  const readRow = (row: { key: string; value: string; tainted: number }): StoredValue => ({
    key: row.key,
    value: row.value,
    tainted: row.tainted === 1,
  });
  return {
    get(owner, key) {
      const row = store.read.get(own(owner).select(columns).where('key', '=', requireKey(key)));
      return row === undefined ? undefined : readRow(row);
    },
    async put(owner, { key, value, tainted }) {
      requireKey(key);
      if (typeof value !== 'string' || !value.isWellFormed()) throw badRequest('A value of the storage is text.');
      if (Buffer.byteLength(value) > STORAGE_LIMITS.valueBytes)
        throw badRequest(`A value of the storage may have ${STORAGE_LIMITS.valueBytes / 1024} KiB.`);
      await store.write((tx) => {
        const known = tx.get(own(owner).select('id').where('key', '=', key));
        const { n } = tx.get(own(owner).select(raw<number>`count(*)`.as('n'))) ?? { n: 0 };
        if (known === undefined && n >= STORAGE_LIMITS.keysPerOwner)
          throw badRequest(`The storage of a plugin holds ${STORAGE_LIMITS.keysPerOwner} values of one person: delete some first.`);
        const changed = { value, tainted: tainted ? 1 : 0, updated_at: now() };
        tx.run(
          sql
            .insertInto('plugin_storage')
            .values({ plugin: owner.plugin, principal_id: owner.principal, key, ...changed })
            .onConflict((oc) => oc.columns(['plugin', 'principal_id', 'key']).doUpdateSet(changed)),
        );
      });
    },
    async delete(owner, key) {
      requireKey(key);
      const gone = await store.write((tx) =>
        tx.run(
          sql
            .deleteFrom('plugin_storage')
            .where('plugin', '=', owner.plugin)
            .where('principal_id', '=', owner.principal)
            .where('key', '=', key),
        ),
      );
      return gone > 0;
    },
    list(owner, { prefix = '', limit = DEFAULT_LISTED }) {
      const rows = own(owner)
        .select(columns)
        .where(raw<boolean>`substr(key, 1, length(${prefix})) = ${prefix}`)
        .orderBy('updated_at', 'desc')
        .orderBy('id', 'desc')
        .limit(atMost(limit, STORAGE_LIMITS.listed));
      return store.read.all(rows).map(readRow);
    },
    search(owner, query, limit = DEFAULT_FOUND) {
      const find = (word: string): number[] => {
        const matching = raw<boolean>`id in (select rowid from plugin_storage_search where plugin_storage_search match ${matchOf(word)} order by rowid desc limit ${MATCHES_PER_WORD})`;
        return store.read.all(own(owner).select('id').where(matching).orderBy('id', 'desc').limit(OWN_PER_WORD)).map(({ id }) => id);
      };
      const ids = rankByWords(planWords(query), find, atMost(limit, STORAGE_LIMITS.found));
      if (ids.length === 0) return [];
      const rows = store.read.all(
        own(owner)
          .select(['id', ...columns])
          .where('id', 'in', ids),
      );
      return rows.sort((a, b) => ids.indexOf(a.id) - ids.indexOf(b.id)).map(readRow);
    },
  };
}

const atMost = (limit: number, most: number): number => (Number.isSafeInteger(limit) && limit > 0 ? Math.min(limit, most) : 0);

function requireKey(key: string): string {
  const isKey = typeof key === 'string' && key.length >= 1 && key.length <= STORAGE_LIMITS.keyChars && key.isWellFormed();
  if (!isKey) throw badRequest(`A key of the storage has 1 to ${STORAGE_LIMITS.keyChars} characters.`);
  return key;
}
const badRequest = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));
