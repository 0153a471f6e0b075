/**
 * Oldest release that can run on the result: 0.2.0.
 * What people do to a run while it works must outlive a crash: that it was asked to stop (G9), and which of its inputs came while it ran, so that
 * what it did not take is answered by a run of its own (G2).
 */
export const controlRuns = {
  id: '005-control-runs',
  sql: `
ALTER TABLE runs ADD COLUMN stop_asked TEXT;
ALTER TABLE pending_inputs ADD COLUMN steers INTEGER NOT NULL DEFAULT 0;
`,
} as const;
