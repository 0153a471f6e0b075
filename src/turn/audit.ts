/** Append-only record of who was let in or refused and why; never the token itself (G12). The authority issue adds tools and charges. */
import type { Insertable } from 'kysely';
import type { AuditTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';

export type AuditEntry = Partial<Omit<Insertable<AuditTable>, 'id' | 'decision' | 'at'>> & Pick<Insertable<AuditTable>, 'decision' | 'at'>;

export function writeAudit(store: Store, tx: Tx, entry: AuditEntry): void {
  tx.run(
    store.sql.insertInto('audit').values({
      event_id: null,
      run_id: null,
      token_id: null,
      principal_id: null,
      matrix_user_id: null,
      tier: null,
      capability: null,
      resource: null,
      code: null,
      ...entry,
    }),
  );
}
