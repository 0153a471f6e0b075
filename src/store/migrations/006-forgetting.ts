/**
 * Oldest release that can run on the result: 0.2.0.
 * What is taken back is erased when its run is over, whatever crashes before: `erasures` are the runs that wait for it. The indexes find an event
 * that was sent by its id (who reacts to it or takes it back names nothing else), and the runs whose frames are due, without reading all there were.
 */
export const forgetting = {
  id: '006-forgetting',
  sql: `
CREATE TABLE erasures (run_id TEXT PRIMARY KEY, asked_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_by_event ON outbox (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX runs_with_frames ON runs (ended_at) WHERE ended_at IS NOT NULL AND frames_pruned_at IS NULL;
`,
} as const;
