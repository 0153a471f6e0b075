/** A sidecar on a real store with the real turn, ledger, log and scheduler; only the model, the room and the clock are made up. */
import type { InjectOptions } from 'fastify';
import { createCredits } from '../../../src/credits/credits.ts';
import type { EventId, RoomId, RunId, SessionId, UserId } from '../../../src/ids.ts';
import { createRunIds } from '../../../src/ids.ts';
import { createLogger, type LogFields } from '../../../src/observe/logger.ts';
import { err, ok } from '../../../src/result.ts';
import { createFrameReader } from '../../../src/runs/frames.ts';
import { createInputs } from '../../../src/runs/inputs.ts';
import { createRuns } from '../../../src/runs/ledger.ts';
import { createReplacing } from '../../../src/runs/replace.ts';
import type { RunJob, Runner, RunOutcome } from '../../../src/runs/runner.ts';
import { createScheduler } from '../../../src/runs/scheduler.ts';
import { createViewers } from '../../../src/runs/viewers.ts';
import { createRoomSettings } from '../../../src/sessions/room-settings.ts';
import { createSessions } from '../../../src/sessions/sessions.ts';
import { createTranscript } from '../../../src/sessions/transcript.ts';
import type { PromptToMirror, SessionToOpen, SidecarDeps } from '../../../src/sidecar/deps.ts';
import { createSidecar } from '../../../src/sidecar/sidecar.ts';
import { openStore } from '../../../src/store/store.ts';
import { createAuthenticate } from '../../../src/turn/authenticate.ts';
import { createCheckBalance } from '../../../src/turn/check-balance.ts';
import { createLinks } from '../../../src/turn/links.ts';
import { createOpen } from '../../../src/turn/open.ts';
import { createRunAuthority } from '../../../src/turn/run-authority.ts';
import { createThrottle } from '../../../src/turn/throttle.ts';
import { createAuthoriseLinks } from '../../../src/ucan/authorise-links.ts';
import { createVerifier } from '../../../src/ucan/chain.ts';
import type { ResolveKeys } from '../../../src/ucan/did/resolve-keys.ts';
import { createGrants } from '../../../src/ucan/grants.ts';
import { mintRequestInvocation, newNonce } from '../../../src/ucan/mint.ts';
import { createRegisterGrant } from '../../../src/ucan/register-grant.ts';
import type { SigningKey } from '../../../src/ucan/signing-key.ts';
import { createUseGrants } from '../../../src/ucan/use-grants.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { alice, mallory, oracle, TS } from '../ucan/tokens.ts';

export const ALICE = '@alice:example.org' as UserId;
export const MALLORY = '@mallory:example.org' as UserId;
export const DM = '!dm:example.org' as RoomId;
export const MALLORY_DM = '!other:example.org' as RoomId;
export const SESSION = '$alice-session' as SessionId;
export const MALLORY_SESSION = '$mallory-session' as SessionId;

export interface Ask {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly query?: string;
  readonly body?: unknown;
  readonly session?: SessionId;
  readonly key?: SigningKey;
  readonly sender?: UserId;
  /** null: the claim is left out. */
  readonly room?: RoomId | null;
  readonly ts?: number;
  readonly headers?: Record<string, string>;
  /** An earlier token, to send it again. */
  readonly token?: string;
}

/** Method, path and body with the token that signs exactly them. */
export function signed(ask: Ask): { method: Ask['method']; url: string; headers: Record<string, string>; payload?: string; token: string } {
  const body = ask.body === undefined ? undefined : typeof ask.body === 'string' ? ask.body : JSON.stringify(ask.body);
  const token =
    ask.token ??
    mintRequestInvocation({
      key: ask.key ?? alice,
      audience: oracle.did,
      method: ask.method,
      path: ask.path,
      body,
      sender: ask.sender ?? ALICE,
      room: ask.room === null ? undefined : (ask.room ?? DM),
      thread: ask.session,
      ts: ask.ts ?? TS,
      nonce: newNonce(),
    });
  return {
    method: ask.method,
    url: ask.path + (ask.query ?? ''),
    headers: {
      authorization: `Bearer ${token}`,
      'x-auth-type': 'ucan',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...ask.headers,
    },
    ...(body === undefined ? {} : { payload: body }),
    token,
  };
}

const pathOf = (session: SessionId) => `/messages/${encodeURIComponent(session)}`;
export const say = (message: string, more: Partial<Ask> & { fields?: Record<string, unknown> } = {}) => {
  const session = more.session ?? SESSION;
  return signed({ method: 'POST', path: pathOf(session), session, body: { message, ...more.fields }, ...more });
};
export const readHistory = (session: SessionId, more: Partial<Ask> = {}) => signed({ method: 'GET', path: pathOf(session), ...more });

export const DIRECT = {
  kind: 'direct',
  encryption: 'none',
  federated: false,
  joined: true,
  people: { has: () => true },
  displayName: null,
  admissionCursor: null,
} as const;

type Script = (job: RunJob) => Promise<RunOutcome>;
export const answer =
  (...deltas: string[]): Script =>
  async ({ run, output }) => {
    await output.promptsConsumed(run.prompts.map(({ id }) => id));
    for (const delta of deltas) output.text(delta);
    const text = deltas.join('');
    return {
      kind: 'completed',
      text,
      messages: [{ role: 'ai', text, message: null }],
      usage: { inputTokens: 3, outputTokens: 4 },
      model: 'demo',
    };
  };

export function createWorld(change: Partial<SidecarDeps> & { script?: Script; rateLimit?: number } = {}) {
  const clock = fakeClock(TS + 500);
  const store = openStore({ path: ':memory:', now: clock.now() });
  const lines: (LogFields & { msg: string })[] = [];
  const logger = createLogger({ level: 'debug', format: 'json', destination: { write: (line) => void lines.push(JSON.parse(line)) } });
  const runs = createRuns({ store, fence: 1 });
  const frames = createFrameReader({ store });
  const sessions = createSessions({ store });
  const transcript = createTranscript({ store });
  const links = createLinks({ store });
  const viewers = createViewers({ store, frames, clock });
  const grants = createGrants({ store });
  const credits = createCredits({ store, policy: () => null });
  const keysOf: ResolveKeys = async () => err('DID_NOT_RESOLVED');
  const verifier = createVerifier({ findToken: grants.findToken, keysOf, isRevoked: grants.isRevoked, now: clock.now });
  const authoriseLinks = createAuthoriseLinks({ store, newNonce });
  const registerGrant = createRegisterGrant({
    store,
    grants,
    links,
    authoriseLinks,
    verify: verifier.grant,
    oracleDids: () => [oracle.did],
    isTrustedServer: () => true,
    now: clock.now,
  });
  const jobs: RunJob[] = [];
  const world = { script: change.script ?? answer('hello', ' world') };
  const runner: Runner = {
    name: 'scripted',
    execute: (job) => {
      jobs.push(job);
      return world.script(job);
    },
  };
  const newRunId: (now: number) => RunId = createRunIds();
  const inputs = createInputs({ store, runs, newRunId });
  const scheduler = createScheduler({
    store,
    runs,
    clock,
    logger,
    execute: () => ({
      store,
      runs,
      inputs,
      frames,
      transcript,
      clock,
      logger,
      projections: [viewers],
      runner,
      authority,
      observe: () => undefined,
    }),
    maxConcurrentRuns: 4,
    runDeadlineMs: 60_000,
  });
  const authority = createRunAuthority({ grants, runs, scheduler });
  const rule = { limit: change.rateLimit ?? 10, windowMs: 60_000 };
  const mirrored: PromptToMirror[] = [];
  const opened: SessionToOpen[] = [];
  let ids = 0;
  const deps: SidecarDeps = {
    identity: { name: 'Testy', did: oracle.did, entityDid: null },
    store,
    turn: {
      authenticate: createAuthenticate({
        oracleDid: oracle.did,
        rules: { access: 'open', trustedHomeservers: ['example.org'], allowedUsers: [], unsignedUsers: [] },
        maxLatenessMs: 900_000,
        runDeadlineMs: 60_000,
        verify: verifier.invocation,
        keysOf,
        grants,
        registerGrant,
        useGrants: createUseGrants({ store }),
        links,
        store,
        now: clock.now,
      }),
      checkBalance: createCheckBalance({ credits }),
      throttle: createThrottle({ store, rule, now: clock.now }),
      open: createOpen({
        store,
        sessions,
        runs,
        inputs,
        replacing: createReplacing({ store, runs }),
        settings: createRoomSettings({ store }),
        transcript,
        links,
        grants,
        credits,
        rule,
        now: clock.now,
        newRunId,
        onInterrupt: (session, run) => void scheduler.cancel(session, run),
      }),
      observe: () => undefined,
      monotonic: clock.monotonic,
    },
    runs,
    frames,
    viewers,
    sessions,
    transcript,
    links,
    grants,
    registerGrant,
    authoriseLinks,
    authorisePage: null,
    abilitiesToAsk: () => [],
    onRevoked: authority.stopRestingOn,
    verify: verifier.invocation,
    verifyLegacy: null,
    isTrustedServer: () => true,
    rooms: { facts: async (roomId) => ({ ...DIRECT, roomId }) },
    mayUse: () => true,
    scheduler,
    openSession: async (session) => {
      opened.push(session);
      return ok({ sessionId: `$opened-${session.tokenId}` as SessionId, roomId: session.roomId ?? ('!new:example.org' as RoomId) });
    },
    mirrorPrompt: (_tx, prompt) => void mirrored.push(prompt),
    wakeScheduler: () => scheduler.wake(),
    health: () => ({ live: true, ready: true, parts: [{ name: 'store', ok: true }] }),
    models: () => ({ ids: ['demo', 'other'], default: 'demo' }),
    observeRefusal: () => undefined,
    clock,
    logger,
    newRequestId: () => `made-${++ids}`,
    options: { corsOrigins: ['*'] },
    ...change,
  };
  const app = createSidecar(deps);

  async function prepare(): Promise<void> {
    await store.write((tx) => {
      links.prove(tx, { did: alice.did, userId: ALICE, directRoom: DM }, clock.now());
      links.prove(tx, { did: mallory.did, userId: MALLORY, directRoom: MALLORY_DM }, clock.now());
      const thread = (id: SessionId) => ({ id, kind: 'thread' as const, threadRoot: id as EventId, title: null });
      sessions.create(tx, { ...thread(SESSION), roomId: DM, owner: alice.did }, clock.now());
      sessions.create(tx, { ...thread(MALLORY_SESSION), roomId: MALLORY_DM, owner: mallory.did }, clock.now());
    });
  }
  /** Lets time pass in small steps until the promise settles. */
  async function settle<T>(promise: Promise<T>): Promise<T> {
    let done = false;
    const marked = promise.finally(() => {
      done = true;
    });
    marked.catch(() => undefined);
    for (let step = 0; !done && step < 500; step++) await clock.advanceAsync(10);
    return marked;
  }
  async function close(): Promise<void> {
    await app.close();
    await settle(scheduler.stop(1_000));
    store.close();
  }
  const inject = (request: InjectOptions) => settle(Promise.resolve(app.inject(request)));
  const rows = (table: 'runs' | 'frames' | 'audit' | 'grants' | 'replay_marks' | 'outbox' | 'sessions' | 'transcript') =>
    store.read.all(store.sql.selectFrom(table).selectAll());
  return {
    app,
    deps,
    store,
    clock,
    lines,
    jobs,
    mirrored,
    opened,
    scheduler,
    sessions,
    runs,
    frames,
    viewers,
    links,
    grants,
    authoriseLinks,
    verifier,
    transcript,
    world,
    prepare,
    settle,
    close,
    inject,
    rows,
  };
}
export type World = ReturnType<typeof createWorld>;

/** Events of an SSE body, comments left out. */
export function readSse(body: string): { event: string; id: string | null; data: Record<string, any> }[] {
  return body
    .split('\n\n')
    .filter((block) => block.startsWith('event:'))
    .map((block) => ({
      event: /^event: (.*)$/mu.exec(block)?.[1] ?? '',
      id: /^id: (.*)$/mu.exec(block)?.[1] ?? null,
      data: JSON.parse(/^data: (.*)$/mu.exec(block)?.[1] ?? 'null'),
    }));
}
