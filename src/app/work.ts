/**
 * Everything that works on what the endpoint has stored: accounts, rooms, admission, runs, the outbox's sender, reconciliation and the
 * sidecar. Loaded after the endpoint listens, so an import that takes half a second costs no transaction its 200. Nothing here waits for the
 * homeserver before it is useful: a homeserver that is down is waited for in `ready`, while portals and viewers are served.
 */
import { randomBytes } from 'node:crypto';
import { type Account, ensureAccountWhenUp, syncDeviceOf } from '../../appservice/account.ts';
import { connectMatrix } from '../../appservice/client.ts';
import { createMatrixAccess } from '../../appservice/matrix-access.ts';
import { createPing } from '../../appservice/ping.ts';
import { readInboxItem } from '../../appservice/read-inbox-item.ts';
import { createReplyProjection } from '../../appservice/reply/reply-projection.ts';
import { createRoomActions } from '../../appservice/room-actions.ts';
import { createRooms } from '../../appservice/rooms.ts';
import { createSender } from '../../appservice/sender.ts';
import type { AccessRules } from '../admission/access.ts';
import { isTrustedServer } from '../admission/access.ts';
import { createAdmit } from '../admission/admit.ts';
import { createFloodGuard } from '../admission/flood.ts';
import { createKnownRooms } from '../admission/known-rooms.ts';
import { createNotices } from '../admission/notices.ts';
import type { Config } from '../config.ts';
import { createRunIds, parseDid } from '../ids.ts';
import { createDispatcher } from '../inbox/dispatcher.ts';
import type { Inbox } from '../inbox/inbox.ts';
import { LIMITS } from '../limits.ts';
import type { Logger } from '../observe/logger.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createOutbox } from '../outbox/outbox.ts';
import type { ExecuteOptions, RunObservation } from '../runs/execute-run.ts';
import { createFrameReader } from '../runs/frames.ts';
import { createRuns } from '../runs/ledger.ts';
import { createScheduler } from '../runs/scheduler.ts';
import { createSessions } from '../sessions/sessions.ts';
import { createTranscript } from '../sessions/transcript.ts';
import type { Clock } from '../time.ts';
import { createAuthenticate } from '../turn/authenticate.ts';
import { createCheckBalance } from '../turn/check-balance.ts';
import { createLinks } from '../turn/links.ts';
import { createOpen } from '../turn/open.ts';
import { createThrottle } from '../turn/throttle.ts';
import type { TurnChecks } from '../turn/turn.ts';
import { assertSafeDecoder } from '../ucan/decoder-self-test.ts';
import { verifyInvocation } from '../ucan/verify-invocation.ts';
import { dataPaths } from './data-paths.ts';
import { keepHouse } from './keep-house.ts';
import { obeyControl } from './obey-control.ts';
import type { Data } from './open-data.ts';
import { createGreeting, createNoticeWords } from './room-words.ts';
import { StartRefused } from './start-refused.ts';

export interface WorkOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly data: Data;
  readonly inbox: Inbox;
  readonly metrics: Metrics;
  readonly appserviceUrl: string;
}
export interface Work {
  readonly sidecarUrl: string;
  readonly ready: Promise<void>;
  pinged(transactionId: string | null): void;
  homeserverIsUp(): void;
  stop(): Promise<void>;
}

const DRAIN_MS = 10_000;
const MAX_ROOMS_AT_ONCE = 64;
const DAY_MS = 24 * 60 * 60_000;

export async function startWork({ config, logger, clock, data, inbox, metrics, appserviceUrl }: WorkOptions): Promise<Work> {
  assertSafeDecoder();
  const { store, fence } = data;
  const now = () => clock.now();
  const ending = new AbortController();
  const oracle = config.oracleUserId;
  const oracleDid = readOracleDid(config);
  const identity = { userId: oracle, deviceId: config.matrixDeviceId };
  const rules: AccessRules = {
    access: config.access,
    trustedHomeservers: config.trustedHomeservers,
    allowedUsers: config.allowedUsers,
    unsignedUsers: config.unsignedUsers,
  };

  const connection = await connectMatrix({ baseUrl: config.matrixBaseUrl, asToken: config.matrixAsToken.reveal(), clock });
  const api = connection.as(identity);
  const outbox = createOutbox({ store, identity: { sender: oracle, deviceId: config.matrixDeviceId } });
  const rooms = createRooms({ api, store, oracle, clock, logger });
  const actions = createRoomActions({ api, rooms, oracle, receive: (events) => inbox.receive(events), logger });
  const matrix = createMatrixAccess({ api, outbox, store, rooms, clock });
  const ping = createPing({ api: connection.bare, registrationId: config.matrixRegistrationId, url: appserviceUrl, newId });

  const sessions = createSessions({ store });
  const transcript = createTranscript({ store });
  const runs = createRuns({ store, fence });
  const frames = createFrameReader({ store });
  const links = createLinks({ store });
  const rule = { limit: config.rateLimit, windowMs: config.rateLimitWindowS * 1_000 };
  const maxLatenessMs = config.maxEventLatenessS * 1_000;
  const checks: TurnChecks = {
    authenticate: createAuthenticate({ oracleDid, rules, maxLatenessMs, verify: verifyInvocation, links, store, now }),
    checkBalance: createCheckBalance({ ledger: null }),
    throttle: createThrottle({ store, rule, now }),
    open: createOpen({ store, sessions, runs, transcript, links, rule, now, newRunId: createRunIds() }),
    observe: (stage, durationMs) => metrics.stage(stage, durationMs),
    monotonic: () => clock.monotonic(),
  };

  const reply = createReplyProjection({ outbox, store, clock, logger, typing: actions.typing, isFederated: rooms.isFederated, holds: runs.holds });
  let execute: ExecuteOptions | null = null;
  const scheduler = createScheduler({
    store,
    runs,
    clock,
    logger,
    execute: () => execute,
    maxConcurrentRuns: config.maxConcurrentRuns,
    runDeadlineMs: config.runDeadlineS * 1_000,
  });
  const sender = createSender({
    outbox,
    connection,
    clock,
    logger,
    onSent: (row, eventId, durationMs) => {
      if (row.edits_txn !== null) metrics.editSent();
      reply.onSent(row, eventId, durationMs);
    },
  });
  const admit = createAdmit({
    store,
    inbox,
    rooms,
    actions,
    known: createKnownRooms({ store }),
    runs,
    scheduler,
    transcript,
    notices: createNotices({ store, outbox, words: createNoticeWords({ oracleDid, oracleEntityDid: undefined }), now, signal: ending.signal }),
    checks,
    flood: createFloodGuard({ isTrusted: (user) => isTrustedServer(user, rules) }),
    logger,
    now,
    readItem: (row) => {
      const item = readInboxItem(row.event, oracle);
      return item.ok ? item : { ok: false, error: item.error.reason };
    },
    greet: createGreeting({ outbox, name: config.oracleName, userId: oracle, now }),
    newRequestId: newId,
    observe: (outcome, reason) => metrics.admission(outcome, reason),
    oracle,
    oracleName: config.oracleName,
    rules,
    maxLatenessMs,
    retentionMs: config.retentionDays * DAY_MS,
    commandPrefix: config.commandPrefix,
    botHopBudget: config.botHopBudget,
  });
  const dispatcher = createDispatcher({
    inbox,
    store,
    clock,
    logger,
    handle: (row) => admit.handle(row),
    giveUp: (row) => admit.giveUp(row),
    heldUntil: () => null,
    maxRooms: MAX_ROOMS_AT_ONCE,
  });
  metrics.watch(() => readDepths({ inbox, outbox, scheduler: scheduler.active(), now: now() }));
  const house = keepHouse({ store, inbox, clock, logger, retentionMs: config.retentionDays * DAY_MS });
  const control = obeyControl({ store, inbox, clock, logger, nudge: (room) => dispatcher.nudge(room) });

  async function start(): Promise<void> {
    const loading = import('./load-agent.ts');
    const account = await ensureAccountWhenUp(connection, {
      localpart: config.matrixOracleLocalpart,
      deviceId: config.matrixDeviceId,
      name: config.oracleName,
      serverName: config.matrixServerName,
      clock,
      signal: ending.signal,
      onWaiting: ({ code, remedy }, attempt) => logger.warn({ code, reason: remedy, attempt }, 'waiting for the homeserver'),
    });
    if (!account.ok) throw new StartRefused(account.error.remedy, { cause: account.error.cause });
    sender.start();
    dispatcher.start();
    await reportPing(ping, logger);
    const { loadAgent } = await loading;
    const agent = loadAgent({ config, store, clock, logger, transcript, matrix, checkpointFolder: dataPaths(config.dataDir).checkpoints, chance: Math.random });
    execute = { store, runs, frames, transcript, clock, logger, projections: [reply], runner: agent.runner, observe: (event) => observeRun(metrics, event) };
    scheduler.wake();
    logger.info({ user_id: oracle }, 'ready');
  }
  const ready = start();

  return {
    sidecarUrl: '',
    ready,
    pinged: (id) => ping.seen(id),
    homeserverIsUp: () => sender.nudge(),
    async stop() {
      await dispatcher.stop();
      await scheduler.stop(DRAIN_MS);
      ending.abort(new Error('shutting down'));
      await ready.catch(() => undefined);
      await sender.stop();
      house.stop();
      control.stop();
      await connection.close();
    },
  };
}

const newId = (): string => randomBytes(12).toString('base64url');

function readOracleDid(config: Config) {
  const did = parseDid(config.oracleDid);
  if (!did.ok) throw new StartRefused('ORACLE_DID is not a DID: set it to the DID of the oracle, or leave it out and set ORACLE_KEY_FILE.');
  return did.value;
}

async function reportPing(ping: ReturnType<typeof createPing>, logger: Logger): Promise<void> {
  const outcome = await ping.send();
  if (outcome.kind === 'reached') logger.info({ ...(outcome.durationMs === null ? {} : { duration_ms: outcome.durationMs }) }, 'the homeserver reaches us');
  else logger.error({ code: outcome.kind, reason: outcome.remedy }, 'the homeserver does not reach us');
}

function readDepths({ inbox, outbox, scheduler, now }: { inbox: Inbox; outbox: ReturnType<typeof createOutbox>; scheduler: number; now: number }) {
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

function observeRun(metrics: Metrics, event: RunObservation): void {
  switch (event.kind) {
    case 'model_called':
      return metrics.stage('queue', event.sinceCreatedMs);
    case 'first_text':
      return metrics.firstToken(event.sinceCreatedMs);
    case 'ended':
      metrics.runEnded(event.status);
      if (event.code !== null) metrics.error(event.code);
      if (event.usage !== null) {
        metrics.tokens('input', event.usage.inputTokens);
        metrics.tokens('output', event.usage.outputTokens);
      }
  }
}

export type { Account };
void syncDeviceOf;
void LIMITS;
