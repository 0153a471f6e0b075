/**
 * Oldest release that can run on the result: 0.1.0.
 * `put_off` counts the attempts of a run that ended without its fault, by a stop or a full disk: only the others say that it cannot be run (G5).
 */
export const putOffRuns = {
  id: '002-put-off-runs',
  sql: 'ALTER TABLE runs ADD COLUMN put_off INTEGER NOT NULL DEFAULT 0',
} as const;
