/**
 * One summary per session, as a row of `state`: what was said before the window, retold. It holds what others may take back, so whoever erases a prompt
 * or a person drops it with them; the next long turn makes a new one.
 */
import { z } from 'zod';
import type { PrincipalId, SessionId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Tier } from '../turn/principal.ts';
import type { Transcript, TranscriptEntry } from './transcript.ts';

export interface Summary {
  /** Id of the newest entry of the conversation that it retells. */
  readonly upTo: number;
  readonly text: string;
  /** Part of it was said by a tainted run, or in one. */
  readonly tainted: boolean;
  /** Lowest under which any of it was said; null: some of it was only overheard. */
  readonly tier: Tier | null;
  /** Whose words it retells; null: of several people. */
  readonly speaker: PrincipalId | null;
}
export interface Summaries {
  read(session: SessionId): Summary | null;
  write(session: SessionId, summary: Summary): Promise<void>;
  /** The newest entries before one, oldest first. Cost is by `limit`. */
  before(session: SessionId, entry: number, limit: number): readonly TranscriptEntry[];
}

const SCOPE = 'session';
const KEY = 'summary';
const stored = z.strictObject({
  v: z.literal(1),
  upTo: z.number().int(),
  text: z.string(),
  tainted: z.boolean(),
  tier: z.enum(['signed', 'sender-bound', 'listed']).nullable(),
  speaker: z.string().nullable(),
});

export interface SummariesOptions {
  readonly store: Store;
  readonly transcript: Pick<Transcript, 'page'>;
  readonly clock: Clock;
}

export function createSummaries({ store, transcript, clock }: SummariesOptions): Summaries {
  const { sql } = store;
  return {
    read(session) {
      const row = store.read.get(
        sql.selectFrom('state').select('value').where('scope', '=', SCOPE).where('scope_id', '=', session).where('key', '=', KEY),
      );
      const parsed = stored.safeParse(row === undefined ? null : JSON.parse(row.value));
      if (!parsed.success) return null;
      const { v: _, speaker, ...summary } = parsed.data;
      return { ...summary, speaker: speaker as PrincipalId | null };
    },
    write: (session, summary) =>
      store.write((tx) => {
        const row = { value: JSON.stringify({ v: 1, ...summary }), updated_at: clock.now() };
        tx.run(
          sql
            .insertInto('state')
            .values({ scope: SCOPE, scope_id: session, key: KEY, ...row })
            .onConflict((oc) => oc.columns(['scope', 'scope_id', 'key']).doUpdateSet(row)),
        );
      }),
    before: (session, entry, limit) => transcript.page(session, { limit, before: entry }),
  };
}

/** For whoever erases something that was said in the session. */
export function dropSummary({ sql }: Pick<Store, 'sql'>, tx: Tx, session: SessionId): void {
  tx.run(sql.deleteFrom('state').where('scope', '=', SCOPE).where('scope_id', '=', session).where('key', '=', KEY));
}
