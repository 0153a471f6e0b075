/** What the process tells of itself: gauges read at each scrape, counters of runs, and the parts that make it ready. */
import type { ErrorCode } from '../errors.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Outbox } from '../outbox/outbox.ts';
import type { RunObservation } from '../runs/execute-run.ts';
import type { Health } from '../sidecar/deps.ts';
import type { Store } from '../store/store.ts';

export function readDepths({ inbox, outbox, scheduler, now }: { inbox: Inbox; outbox: Outbox; scheduler: number; now: number }) {
  const depth = inbox.depth();
  return {
    inboxReady: depth.rows,
    inboxDead: depth.dead,
    inboxOldestAgeMs: depth.oldestReceivedAt === null ? 0 : now - depth.oldestReceivedAt,
    outboxReady: outbox.depth(),
    outboxParked: outbox.parked(),
    runsActive: scheduler,
  };
}

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

export interface Parts {
  /** Accounts exist and the homeserver answered. */
  readonly account: boolean;
  /** The last request to the homeserver was answered. */
  readonly homeserver: boolean;
  readonly agent: boolean;
}

/** Ready means: what arrives now is stored, worked on and answered. */
export function readHealth(store: Store, outbox: Outbox, { account, homeserver, agent }: Parts): Health {
  const parked = outbox.parked();
  const parts = [
    { name: 'database', ok: store.writable(), ...(store.writable() ? {} : { detail: 'the database cannot be written' }) },
    { name: 'account', ok: account, ...(account ? {} : { detail: 'the accounts on the homeserver are not there yet' }) },
    { name: 'homeserver', ok: homeserver, ...(homeserver ? {} : { detail: 'the homeserver does not answer' }) },
    { name: 'agent', ok: agent, ...(agent ? {} : { detail: 'the agent is still loading' }) },
    // Shown, but no reason to be taken out of service: other events flow.
    { name: 'outbox', ok: true, ...(parked === 0 ? {} : { detail: `${parked} events were refused by the homeserver` }) },
  ];
  return { live: true, ready: parts.every(({ ok }) => ok), parts };
}
