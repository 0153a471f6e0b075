/**
 * What an alarm can be set on. The registry is our own, not prom-client's global one, so that two oracles in one test process do not add up.
 * Labels come from closed lists in code (stages, reasons, error codes), never from outside: a label that a stranger can choose is memory
 * that a stranger can fill (G14), and a user or room id in a metric would tell who talks when (G12). Depths are read when scraped.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ParkReason } from '../outbox/park-reason.ts';

const PREFIX = 'matrix_oracle_';
const FAST_S = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
const ANSWER_S = [0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300];
/** A key that was lost on the way may come a day later. */
const DECRYPT_S = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 15, 60, 300, 3_600, 86_400];

interface MetricSpec {
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels?: readonly string[];
  readonly buckets?: readonly number[];
}

/** docs/metrics.md is generated from this table; names there carry the prefix. */
const METRICS = {
  turn_stage_duration_seconds: {
    kind: 'histogram',
    help: 'Time that one stage of a turn took.',
    labels: ['stage'],
    buckets: [...FAST_S, 15, 60, 300],
  },
  time_to_first_token_seconds: {
    kind: 'histogram',
    help: 'From the start of a run to the first text of the model.',
    buckets: ANSWER_S,
  },
  inbox_rows: {
    kind: 'gauge',
    help: 'Events that came in and are not finished: `ready` wait or are being handled, `parked` are encrypted and wait for their key, `dead` were given up.',
    labels: ['state'],
  },
  inbox_oldest_age_seconds: { kind: 'gauge', help: 'Age of the oldest ready event in the inbox; 0 when there is none.' },
  admissions_total: { kind: 'counter', help: 'Decisions of admission, by outcome and reason.', labels: ['outcome', 'reason'] },
  transactions_total: {
    kind: 'counter',
    help: 'Transactions of the homeserver, by the HTTP status they were answered with.',
    labels: ['status'],
  },
  transaction_duration_seconds: { kind: 'histogram', help: 'From the first byte of a transaction to its answer.', buckets: FAST_S },
  reconcile_rows_total: { kind: 'counter', help: 'Events that reconciliation found and the push had not brought.' },
  runs_total: { kind: 'counter', help: 'Runs that ended, by status.', labels: ['status'] },
  runs_active: { kind: 'gauge', help: 'Runs that are being executed now.' },
  runs_unfinished: { kind: 'gauge', help: 'Runs that have not ended, by status: `queued`, `running` or `waiting`.', labels: ['status'] },
  runs_oldest_unfinished_age_seconds: { kind: 'gauge', help: 'Age of the oldest run that has not ended; 0 when there is none.' },
  runs_resumed_total: { kind: 'counter', help: 'Runs that went on after a crash, a stop or a full disk; each time counts.' },
  errors_total: { kind: 'counter', help: 'Refusals and failures by code (docs/errors.md).', labels: ['code'] },
  outbox_rows: {
    kind: 'gauge',
    help: 'Events to send: `ready` wait or are being sent, `parked` were refused by the homeserver.',
    labels: ['state'],
  },
  outbox_oldest_age_seconds: { kind: 'gauge', help: 'Age of the oldest event that waits to be sent; 0 when there is none.' },
  outbox_parked_total: {
    kind: 'counter',
    help: 'Events that were given up, by reason: `forbidden`, `not_found`, `too_large`, `bad_request`, `encrypted`, `deadline` or `other`.',
    labels: ['reason'],
  },
  edits_sent_total: { kind: 'counter', help: 'Edits of answers that the homeserver confirmed.' },
  time_to_decrypt_seconds: {
    kind: 'histogram',
    help: 'From the receipt of an encrypted event to its first decryption; long where its key came later.',
    buckets: DECRYPT_S,
  },
  crypto_missing_keys: { kind: 'gauge', help: 'Room keys that parked events wait for.' },
  crypto_one_time_keys: {
    kind: 'gauge',
    help: 'One-time keys left on the homeserver, as it last said; absent until it did. Without any, new devices use the fallback key.',
  },
  crypto_room_keys: { kind: 'gauge', help: 'Room keys in the key store; absent until it is open. All of them are in memory.' },
  crypto_store_bytes: { kind: 'gauge', help: 'Size of the key store on disk (crypto.db); absent until it is open.' },
  model_tokens_total: { kind: 'counter', help: 'Tokens that the model counted, by direction.', labels: ['direction'] },
} as const satisfies Record<string, MetricSpec>;

/** `queue`: from `open` to the first model call, the wait for a slot and the loading of the turn included. */
export type TurnStage = 'authenticate' | 'balance' | 'throttle' | 'open' | 'queue';

/** Counts as the store knows them at the moment of the scrape. */
export interface Depths {
  readonly inboxReady: number;
  readonly inboxDead: number;
  readonly inboxParked: number;
  /** Different keys that parked events wait for. */
  readonly missingKeys: number;
  /** Milliseconds; 0 when the inbox is empty. */
  readonly inboxOldestAgeMs: number;
  readonly outboxReady: number;
  /** Milliseconds; 0 when nothing waits. */
  readonly outboxOldestAgeMs: number;
  readonly outboxParked: number;
  readonly runsActive: number;
  readonly runsQueued: number;
  readonly runsRunning: number;
  readonly runsWaiting: number;
  /** Milliseconds; 0 when every run has ended. */
  readonly runsOldestAgeMs: number;
  /** Null until encryption is open. */
  readonly keyStore: KeyStoreDepths | null;
}
export interface KeyStoreDepths {
  /** Null until the homeserver said it. */
  readonly oneTimeKeys: number | null;
  readonly roomKeys: number;
  readonly storeBytes: number;
}

export interface Metrics {
  readonly registry: Registry;
  stage(stage: TurnStage, durationMs: number): void;
  firstToken(durationMs: number): void;
  admission(outcome: string, reason: string): void;
  transaction(status: number, durationMs: number): void;
  reconciled(rows: number): void;
  runEnded(status: string): void;
  runResumed(): void;
  error(code: string): void;
  editSent(): void;
  parked(reason: ParkReason): void;
  /** An encrypted event was read for the first time. */
  decrypted(sinceReceivedMs: number): void;
  tokens(direction: 'input' | 'output', count: number): void;
  /** Reads the gauges from here at every scrape; a failing read fails the scrape. */
  watch(readDepths: () => Depths | Promise<Depths>): void;
}

export function createMetrics(): Metrics {
  const registry = new Registry();
  const metrics = buildMetrics(registry);
  let readDepths: (() => Depths | Promise<Depths>) | undefined;
  let reading: Promise<Depths | undefined> | undefined;
  // prom-client asks all gauges of a scrape at once: they share one read.
  const readOnce = () => {
    reading ??= (async () => readDepths?.())().finally(() => {
      reading = undefined;
    });
    return reading;
  };
  const watchGauge = (name: keyof typeof METRICS, fill: (gauge: Gauge, depths: Depths) => void) => {
    const gauge: Gauge = new Gauge({
      ...optionsOf(name, registry),
      collect: async () => {
        const depths = await readOnce();
        if (depths !== undefined) fill(gauge, depths);
      },
    });
  };
  watchGauge('inbox_rows', (gauge, depths) => {
    gauge.set({ state: 'ready' }, depths.inboxReady);
    gauge.set({ state: 'parked' }, depths.inboxParked);
    gauge.set({ state: 'dead' }, depths.inboxDead);
  });
  watchGauge('inbox_oldest_age_seconds', (gauge, depths) => gauge.set(depths.inboxOldestAgeMs / 1_000));
  watchGauge('outbox_rows', (gauge, depths) => {
    gauge.set({ state: 'ready' }, depths.outboxReady);
    gauge.set({ state: 'parked' }, depths.outboxParked);
  });
  watchGauge('outbox_oldest_age_seconds', (gauge, depths) => gauge.set(depths.outboxOldestAgeMs / 1_000));
  watchGauge('runs_active', (gauge, depths) => gauge.set(depths.runsActive));
  watchGauge('runs_unfinished', (gauge, depths) => {
    gauge.set({ status: 'queued' }, depths.runsQueued);
    gauge.set({ status: 'running' }, depths.runsRunning);
    gauge.set({ status: 'waiting' }, depths.runsWaiting);
  });
  watchGauge('runs_oldest_unfinished_age_seconds', (gauge, depths) => gauge.set(depths.runsOldestAgeMs / 1_000));
  watchGauge('crypto_missing_keys', (gauge, depths) => gauge.set(depths.missingKeys));
  watchGauge('crypto_one_time_keys', (gauge, { keyStore }) => setOrRemove(gauge, keyStore?.oneTimeKeys ?? null));
  watchGauge('crypto_room_keys', (gauge, { keyStore }) => setOrRemove(gauge, keyStore?.roomKeys ?? null));
  watchGauge('crypto_store_bytes', (gauge, { keyStore }) => setOrRemove(gauge, keyStore?.storeBytes ?? null));

  return {
    registry,
    ...metrics,
    watch(read) {
      readDepths = read;
    },
  };
}

/** What is not known is not 0: an alarm on "no keys left" would ring at every start. */
function setOrRemove(gauge: Gauge, value: number | null): void {
  if (value === null) gauge.remove();
  else gauge.set(value);
}

function buildMetrics(registry: Registry): Omit<Metrics, 'registry' | 'watch'> {
  const stages = new Histogram(optionsOf('turn_stage_duration_seconds', registry));
  const firstToken = new Histogram(optionsOf('time_to_first_token_seconds', registry));
  const admissions = new Counter(optionsOf('admissions_total', registry));
  const transactions = new Counter(optionsOf('transactions_total', registry));
  const transactionTimes = new Histogram(optionsOf('transaction_duration_seconds', registry));
  const reconciled = new Counter(optionsOf('reconcile_rows_total', registry));
  const runs = new Counter(optionsOf('runs_total', registry));
  const resumes = new Counter(optionsOf('runs_resumed_total', registry));
  const errors = new Counter(optionsOf('errors_total', registry));
  const parked = new Counter(optionsOf('outbox_parked_total', registry));
  const edits = new Counter(optionsOf('edits_sent_total', registry));
  const decryptions = new Histogram(optionsOf('time_to_decrypt_seconds', registry));
  const tokens = new Counter(optionsOf('model_tokens_total', registry));
  return {
    stage: (stage, durationMs) => stages.observe({ stage }, durationMs / 1_000),
    firstToken: (durationMs) => firstToken.observe(durationMs / 1_000),
    admission: (outcome, reason) => admissions.inc({ outcome, reason }),
    transaction(status, durationMs) {
      transactions.inc({ status: String(status) });
      transactionTimes.observe(durationMs / 1_000);
    },
    reconciled: (rows) => reconciled.inc(rows),
    runEnded: (status) => runs.inc({ status }),
    runResumed: () => resumes.inc(),
    error: (code) => errors.inc({ code }),
    editSent: () => edits.inc(),
    parked: (reason) => parked.inc({ reason }),
    decrypted: (sinceReceivedMs) => decryptions.observe(sinceReceivedMs / 1_000),
    tokens: (direction, count) => tokens.inc({ direction }, count),
  };
}

function optionsOf(name: keyof typeof METRICS, registry: Registry) {
  const spec: MetricSpec = METRICS[name];
  return {
    name: PREFIX + name,
    help: spec.help,
    labelNames: [...(spec.labels ?? [])],
    ...(spec.buckets === undefined ? {} : { buckets: [...spec.buckets] }),
    registers: [registry],
  };
}

export interface MetricRow {
  readonly name: string;
  readonly kind: MetricSpec['kind'];
  readonly labels: readonly string[];
  readonly help: string;
}
/** Rows of docs/metrics.md. */
export const describeMetrics = (): readonly MetricRow[] =>
  Object.entries(METRICS).map(([name, spec]: [string, MetricSpec]) => ({
    name: PREFIX + name,
    kind: spec.kind,
    labels: spec.labels ?? [],
    help: spec.help,
  }));
