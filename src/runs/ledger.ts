/**
 * The run records: every change of status is one transaction, and terminal is terminal (G10). A running row carries a lease and a fence;
 * a write of a run that lost its fence changes nothing and ends that execution (G18).
 * Cost per turn: one insert and two updates.
 */
import { type ExpressionBuilder, type Insertable, sql as raw, type Selectable, type SqlBool } from 'kysely';
import { z } from 'zod';
import type { ErrorCode, Refusal } from '../errors.ts';
import { type EventId, type OwnerId, parseDid, type RoomId, type RunId, type SessionId } from '../ids.ts';
import { prepare } from '../store/prepared.ts';
import type { PendingInputsTable, RunsTable, Schema } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import { NO_GRANTS, type Principal, type RestsOn } from '../turn/principal.ts';
import type { Unfinished } from './recovery.ts';
import { type Run, type RunStatus, type TurnHints, turnHints, type Usage } from './run.ts';
import { INHERITED } from './tool-marks.ts';

export interface NewRun {
  readonly id: RunId;
  readonly sessionId: SessionId;
  readonly roomId: RoomId;
  readonly threadRoot: EventId | null;
  readonly owner: OwnerId;
  readonly principal: Principal;
  readonly client: Run['client'];
  readonly requestId: string;
  readonly hints: TurnHints;
  readonly direct: boolean;
  /** The run whose message this one writes anew. */
  readonly replaces?: RunId;
}
export interface Ending {
  readonly status: RunStatus;
  readonly error: Refusal | null;
  readonly usage: Usage | null;
  readonly model: string | null;
}
export interface WaitingPrompt extends Pick<Run, 'principalId' | 'matrixUserId' | 'roomId' | 'tier' | 'grants' | 'trust'> {
  readonly runId: RunId;
}

export interface Runs {
  insert(tx: Tx, run: NewRun, now: number): void;
  addPrompt(
    tx: Tx,
    /** `steers`: the run works already. */
    prompt: { runId: RunId; sessionId: SessionId; promptId: string; principal: Principal; text: string; steers?: boolean },
    now: number,
  ): void;
  /** A further run under exactly what this one rests on, without prompts yet. */
  repeat(tx: Tx, id: RunId, next: RunId, now: number): void;
  /**
   * A run of this session that has not started and rests on the very same authority (principal, account, tier, grants): a further message is
   * answered with it.
   */
  waitingFor(tx: Tx, session: SessionId, principal: Principal, hints: TurnHints): RunId | undefined;
  read(tx: Tx, id: RunId): Run | undefined;
  /** Id of the newest run of all. */
  newest(): RunId | undefined;
  /** Starts or resumes; undefined when it ended meanwhile. */
  start(tx: Tx, id: RunId, times: { now: number; leaseUntil: number; deadlineAt: number }): Run | undefined;
  /** Whether this execution still owns the run; every durable write of a run asks first. */
  holds(tx: Tx, run: Run): boolean;
  extendLease(tx: Tx, run: Run, until: number): void;
  /** Somebody wants it to end, with this error: also when the process dies before it has ended (G9). Nothing happens to a run that does not work. */
  askStop(tx: Tx, id: RunId, code: ErrorCode): void;
  /** Its prompt was edited and another run answers it: what it says is no part of the conversation. */
  isReplaced(tx: Tx, id: RunId): boolean;
  /** For good: nothing takes a taint away. */
  taint(tx: Tx, run: Run): void;
  /** Runs that are being executed, by what they rest on: few, whatever the history (G16). */
  running(): Run[];
  /** @returns false when it had ended already (G10). */
  end(tx: Tx, run: Run, ending: Ending, now: number): boolean;
  /** Gives a started run back, for the next start or after an outage of the disk; the attempt does not count. Once per attempt. */
  release(tx: Tx, run: Run): void;
  /** Oldest first; of each session only its first, because turns of one session run one at a time (G3). */
  unfinished(limit: number, busySessions: ReadonlySet<SessionId>): Unfinished[];
  /** Whose checkpoints are still needed. */
  unfinishedOwners(): OwnerId[];
  /** Ends the runs of a session that have not started; returns how many. */
  cancelQueued(tx: Tx, session: SessionId, now: number): number;
  /** A prompt that no model was shown: of a run that has not started, or waiting to be taken by one that works. Null when it was, or is unknown. */
  waitingPrompt(tx: Tx, promptId: string): WaitingPrompt | null;
  amendPrompt(tx: Tx, promptId: string, text: string): void;
  /** Takes out a prompt that no model was shown; a run left without prompts is cancelled. */
  withdrawPrompt(tx: Tx, promptId: string, runId: RunId, now: number): void;
}

const UNFINISHED = ['queued', 'running'] as const;
/** Word for word the condition of the partial indexes: with anything else every wake would read all runs there ever were (G16). */
const isUnfinished = (table: 'r' | 'p') => raw<SqlBool>`${raw.ref(`${table}.status`)} in ('queued', 'running', 'waiting')`;

export function createRuns({ store, fence }: { store: Store; fence: number }): Runs {
  const { sql } = store;

  const insertRun = prepare((row: Insertable<RunsTable>) => sql.insertInto('runs').values(row));
  const insertPrompt = prepare((row: Insertable<PendingInputsTable>) => sql.insertInto('pending_inputs').values(row));
  /** Asked before each flush of an answer's frames. */
  const selectHolder = prepare(({ id }: { id: RunId }) =>
    sql.selectFrom('runs').select(['status', 'fence', 'attempt']).where('run_id', '=', id),
  );

  /** The runs before it have ended by now, and whatever a tool of them wrote is known or unknown for good. */
  function inheritMarks(tx: Tx, first: RunId, to: RunId): void {
    for (let from: RunId | null = first; from !== null; ) {
      tx.run(
        sql
          .updateTable('tool_marks')
          .set({ run_id: to, tool_call_id: raw<string>`tool_call_id || ${INHERITED} || ${from}` })
          .where('run_id', '=', from),
      );
      const before: { attempt: number; replaces: RunId | null } | undefined = tx.get(
        sql.selectFrom('runs').select(['attempt', 'replaces']).where('run_id', '=', from),
      );
      // One that was stopped before it started has not taken over what was there before it.
      from = before === undefined || before.attempt > 0 ? null : before.replaces;
    }
  }

  const readPrompts = (tx: Tx, id: RunId) =>
    tx
      .all(sql.selectFrom('pending_inputs').select(['prompt_id', 'text', 'received_at']).where('run_id', '=', id).orderBy('id'))
      .map((row) => ({ id: row.prompt_id, text: row.text, receivedAt: row.received_at }));

  const runs: Runs = {
    insert(tx, run, now) {
      tx.run(
        insertRun({
          run_id: run.id,
          session_id: run.sessionId,
          room_id: run.roomId,
          thread_root: run.threadRoot,
          owner: run.owner,
          principal_id: run.principal.id,
          matrix_user_id: run.principal.matrixUserId,
          tier: run.principal.tier,
          trust: run.principal.trust,
          client: run.client,
          request_id: run.requestId,
          parent: null,
          grants: writeGrants(run.principal.grants),
          hints: JSON.stringify({ v: 1, ...run.hints }),
          direct: run.direct ? 1 : 0,
          status: 'queued',
          created_at: now,
          started_at: null,
          ended_at: null,
          deadline_at: null,
          model_asked: run.hints.model ?? null,
          model_answered: null,
          usage: null,
          error: null,
          replaces: run.replaces ?? null,
        }),
      );
    },
    repeat(tx, id, next, now) {
      const row = tx.get(sql.selectFrom('runs').selectAll().where('run_id', '=', id));
      if (row === undefined) throw new Error(`run ${id} is not there to be repeated`);
      const { session_id, room_id, thread_root, owner, principal_id, matrix_user_id, tier, client, request_id, runner } = row;
      const { grants, hints, direct, model_asked, trust } = row;
      tx.run(
        sql.insertInto('runs').values({
          ...{ session_id, room_id, thread_root, owner, principal_id, matrix_user_id, tier, client, request_id, runner },
          ...{ grants, hints, direct, model_asked, trust },
          run_id: next,
          parent: null,
          status: 'queued',
          created_at: now,
          started_at: null,
          ended_at: null,
          deadline_at: null,
          model_answered: null,
          usage: null,
          error: null,
        }),
      );
    },
    addPrompt(tx, { runId, sessionId, promptId, principal, text, steers = false }, now) {
      tx.run(
        insertPrompt({
          run_id: runId,
          session_id: sessionId,
          prompt_id: promptId,
          principal_id: principal.id,
          tier: principal.tier,
          text,
          received_at: now,
          consumed_at: null,
          steers: steers ? 1 : 0,
        }),
      );
    },
    waitingFor: (tx, session, principal, hints) =>
      tx.get(
        sql
          .selectFrom('runs')
          .select('run_id')
          .where('session_id', '=', session)
          .where('status', '=', 'queued')
          .where('attempt', '=', 0)
          .where('principal_id', '=', principal.id)
          .where('matrix_user_id', '=', principal.matrixUserId)
          .where('tier', '=', principal.tier)
          .where('trust', 'is', principal.trust)
          .where('hints', '=', JSON.stringify({ v: 1, ...hints }))
          .where((eb) => isExactly(eb, writeGrants(principal.grants)))
          // Only the last in line: joining an earlier run would overtake what another principal said in between (G3).
          .where(
            'run_id',
            '=',
            sql
              .selectFrom('runs as r')
              .select((eb) => eb.fn.max('r.run_id').as('last'))
              .where('r.session_id', '=', session),
          ),
      )?.run_id,
    newest: () => store.read.get(sql.selectFrom('runs').select('run_id').orderBy('run_id', 'desc').limit(1))?.run_id,
    read(tx, id) {
      const row = tx.get(sql.selectFrom('runs').selectAll().where('run_id', '=', id));
      return row === undefined ? undefined : toRun(row, readPrompts(tx, id));
    },
    start(tx, id, { now, leaseUntil, deadlineAt }) {
      const started = tx.run(
        sql
          .updateTable('runs')
          .set((eb) => ({
            status: 'running',
            attempt: eb('attempt', '+', 1),
            started_at: eb.fn.coalesce('started_at', eb.val(now)),
            deadline_at: eb.fn.coalesce('deadline_at', eb.val(deadlineAt)),
            lease_until: leaseUntil,
            fence,
          }))
          .where('run_id', '=', id)
          .where('status', 'in', UNFINISHED)
          .where('fence', '<=', fence),
      );
      if (started === 0) return undefined;
      const run = runs.read(tx, id);
      if (run?.replaces != null && run.attempt === 1) inheritMarks(tx, run.replaces, id);
      return run;
    },
    holds: (tx, run) => {
      const row = tx.get(selectHolder({ id: run.id }));
      return row !== undefined && row.status === 'running' && row.fence === run.fence && row.attempt === run.attempt;
    },
    extendLease(tx, run, until) {
      tx.run(sql.updateTable('runs').set({ lease_until: until }).where('run_id', '=', run.id).where('fence', '=', run.fence));
    },
    askStop(tx, id, code) {
      tx.run(sql.updateTable('runs').set({ stop_asked: code }).where('run_id', '=', id).where('status', '=', 'running'));
    },
    isReplaced: (tx, id) => tx.get(sql.selectFrom('runs').select('run_id').where('replaces', '=', id).limit(1)) !== undefined,
    taint(tx, run) {
      tx.run(sql.updateTable('runs').set({ tainted: 1 }).where('run_id', '=', run.id));
    },
    running: () =>
      store.read
        .all(sql.selectFrom('runs as r').selectAll().where(isUnfinished('r')).where('r.status', '=', 'running'))
        .map((row) => toRun(row, [])),
    end: (tx, run, { status, error, usage, model }, now) =>
      tx.run(
        sql
          .updateTable('runs')
          .set({
            status,
            ended_at: now,
            model_answered: model,
            usage: usage === null ? null : JSON.stringify({ v: 1, ...usage }),
            error:
              error === null
                ? null
                : JSON.stringify({ v: 1, code: error.code, message: error.message, retryable: error.retryable, status: error.status }),
            lease_until: 0,
          })
          .where('run_id', '=', run.id)
          .where('fence', '=', run.fence)
          .where('status', 'in', UNFINISHED),
      ) > 0,
    release(tx, run) {
      tx.run(
        sql
          .updateTable('runs')
          .set((eb) => ({ lease_until: 0, put_off: eb('put_off', '+', 1) }))
          .where('run_id', '=', run.id)
          .where('fence', '=', run.fence)
          .where('attempt', '=', run.attempt)
          .where('status', '=', 'running'),
      );
    },
    unfinished(limit, busySessions) {
      const rows = store.read.all(
        sql
          .selectFrom('runs as r')
          .select(['r.run_id', 'r.session_id', 'r.status', 'r.attempt', 'r.put_off', 'r.deadline_at', 'r.stop_asked'])
          .where(isUnfinished('r'))
          .where('r.status', 'in', UNFINISHED)
          // A run that a newer process took is not ours to look at: `start` would refuse it again and again.
          .where('r.fence', '<=', fence)
          .where((eb) =>
            eb.not(
              eb.exists(
                eb
                  .selectFrom('runs as p')
                  .select('p.run_id')
                  .whereRef('p.session_id', '=', 'r.session_id')
                  .where(isUnfinished('p'))
                  .where('p.status', 'in', UNFINISHED)
                  .whereRef('p.run_id', '<', 'r.run_id'),
              ),
            ),
          )
          .orderBy('r.created_at')
          .limit(limit + busySessions.size),
      );
      return rows
        .filter((row) => !busySessions.has(row.session_id))
        .slice(0, limit)
        .map((row) => ({
          id: row.run_id,
          sessionId: row.session_id,
          status: row.status as Unfinished['status'],
          attempt: row.attempt - row.put_off,
          deadlineAt: row.deadline_at,
          stopAsked: row.stop_asked as ErrorCode | null,
        }));
    },
    cancelQueued: (tx, session, now) =>
      tx.run(
        sql
          .updateTable('runs')
          .set({ status: 'cancelled', ended_at: now })
          .where('session_id', '=', session)
          .where('status', '=', 'queued')
          .where('attempt', '=', 0),
      ),
    unfinishedOwners: () =>
      store.read.all(sql.selectFrom('runs as r').select('r.owner').where(isUnfinished('r'))).map(({ owner }) => owner),
    waitingPrompt(tx, promptId) {
      const row = tx.get(
        sql
          .selectFrom('pending_inputs as p')
          .innerJoin('runs as r', 'r.run_id', 'p.run_id')
          .select(['p.run_id', 'p.principal_id', 'p.tier', 'r.matrix_user_id', 'r.room_id', 'r.grants', 'r.trust'])
          .where('p.prompt_id', '=', promptId)
          .where((eb) =>
            eb.or([
              eb.and([eb('r.status', '=', 'queued'), eb('r.attempt', '=', 0)]),
              eb.and([eb('r.status', '=', 'running'), eb('p.steers', '=', 1), eb('p.consumed_at', 'is', null)]),
            ]),
          ),
      );
      if (row === undefined) return null;
      const { run_id: runId, principal_id: principalId, matrix_user_id: matrixUserId, room_id: roomId, tier, grants, trust } = row;
      return { runId, principalId, matrixUserId, roomId, tier, trust, grants: readGrants(grants) };
    },
    amendPrompt(tx, promptId, text) {
      tx.run(sql.updateTable('pending_inputs').set({ text }).where('prompt_id', '=', promptId));
      tx.run(sql.updateTable('transcript').set({ text }).where('event_id', '=', promptId));
    },
    withdrawPrompt(tx, promptId, runId, now) {
      tx.run(sql.deleteFrom('pending_inputs').where('prompt_id', '=', promptId));
      const left = tx.get(sql.selectFrom('pending_inputs').select('id').where('run_id', '=', runId).limit(1));
      if (left === undefined)
        tx.run(
          sql.updateTable('runs').set({ status: 'cancelled', ended_at: now }).where('run_id', '=', runId).where('status', '=', 'queued'),
        );
    },
  };
  return runs;
}

/** As JSON of one spelling: two runs of equal authority have equal text. */
export function writeGrants({ path, until }: RestsOn): string | null {
  if (path.length === 0) return null;
  const refs = path.map(({ tokenId, cid, issuer, audience, expiresAt }) => ({ tokenId, cid, issuer, audience, expiresAt }));
  return JSON.stringify({ v: 1, path: refs, until });
}
const isExactly = (eb: ExpressionBuilder<Schema, 'runs'>, grants: string | null) =>
  grants === null ? eb('grants', 'is', null) : eb('grants', '=', grants);

/** Authority that cannot be read has ended: a damaged row stops its run, and no other. */
const UNREADABLE: RestsOn = { path: [], until: 0 };
function readGrants(text: string | null): RestsOn {
  if (text === null) return NO_GRANTS;
  const parsed = grantsColumn.safeParse(readJson(text));
  return parsed.success ? { path: parsed.data.path as unknown as RestsOn['path'], until: parsed.data.until } : UNREADABLE;
}
const grantsColumn = z.object({
  v: z.literal(1),
  path: z.array(z.object({ tokenId: z.string(), cid: z.string(), issuer: z.string(), audience: z.string(), expiresAt: z.number() })).min(1),
  until: z.number(),
});
function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function toRun(row: Selectable<RunsTable>, prompts: Run['prompts']): Run {
  return {
    id: row.run_id,
    sessionId: row.session_id,
    roomId: row.room_id,
    threadRoot: row.thread_root,
    owner: row.owner,
    principalId: row.principal_id,
    did: readDid(row.principal_id),
    matrixUserId: row.matrix_user_id,
    tier: row.tier,
    trust: row.trust,
    grants: readGrants(row.grants),
    tainted: row.tainted === 1,
    client: row.client,
    requestId: row.request_id,
    hints: turnHints.parse(JSON.parse(row.hints)),
    direct: row.direct === 1,
    replaces: row.replaces,
    status: row.status,
    attempt: row.attempt,
    createdAt: row.created_at,
    startedAt: row.started_at,
    deadlineAt: row.deadline_at,
    fence: row.fence,
    prompts,
  };
}

function readDid(principal: string): Run['did'] {
  const did = parseDid(principal);
  return did.ok ? did.value : null;
}
