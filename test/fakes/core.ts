/**
 * The core wired as `startWork` does it, with a fake clock, fake rooms, a scripted runner and the real database: from an inbox row to the
 * outbox, without a homeserver or a model. A test changes the options it is about.
 */
import { createHash } from 'node:crypto';
import { readInboxItem } from '../../appservice/read-inbox-item.ts';
import { type AccessRules, isTrustedServer } from '../../src/admission/access.ts';
import { type AdmitOptions, createAdmit } from '../../src/admission/admit.ts';
import { createFloodGuard } from '../../src/admission/flood.ts';
import { createKnownRooms } from '../../src/admission/known-rooms.ts';
import { createNotices } from '../../src/admission/notices.ts';
import { createParkedWatch } from '../../src/admission/parked-watch.ts';
import { createBlobs } from '../../src/blob-store/blobs.ts';
import { createAuthorisePage } from '../../src/commands/authorise-page.ts';
import { createCommands } from '../../src/commands/commands.ts';
import { createOwnGrants } from '../../src/commands/own-grants.ts';
import { createCredits } from '../../src/credits/credits.ts';
import { createRunIds, type DeviceId, type Did, type RoomId } from '../../src/ids.ts';
import { createInbox, type InboxRow, type IncomingEvent } from '../../src/inbox/inbox.ts';
import { createParked } from '../../src/inbox/parked.ts';
import { createOutbox } from '../../src/outbox/outbox.ts';
import type { CreditPolicy } from '../../src/plugin-api/define-oracle-plugin.ts';
import { err, ok } from '../../src/result.ts';
import { createControl } from '../../src/runs/control.ts';
import type { ExecuteOptions, RunObservation } from '../../src/runs/execute-run.ts';
import { createFrameReader } from '../../src/runs/frames.ts';
import { createInputs } from '../../src/runs/inputs.ts';
import { createRuns } from '../../src/runs/ledger.ts';
import { createReplacing } from '../../src/runs/replace.ts';
import { createScheduler } from '../../src/runs/scheduler.ts';
import { createRoomSettings } from '../../src/sessions/room-settings.ts';
import { createSessions } from '../../src/sessions/sessions.ts';
import { createTranscript } from '../../src/sessions/transcript.ts';
import type { Store } from '../../src/store/store.ts';
import { createAuthenticate } from '../../src/turn/authenticate.ts';
import { createCheckBalance } from '../../src/turn/check-balance.ts';
import { createLinks } from '../../src/turn/links.ts';
import { createOpen } from '../../src/turn/open.ts';
import { createRunAuthority } from '../../src/turn/run-authority.ts';
import { createThrottle } from '../../src/turn/throttle.ts';
import type { TurnChecks } from '../../src/turn/turn.ts';
import { createAuthoriseLinks } from '../../src/ucan/authorise-links.ts';
import { createVerifier } from '../../src/ucan/chain.ts';
import type { DidKeys, ResolveKeys } from '../../src/ucan/did/resolve-keys.ts';
import { createGrants } from '../../src/ucan/grants.ts';
import { createRegisterGrant } from '../../src/ucan/register-grant.ts';
import { keyFromSeed } from '../../src/ucan/signing-key.ts';
import { createUseGrants } from '../../src/ucan/use-grants.ts';
import { ALICE, ORACLE, ROOM } from './events.ts';
import { type FakeClock, fakeClock } from './fake-clock.ts';
import { fakeLogger } from './fake-logger.ts';
import { fakeReveal } from './fake-reveal.ts';
import { fakeRooms } from './fake-rooms.ts';
import { memoryStore } from './memory-store.ts';
import { recordingProjection } from './recording-projection.ts';
import { scriptedRunner } from './scripted-runner.ts';

const keyOf = (name: string) => keyFromSeed(createHash('sha256').update(name).digest());
export const ORACLE_KEY = keyOf('oracle');
export const ALICE_KEY = keyOf('alice');
export const MALLORY_KEY = keyOf('mallory');

const RUN_DEADLINE_MS = 300_000;

export interface CoreOptions {
  readonly store?: Store;
  readonly clock?: FakeClock;
  readonly fence?: number;
  readonly rules?: Partial<AccessRules>;
  readonly rate?: { readonly limit: number; readonly windowMs: number };
  /** Without it everybody is answered for nothing. */
  readonly policy?: CreditPolicy;
  readonly maxConcurrentRuns?: number;
  readonly admit?: Partial<AdmitOptions>;
  /** PUBLIC_URL; there is an authorise page unless it is null. */
  readonly publicUrl?: string | null;
}

export type Core = ReturnType<typeof buildCore>;

export function buildCore(options: CoreOptions = {}) {
  const store = options.store ?? memoryStore();
  const clock = options.clock ?? fakeClock();
  const fence = options.fence ?? 1;
  const logger = fakeLogger();
  const rooms = fakeRooms();
  const credits = createCredits({ store, policy: () => options.policy ?? null });
  const runner = scriptedRunner();
  const projection = recordingProjection();
  const observed: RunObservation[] = [];
  const admitted: string[] = [];
  const greeted: RoomId[] = [];
  const now = () => clock.now();
  const rules: AccessRules = {
    access: 'own-server',
    trustedHomeservers: ['example.org'],
    allowedUsers: [],
    unsignedUsers: ['@*:example.org'],
    ...options.rules,
  };
  const rule = options.rate ?? { limit: 1_000, windowMs: 60_000 };
  const inbox = createInbox({ store, clock, oracle: ORACLE, fence });
  const outbox = createOutbox({ store, identity: { sender: ORACLE, deviceId: 'ORACLE' as DeviceId } });
  const sessions = createSessions({ store });
  const transcript = createTranscript({ store });
  const settings = createRoomSettings({ store });
  const runs = createRuns({ store, fence });
  const frames = createFrameReader({ store });
  const links = createLinks({ store });
  const known = createKnownRooms({ store });
  const newRunId = createRunIds(runs.newest());
  const inputs = createInputs({ store, runs, newRunId });
  const replacing = createReplacing({ store, runs });
  const grants = createGrants({ store });
  /** What DIDs resolve to, beside did:key. */
  const documents = new Map<Did, DidKeys>();
  const keysOf: ResolveKeys = async (did) => {
    const keys = documents.get(did);
    return keys === undefined ? err('DID_NOT_RESOLVED') : ok(keys);
  };
  const verifier = createVerifier({ findToken: grants.findToken, keysOf, isRevoked: grants.isRevoked, now });
  let nonces = 0;
  const authoriseLinks = createAuthoriseLinks({
    store,
    newNonce: () => createHash('sha256').update(`nonce ${++nonces}`).digest().subarray(0, 16).toString('base64url'),
  });
  const useGrants = createUseGrants({ store });
  const registerGrant = createRegisterGrant({
    store,
    grants,
    links,
    authoriseLinks,
    verify: verifier.grant,
    oracleDids: () => [ORACLE_KEY.did],
    isTrustedServer: (user) => isTrustedServer(user, rules),
    now,
  });
  const checks: TurnChecks = {
    authenticate: createAuthenticate({
      oracleDid: ORACLE_KEY.did,
      rules,
      maxLatenessMs: 15 * 60_000,
      runDeadlineMs: RUN_DEADLINE_MS,
      verify: verifier.invocation,
      keysOf,
      grants,
      registerGrant,
      useGrants,
      links,
      store,
      now,
    }),
    checkBalance: createCheckBalance({ credits }),
    throttle: createThrottle({ store, rule, now }),
    open: createOpen({
      store,
      sessions,
      runs,
      inputs,
      replacing,
      settings,
      transcript,
      links,
      grants,
      credits,
      rule,
      now,
      newRunId,
      onInterrupt: (session, run) => void scheduler.cancel(session, run),
    }),
    observe: () => undefined,
    monotonic: () => clock.monotonic(),
  };
  const execute: ExecuteOptions = {
    store,
    runs,
    inputs,
    frames,
    transcript,
    clock,
    logger,
    projections: [projection],
    runner,
    get authority() {
      return authority;
    },
    observe: (event) => void observed.push(event),
  };
  const scheduler = createScheduler({
    store,
    runs,
    clock,
    logger,
    execute: () => core.execute,
    maxConcurrentRuns: options.maxConcurrentRuns ?? 4,
    runDeadlineMs: RUN_DEADLINE_MS,
  });
  const authority = createRunAuthority({ grants, runs, scheduler });
  const page = createAuthorisePage({
    publicUrl: options.publicUrl === undefined ? 'https://oracle.example.org' : options.publicUrl,
    links: authoriseLinks,
    grants,
  });
  const ownGrants = createOwnGrants({ store, grants, links });
  const onRevoked = authority.stopRestingOn;
  const runControl = createControl({ store, runs, scheduler });
  const commands = createCommands({
    store,
    grants,
    own: ownGrants,
    links,
    page,
    outbox,
    words: {
      reply: ({ text, link, refusal }) => ({
        eventType: 'm.room.message',
        content: {
          msgtype: 'm.notice',
          body: link === null ? text : `${text} ${link}`,
          ...(refusal === null ? {} : { code: refusal.code }),
        },
      }),
    },
    isTrustedServer: (user) => isTrustedServer(user, rules),
    onRevoked,
    control: runControl,
    credits,
  });
  const notices = createNotices({
    store,
    outbox,
    words: {
      notice: ({ text, refusal }) => ({ eventType: 'm.room.message', content: { msgtype: 'm.notice', body: text, code: refusal.code } }),
      reaction: (target, key) => ({ eventType: 'm.reaction', content: { target, key } }),
    },
    page,
    now,
    signal: new AbortController().signal,
  });
  const crypto = fakeReveal(clock);
  const parked = createParked({ store, clock, inbox });
  const observe = (outcome: string, reason: string): void => void admitted.push(`${outcome}:${reason}`);
  const watch = createParkedWatch({
    store,
    parked,
    notices,
    known,
    clock,
    logger,
    keysSyncedSince: crypto.syncedSince,
    observe,
  });
  crypto.onKeys(watch.keysArrived);
  const admit = createAdmit({
    store,
    inbox,
    rooms,
    actions: rooms,
    known,
    runs,
    inputs,
    control: runControl,
    replacing,
    settings,
    scheduler,
    transcript,
    notices,
    checks,
    flood: createFloodGuard({ isTrusted: () => true }),
    logger,
    now,
    readItem: (row) => {
      const item = readInboxItem(row.event, ORACLE);
      return item.ok ? item : { ok: false, error: item.error.reason };
    },
    greet: (_tx, room) => {
      greeted.push(room);
      return () => undefined;
    },
    newRequestId: () => 'request',
    observe,
    reveal: crypto.reveal,
    parked,
    keysArrived: watch.keysArrived,
    verification: crypto.verification,
    fingerprint: crypto.fingerprint,
    cryptoTrust: 'any',
    commands,
    registerGrant,
    ownGrants,
    outbox,
    receiptWords: {
      receipt: ({ tokenId, expiresAt, cause }) => ({
        eventType: 'ixo.oracle.grant_receipt',
        content: { token_id: tokenId, expires_at: expiresAt, cause, body: 'Stored.' },
      }),
    },
    onRevoked,
    oracle: ORACLE,
    oracleName: 'Oracle',
    rules,
    maxLatenessMs: 15 * 60_000,
    retentionMs: 30 * 24 * 3_600_000,
    commandPrefix: '!oracle',
    botHopBudget: 12,
    ...options.admit,
  });

  /** Claims the room's first row; throws when there is none. */
  function claim(room: RoomId = ROOM): InboxRow {
    const claimed = inbox.claim(room);
    if (claimed.kind !== 'row') throw new Error(`nothing to claim: ${claimed.kind}`);
    return claimed.row;
  }
  const core = {
    store,
    clock,
    logger,
    rooms,
    runner,
    projection,
    observed,
    admitted,
    greeted,
    rules,
    inbox,
    outbox,
    sessions,
    settings,
    transcript,
    runs,
    inputs,
    frames,
    links,
    known,
    grants,
    blobs: createBlobs({ store, key: new Uint8Array(32), now }),
    documents,
    verifier,
    authoriseLinks,
    useGrants,
    registerGrant,
    ownGrants,
    commands,
    authority,
    checks,
    scheduler,
    notices,
    crypto,
    parked,
    watch,
    admit,
    newRunId,
    /** Null as long as the agent is not loaded. */
    execute: execute as ExecuteOptions | null,
    claim,
    /** Receives the events and handles each; resolves with what was observed of them. */
    async take(...events: IncomingEvent[]): Promise<string[]> {
      const from = admitted.length;
      await inbox.receive(events);
      for (const event of events) await admit.handle(claim(event.roomId));
      return admitted.slice(from);
    },
    /** The oracle is in this direct room, invited by Alice. */
    async joinDirect(room: RoomId = ROOM): Promise<void> {
      rooms.room(room, { kind: 'direct', membership: 'join' });
      await store.write((tx) => {
        known.invited(tx, room, { inviter: ALICE, isDirect: true, at: clock.now() });
        known.joined(tx, room, clock.now());
      });
    },
    count(
      table:
        | 'runs'
        | 'sessions'
        | 'inbox'
        | 'outbox'
        | 'audit'
        | 'transcript'
        | 'pending_inputs'
        | 'replay_marks'
        | 'rate_counts'
        | 'links'
        | 'frames'
        | 'grants',
    ): number {
      return store.read.get(store.sql.selectFrom(table).select((eb) => eb.fn.countAll<number>().as('n')))?.n ?? -1;
    },
    said(): { lane: string; content: Record<string, unknown> }[] {
      return store.read
        .all(store.sql.selectFrom('outbox').select(['lane', 'content']).orderBy('seq'))
        .map(({ lane, content }) => ({ lane, content: JSON.parse(content) as Record<string, unknown> }));
    },
  };
  return core;
}
