/**
 * What the room shows of an answer is not kept in memory but read from the outbox rows of its run: so a run that goes on after a crash edits
 * the very messages it began (G5), and the last word is planned against what is on disk, whatever a failed write left behind (G4).
 * Cost: one read per start and one per end of a run; only the newest version of each message is parsed.
 */
import type { OutboxTxnId, RunId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { OutboxRow } from '../../src/outbox/outbox.ts';
import { LIVE_KEY } from '../content/build-answer.ts';
import { isTerminal, readRunField } from '../content/run-field.ts';

/** One message of the answer: its newest version that is sent or will be. */
export interface ShownMessage {
  readonly part: number;
  /** Txn id of the original: what every edit targets. */
  readonly originTxn: OutboxTxnId;
  readonly text: string;
  readonly live: boolean;
  /** Its status says that the run ended. */
  readonly ended: boolean;
  /** Sent or waiting, the original not counted. */
  readonly edits: number;
  /** Txn id of the newest version while it is not confirmed. */
  readonly waitingTxn: OutboxTxnId | null;
  /** Wall clock. */
  readonly createdAt: number;
  readonly sentAt: number | null;
  /** The homeserver refused the original for good: there is nothing to edit. */
  readonly parked: boolean;
}

export interface Shown {
  readonly messages: ReadonlyMap<number, ShownMessage>;
  /** For `answerTxnId`: never used by an earlier attempt. */
  readonly nextSeq: number;
}

/**
 * Rows of one run, oldest first (`Outbox.ofRun`), after those of the runs that it replaces. Messages of theirs are this run's to go on with, as if
 * nothing of this answer were shown in them yet; one that never came to be is not.
 */
export function readShown(rows: readonly OutboxRow[], run: RunId): Shown {
  const byPart = new Map<number, { origin: OutboxRow; edits: number; newest: OutboxRow }>();
  let nextSeq = 1;
  for (const row of rows) {
    if (row.kind !== 'answer' || row.part === null) continue;
    const isOwn = row.run_id === run;
    if (isOwn) nextSeq = Math.max(nextSeq, seqOf(row.txn_id) + 1);
    const known = byPart.get(row.part);
    if (known === undefined) {
      if (row.edits_txn === null && (isOwn || row.state === 'sent' || row.state === 'ready'))
        byPart.set(row.part, { origin: row, edits: 0, newest: row });
    } else if (row.edits_txn === known.origin.txn_id && (row.state === 'sent' || row.state === 'ready')) {
      if (isOwn) known.edits += 1;
      known.newest = row;
    }
  }
  return {
    nextSeq,
    messages: new Map(
      [...byPart].map(([part, { origin, edits, newest }]) => [
        part,
        {
          part,
          originTxn: origin.txn_id,
          ...(newest.run_id === run ? readVersion(newest.content) : NOTHING_YET),
          edits,
          waitingTxn: newest.state === 'ready' ? newest.txn_id : null,
          createdAt: origin.created_at,
          sentAt: newest.sent_at,
          parked: origin.state === 'parked' || origin.state === 'dropped',
        },
      ]),
    ),
  };
}

const NOTHING_YET = { text: '', live: true, ended: false } as const;

/** The counterpart of `answerTxnId`. */
const seqOf = (txnId: OutboxTxnId): number => Number(txnId.slice(txnId.lastIndexOf('.') + 1));

function readVersion(json: string): { text: string; live: boolean; ended: boolean } {
  const content = JSON.parse(json) as JsonObject;
  const replaced = content['m.new_content'];
  const version = isJsonObject(replaced) ? replaced : content;
  const field = readRunField(version);
  return {
    text: typeof version['body'] === 'string' ? version['body'] : '',
    live: Object.hasOwn(version, LIVE_KEY),
    ended: field.ok && field.value !== undefined && isTerminal(field.value),
  };
}
