/**
 * The conversation lives here, not in the graph's checkpoint (DESIGN §4 "Agent library"): so a checkpoint costs its turn whatever the
 * thread's length (G16), a redaction has one place to blank, and a lost checkpoint loses a turn, not a thread.
 * Rows are written with admission (prompts) and with the terminal transaction of a run (answers, tool calls and results).
 */
import type { Insertable } from 'kysely';
import type { RoomId, RunId, SessionId } from '../ids.ts';
import { prepare } from '../store/prepared.ts';
import type { TranscriptTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Tier } from '../turn/principal.ts';

export interface TranscriptEntry {
  readonly id: number;
  readonly runId: RunId | null;
  readonly eventId: string | null;
  readonly role: 'human' | 'ai' | 'tool';
  /** Principal id, or `oracle`. */
  readonly speaker: string;
  readonly text: string;
  /** Stored LangChain message (tool calls, results) or null when the text says it all. */
  readonly message: unknown;
  readonly at: number;
  /** Under which it was said or answered; null for what was only overheard. */
  readonly tier: Tier | null;
  /** Said by a tainted run: whoever reads it is tainted as well. */
  readonly tainted: boolean;
}
export interface NewTranscriptEntry extends Omit<TranscriptEntry, 'id' | 'tier' | 'tainted'> {
  /** Absent for what was only overheard. */
  readonly tier?: Tier;
  readonly tainted?: boolean;
  readonly roomId: RoomId;
  /** Null: said in a group outside any session. */
  readonly sessionId: SessionId | null;
}

export interface Transcript {
  append(tx: Tx, entry: NewTranscriptEntry): void;
  /** The newest entries of a session before a run's own, oldest first. Cost is by `limit`, not by the length of the thread (G16). */
  newest(session: SessionId, { limit, withoutRun }: { limit: number; withoutRun?: RunId }): TranscriptEntry[];
  /** A page for GET /messages, oldest first; `before` is an entry id. */
  page(session: SessionId, { limit, before }: { limit: number; before?: number }): TranscriptEntry[];
  /** What was said in a group's timeline outside any session, oldest first: context of a first mention. */
  overheard(room: RoomId, limit: number): TranscriptEntry[];
}

export function createTranscript({ store }: { store: Store }): Transcript {
  const { sql } = store;
  const columns = ['id', 'run_id', 'event_id', 'role', 'speaker', 'text', 'message', 'at', 'tier', 'tainted'] as const;
  type Row = {
    id: number;
    run_id: RunId | null;
    event_id: string | null;
    role: 'human' | 'ai' | 'tool';
    speaker: string;
    text: string;
    message: string | null;
    at: number;
    tier: Tier | null;
    tainted: number;
  };
  const readRow = (row: Row): TranscriptEntry => ({
    id: row.id,
    runId: row.run_id,
    eventId: row.event_id,
    role: row.role,
    speaker: row.speaker,
    text: row.text,
    message: row.message === null ? null : JSON.parse(row.message),
    at: row.at,
    tier: row.tier,
    tainted: row.tainted === 1,
  });
  const newestOf = (session: SessionId, limit: number) =>
    sql
      .selectFrom('transcript')
      .select(columns)
      .where('session_id', '=', session)
      .where('redacted', '=', 0)
      .orderBy('id', 'desc')
      .limit(limit);
  const insertEntry = prepare((row: Insertable<TranscriptTable>) => sql.insertInto('transcript').values(row));
  return {
    append(tx, entry) {
      tx.run(
        insertEntry({
          room_id: entry.roomId,
          session_id: entry.sessionId,
          run_id: entry.runId,
          event_id: entry.eventId,
          role: entry.role,
          speaker: entry.speaker,
          text: entry.text,
          message: entry.message === null ? null : JSON.stringify(entry.message),
          attachments: null,
          at: entry.at,
          tier: entry.tier ?? null,
          tainted: entry.tainted === true ? 1 : 0,
        }),
      );
    },
    newest(session, { limit, withoutRun }) {
      let query = newestOf(session, limit);
      if (withoutRun !== undefined) query = query.where((eb) => eb.or([eb('run_id', 'is', null), eb('run_id', '<', withoutRun)]));
      return store.read.all(query).map(readRow).reverse();
    },
    page(session, { limit, before }) {
      let query = newestOf(session, limit);
      if (before !== undefined) query = query.where('id', '<', before);
      return store.read.all(query).map(readRow).reverse();
    },
    overheard: (room, limit) =>
      store.read
        .all(
          sql
            .selectFrom('transcript')
            .select(columns)
            .where('room_id', '=', room)
            .where('session_id', 'is', null)
            .where('redacted', '=', 0)
            .orderBy('id', 'desc')
            .limit(limit),
        )
        .map(readRow)
        .reverse(),
  };
}
