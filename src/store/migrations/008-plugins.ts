/**
 * Oldest release that can run on the result: 0.2.0.
 * What plugins keep for a person, found by words; blobs that the model must never see; and credits: an account never goes below zero, a hold has
 * the id of its run. A trigger settles it in the very statement that ends the run, whoever ends it and why: no way out of a run can forget
 * the money (G10). What was given and what was spent leave entries; their sum is the balance and what is held (G8, G13).
 */
export const plugins = {
  id: '008-plugins',
  sql: `
CREATE TABLE plugin_storage (
  id INTEGER PRIMARY KEY AUTOINCREMENT, plugin TEXT NOT NULL, principal_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
  tainted INTEGER NOT NULL DEFAULT 0, updated_at INTEGER NOT NULL, UNIQUE (plugin, principal_id, key)) STRICT;
CREATE INDEX plugin_storage_by_principal ON plugin_storage (principal_id);
CREATE VIRTUAL TABLE plugin_storage_search USING fts5 (value, content = 'plugin_storage', content_rowid = 'id');
CREATE TRIGGER plugin_storage_added AFTER INSERT ON plugin_storage BEGIN
  INSERT INTO plugin_storage_search (rowid, value) VALUES (new.id, new.value); END;
CREATE TRIGGER plugin_storage_removed AFTER DELETE ON plugin_storage BEGIN
  INSERT INTO plugin_storage_search (plugin_storage_search, rowid, value) VALUES ('delete', old.id, old.value); END;
CREATE TRIGGER plugin_storage_changed AFTER UPDATE OF value ON plugin_storage BEGIN
  INSERT INTO plugin_storage_search (plugin_storage_search, rowid, value) VALUES ('delete', old.id, old.value);
  INSERT INTO plugin_storage_search (rowid, value) VALUES (new.id, new.value); END;
CREATE TABLE blobs (
  blob_id TEXT PRIMARY KEY, principal_id TEXT NOT NULL, plugin TEXT NOT NULL, sealed BLOB NOT NULL, expires_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX blobs_by_end ON blobs (expires_at);
CREATE INDEX blobs_by_principal ON blobs (principal_id);
CREATE TABLE credit_accounts (
  principal_id TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)) STRICT, WITHOUT ROWID;
CREATE TABLE credit_holds (
  run_id TEXT PRIMARY KEY, principal_id TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount >= 0), spent INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX credit_holds_by_principal ON credit_holds (principal_id);
CREATE TABLE credit_entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, principal_id TEXT NOT NULL, run_id TEXT, kind TEXT NOT NULL, amount INTEGER NOT NULL,
  balance_after INTEGER NOT NULL, reason TEXT, at INTEGER NOT NULL) STRICT;
CREATE INDEX credit_entries_by_principal ON credit_entries (principal_id, id);
CREATE UNIQUE INDEX credit_entries_settled_once ON credit_entries (run_id) WHERE run_id IS NOT NULL;
CREATE TRIGGER credits_settled AFTER UPDATE OF ended_at ON runs WHEN new.ended_at IS NOT NULL AND old.ended_at IS NULL BEGIN
  UPDATE credit_accounts SET balance = balance + (SELECT amount - min(spent, amount) FROM credit_holds WHERE run_id = new.run_id)
    WHERE principal_id = (SELECT principal_id FROM credit_holds WHERE run_id = new.run_id);
  INSERT INTO credit_entries (principal_id, run_id, kind, amount, balance_after, reason, at)
    SELECT h.principal_id, h.run_id, 'settle', -min(h.spent, h.amount), a.balance, NULL, new.ended_at
    FROM credit_holds h JOIN credit_accounts a ON a.principal_id = h.principal_id WHERE h.run_id = new.run_id AND h.spent > 0;
  DELETE FROM credit_holds WHERE run_id = new.run_id; END;
`,
} as const;
