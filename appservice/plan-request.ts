/**
 * The request that a row is. Each retry must be the same request (G4): the bytes of a row never change, neither those that its cause wrote nor
 * those that it was encrypted to; only the id of the event that an edit replaces is filled in, and that never changes either.
 */
import type { EventId } from '../src/ids.ts';
import { isJsonObject, type JsonObject } from '../src/json.ts';
import type { OutboxRow } from '../src/outbox/outbox.ts';
import { matrixPath } from './matrix-api.ts';

export interface SendRequest {
  readonly path: string;
  readonly body: Buffer | JsonObject;
  /** Becomes `origin_server_ts` of an edit (`Outbox.insert`). An original keeps the time of the homeserver: readers see it. */
  readonly ts?: number;
}
export type RequestPlan = ({ readonly kind: 'send' } & SendRequest) | { readonly kind: 'unsendable'; readonly reason: string };

/** An edit of what another database sent (interrupt-orphans.ts) names its target itself. In a text the quotes would be escaped. */
const REPLACES = '"rel_type":"m.replace"';

/** Pure. @param edits the event that the row edits, if it is known. */
export function planRequest(row: OutboxRow, edits: EventId | null): RequestPlan {
  const ts = row.edits_txn !== null || row.content.includes(REPLACES) ? { ts: row.created_at } : {};
  if (row.sealed !== null) {
    const path = matrixPath`/_matrix/client/v3/rooms/${row.room_id}/send/${'m.room.encrypted'}/${row.txn_id}`;
    return { kind: 'send', path, body: Buffer.from(row.sealed), ...ts };
  }
  const path =
    row.state_key === null
      ? matrixPath`/_matrix/client/v3/rooms/${row.room_id}/send/${row.event_type}/${row.txn_id}`
      : matrixPath`/_matrix/client/v3/rooms/${row.room_id}/state/${row.event_type}/${row.state_key}`;
  if (row.edits_txn === null) return { kind: 'send', path, body: Buffer.from(row.content), ...ts };
  if (edits === null) return { kind: 'unsendable', reason: 'the edited event was never sent' };
  const content: unknown = JSON.parse(row.content);
  if (!isJsonObject(content)) return { kind: 'unsendable', reason: 'its content is not an object' };
  return { kind: 'send', path, body: { ...content, 'm.relates_to': { rel_type: 'm.replace', event_id: edits } }, ...ts };
}
