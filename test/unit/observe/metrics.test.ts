import { expect, test } from 'vitest';
import { createMetrics, type Depths, describeMetrics } from '../../../src/observe/metrics.ts';
import { startMetricsServer } from '../../../src/observe/metrics-server.ts';

const DEPTHS = {
  inboxReady: 3,
  inboxDead: 1,
  inboxParked: 9,
  missingKeys: 8,
  inboxOldestAgeMs: 2_500,
  outboxReady: 7,
  outboxOldestAgeMs: 1_500,
  outboxParked: 2,
  runsActive: 4,
  runsQueued: 5,
  runsRunning: 6,
  runsWaiting: 1,
  runsOldestAgeMs: 60_000,
  keyStore: { oneTimeKeys: 50, roomKeys: 20_000, storeBytes: 4_096 },
};

test('what is counted is found in the exposition under the prefix', async () => {
  const metrics = createMetrics();

  metrics.stage('open', 12);
  metrics.admission('ignore', 'own_event');
  metrics.transaction(200, 3);
  metrics.error('REPLAY');
  metrics.runEnded('completed');
  metrics.runResumed();
  metrics.firstToken(900);
  metrics.editSent();
  metrics.parked('too_large');
  metrics.reconciled(19);
  metrics.tokens('output', 40);
  metrics.decrypted(700);
  const text = await metrics.registry.metrics();

  expect(text).toContain('matrix_oracle_turn_stage_duration_seconds_bucket{le="0.025",stage="open"} 1');
  expect(text).toContain('matrix_oracle_turn_stage_duration_seconds_bucket{le="0.01",stage="open"} 0');
  expect(text).toContain('matrix_oracle_admissions_total{outcome="ignore",reason="own_event"} 1');
  expect(text).toContain('matrix_oracle_transactions_total{status="200"} 1');
  expect(text).toContain('matrix_oracle_errors_total{code="REPLAY"} 1');
  expect(text).toContain('matrix_oracle_runs_total{status="completed"} 1');
  expect(text).toContain('matrix_oracle_runs_resumed_total 1');
  expect(text).toContain('matrix_oracle_time_to_first_token_seconds_sum 0.9');
  expect(text).toContain('matrix_oracle_edits_sent_total 1');
  expect(text).toContain('matrix_oracle_reconcile_rows_total 19');
  expect(text).toContain('matrix_oracle_model_tokens_total{direction="output"} 40');
  expect(text).toContain('matrix_oracle_time_to_decrypt_seconds_bucket{le="1"} 1');
  expect(text).toContain('matrix_oracle_time_to_decrypt_seconds_bucket{le="0.5"} 0');
});

test('depths are read at the scrape, not when they change', async () => {
  const metrics = createMetrics();
  let reads = 0;
  metrics.watch(() => {
    reads += 1;
    return DEPTHS;
  });

  expect(reads).toBe(0);
  const text = await metrics.registry.metrics();

  expect(reads).toBe(1);
  expect(text).toContain('matrix_oracle_inbox_rows{state="ready"} 3');
  expect(text).toContain('matrix_oracle_inbox_rows{state="parked"} 9');
  expect(text).toContain('matrix_oracle_inbox_rows{state="dead"} 1');
  expect(text).toContain('matrix_oracle_inbox_oldest_age_seconds 2.5');
  expect(text).toContain('matrix_oracle_outbox_rows{state="parked"} 2');
  expect(text).toContain('matrix_oracle_outbox_oldest_age_seconds 1.5');
  expect(text).toContain('matrix_oracle_runs_active 4');
  expect(text).toContain('matrix_oracle_runs_unfinished{status="queued"} 5');
  expect(text).toContain('matrix_oracle_runs_unfinished{status="running"} 6');
  expect(text).toContain('matrix_oracle_runs_unfinished{status="waiting"} 1');
  expect(text).toContain('matrix_oracle_runs_oldest_unfinished_age_seconds 60');
  expect(text).toContain('matrix_oracle_crypto_missing_keys 8');
  expect(text).toContain('matrix_oracle_crypto_one_time_keys 50');
  expect(text).toContain('matrix_oracle_crypto_room_keys 20000');
  expect(text).toContain('matrix_oracle_crypto_store_bytes 4096');
});

test('what is not known of the key store is absent, not 0, before it is open and when it no longer is', async () => {
  const metrics = createMetrics();
  let depths: Depths = { ...DEPTHS, keyStore: null };
  metrics.watch(() => depths);
  const named = async () =>
    (await metrics.registry.metrics()).split('\n').filter((line) => /^matrix_oracle_crypto_(?!missing)/u.test(line));

  expect(await named()).toEqual([]);
  depths = { ...DEPTHS, keyStore: { oneTimeKeys: null, roomKeys: 1, storeBytes: 2 } };
  expect(await named()).toEqual(['matrix_oracle_crypto_room_keys 1', 'matrix_oracle_crypto_store_bytes 2']);
  depths = { ...DEPTHS, keyStore: null };
  expect(await named()).toEqual([]);
});

test('two oracles in one process do not add up', async () => {
  const one = createMetrics();
  const other = createMetrics();

  one.editSent();

  expect(await other.registry.metrics()).toContain('matrix_oracle_edits_sent_total 0');
});

test('every metric of the table is registered, and nothing else', async () => {
  const registered = (await createMetrics().registry.getMetricsAsJSON()).map(({ name }) => name).sort();

  expect(registered).toEqual(
    describeMetrics()
      .map(({ name }) => name)
      .sort(),
  );
});

test('the listener answers GET /metrics on loopback and 404 for the rest, and frees its port', async () => {
  const metrics = createMetrics();
  const server = await startMetricsServer({ registry: metrics.registry, port: 0 });

  const good = await fetch(server.url);
  const wrongPath = await fetch(new URL('/', server.url));
  const wrongMethod = await fetch(server.url, { method: 'POST', body: 'x' });
  await server.stop();

  expect(good.status).toBe(200);
  expect(good.headers.get('content-type')).toContain('text/plain');
  expect(await good.text()).toContain('# HELP matrix_oracle_runs_total');
  expect(wrongPath.status).toBe(404);
  expect(wrongMethod.status).toBe(404);
  await expect(fetch(server.url)).rejects.toThrow();
});

test('a database that cannot be read is a failed scrape, not old numbers', async () => {
  const metrics = createMetrics();
  metrics.watch(() => {
    throw new Error('disk I/O error');
  });
  const server = await startMetricsServer({ registry: metrics.registry, port: 0 });

  const response = await fetch(server.url);
  await server.stop();

  expect(response.status).toBe(503);
  expect(await response.text()).not.toContain('disk');
});

test('a taken port is an error that names it', async () => {
  const first = await startMetricsServer({ registry: createMetrics().registry, port: 0 });

  await expect(startMetricsServer({ registry: createMetrics().registry, port: first.port })).rejects.toMatchObject({ code: 'EADDRINUSE' });

  await first.stop();
});
