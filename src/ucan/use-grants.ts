/**
 * With ACCESS=granted only DIDs that the operator named may use the oracle. `matrix-oracle grant-use` writes the rows beside the running process,
 * so they are read at every turn and never kept: a removed DID is refused with its next message.
 */
import type { Did } from '../ids.ts';
import { prepare } from '../store/prepared.ts';
import type { Store } from '../store/store.ts';

export interface UseGrants {
  has(did: Did): boolean;
}

export function createUseGrants({ store }: { store: Store }): UseGrants {
  const row = prepare(({ did }: { did: Did }) => store.sql.selectFrom('use_grants').select('granted_at').where('did', '=', did));
  return { has: (did) => store.read.get(row({ did })) !== undefined };
}
