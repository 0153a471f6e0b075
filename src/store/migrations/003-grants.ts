/**
 * Oldest release that can run on the result: 0.2.0.
 * Grants are kept as their canonical CAR, so that a proof named by CID can be put beside what rests on it; the other columns are what was
 * verified of it. A revocation outlives its grant: the CAR may come again.
 */
export const addGrants = {
  id: '003-grants',
  sql: `
CREATE TABLE grants (
  token_id TEXT PRIMARY KEY, cid TEXT NOT NULL, kind TEXT NOT NULL, did TEXT NOT NULL, audience TEXT NOT NULL, capabilities TEXT NOT NULL,
  path TEXT NOT NULL, car TEXT NOT NULL, expires_at INTEGER NOT NULL, source TEXT NOT NULL, stored_at INTEGER NOT NULL,
  matrix_user_id TEXT, shown_at INTEGER, activated_at INTEGER, revoked_at INTEGER) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX grants_by_cid ON grants (cid);
CREATE INDEX grants_by_did ON grants (did, expires_at);
CREATE INDEX grants_by_account ON grants (matrix_user_id, expires_at) WHERE matrix_user_id IS NOT NULL;
CREATE INDEX grants_by_end ON grants (expires_at);
CREATE TABLE revocations (id TEXT NOT NULL, did TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (id, did)) STRICT, WITHOUT ROWID;
CREATE INDEX revocations_by_did ON revocations (did);
CREATE TABLE authorise_links (
  nonce_hash TEXT PRIMARY KEY, matrix_user_id TEXT NOT NULL, room_id TEXT NOT NULL, created_at INTEGER NOT NULL, used_at INTEGER) STRICT, WITHOUT ROWID;
CREATE INDEX authorise_links_by_account ON authorise_links (matrix_user_id, created_at);
CREATE TABLE use_grants (did TEXT PRIMARY KEY, granted_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX links_by_account ON links (matrix_user_id, proven_at);
ALTER TABLE transcript ADD COLUMN tier TEXT;
ALTER TABLE transcript ADD COLUMN tainted INTEGER NOT NULL DEFAULT 0;
UPDATE transcript SET tier = (SELECT runs.tier FROM runs WHERE runs.run_id = transcript.run_id) WHERE run_id IS NOT NULL;
UPDATE transcript SET tainted = 1 WHERE role != 'human' AND run_id IN (SELECT run_id FROM runs WHERE direct = 0);
ALTER TABLE runs ADD COLUMN tainted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN tainted INTEGER;
CREATE INDEX audit_by_principal ON audit (principal_id, id) WHERE principal_id IS NOT NULL;
CREATE INDEX audit_by_account ON audit (matrix_user_id, id) WHERE matrix_user_id IS NOT NULL;
CREATE INDEX audit_by_run ON audit (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX audit_by_time ON audit (at);
CREATE TRIGGER audit_keeps_rows BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_keeps_decisions BEFORE DELETE ON audit WHEN old.decision != 'refused' BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only'); END;
`,
} as const;
