/**
 * An edit of the last prompt of a conversation is a new run that answers into the very message of the old one (DESIGN §7): the prompts go over to it,
 * what the old run said is no part of the conversation any more, and what its tools wrote counts as done (G6, src/runs/tool-marks.ts). One
 * transaction, so that no crash leaves a prompt with two answers or with none (G2, G5).
 */
import type { PrincipalId, RunId, SessionId, TokenId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import { isBelow, type Principal, type RestsOn } from '../turn/principal.ts';
import type { Runs } from './ledger.ts';
import { type Run, TERMINAL } from './run.ts';

/** The run whose last prompt was edited. */
export interface Replaceable
  extends Pick<Run, 'sessionId' | 'roomId' | 'threadRoot' | 'owner' | 'matrixUserId' | 'tier' | 'trust' | 'hints' | 'direct' | 'grants'> {
  readonly runId: RunId;
  readonly principalId: PrincipalId;
  readonly isWorking: boolean;
  /** The prompt as it is now. */
  readonly text: string;
  /** It answers other prompts as well. */
  readonly hasOthers: boolean;
}

export interface Replacing {
  /** Undefined when the prompt is not the last of its conversation, was taken back, or came from a portal. */
  find(tx: Tx, promptId: string): Replaceable | undefined;
  /** All prompts go over to `next`, which was just opened and replaces the old run. */
  hand(tx: Tx, old: Replaceable, next: RunId, edited: { promptId: string; text: string }): void;
}

/**
 * Only the same account for the same principal, in the same room, at no lower tier. The new run rests on what the edit rests on. Prompts beside the
 * edited one were said at the tier of the old run and under its grants, and go over to no other.
 */
export function mayReplace(principal: Principal, roomId: string, old: Replaceable): boolean {
  if (principal.id !== old.principalId || principal.matrixUserId !== old.matrixUserId || roomId !== old.roomId) return false;
  if (!old.hasOthers) return !isBelow(principal.tier, old.tier);
  return principal.tier === old.tier && tokensOf(principal.grants) === tokensOf(old.grants);
}

const tokensOf = ({ path }: RestsOn): string => path.map(({ tokenId }) => tokenId).join(' ');

/** What a prompt over HTTP is called (src/turn/authenticate.ts). */
const HTTP = 'http:';

export function createReplacing({ store, runs }: { store: Store; runs: Pick<Runs, 'read'> }): Replacing {
  const { sql } = store;
  const newestOf = (tx: Tx, session: SessionId) =>
    tx.get(sql.selectFrom('runs').select('run_id').where('session_id', '=', session).orderBy('run_id', 'desc').limit(1))?.run_id;
  return {
    find(tx, promptId) {
      // A prompt over HTTP is no event: nobody can edit it.
      if (!promptId.startsWith('$')) return undefined;
      const id = tx.get(sql.selectFrom('pending_inputs').select('run_id').where('prompt_id', '=', promptId))?.run_id;
      const run = id === undefined ? undefined : runs.read(tx, id);
      const last = run?.prompts.at(-1);
      if (run === undefined || last?.id !== promptId || run.status === 'queued') return undefined;
      // With one of its prompts went what its tools were asked: nobody could tell any more what must not be done again (G6).
      if (run.prompts.some(({ text }) => text === '')) return undefined;
      if (newestOf(tx, run.sessionId) !== run.id) return undefined;
      const { sessionId, roomId, threadRoot, owner, matrixUserId, tier, trust, hints, direct, grants, principalId } = run;
      return {
        ...{ sessionId, roomId, threadRoot, owner, matrixUserId, tier, trust, hints, direct, grants, principalId },
        runId: run.id,
        isWorking: !TERMINAL.has(run.status),
        text: last.text,
        hasOthers: run.prompts.length > 1,
      };
    },
    hand(tx, { runId, sessionId }, next, { promptId, text }) {
      const prompts = tx
        .all(sql.selectFrom('pending_inputs').select('prompt_id').where('run_id', '=', runId))
        .map(({ prompt_id }) => prompt_id);
      const said = tx.all(sql.selectFrom('transcript').select('id').where('event_id', 'in', prompts));
      // The newest of its conversation: what it said stands behind what it was asked, whatever was said before (G16).
      const rows = { session_id: sessionId, run_id: runId };
      const since = Math.min(...said.map(({ id }) => id));
      tx.run(sql.updateTable('pending_inputs').set({ run_id: next, consumed_at: null, steers: 0 }).where('run_id', '=', runId));
      tx.run(sql.updateTable('pending_inputs').set({ text }).where('prompt_id', '=', promptId));
      if (said.length > 0) {
        tx.run(
          sql
            .updateTable('transcript')
            .set({ run_id: next })
            .where((eb) => eb.and(rows))
            .where('id', '>=', since)
            .where('role', '=', 'human'),
        );
        tx.run(sql.updateTable('transcript').set({ text }).where('event_id', '=', promptId).where('run_id', '=', next));
        tx.run(
          sql
            .deleteFrom('transcript')
            .where((eb) => eb.and(rows))
            .where('id', '>=', since),
        );
      }
      // The caller that repeats its request is shown the run that answers it.
      const tokens = prompts.filter((prompt) => prompt.startsWith(HTTP)).map((prompt) => prompt.slice(HTTP.length) as TokenId);
      if (tokens.length > 0) tx.run(sql.updateTable('replay_marks').set({ run_id: next }).where('token_id', 'in', tokens));
    },
  };
}
