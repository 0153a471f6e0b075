/**
 * Oldest release that can run on the result: 0.1.0.
 * Runs, frames, outbox and pending input have their final shape here, so that durable runs, grants and plugins need no rebuild (DESIGN §8).
 */
export const createTables = {
  id: '001-create-tables',
  sql: `
CREATE TABLE inbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, ord INTEGER NOT NULL, event_id TEXT NOT NULL UNIQUE, room_id TEXT NOT NULL, sender TEXT NOT NULL, type TEXT NOT NULL,
  source TEXT NOT NULL, event TEXT NOT NULL, received_at INTEGER NOT NULL, age_ms INTEGER,
  state TEXT NOT NULL DEFAULT 'ready', attempts INTEGER NOT NULL DEFAULT 0, not_before INTEGER NOT NULL DEFAULT 0,
  lease_until INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0, error TEXT) STRICT;
CREATE INDEX inbox_by_room ON inbox (room_id, ord, id) WHERE state = 'ready';
CREATE TABLE seen (event_id TEXT PRIMARY KEY, seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX seen_by_age ON seen (seen_at);
CREATE TABLE gaps (
  id INTEGER PRIMARY KEY AUTOINCREMENT, room_id TEXT NOT NULL, from_token TEXT NOT NULL, to_token TEXT, opened_at INTEGER NOT NULL,
  pages INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX gaps_by_room ON gaps (room_id, id);
CREATE TABLE rooms (
  room_id TEXT PRIMARY KEY, membership TEXT NOT NULL, inviter TEXT, is_direct INTEGER NOT NULL, invited_at INTEGER, joined_at INTEGER,
  first_read INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE sessions (
  session_id TEXT PRIMARY KEY, room_id TEXT NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL, thread_root TEXT, title TEXT,
  created_at INTEGER NOT NULL, last_at INTEGER NOT NULL, retired_at INTEGER) STRICT;
CREATE UNIQUE INDEX sessions_rolling ON sessions (room_id, owner) WHERE kind = 'rolling' AND retired_at IS NULL;
CREATE INDEX sessions_by_owner ON sessions (owner, last_at);
CREATE INDEX sessions_by_thread ON sessions (thread_root) WHERE thread_root IS NOT NULL;
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions, room_id TEXT NOT NULL, thread_root TEXT, owner TEXT NOT NULL,
  principal_id TEXT NOT NULL, matrix_user_id TEXT NOT NULL, tier TEXT NOT NULL, client TEXT NOT NULL, request_id TEXT NOT NULL,
  runner TEXT NOT NULL DEFAULT 'main', parent TEXT, grants TEXT, hints TEXT NOT NULL, direct INTEGER NOT NULL, status TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0, created_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER, deadline_at INTEGER,
  model_asked TEXT, model_answered TEXT, usage TEXT, error TEXT,
  lease_until INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX runs_unfinished ON runs (created_at) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX runs_unfinished_by_session ON runs (session_id, run_id) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX runs_by_session ON runs (session_id, run_id);
CREATE INDEX runs_by_thread ON runs (room_id, thread_root, matrix_user_id, run_id) WHERE thread_root IS NOT NULL;
CREATE INDEX runs_by_speaker ON runs (room_id, matrix_user_id, run_id);
CREATE TABLE pending_inputs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL REFERENCES runs, session_id TEXT NOT NULL, prompt_id TEXT NOT NULL UNIQUE,
  principal_id TEXT NOT NULL, tier TEXT NOT NULL, text TEXT NOT NULL, received_at INTEGER NOT NULL, consumed_at INTEGER) STRICT;
CREATE INDEX pending_inputs_by_run ON pending_inputs (run_id, id);
CREATE TABLE frames (
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (run_id, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE tool_marks (
  run_id TEXT NOT NULL, tool_call_id TEXT NOT NULL, tool TEXT NOT NULL, args_hash TEXT NOT NULL, state TEXT NOT NULL, result TEXT,
  at INTEGER NOT NULL, PRIMARY KEY (run_id, tool_call_id)) STRICT, WITHOUT ROWID;
CREATE TABLE outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, txn_id TEXT NOT NULL UNIQUE, lane TEXT NOT NULL, room_id TEXT NOT NULL, sender TEXT NOT NULL,
  device_id TEXT NOT NULL, kind TEXT NOT NULL, run_id TEXT, part INTEGER, event_type TEXT NOT NULL, state_key TEXT, content TEXT NOT NULL,
  edits_txn TEXT, state TEXT NOT NULL DEFAULT 'ready', event_id TEXT, attempts INTEGER NOT NULL DEFAULT 0,
  not_before INTEGER NOT NULL DEFAULT 0, deadline_at INTEGER NOT NULL, created_at INTEGER NOT NULL, sent_at INTEGER, error TEXT) STRICT;
CREATE INDEX outbox_ready ON outbox (lane, seq) WHERE state = 'ready';
CREATE INDEX outbox_heads ON outbox (seq) WHERE state = 'ready';
CREATE INDEX outbox_due ON outbox (not_before) WHERE state = 'ready';
CREATE INDEX outbox_parked ON outbox (seq) WHERE state = 'parked';
CREATE INDEX outbox_edits ON outbox (edits_txn) WHERE edits_txn IS NOT NULL;
CREATE INDEX outbox_by_run ON outbox (run_id, seq) WHERE run_id IS NOT NULL;
CREATE TABLE transcript (
  id INTEGER PRIMARY KEY AUTOINCREMENT, room_id TEXT NOT NULL, session_id TEXT, run_id TEXT, event_id TEXT, role TEXT NOT NULL,
  speaker TEXT NOT NULL, text TEXT NOT NULL, message TEXT, attachments TEXT, redacted INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL) STRICT;
CREATE INDEX transcript_by_session ON transcript (session_id, id);
CREATE INDEX transcript_by_room ON transcript (room_id, id) WHERE session_id IS NULL;
CREATE INDEX transcript_by_event ON transcript (event_id) WHERE event_id IS NOT NULL;
CREATE VIRTUAL TABLE transcript_search USING fts5 (text, content = 'transcript', content_rowid = 'id');
CREATE TRIGGER transcript_added AFTER INSERT ON transcript BEGIN
  INSERT INTO transcript_search (rowid, text) VALUES (new.id, new.text); END;
CREATE TRIGGER transcript_removed AFTER DELETE ON transcript BEGIN
  INSERT INTO transcript_search (transcript_search, rowid, text) VALUES ('delete', old.id, old.text); END;
CREATE TRIGGER transcript_changed AFTER UPDATE OF text ON transcript BEGIN
  INSERT INTO transcript_search (transcript_search, rowid, text) VALUES ('delete', old.id, old.text);
  INSERT INTO transcript_search (rowid, text) VALUES (new.id, new.text); END;
CREATE TABLE replay_marks (
  token_id TEXT PRIMARY KEY, prompt_id TEXT NOT NULL, run_id TEXT, body_hash TEXT, keep_until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX replay_marks_by_end ON replay_marks (keep_until);
CREATE TABLE rate_counts (key TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE INDEX rate_counts_by_key ON rate_counts (key, at);
CREATE TABLE links (
  did TEXT NOT NULL, matrix_user_id TEXT NOT NULL, room_id TEXT, proven_at INTEGER NOT NULL, PRIMARY KEY (did, matrix_user_id)) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, event_id TEXT, run_id TEXT, token_id TEXT, principal_id TEXT, matrix_user_id TEXT,
  tier TEXT, capability TEXT, resource TEXT, decision TEXT NOT NULL, code TEXT) STRICT;
CREATE TABLE notice_stamps (key TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE state (
  scope TEXT NOT NULL, scope_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (scope, scope_id, key)) STRICT, WITHOUT ROWID;
CREATE TABLE control (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, argument TEXT NOT NULL, created_at INTEGER NOT NULL, done_at INTEGER, outcome TEXT) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
`,
} as const;
