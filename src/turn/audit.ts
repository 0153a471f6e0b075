/**
 * Append-only record of who was let in or refused and why, for turns, tools, charges and grants; never the token itself, never content (G12).
 * An operator who is asked "why did it do that in my name?" answers from these rows alone, so each names the person, the right that was used and
 * the token it rests on. Triggers of migration 003 keep rows from being changed, and whatever was allowed from being deleted.
 * What was refused outside a run may be forgotten after the retention: strangers write it (src/app/keep-house.ts).
 */
import type { Insertable } from 'kysely';
import type { Did, TokenId, UserId } from '../ids.ts';
import type { AuditTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { UcanCapability } from '../ucan/read-ucan.ts';

export type AuditEntry = Partial<Omit<Insertable<AuditTable>, 'id' | 'decision' | 'at'>> & Pick<Insertable<AuditTable>, 'decision' | 'at'>;

/** Abilities and resources are bounded where they come in; this holds whatever a plugin names its tool. */
const MAX_TEXT_CHARS = 4_000;
const bounded = (text: string | null | undefined): string | null => text?.slice(0, MAX_TEXT_CHARS) ?? null;

export function writeAudit(store: Store, tx: Tx, entry: AuditEntry): void {
  tx.run(
    store.sql.insertInto('audit').values({
      event_id: null,
      run_id: null,
      token_id: null,
      principal_id: null,
      matrix_user_id: null,
      tier: null,
      code: null,
      tainted: null,
      trust: null,
      ...entry,
      capability: bounded(entry.capability),
      resource: bounded(entry.resource),
    }),
  );
}

interface AuditedGrant {
  readonly tokenId: TokenId;
  readonly did: Did;
  readonly matrixUserId: UserId | null;
  readonly capabilities: readonly UcanCapability[];
}

/** A grant that was stored: `resource` lists what it allows, for the time when the grant itself is gone. */
export const grantEntry = ({ at, grant }: { at: number; grant: AuditedGrant }): AuditEntry => ({
  at,
  token_id: grant.tokenId,
  principal_id: grant.did,
  matrix_user_id: grant.matrixUserId,
  decision: 'allowed',
  capability: 'grant/store',
  resource: grant.capabilities.map(({ can, with: resource }) => `${can} ${resource}`).join(', '),
});
