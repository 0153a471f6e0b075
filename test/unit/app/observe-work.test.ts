/** The numbers an operator's alarms stand on: each refusal and failure once, under its code. */
import { expect, test } from 'vitest';
import { observeAdmission } from '../../../src/app/observe-work.ts';
import { createMetrics } from '../../../src/observe/metrics.ts';

test('a refusal in a room and an event that was given up are errors, what is ignored is none', async () => {
  const metrics = createMetrics();
  observeAdmission(metrics, 'refused', 'NO_AUTHORITY');
  observeAdmission(metrics, 'gave_up', 'attempts');
  observeAdmission(metrics, 'ignored', 'membership');
  observeAdmission(metrics, 'admitted', 'direct');

  const lines = (await metrics.registry.metrics()).split('\n').filter((line) => line.startsWith('matrix_oracle_errors_total{'));
  expect(lines).toEqual(['matrix_oracle_errors_total{code="NO_AUTHORITY"} 1', 'matrix_oracle_errors_total{code="GAVE_UP"} 1']);
});
