/**
 * Oldest release that can run on the result: 0.3.0, because an older one would handle a parked row as if it were gone.
 * An encrypted message whose key is not here yet waits outside its room's queue, and a message that was encrypted once keeps its ciphertext, so
 * that a retry is the same event (G4). Which rooms are encrypted is never forgotten (G11). `decrypted` is kept for good: a hostile homeserver may
 * repeat a ciphertext under another event id at any time (research/e2ee.md §8).
 */
export const encryption = {
  id: '007-encryption',
  sql: `
ALTER TABLE inbox ADD COLUMN megolm_session TEXT;
ALTER TABLE inbox ADD COLUMN parked_at INTEGER;
ALTER TABLE inbox ADD COLUMN told_at INTEGER;
CREATE INDEX inbox_parked ON inbox (megolm_session, id) WHERE state = 'parked';
CREATE INDEX inbox_parked_by_sender ON inbox (room_id, sender, parked_at) WHERE state = 'parked';
CREATE INDEX inbox_parked_by_age ON inbox (parked_at) WHERE state = 'parked';
ALTER TABLE outbox ADD COLUMN sealed TEXT;
ALTER TABLE audit ADD COLUMN trust TEXT;
ALTER TABLE runs ADD COLUMN trust TEXT;
CREATE TABLE encrypted_rooms (room_id TEXT PRIMARY KEY, seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE decrypted (
  megolm_session TEXT NOT NULL, message_index INTEGER NOT NULL, event_id TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (megolm_session, message_index)) STRICT, WITHOUT ROWID;
`,
} as const;
