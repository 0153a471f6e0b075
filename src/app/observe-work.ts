/** What the process tells of itself: gauges read at each scrape, counters of runs, and the parts that make it ready. */
import { sql as raw, type SqlBool } from 'kysely';
import type { ErrorCode } from '../errors.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Depths, KeyStoreDepths, Metrics } from '../observe/metrics.ts';
import type { Outbox } from '../outbox/outbox.ts';
import type { PluginStatus } from '../plugin-host/plugin-host.ts';
import type { RunObservation } from '../runs/execute-run.ts';
import type { Projection } from '../runs/projection.ts';
import type { Health } from '../sidecar/deps.ts';
import type { Store } from '../store/store.ts';

export interface DepthSources {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly outbox: Outbox;
  readonly scheduler: number;
  readonly now: number;
  /** Null until encryption is open. */
  readonly keyStore: KeyStoreDepths | null;
}
/** Every one by an index of what is unfinished: a scrape costs the same whatever was said in the years before (G16). */
export function readDepths({ store, inbox, outbox, scheduler, now, keyStore }: DepthSources): Depths {
  const depth = inbox.depth();
  const runs = readUnfinished(store);
  const ageOf = (at: number | null): number => (at === null ? 0 : Math.max(0, now - at));
  return {
    inboxReady: depth.rows,
    inboxDead: depth.dead,
    inboxParked: depth.parked,
    missingKeys: readMissingKeys(store),
    inboxOldestAgeMs: ageOf(depth.oldestReceivedAt),
    outboxReady: outbox.depth(),
    outboxOldestAgeMs: ageOf(readOldestToSend(store)),
    outboxParked: outbox.parked(),
    runsActive: scheduler,
    runsQueued: runs.queued,
    runsRunning: runs.running,
    runsWaiting: runs.waiting,
    runsOldestAgeMs: ageOf(runs.oldestAt),
    keyStore,
  };
}

/** Word for word the conditions of the partial indexes. */
const IS_UNFINISHED = raw<SqlBool>`status in ('queued', 'running', 'waiting')`;
const IS_READY = raw<SqlBool>`state = 'ready'`;
const IS_PARKED = raw<SqlBool>`state = 'parked'`;

function readUnfinished(store: Store): { queued: number; running: number; waiting: number; oldestAt: number | null } {
  const rows = store.read.all(
    store.sql
      .selectFrom('runs')
      .select((eb) => ['status', eb.fn.countAll<number>().as('count'), eb.fn.min('created_at').as('oldest')])
      .where(IS_UNFINISHED)
      .groupBy('status'),
  );
  const countOf = (status: string): number => rows.find((row) => row.status === status)?.count ?? 0;
  const oldest = rows.map((row) => row.oldest);
  return {
    queued: countOf('queued'),
    running: countOf('running'),
    waiting: countOf('waiting'),
    oldestAt: oldest.length === 0 ? null : Math.min(...oldest),
  };
}
const readMissingKeys = (store: Store): number =>
  store.read.get(
    store.sql
      .selectFrom('inbox')
      .select((eb) => eb.fn.count<number>('megolm_session').distinct().as('count'))
      .where(IS_PARKED),
  )?.count ?? 0;
const readOldestToSend = (store: Store): number | null =>
  store.read.get(store.sql.selectFrom('outbox').select('created_at').where(IS_READY).orderBy('seq').limit(1))?.created_at ?? null;

/** A projection like any other: it reads in the log that a run goes on. */
export const countResumes = (metrics: Pick<Metrics, 'runResumed'>): Projection => ({
  open: () => ({
    onFrames(frames) {
      for (const frame of frames) if (frame.kind === 'run' && frame.data.state === 'resumed') metrics.runResumed();
    },
    onEnd: () => undefined,
    close: () => undefined,
  }),
});

/** A refusal in a room is one of the errors too; a run's own are counted when it ends. */
export function observeAdmission(metrics: Metrics, outcome: string, reason: string): void {
  metrics.admission(outcome, reason);
  if (outcome === 'refused') metrics.error(reason);
  if (outcome === 'gave_up') metrics.error('GAVE_UP' satisfies ErrorCode);
}

export function observeRun(metrics: Metrics, event: RunObservation): void {
  switch (event.kind) {
    case 'model_called':
      metrics.stage('queue', event.sinceCreatedMs);
      break;
    case 'first_text':
      metrics.firstToken(event.sinceCreatedMs);
      break;
    case 'ended':
      metrics.runEnded(event.status);
      if (event.code !== null) metrics.error(event.code);
      if (event.usage !== null) {
        metrics.tokens('input', event.usage.inputTokens);
        metrics.tokens('output', event.usage.outputTokens);
      }
  }
}

export interface EncryptionHealth {
  readonly isOpen: boolean;
  /** Why keys do not arrive at the moment. */
  readonly trouble: string | null;
}
export interface Parts {
  /** Accounts exist and the homeserver answered. */
  readonly account: boolean;
  /** The last request to the homeserver was answered. */
  readonly homeserver: boolean;
  readonly agent: boolean;
  readonly encryption: EncryptionHealth;
  /** Of the plugins that this process was started with. */
  readonly plugins?: PluginStatus;
}
const MAX_DETAIL_CHARS = 2_000;

/** Ready means: what arrives now is stored, worked on and answered. */
export function readHealth(store: Store, outbox: Outbox, { account, homeserver, agent, encryption, plugins }: Parts): Health {
  const parked = outbox.parked();
  const needed = [
    { name: 'database', ok: store.writable(), ...(store.writable() ? {} : { detail: 'the database cannot be written' }) },
    { name: 'account', ok: account, ...(account ? {} : { detail: 'the accounts on the homeserver are not there yet' }) },
    { name: 'homeserver', ok: homeserver, ...(homeserver ? {} : { detail: 'the homeserver does not answer' }) },
    { name: 'agent', ok: agent, ...(agent ? {} : { detail: 'the agent is still loading' }) },
  ];
  const parts = [
    ...needed,
    describeEncryption(encryption),
    // Shown, but no reason to be taken out of service: other events flow.
    { name: 'outbox', ok: true, ...(parked === 0 ? {} : { detail: `${parked} events were refused by the homeserver` }) },
    ...(plugins === undefined ? [] : [{ name: 'plugins', ok: true, detail: describePlugins(plugins).slice(0, MAX_DETAIL_CHARS) }]),
  ];
  return { live: true, ready: encryption.isOpen && needed.every(({ ok }) => ok), parts };
}

/** Nothing is taken up before it is open. After that, without keys, rooms in the clear are answered as ever: degraded, and no reason to be taken out of service. */
function describeEncryption({ isOpen, trouble }: EncryptionHealth): Health['parts'][number] {
  const detail = isOpen ? trouble : 'the keys of encrypted rooms are not open yet';
  return { name: 'encryption', ok: detail === null, ...(detail === null ? {} : { detail }) };
}

/** What is loaded was decided at the start and cannot go bad: told, so that nobody has to ask a shell why something is missing. */
function describePlugins({ loaded, excluded, softGaps }: PluginStatus): string {
  return [
    `${loaded.length} loaded: ${loaded.map(({ name }) => name).join(', ')}`,
    ...(excluded.length === 0
      ? []
      : [`${excluded.length} not loaded: ${excluded.map(({ name, reason }) => `${name} (${reason})`).join(', ')}`]),
    ...softGaps.map(({ plugin, missing }) => `${plugin} works without ${missing}`),
  ].join('; ');
}
