/**
 * The one transaction that turns a checked message into work (DESIGN §2): session, run or place in a waiting run, spent token, grants that came
 * with it, rate count, pending input, transcript row, audit row, and the end of the inbox row. Whatever dies before its commit never happened, and the message
 * is still in the inbox; whatever dies after it finds the run (G1, G2, G5).
 */
import type { Credits } from '../credits/credits.ts';
import { type ErrorCode, OracleError, type Refusal, refusal } from '../errors.ts';
import { type Did, type EventId, type RunId, type SessionId, sessionIdOf } from '../ids.ts';
import { err, ok, type Result } from '../result.ts';
import { type Inputs, isMultitask, type Multitask } from '../runs/inputs.ts';
import type { Runs } from '../runs/ledger.ts';
import { mayReplace, type Replaceable, type Replacing } from '../runs/replace.ts';
import type { RoomSettings } from '../sessions/room-settings.ts';
import { ownerOf, type Session, type Sessions } from '../sessions/sessions.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { Store, Tx } from '../store/store.ts';
import { MESSAGE_ABILITY } from '../ucan/abilities.ts';
import type { Grants } from '../ucan/grants.ts';
import { isSpentOnAnother, spend } from '../ucan/replay.ts';
import { writeAudit } from './audit.ts';
import type { Links } from './links.ts';
import type { Principal } from './principal.ts';
import { countTurn, overLimit, type Paced, type RateRule } from './throttle.ts';

export interface Opened {
  readonly runId: RunId;
  readonly session: Session;
  /** It joined a run that had not started (messages already queued are answered together), or one that works and is given it. */
  readonly joined: boolean;
  /** The run that this message puts an end to. */
  readonly interrupts: RunId | null;
}
export type Open = (turn: Paced) => Promise<Result<Opened, Refusal>>;

export interface OpenOptions {
  readonly store: Store;
  readonly sessions: Sessions;
  readonly runs: Runs;
  readonly inputs: Inputs;
  readonly replacing: Replacing;
  readonly settings: Pick<RoomSettings, 'read'>;
  readonly transcript: Transcript;
  readonly links: Links;
  readonly grants: Pick<Grants, 'store'>;
  readonly credits: Pick<Credits, 'hold'>;
  readonly rule: RateRule;
  readonly now: () => number;
  readonly newRunId: (now: number) => RunId;
  /** Stops the execution of a run that a message interrupts; called after the commit. */
  readonly onInterrupt: (session: SessionId, run: RunId) => void;
}

export function createOpen(options: OpenOptions): Open {
  const { store, sessions, runs, inputs, transcript, links, grants, rule, now, newRunId } = options;

  /** Two messages may have passed the checks side by side; the transaction decides who was first. */
  function recheck(tx: Tx, turn: Paced, at: number): ErrorCode | null {
    if (turn.token !== null && isSpentOnAnother(store, tx, turn.token.tokenId, turn.promptId)) return 'REPLAY';
    return overLimit(store, tx, turn.principal, rule, at) ? 'RATE_LIMITED' : null;
  }

  function sessionFor(tx: Tx, turn: Paced, at: number): Result<Session, ErrorCode> {
    const { incoming, principal } = turn;
    const owner = ownerOf(principal.id, incoming.roomId, incoming.direct);
    if (incoming.via === 'http') {
      const session = sessions.byId(tx, incoming.sessionId);
      if (session === undefined || session.room_id !== incoming.roomId || session.owner !== owner) return err('NOT_FOUND');
      sessions.touch(tx, session.session_id, at);
      return ok(session);
    }
    const { conversation, eventId } = incoming;
    return sessions.findOrCreate(tx, { roomId: incoming.roomId, owner, direct: incoming.direct, conversation, startedBy: eventId }, at);
  }

  const isLinked = (did: Did, { matrixUserId }: Principal): boolean => links.of(did, matrixUserId) !== undefined;

  return async (turn) => {
    try {
      const opened = await store.write((tx): Result<Opened, ErrorCode> => {
        const at = now();
        const refused = recheck(tx, turn, at);
        if (refused !== null) return err(refused);
        const { incoming } = turn;
        if (incoming.via === 'matrix' && incoming.editsTarget !== null) return replace(tx, turn, incoming.editsTarget, at);
        const session = sessionFor(tx, turn, at);
        if (!session.ok) return session;
        keepGrants(tx, turn, at);
        return ok(write(tx, turn, session.value, at));
      });
      if (!opened.ok) return err(refusal(opened.error));
      const { session, interrupts } = opened.value;
      if (interrupts !== null) options.onInterrupt(session.session_id, interrupts);
      return opened;
    } catch (error) {
      if (error instanceof OracleError) return err(error.refusal);
      throw error;
    }
  };

  /** Proofs inside the token are found again by their CID: the next messages of this client need not carry them. Throws what undoes it all. */
  function keepGrants(tx: Tx, turn: Paced, at: number): void {
    for (const planned of turn.grants) {
      const written = planned.write(tx, at);
      if (!written.ok) throw new OracleError(refusal(written.error));
    }
    for (const verified of turn.carried) {
      grants.store(tx, { verified, kind: 'session', car: verified.car, source: 'proof', matrixUserId: null }, at);
    }
  }

  /** What a message does to the working run of its own principal (DESIGN §7); it is a wish, so what cannot be read is no wish. */
  function modeOf(tx: Tx, { incoming }: Paced): Multitask {
    const { multitask } = incoming.hints;
    // Its caller reads the stream of the run that answers this very request: it is not handed to another.
    if (incoming.via === 'http') return multitask === 'interrupt' ? 'interrupt' : 'enqueue';
    if (isMultitask(multitask)) return multitask;
    const set = options.settings.read(tx, incoming.roomId, 'multitask');
    return isMultitask(set) ? set : 'steer';
  }

  /** The last prompt of a conversation was edited: it is answered anew, in the message of its old answer. */
  function replace(tx: Tx, turn: Paced, prompt: EventId, at: number): Result<Opened, ErrorCode> {
    const { incoming, principal } = turn;
    const old = options.replacing.find(tx, prompt);
    const session = old === undefined ? undefined : sessions.byId(tx, old.sessionId);
    // Somebody spoke since it was looked at, or the room's kind has changed.
    if (old === undefined || session === undefined || old.direct !== incoming.direct) return err('CONFLICT');
    if (!mayReplace(principal, incoming.roomId, old)) return err('NOT_ALLOWED');
    sessions.touch(tx, old.sessionId, at);
    keepGrants(tx, turn, at);
    const runId = newRunId(at);
    insertRun(tx, turn, { runId, session, replaces: old }, at);
    options.replacing.hand(tx, old, runId, { promptId: prompt, text: incoming.text });
    if (old.isWorking) runs.askStop(tx, old.runId, 'RUN_CANCELLED');
    settle(tx, turn, runId, at);
    incoming.alongside(tx, { runId, sessionId: old.sessionId, threadRoot: old.threadRoot });
    return ok({ runId, session, joined: false, interrupts: old.isWorking ? old.runId : null });
  }

  function insertRun(
    tx: Tx,
    { incoming, principal }: Paced,
    { runId, session, replaces }: { runId: RunId; session: Session; replaces?: Replaceable },
    at: number,
  ): void {
    const { multitask: _, ...hints } = replaces?.hints ?? incoming.hints;
    runs.insert(
      tx,
      {
        id: runId,
        sessionId: session.session_id,
        roomId: incoming.roomId,
        threadRoot: replaces === undefined ? session.thread_root : replaces.threadRoot,
        owner: session.owner,
        principal,
        client: incoming.via === 'http' ? 'portal' : 'matrix',
        requestId: incoming.requestId,
        hints,
        direct: incoming.direct,
        ...(replaces === undefined ? {} : { replaces: replaces.runId }),
      },
      at,
    );
    // Another message may have spent it since the balance was looked at: then nothing of this one is kept.
    if (!options.credits.hold(tx, { id: runId, principalId: principal.id, matrixUserId: principal.matrixUserId }, at))
      throw new OracleError(refusal('OUT_OF_CREDITS'));
  }

  /** What every opened turn leaves beside its run. */
  function settle(tx: Tx, { principal, token, promptId }: Paced, runId: RunId, at: number): void {
    if (token !== null) spend(store, tx, token, { promptId, runId });
    countTurn(store, tx, principal, rule, at);
    writeAudit(store, tx, {
      at,
      event_id: promptId,
      run_id: runId,
      token_id: token?.tokenId ?? null,
      principal_id: principal.id,
      matrix_user_id: principal.matrixUserId,
      tier: principal.tier,
      trust: principal.trust,
      capability: MESSAGE_ABILITY,
      resource: principal.id,
      decision: 'allowed',
    });
  }

  function write(tx: Tx, turn: Paced, session: Session, at: number): Opened {
    const { incoming, principal, promptId } = turn;
    const { multitask: _, ...hints } = incoming.hints;
    const mode = modeOf(tx, turn);
    const waiting = runs.waitingFor(tx, session.session_id, principal, hints);
    const steered = waiting === undefined && mode === 'steer' ? inputs.steerable(tx, session.session_id, principal, hints) : undefined;
    const interrupts = (mode === 'interrupt' ? inputs.interruptible(tx, session.session_id, principal) : undefined) ?? null;
    const runId = waiting ?? steered ?? newRunId(at);
    const threadRoot = session.thread_root;
    if (waiting === undefined && steered === undefined) insertRun(tx, turn, { runId, session }, at);
    if (interrupts !== null) {
      runs.askStop(tx, interrupts, 'RUN_CANCELLED');
      inputs.handOver(tx, interrupts, { runId, principal }, at);
    }
    const prompt = { runId, sessionId: session.session_id, promptId, principal, text: incoming.text, steers: steered !== undefined };
    runs.addPrompt(tx, prompt, at);
    transcript.append(tx, {
      roomId: incoming.roomId,
      sessionId: session.session_id,
      runId,
      eventId: promptId,
      role: 'human',
      speaker: principal.id,
      text: incoming.text,
      message: null,
      at,
      tier: principal.tier,
    });
    // What nobody signed keeps a link up to date and makes none: it may have been taken back since this message was looked at.
    if (principal.did !== null && incoming.via === 'matrix' && (principal.tier === 'signed' || isLinked(principal.did, principal))) {
      links.prove(tx, { did: principal.did, userId: principal.matrixUserId, directRoom: incoming.direct ? incoming.roomId : null }, at);
    }
    settle(tx, turn, runId, at);
    incoming.alongside(tx, { runId, sessionId: sessionIdOf(session.session_id as EventId), threadRoot });
    return { runId, session, joined: waiting !== undefined || steered !== undefined, interrupts };
  }
}
