/**
 * Oldest release that can run on the result: 0.2.0.
 * What long-lived runs need beside their rows: which run an edited prompt answers anew, when the frames of a run were forgotten, and how to find
 * ended runs by age without reading all there ever were.
 */
export const durableRuns = {
  id: '004-durable-runs',
  sql: `
ALTER TABLE runs ADD COLUMN replaces TEXT;
ALTER TABLE runs ADD COLUMN frames_pruned_at INTEGER;
CREATE INDEX runs_by_end ON runs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner, run_id);
CREATE INDEX runs_replaced ON runs (replaces) WHERE replaces IS NOT NULL;
ALTER TABLE outbox ADD COLUMN thread_root TEXT;
CREATE INDEX pending_inputs_waiting ON pending_inputs (session_id, id) WHERE consumed_at IS NULL;
`,
} as const;
