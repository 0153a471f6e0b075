/**
 * `rtCtx.storage`: this plugin's rows of this person (G13). It is no place for secrets, which it would keep in the clear and hand out again in runs
 * that do not know them: a value that was given out by `secrets` is refused. What a tainted run puts there keeps its taint.
 */
import { OracleError, refusal } from '../errors.ts';
import type { PluginStorage } from '../plugin-api/define-oracle-plugin.ts';
import type { PluginStore, StorageOwner, StoredValue } from '../plugin-storage/plugin-store.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';

export interface StorageSources {
  readonly store: PluginStore;
  readonly owner: StorageOwner;
  readonly isTainted: () => boolean;
  readonly readsForeign: () => void;
  readonly redactor?: Pick<SecretRedactor, 'holds'>;
}

/** Also what a plugin's routes are given, outside any run: there nobody is steered, and `isTainted` is false. */
export function buildPluginStorage({ store, owner, isTainted, readsForeign, redactor }: StorageSources): PluginStorage {
  const show = (rows: readonly StoredValue[]): { key: string; value: string }[] => {
    if (rows.some(({ tainted }) => tainted)) readsForeign();
    return rows.map(({ key, value }) => ({ key, value }));
  };
  return {
    async get(key) {
      const row = store.get(owner, key);
      return row === undefined ? null : (show([row])[0]?.value ?? null);
    },
    async put(key, value) {
      if (redactor?.holds(`${key}\n${value}`) === true)
        throw new OracleError(refusal('BAD_REQUEST', { message: 'A secret must not be kept in the storage: use the blob store.' }));
      await store.put(owner, { key, value, tainted: isTainted() });
    },
    delete: (key) => store.delete(owner, key),
    list: async (options = {}) => show(store.list(owner, options)),
    search: async (query, { limit } = {}) => show(store.search(owner, String(query), limit)),
  };
}
