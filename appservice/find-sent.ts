/**
 * Which event a row became, told by the room alone. A transaction id counts per device: when the homeserver has forgotten the device, sending a
 * row again whose answer was lost would say everything twice (G4). The oracle's own events carry what names them (run, part, sequence number, and
 * for notices their whole text), so the row is looked for among what the oracle said since it was written. A row that was encrypted is its ciphertext;
 * it may have gone out in the clear before, when its room was not encrypted yet.
 * Cost: nothing in ordinary operation; a page or two of the room per row after a device was lost.
 */
import { type EventId, parseEventId, type UserId } from '../src/ids.ts';
import { canonicalJson, isJsonObject, type JsonObject } from '../src/json.ts';
import type { Outbox, OutboxRow } from '../src/outbox/outbox.ts';
import { isMatrixError, type MatrixApi, matrixPath } from './matrix-api.ts';

/** @throws MatrixError when the room cannot be read at the moment. */
export type FindSent = (row: OutboxRow) => Promise<EventId | null>;

export interface FindSentOptions {
  /** As the oracle without a device: the present one may be the one that is gone. */
  readonly api: MatrixApi;
  readonly outbox: Pick<Outbox, 'eventIdOf' | 'isConfirmed'>;
  readonly oracle: UserId;
}

interface Page {
  readonly chunk?: unknown;
  readonly end?: unknown;
}

const SEALED_TYPE = 'm.room.encrypted';
const PAGE = 100;
/** Own events of one type in one room since a row was written: it is kept for a day. */
const MAX_PAGES = 20;
/** Its clock and ours may differ by so much. */
const CLOCK_SLACK_MS = 10 * 60_000;

export function createFindSent({ api, outbox, oracle }: FindSentOptions): FindSent {
  /** Rows are settled side by side, and two may say the same: an event is one row's only. */
  const claims = new Map<EventId, number>();
  return async (row) => {
    const edits = row.edits_txn === null ? null : outbox.eventIdOf(row.edits_txn);
    const types = row.sealed === null ? [row.event_type] : [row.event_type, SEALED_TYPE];
    const filter = JSON.stringify({ senders: [oracle], types });
    const path = matrixPath`/_matrix/client/v3/rooms/${row.room_id}/messages`;
    const fitting: EventId[] = [];
    let from: string | undefined;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const answer: Page = await api
        .request<Page>('GET', path, {
          query: { dir: 'b', limit: PAGE, filter, ...(from === undefined ? {} : { from }) },
        })
        .catch((error: unknown) => {
          // Out of the room: the attempt to send says so.
          if (isMatrixError(error) && (error.status === 403 || error.status === 404)) return {};
          throw error;
        });
      const events = Array.isArray(answer.chunk) ? answer.chunk.filter(isJsonObject) : [];
      for (const event of events) {
        const id = parseEventId(event['event_id']);
        if (id.ok && isEventOf(row, event, { oracle, edits })) fitting.push(id.value);
      }
      const last = events.at(-1)?.['origin_server_ts'];
      if (typeof answer.end !== 'string' || (typeof last === 'number' && last < row.created_at - CLOCK_SLACK_MS)) break;
      from = answer.end;
    }
    const found = fitting.findLast((id) => (claims.get(id) ?? row.seq) === row.seq && !outbox.isConfirmed(id)) ?? null;
    if (found !== null) claims.set(found, row.seq);
    return found;
  };
}

/** Pure: this event says what the row says, word for word, and in the same place; or it is what the row was encrypted to. */
export function isEventOf(
  row: Pick<OutboxRow, 'event_type' | 'content' | 'edits_txn' | 'sealed'>,
  event: JsonObject,
  { oracle, edits }: { oracle: UserId; edits: EventId | null },
): boolean {
  const { sender, type, content } = event;
  if (sender !== oracle || event['state_key'] !== undefined || !isJsonObject(content)) return false;
  if (type === SEALED_TYPE) return row.sealed !== null && isSame(content, JSON.parse(row.sealed));
  if (type !== row.event_type) return false;
  const meant: unknown = JSON.parse(row.content);
  if (!isJsonObject(meant)) return false;
  return isSame(content, row.edits_txn === null ? meant : { ...meant, 'm.relates_to': { rel_type: 'm.replace', event_id: edits } });
}

function isSame(one: unknown, other: unknown): boolean {
  const [a, b] = [canonicalJson(one), canonicalJson(other)];
  return a.ok && b.ok && a.value === b.value;
}
