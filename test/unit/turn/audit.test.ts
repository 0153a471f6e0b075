import { expect, test } from 'vitest';
import type { Did, TokenId } from '../../../src/ids.ts';
import { type AuditEntry, grantEntry, writeAudit } from '../../../src/turn/audit.ts';
import { ALICE } from '../../fakes/events.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

function setup() {
  const store = memoryStore();
  const { sql } = store;
  return {
    write: (entry: AuditEntry) => store.write((tx) => writeAudit(store, tx, entry)),
    rows: () => store.read.all(sql.selectFrom('audit').selectAll().orderBy('id')),
    change: () => store.write((tx) => tx.run(sql.updateTable('audit').set({ decision: 'refused' }))),
    remove: (decision: 'allowed' | 'refused') => store.write((tx) => tx.run(sql.deleteFrom('audit').where('decision', '=', decision))),
  };
}

test('a row says who, what, on what, under which tier and taint, and why not', async () => {
  const { write, rows } = setup();
  await write({
    ...{ at: 1, event_id: '$a', run_id: null, token_id: 'T' as TokenId, principal_id: 'did:key:z1', matrix_user_id: ALICE },
    ...{
      tier: 'signed',
      capability: 'room/topic',
      resource: '!room',
      decision: 'refused',
      code: 'NEEDS_CONFIRMATION',
      tainted: 1,
      trust: 'unverified',
    },
  });

  expect(rows()).toEqual([
    {
      ...{ id: 1, at: 1, event_id: '$a', run_id: null, token_id: 'T', principal_id: 'did:key:z1', matrix_user_id: ALICE },
      ...{
        tier: 'signed',
        capability: 'room/topic',
        resource: '!room',
        decision: 'refused',
        code: 'NEEDS_CONFIRMATION',
        tainted: 1,
        trust: 'unverified',
      },
    },
  ]);
});

test('the log is append-only: no row changes, and what was allowed is never deleted', async () => {
  const { write, rows, change, remove } = setup();
  await write({ at: 1, decision: 'allowed' });
  await write({ at: 2, decision: 'refused', code: 'REPLAY' });

  await expect(change()).rejects.toThrow('append-only');
  await expect(remove('allowed')).rejects.toThrow('append-only');
  expect(rows()).toHaveLength(2);
  expect(await remove('refused')).toBe(1);
  expect(rows()).toMatchObject([{ decision: 'allowed' }]);
});

test('a text of any length leaves a bounded row (G14)', async () => {
  const { write, rows } = setup();
  await write({ at: 1, decision: 'allowed', capability: 'c'.repeat(100_000), resource: 'r'.repeat(100_000) });

  expect(JSON.stringify(rows()).length).toBeLessThan(9_000);
});

test('a stored grant is recorded with what it allows, never with the token (G12)', () => {
  const grant = {
    tokenId: 'T' as TokenId,
    did: 'did:key:z1' as Did,
    matrixUserId: ALICE,
    capabilities: [
      { can: 'memory/*', with: 'ixo:memory', nb: { link: 'secret nonce' } },
      { can: 'fs/read', with: 'ixo:fs' },
    ],
    car: 'the token',
  };

  const entry = grantEntry({ at: 1, grant });
  expect(entry).toEqual({
    ...{ at: 1, decision: 'allowed', capability: 'grant/store', resource: 'memory/* ixo:memory, fs/read ixo:fs' },
    ...{ token_id: 'T', principal_id: 'did:key:z1', matrix_user_id: ALICE },
  });
  expect(JSON.stringify(entry)).not.toContain('secret');
});
