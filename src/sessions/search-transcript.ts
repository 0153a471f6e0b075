/**
 * Finds by words what a person said earlier and was answered. What may be found is decided by who asks and where (G13): in a direct room the person's
 * own conversations; in a group only what this person asked in that room and was answered there, because everybody there reads the answer, and
 * somebody there may be steering the model. Never tool results, never what was taken back.
 */
import { sql as raw } from 'kysely';
import type { PrincipalId, RoomId, RunId, SessionId } from '../ids.ts';
import { MATCHES_PER_WORD, matchOf, OWN_PER_WORD, planWords, rankByWords } from '../store/search-words.ts';
import type { Store } from '../store/store.ts';
import type { Tier } from '../turn/principal.ts';

export interface TranscriptHit {
  readonly sessionId: SessionId;
  readonly role: 'human' | 'ai';
  readonly text: string;
  readonly at: number;
  /** Under which it was said or answered; null for what was only overheard. */
  readonly tier: Tier | null;
  readonly tainted: boolean;
}
/** Whose run asks. */
export interface SearchAsker {
  readonly principalId: PrincipalId;
  readonly roomId: RoomId;
  readonly direct: boolean;
  /** It finds nothing of itself. */
  readonly runId: RunId;
}
export interface TranscriptSearch {
  /** Best first. Synchronous; under a tenth of a second, whatever the transcript holds. */
  find(asker: SearchAsker, query: string, limit: number): readonly TranscriptHit[];
}

export const MAX_HITS = 50;

export function createTranscriptSearch({ store }: { store: Pick<Store, 'sql' | 'read'> }): TranscriptSearch {
  const { sql, read } = store;
  const hits = ({ principalId, roomId, direct, runId }: SearchAsker) => {
    const rows = sql
      .selectFrom('transcript as t')
      .innerJoin('sessions as s', 's.session_id', 't.session_id')
      .leftJoin('runs as r', 'r.run_id', 't.run_id')
      .where('t.redacted', '=', 0)
      .where('t.role', 'in', ['human', 'ai'])
      .where((eb) => eb.or([eb('t.run_id', 'is', null), eb('t.run_id', '!=', runId)]));
    const isOwnTurn = raw<boolean>`((t.role = 'human' and t.speaker = ${principalId}) or (t.role = 'ai' and r.principal_id = ${principalId}))`;
    return direct ? rows.where(raw<boolean>`s.owner = ${principalId}`) : rows.where('t.room_id', '=', roomId).where(isOwnTurn);
  };

  return {
    find(asker, query, limit) {
      const matching = (word: string) =>
        raw<boolean>`t.id in (select rowid from transcript_search where transcript_search match ${matchOf(word)} order by rowid desc limit ${MATCHES_PER_WORD})`;
      const find = (word: string): number[] =>
        read.all(hits(asker).select('t.id').where(matching(word)).orderBy('t.id', 'desc').limit(OWN_PER_WORD)).map(({ id }) => id);
      const ids = rankByWords(planWords(query), find, Math.max(0, Math.min(limit, MAX_HITS)));
      if (ids.length === 0) return [];
      const rows = read.all(
        hits(asker).select(['t.id', 't.session_id', 't.role', 't.text', 't.at', 't.tier', 't.tainted']).where('t.id', 'in', ids),
      );
      return rows
        .sort((a, b) => ids.indexOf(a.id) - ids.indexOf(b.id))
        .map((row) => ({
          sessionId: row.session_id as SessionId,
          role: row.role as 'human' | 'ai',
          text: row.text,
          at: row.at,
          tier: row.tier,
          tainted: row.tainted === 1,
        }));
    },
  };
}
