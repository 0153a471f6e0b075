/**
 * Everything that works on what the endpoint has stored: accounts, rooms, admission, runs, the outbox's sender, reconciliation and the
 * sidecar. Loaded after the endpoint listens, so an import that takes half a second costs no transaction its 200. Nothing here waits for the
 * homeserver before it is useful: a homeserver that is down is waited for in `ready`, while portals and viewers are served.
 */
import { randomBytes, randomInt } from 'node:crypto';
import { ensureAccountWhenUp, putDevice, syncDeviceOf } from '../../appservice/account.ts';
import { connectMatrix } from '../../appservice/client.ts';
import { createFindSent } from '../../appservice/find-sent.ts';
import { createOrphans } from '../../appservice/interrupt-orphans.ts';
import { createMatrixAccess } from '../../appservice/matrix-access.ts';
import { createMedia } from '../../appservice/media.ts';
import { createOpenOwn } from '../../appservice/open-event.ts';
import { createPing } from '../../appservice/ping.ts';
import { createReplyProjection } from '../../appservice/reply/reply-projection.ts';
import { createRoomActions } from '../../appservice/room-actions.ts';
import { createRooms, forgetChanged } from '../../appservice/rooms.ts';
import { createSender } from '../../appservice/sender.ts';
import { createReconciler } from '../../appservice/sync.ts';
import { isTrustedServer, mayUse } from '../admission/access.ts';
import { createKnownRooms } from '../admission/known-rooms.ts';
import { type Config, forgetTracing } from '../config.ts';
import { createCredits } from '../credits/credits.ts';
import { createRunIds, type UserId } from '../ids.ts';
import { createDispatcher } from '../inbox/dispatcher.ts';
import type { Inbox, IncomingEvent } from '../inbox/inbox.ts';
import { createReconcileStore } from '../inbox/reconcile-store.ts';
import type { Logger } from '../observe/logger.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createOutbox } from '../outbox/outbox.ts';
import { parkReasonOf } from '../outbox/park-reason.ts';
import type { CreditPolicy } from '../plugin-api/define-oracle-plugin.ts';
import { createAskedEncrypted } from '../runs/asked-encrypted.ts';
import type { ExecuteOptions } from '../runs/execute-run.ts';
import { createFrameReader } from '../runs/frames.ts';
import { createInputs } from '../runs/inputs.ts';
import { createRuns } from '../runs/ledger.ts';
import { createReplacing } from '../runs/replace.ts';
import { createScheduler } from '../runs/scheduler.ts';
import { createViewers } from '../runs/viewers.ts';
import { buildPluginStorage } from '../runtime-context/storage-group.ts';
import { createRoomSettings } from '../sessions/room-settings.ts';
import { createSessions } from '../sessions/sessions.ts';
import { createTranscript } from '../sessions/transcript.ts';
import { readAuthorisePage } from '../sidecar/pages/read-pages.ts';
import type { AbilityToAsk } from '../sidecar/routes/authorise.ts';
import { createSidecar } from '../sidecar/sidecar.ts';
import { type Clock, sleep } from '../time.ts';
import { createJudgeAccess } from '../turn/judge-access.ts';
import { createRunAuthority } from '../turn/run-authority.ts';
import { assertSafeDecoder } from '../ucan/decoder-self-test.ts';
import { verifyLegacy } from '../ucan/legacy-invocation.ts';
import { createAdmission } from './admission.ts';
import { createAuthority } from './authority.ts';
import { dataPaths } from './data-paths.ts';
import { createEncryption, type Encryption } from './encryption.ts';
import { eraseTakenBack } from './erase-taken-back.ts';
import { createForgetOrder, FORGET_ORDER } from './forget-order.ts';
import { eraserOf } from './forget-person.ts';
import { keepHouse } from './keep-house.ts';
import type { Agent } from './load-agent.ts';
import { openPlugins } from './load-plugins.ts';
import { obeyControl } from './obey-control.ts';
import { countResumes, observeRun, readDepths, readHealth } from './observe-work.ts';
import type { Data } from './open-data.ts';
import type { PluginOptions } from './plugin-options.ts';
import { openPluginServices } from './plugin-services.ts';
import { createPortal } from './portal.ts';
import { createRunOrders } from './run-orders.ts';
import { StartRefused } from './start-refused.ts';
import { HomeserverDown, tellOutage } from './tell-outage.ts';
import { createTurnChecks } from './turn-checks.ts';

export interface WorkOptions extends PluginOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly clock: Clock;
  readonly data: Data;
  readonly inbox: Inbox;
  readonly metrics: Metrics;
  readonly appserviceUrl: string;
  /** The process must end now. */
  readonly onFatal: (reason: string) => void;
}
export interface Work {
  readonly sidecarUrl: string;
  readonly ready: Promise<void>;
  pinged(transactionId: string | null): void;
  /** Pushed events, before anybody works on them. */
  arrived(events: readonly IncomingEvent[]): void;
  /** Keys that came with a transaction; resolves when they are on disk. */
  readonly receiveKeys: Encryption['receiveKeys'];
  homeserverIsUp(): void;
  stop(): Promise<void>;
}

const DRAIN_MS = 10_000;
const MAX_ROOMS_AT_ONCE = 64;
/** How long the start waits for the first look at what was missed. */
const RECONCILE_FIRST_MS = 10_000;
const DAY_MS = 24 * 60 * 60_000;

export async function startWork(options: WorkOptions): Promise<Work> {
  const { config, logger, clock, data, inbox, metrics, appserviceUrl } = options;
  assertSafeDecoder();
  const { store, fence } = data;
  const now = () => clock.now();
  const ending = new AbortController();
  const oracle = config.oracleUserId;
  const oracleDid = config.oracleDid;
  const entityDid = config.oracleEntityDid;
  const identity = { userId: oracle, deviceId: config.matrixDeviceId };
  const authority = await createAuthority({ config, store, clock, logger });
  const { rules, links, grants, verifier, registerGrant } = authority;

  const onSkipped = (reason: string) => metrics.admission('skipped', reason);
  const host = await openPlugins(options, {
    identity: { name: config.oracleName, did: oracleDid, entityDid: entityDid ?? null },
    logger,
    clock,
  });
  const connection = await connectMatrix({ baseUrl: config.matrixBaseUrl, asToken: config.matrixAsToken.reveal(), clock });
  const api = connection.as(identity);
  /** Up to the end of this function nothing runs that a failed start would have to stop, but these. */
  async function failed(error: unknown): Promise<never> {
    await Promise.allSettled([connection.close(), host.close()]);
    throw error;
  }
  const outbox = createOutbox({ store, identity: { sender: oracle, deviceId: config.matrixDeviceId } });
  const rooms = createRooms({ api, store, oracle, clock, logger });
  const actions = createRoomActions({ api, rooms, oracle, clock, receive: (events) => inbox.receive(events), logger, onSkipped });
  const encryption = createEncryption({ config, connection, store, outbox, rules, clock, logger, newId, onFatal: options.onFatal });
  const { read } = encryption;
  const media = createMedia({ api, rooms, attachments: encryption.attachments });
  const matrix = createMatrixAccess({ api, outbox, store, rooms, clock, read, media });
  const services = await openPluginServices({ config, host, store, matrix, signing: authority.signing, clock, logger }).catch(failed);
  const credits = createCredits({ store, policy: () => planCreditPolicy(host.creditPolicy, config.access) });
  const ping = createPing({ api: connection.bare, registrationId: config.matrixRegistrationId, url: appserviceUrl, newId });

  let agent: Agent | null = null;
  const sessions = createSessions({ store });
  const transcript = createTranscript({ store });
  const settings = createRoomSettings({ store });
  const runs = createRuns({ store, fence });
  const newRunId = createRunIds(runs.newest());
  const inputs = createInputs({ store, runs, newRunId });
  const replacing = createReplacing({ store, runs });
  const frames = createFrameReader({ store });
  const runDeadlineMs = config.runDeadlineS * 1_000;
  const checks = createTurnChecks({
    config,
    authority,
    store,
    sessions,
    runs,
    inputs,
    replacing,
    settings,
    transcript,
    credits,
    clock,
    metrics,
    newRunId,
    onInterrupt: (session, run) => void scheduler.cancel(session, run),
  });

  const known = createKnownRooms({ store });
  const viewers = createViewers({ store, frames, clock });
  const reply = createReplyProjection({
    outbox,
    store,
    clock,
    logger,
    typing: actions.typing,
    isFederated: rooms.isFederated,
    holds: runs.holds,
  });
  const parts = { account: false, homeserver: false, agent: false };
  let execute: ExecuteOptions | null = null;
  const scheduler = createScheduler({
    store,
    runs,
    clock,
    logger,
    execute: () => execute,
    maxConcurrentRuns: config.maxConcurrentRuns,
    runDeadlineMs,
  });
  const runAuthority = createRunAuthority({ grants, runs, scheduler });
  const onRevoked = runAuthority.stopRestingOn;
  const sender = createSender({
    outbox,
    connection,
    clock,
    logger,
    onSent: (row, eventId, durationMs) => {
      if (row.edits_txn !== null) metrics.editSent();
      encryption.sent(row.txn_id, eventId);
      reply.onSent(row, eventId, durationMs);
    },
    onParked: (_row, reason) => metrics.parked(parkReasonOf(reason)),
    encryption: rooms.encryption,
    askedEncrypted: createAskedEncrypted({ store }),
    seal: encryption.seal,
    findSent: createFindSent({ api: connection.as({ userId: oracle }), outbox, oracle }),
    restoreDevice: () => putDevice(connection, { userId: oracle, deviceId: config.matrixDeviceId, name: config.oracleName }),
    onOutage: () => {
      parts.homeserver = false;
    },
    onRecovered: () => {
      parts.homeserver = true;
      void reconciler.run();
    },
  });
  /** Pushed or found by reconciliation, before their turn comes. */
  function sawEvents(events: readonly IncomingEvent[]): void {
    forgetChanged(events, rooms);
    // A secret that was taken back is given to nobody any more.
    for (const { type, roomId } of events) if (type === 'm.room.redaction') services.secrets.forget(roomId);
  }
  const reconciler = createReconciler({
    api: connection.as({ userId: oracle, deviceId: syncDeviceOf(config.matrixDeviceId) }),
    store: createReconcileStore({ store, inbox, clock, oracle }),
    orphans: createOrphans({ api, store, outbox, oracle, clock, read }),
    openOwn: createOpenOwn({ read, outbox, oracle }),
    onRead: sawEvents,
    oracle,
    clock,
    logger,
    intervalMs: config.reconcileIntervalS * 1_000,
    newId,
    onSkipped,
    onFound: (count) => metrics.reconciled(count),
    onGapClosed: (room) => dispatcher.nudge(room),
  });
  connection.onClosed?.(reconciler.suspect);
  const trusts = (user: UserId) => isTrustedServer(user, rules);
  const { admit, parkedWatch } = createAdmission({
    config,
    authority,
    encryption,
    store,
    inbox,
    outbox,
    rooms,
    actions,
    known,
    runs,
    inputs,
    replacing,
    settings,
    scheduler,
    transcript,
    credits,
    checks,
    clock,
    logger,
    metrics,
    onRevoked,
    newId,
    signal: ending.signal,
  });
  const dispatcher = createDispatcher({
    inbox,
    store,
    clock,
    logger,
    handle: (row) => tellOutage(api, () => admit.handle(row)),
    isOutage: (error) => error instanceof HomeserverDown,
    giveUp: (row) => admit.giveUp(row),
    heldUntil: (room) => reconciler.heldUntil(room),
    maxRooms: MAX_ROOMS_AT_ONCE,
  });
  metrics.watch(async () => {
    const keyStore = await encryption.status();
    return readDepths({ store, inbox, outbox, scheduler: scheduler.active(), now: now(), keyStore });
  });
  let stopping = false;
  async function start(): Promise<void> {
    forgetTracing();
    const loading = import('./load-agent.ts');
    const account = await ensureAccountWhenUp(connection, {
      localpart: config.matrixOracleLocalpart,
      deviceId: config.matrixDeviceId,
      name: config.oracleName,
      serverName: config.matrixServerName,
      clock,
      signal: ending.signal,
      onNewDevice: async () => {
        const count = await outbox.loseDevice(config.matrixDeviceId);
        if (count > 0)
          logger.warn({ count }, 'the device is new on the homeserver; what was sent from it before is looked for in the rooms');
      },
      onWaiting: ({ code, remedy }, attempt) => logger.warn({ code, reason: remedy, attempt }, 'waiting for the homeserver'),
    });
    if (!account.ok) throw new StartRefused(account.error.remedy, { cause: account.error.cause });
    parts.account = true;
    parts.homeserver = true;
    sender.start();
    // Before any room is joined: clients give their keys to a device that its owner has signed.
    await encryption.open(ending.signal);
    // Before anything is admitted: what the room shows as answered must not be answered again (a lost database), and what was missed while
    // we were away comes before what is said now. A homeserver that cannot tell in time delays nobody: the rest is found later.
    await firstOf(reconciler.start(), { clock, withinMs: RECONCILE_FIRST_MS });
    // A stop may have come while we waited: nothing is taken up any more.
    if (stopping) return;
    parkedWatch.start();
    dispatcher.start();
    const [{ loadAgent }] = await Promise.all([loading, reportPing(ping, logger)]);
    agent = loadAgent({
      config,
      host,
      services,
      spending: credits,
      ...(options.environment === undefined ? {} : { environment: options.environment }),
      ...(options.hooks === undefined ? {} : { hooks: options.hooks }),
      store,
      clock,
      logger,
      transcript,
      matrix,
      links,
      authority: runAuthority,
      downstream: authority.downstream,
      checkpointFolder: dataPaths(config.dataDir).checkpoints,
      chance: () => randomInt(2 ** 32) / 2 ** 32,
    });
    execute = {
      store,
      runs,
      inputs,
      frames,
      transcript,
      clock,
      logger,
      projections: [reply, viewers, countResumes(metrics)],
      runner: agent.runner,
      authority: runAuthority,
      observe: (event) => observeRun(metrics, event),
    };
    parts.agent = true;
    scheduler.wake();
    logger.info({ user_id: oracle }, 'ready');
  }
  const portal = createPortal({ store, outbox, api, known, links, clock, oracleName: config.oracleName, newId, ending: ending.signal });
  const sidecar = createSidecar({
    identity: { name: config.oracleName, did: oracleDid, entityDid: entityDid ?? null },
    store,
    turn: checks,
    runs,
    frames,
    viewers,
    sessions,
    transcript,
    links,
    grants,
    registerGrant,
    authoriseLinks: authority.authoriseLinks,
    authorisePage: readAuthorisePage(),
    abilitiesToAsk: () => [...config.grantAbilities.map(readAbilityToAsk), ...(agent?.abilitiesToAsk ?? [])],
    onRevoked,
    verify: verifier.invocation,
    verifyLegacy: config.httpLegacyAuth ? (token) => verifyLegacy(token, { verify: verifier.grant, oracleDid, now: now() }) : null,
    isTrustedServer: trusts,
    mayUse: (user, did) => mayUse(user, rules, true) && (rules.access !== 'granted' || authority.useGrants.has(did)),
    rooms,
    scheduler,
    ...portal,
    wakeScheduler: () => {
      scheduler.wake();
      outbox.wake();
    },
    health: () => readHealth(store, outbox, { ...parts, encryption: encryption.health(), plugins: host.status() }),
    models: () => ({ ids: agent?.models.listModels().map(({ id }) => id) ?? [config.modelMain], default: config.modelMain }),
    observeRefusal: (code) => metrics.error(code),
    clock,
    logger,
    newRequestId: newId,
    plugins: {
      routes: host.routes,
      storageOf: (plugin, did) =>
        buildPluginStorage({
          store: services.storage,
          owner: { plugin, principal: did },
          isTainted: () => false,
          readsForeign: () => undefined,
        }),
    },
    options: { corsOrigins: config.corsOrigin, trustedProxies: config.trustedProxies },
  });
  const sidecarUrl = await sidecar.listen({ host: config.host, port: config.port }).catch(failed);
  logger.info({ port: Number(new URL(sidecarUrl).port) }, 'listening for portals');
  const erase = eraserOf(dataPaths(config.dataDir));
  const eraser = eraseTakenBack({ store, clock, logger, eraseCheckpoints: erase });
  const house = keepHouse({
    store,
    inbox,
    grants,
    blobs: services.blobs,
    clock,
    logger,
    retentionMs: config.retentionDays * DAY_MS,
    removeIdleCheckpoints: (before) => agent?.runner.removeIdleCheckpoints({ before, keep: runs.unfinishedOwners() }) ?? 0,
  });
  const control = obeyControl({
    store,
    inbox,
    clock,
    logger,
    nudge: (room) => dispatcher.nudge(room),
    orders: {
      ...createRunOrders({ store, runs, scheduler, authority: runAuthority, judgeAccess: createJudgeAccess(authority), clock, newRunId }),
      [FORGET_ORDER]: createForgetOrder({ store, runs, scheduler, clock, eraseCheckpoints: erase }),
    },
  });
  const ready = start();

  return {
    sidecarUrl,
    ready,
    pinged: (id) => ping.seen(id),
    arrived: sawEvents,
    receiveKeys: encryption.receiveKeys,
    homeserverIsUp() {
      sender.nudge();
      reconciler.nudge();
    },
    async stop() {
      stopping = true;
      await reconciler.stop();
      await parkedWatch.stop();
      await dispatcher.stop();
      await scheduler.stop(DRAIN_MS);
      ending.abort(new Error('shutting down'));
      await ready.catch(() => undefined);
      await sidecar.close();
      await sender.stop();
      await encryption.stop();
      house.stop();
      eraser.stop();
      control.stop();
      await connection.close();
      await authority.close();
      agent?.runner.close();
      await agent?.models.close();
      await host.close();
    },
  };
}

/** Waits for the work, but no longer than so; the timer ends with the wait, so that it holds up no exit. */
async function firstOf(work: Promise<unknown>, { clock, withinMs }: { clock: Clock; withinMs: number }): Promise<void> {
  const waiting = new AbortController();
  const timeUp = sleep(clock, withinMs, waiting.signal).catch(() => undefined);
  await Promise.race([work, timeUp]);
  waiting.abort();
}

/** Identities cost nothing where everybody may come: nobody is given anything for making another one. */
const planCreditPolicy = (policy: CreditPolicy | null, access: Config['access']): CreditPolicy | null =>
  policy !== null && access === 'open' ? { ...policy, initial: 0 } : policy;

/** An entry of GRANT_ABILITIES, `<ability> <resource>`; its form was checked with the settings. */
function readAbilityToAsk(entry: string): AbilityToAsk {
  const [can = '', resource = ''] = entry.split(' ');
  return { can, with: resource, title: `use ${can} on ${resource}` };
}

const newId = (): string => randomBytes(12).toString('base64url');

async function reportPing(ping: ReturnType<typeof createPing>, logger: Logger): Promise<void> {
  const outcome = await ping.send();
  if (outcome.kind === 'reached')
    logger.info({ ...(outcome.durationMs === null ? {} : { duration_ms: outcome.durationMs }) }, 'the homeserver reaches us');
  else logger.error({ code: outcome.kind, reason: outcome.remedy }, 'the homeserver does not reach us');
}
