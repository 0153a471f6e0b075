/**
 * Oldest release that can run on the result: 0.2.0.
 * What plugins keep for a person, found by words; blobs that the model must never see; and credits: an account never goes below zero, a hold has
 * the id of its run and is settled or released exactly once, and every change leaves an entry (G8, G10, G13).
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
CREATE UNIQUE INDEX credit_entries_once ON credit_entries (run_id, kind) WHERE run_id IS NOT NULL AND kind IN ('hold', 'settle');
`,
} as const;
