/**
 * Deletes what is kept of one person, for good: what they said and were answered, runs with their logs, conversations, grants, links, settings, and
 * the checkpoints. Who may ask for it is the operator (`matrix-oracle forget`); nobody else can. What stays has a reason: the audit log says what
 * was done in whose name, `seen` keeps their old messages from being answered anew (G2), revocations and spent tokens keep their old tokens dead.
 * A person is the account or DID that was named, with what is linked to nobody else: whoever shares a key or an account is named, and left alone.
 * In steps that let others write; a step that a crash ends is done again, and finds less.
 */
import { sql as raw } from 'kysely';
import {
  type Did,
  type OwnerId,
  type PrincipalId,
  parseUserId,
  type RunId,
  type SessionId,
  type UserId,
  unsignedPrincipalId,
} from '../ids.ts';
import { dropSummary } from '../sessions/summaries.ts';
import { eraseCheckpoints } from '../store/checkpoints/erase-checkpoints.ts';
import type { Store, Tx } from '../store/store.ts';
import type { DataPaths } from './data-paths.ts';

export interface Person {
  readonly accounts: readonly UserId[];
  readonly principals: readonly PrincipalId[];
  /** Linked with this one and with somebody else: not part of the person. */
  readonly shared: readonly string[];
}
export interface Known {
  readonly runs: number;
  readonly messages: number;
  readonly conversations: number;
  readonly grants: number;
}

type Reader = Pick<Store, 'sql'> & { readonly read: Pick<Tx, 'all' | 'get'> };

export function readPerson({ sql, read }: Reader, named: UserId | Did): Person {
  const links = sql.selectFrom('links');
  const account = parseUserId(named);
  if (account.ok) {
    const dids = read.all(links.select('did').where('matrix_user_id', '=', account.value)).map(({ did }) => did);
    const isOwn = (did: PrincipalId): boolean =>
      read.get(links.select('did').where('did', '=', did).where('matrix_user_id', '!=', account.value).limit(1)) === undefined;
    const own = dids.filter(isOwn);
    return {
      accounts: [account.value],
      principals: [unsignedPrincipalId(account.value), ...own],
      shared: dids.filter((did) => !own.includes(did)),
    };
  }
  const did = named as Did;
  const accounts = read.all(links.select('matrix_user_id').where('did', '=', did)).map(({ matrix_user_id }) => matrix_user_id);
  const own = accounts.filter(
    (user) => read.get(links.select('did').where('matrix_user_id', '=', user).where('did', '!=', did).limit(1)) === undefined,
  );
  return { accounts: own, principals: [did, ...own.map(unsignedPrincipalId)], shared: accounts.filter((user) => !own.includes(user)) };
}

export function countKnown({ sql, read }: Reader, person: Person): Known {
  const count = (rows: { n: number } | undefined): number => rows?.n ?? 0;
  const n = raw<number>`count(*)`.as('n');
  return {
    runs: count(read.get(sql.selectFrom('runs').select(n).where(ofPerson(person)))),
    messages: count(read.get(sql.selectFrom('transcript').select(n).where('speaker', 'in', person.principals))),
    conversations: count(read.get(sql.selectFrom('sessions').select(n).where('owner', 'in', person.principals))),
    grants: count(read.get(sql.selectFrom('grants').select(n).where(grantsOf(person)))),
  };
}

const list = (values: readonly string[]) => raw.join(values.length === 0 ? [null] : values);
/** As a condition on `runs`. */
export const ofPerson = ({ principals, accounts }: Person) =>
  raw<boolean>`(principal_id in (${list(principals)}) or matrix_user_id in (${list(accounts)}))`;
const grantsOf = ({ principals, accounts }: Person) =>
  raw<boolean>`(did in (${list(principals)}) or matrix_user_id in (${list(accounts)}))`;

export interface ForgetOptions {
  readonly store: Store;
  /** All of the owner's checkpoints, or those of one thread of it; `null`: nothing but what earlier turns left in free pages. */
  readonly eraseCheckpoints: (owner: OwnerId, thread?: SessionId | null) => void;
}

/** For the running process and for this command alike. */
export const eraserOf =
  ({ checkpoints }: Pick<DataPaths, 'checkpoints'>): ForgetOptions['eraseCheckpoints'] =>
  (owner, thread) =>
    void eraseCheckpoints(checkpoints, { owner, ...(thread === undefined ? {} : { thread }) });

/** Rows looked at or deleted in one step. */
const STEP = 5_000;
/** The log of one run may be thousands of rows. */
const RUN_STEP = 20;

interface Turn {
  readonly runId: RunId;
  readonly sessionId: SessionId;
  readonly owner: OwnerId;
}

/** Their runs must be over, or nobody must execute them: a run whose row is gone writes nothing more, and ends as taken over. */
export async function forgetPerson(person: Person, options: ForgetOptions): Promise<Known> {
  const { store, eraseCheckpoints } = options;
  const known = countKnown(store, person);
  const turns = await readTurns(store, person);
  for (let from = 0; from < turns.length; from += RUN_STEP) {
    const step = turns.slice(from, from + RUN_STEP);
    await store.write((tx) => forgetRuns(store, tx, step));
  }
  await forgetSaid(store, person);
  await forgetSent(store, await readRooms(store, person));
  await store.write((tx) => forgetRest(store, tx, person));
  for (const owner of person.principals) eraseCheckpoints(owner);
  const shared = turns.filter(({ owner }) => !person.principals.includes(owner as PrincipalId));
  for (const { owner, sessionId } of new Map(shared.map((turn) => [turn.sessionId, turn])).values()) {
    // Another person's turn may be under way in that thread: it took its place in the file already.
    eraseCheckpoints(owner, isWorking(store, sessionId) ? null : sessionId);
  }
  store.dropLog();
  return known;
}

/** Of theirs wherever they spoke, and all of their own conversations. */
async function readTurns(store: Store, person: Person): Promise<Turn[]> {
  const { sql } = store;
  const turns: Turn[] = [];
  for (let after = '' as RunId; ; ) {
    const last = store.read
      .all(sql.selectFrom('runs').select('run_id').where('run_id', '>', after).orderBy('run_id').limit(STEP))
      .at(-1)?.run_id;
    if (last === undefined) return turns;
    const rows = store.read.all(
      sql
        .selectFrom('runs')
        .select(['run_id', 'session_id', 'owner'])
        .where('run_id', '>', after)
        .where('run_id', '<=', last)
        .where((eb) => eb.or([ofPerson(person), eb('owner', 'in', person.principals)])),
    );
    turns.push(...rows.map((row) => ({ runId: row.run_id, sessionId: row.session_id, owner: row.owner })));
    after = last;
    await letOthersWrite(store);
  }
}

function forgetRuns({ sql }: Store, tx: Tx, turns: readonly Turn[]): void {
  const runs = turns.map(({ runId }) => runId);
  const prompts = tx.all(sql.selectFrom('pending_inputs').select('prompt_id').where('run_id', 'in', runs)).map((row) => row.prompt_id);
  const byCause = prompts.flatMap((prompt) => CAUSED.map((kind) => `${kind}.${prompt}`));
  if (byCause.length > 0) tx.run(sql.deleteFrom('outbox').where('txn_id', 'in', byCause as never));
  tx.run(sql.deleteFrom('outbox').where('run_id', 'in', runs));
  for (const table of ['frames', 'tool_marks', 'erasures', 'pending_inputs'] as const)
    tx.run(sql.deleteFrom(table).where('run_id', 'in', runs));
  const sessions = [...new Set(turns.map(({ sessionId }) => sessionId))];
  tx.run(sql.deleteFrom('transcript').where('session_id', 'in', sessions).where('run_id', 'in', runs));
  // Others' conversations too are retold without this person from now on.
  for (const session of sessions) dropSummary({ sql }, tx, session);
  // A run that never ended holds credits, and whose they are may stay: its end is what settles them (migration 008).
  tx.run(
    sql
      .updateTable('runs')
      .set((eb) => ({ ended_at: eb.ref('created_at') }))
      .where('run_id', 'in', runs)
      .where('ended_at', 'is', null),
  );
  tx.run(sql.deleteFrom('runs').where('run_id', 'in', runs));
}
/** What is sent because of a prompt without a run of its own (`noticeTxnId`). */
const CAUSED = ['mirror', 'refusal', 'parked', 'late', 'gave-up', 'command', 'receipt'];

/** What they said in groups without being answered, and whatever else has their name on it. */
async function forgetSaid(store: Store, person: Person): Promise<void> {
  const { sql } = store;
  const owned = store.read.all(sql.selectFrom('sessions').select('session_id').where('owner', 'in', person.principals));
  for (const { session_id } of owned) {
    const rows = sql.selectFrom('transcript').select('id').where('session_id', '=', session_id).limit(STEP);
    await repeatUntilNone(() => store.write((tx) => tx.run(sql.deleteFrom('transcript').where('id', 'in', rows))));
  }
  for (let after = 0; ; ) {
    const last = store.read.all(sql.selectFrom('transcript').select('id').where('id', '>', after).orderBy('id').limit(STEP)).at(-1)?.id;
    if (last === undefined) return;
    const from = after;
    await store.write((tx) =>
      tx.run(sql.deleteFrom('transcript').where('id', '>', from).where('id', '<=', last).where('speaker', 'in', person.principals)),
    );
    after = last;
  }
}

/** Their direct rooms. */
async function readRooms({ sql, read }: Store, { principals, accounts }: Person): Promise<string[]> {
  const own = read.all(sql.selectFrom('sessions').select('room_id').distinct().where('owner', 'in', principals));
  const linked = accounts.length === 0 ? [] : read.all(sql.selectFrom('links').select('room_id').where('matrix_user_id', 'in', accounts));
  return [...new Set([...own, ...linked].flatMap(({ room_id }) => (room_id === null ? [] : [room_id])))];
}

async function forgetSent(store: Store, rooms: readonly string[]): Promise<void> {
  const { sql } = store;
  if (rooms.length === 0) return;
  for (let after = 0; ; ) {
    const last = store.read.all(sql.selectFrom('outbox').select('seq').where('seq', '>', after).orderBy('seq').limit(STEP)).at(-1)?.seq;
    if (last === undefined) return;
    const from = after;
    await store.write((tx) =>
      tx.run(
        sql
          .deleteFrom('outbox')
          .where('seq', '>', from)
          .where('seq', '<=', last)
          .where('room_id', 'in', rooms as never)
          // Their own runs are gone by now: what is left was said to others in a room that was direct once.
          .where((eb) => eb.not(eb.exists(eb.selectFrom('runs').select('runs.run_id').whereRef('runs.run_id', '=', 'outbox.run_id')))),
      ),
    );
    after = last;
  }
}

function forgetRest({ sql }: Store, tx: Tx, person: Person): void {
  const { principals, accounts } = person;
  const ids: readonly string[] = [...principals, ...accounts];
  tx.run(sql.deleteFrom('grants').where(grantsOf(person)));
  tx.run(sql.deleteFrom('links').where(grantsOf(person)));
  const sessions = tx
    .all(sql.selectFrom('sessions').select('session_id').where('owner', 'in', principals))
    .map(({ session_id }) => session_id as string);
  for (const scopes of chunks([...ids, ...sessions])) tx.run(sql.deleteFrom('state').where('scope_id', 'in', scopes));
  for (const table of ['plugin_storage', 'blobs', 'credit_holds', 'credit_entries', 'credit_accounts'] as const)
    tx.run(sql.deleteFrom(table).where('principal_id', 'in', principals));
  // A message that came in meanwhile keeps its conversation.
  tx.run(
    sql
      .deleteFrom('sessions')
      .where('owner', 'in', principals)
      .where((eb) => eb.not(eb.exists(eb.selectFrom('runs').select('run_id').whereRef('runs.session_id', '=', 'sessions.session_id')))),
  );
  if (accounts.length > 0) {
    tx.run(sql.deleteFrom('inbox').where('sender', 'in', accounts));
    tx.run(sql.deleteFrom('authorise_links').where('matrix_user_id', 'in', accounts));
    tx.run(sql.updateTable('rooms').set({ inviter: null }).where('inviter', 'in', accounts).where('first_read', '=', 1));
  }
  for (const id of ids) {
    tx.run(sql.deleteFrom('notice_stamps').where(raw<boolean>`instr(key, ${id}) > 0`));
    tx.run(sql.deleteFrom('rate_counts').where(raw<boolean>`instr(key, ${id}) > 0`));
  }
}

const isWorking = (store: Store, session: SessionId): boolean =>
  store.read.get(
    store.sql.selectFrom('runs').select('run_id').where('session_id', '=', session).where('status', 'in', ['running', 'waiting']).limit(1),
  ) !== undefined;

async function repeatUntilNone(step: () => Promise<number>): Promise<void> {
  while ((await step()) >= STEP);
}
const letOthersWrite = (store: Store): Promise<void> => store.write(() => undefined);
function* chunks<T>(items: readonly T[]): Generator<T[]> {
  for (let from = 0; from < items.length; from += 500) yield items.slice(from, from + 500);
}
