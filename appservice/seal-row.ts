/**
 * The last door before the homeserver: whether a row may go out as it is, is asked at each attempt, because a room may be encrypted since the row
 * was written (G11). A row is encrypted once; its ciphertext is on disk before the first byte leaves, so that a retry after a crash or a lost
 * answer neither advances the ratchet nor becomes a second event (G4). Once it has a ciphertext it goes out in no other form.
 * Cost: nothing in a room without encryption; one commit more per event in an encrypted one.
 */
import type { RoomId } from '../src/ids.ts';
import { canonicalJson, isJsonObject, type JsonObject } from '../src/json.ts';
import type { Logger } from '../src/observe/logger.ts';
import type { Outbox, OutboxRow } from '../src/outbox/outbox.ts';
import { TOO_LARGE_SEALED } from '../src/outbox/park-reason.ts';
import type { AskedEncrypted } from '../src/runs/asked-encrypted.ts';
import { CryptoUnavailable, type RoomEncryption } from './crypto/crypto-service.ts';
import { isMatrixError, isOutage, MatrixError } from './matrix-api.ts';
import type { SendRequest } from './plan-request.ts';

export interface SealRowOptions {
  readonly outbox: Pick<Outbox, 'seal'>;
  readonly logger: Logger;
  /** Null: plain text may go into the room. `always`: also where its state does not ask for encryption. @throws MatrixError when nobody can say. */
  readonly encryption: ((room: RoomId, always: boolean) => Promise<RoomEncryption | null>) | undefined;
  /** Whether the row answers what was encrypted. */
  readonly askedEncrypted?: AskedEncrypted | undefined;
  /** Content of the encrypted event. @throws CryptoUnavailable, MatrixError. */
  readonly seal: ((event: { type: string; content: JsonObject }, room: RoomEncryption) => Promise<JsonObject>) | undefined;
  /** Ends the waiting, not the work. */
  readonly signal: AbortSignal;
}
export type SealedRow = { readonly kind: 'ready'; readonly row: OutboxRow } | { readonly kind: 'unsendable'; readonly reason: string };

/** @throws MatrixError when nobody can say whether the room is encrypted, CryptoUnavailable while it cannot be done. */
export type SealRow = (row: OutboxRow, request: SendRequest) => Promise<SealedRow>;

export function createSealRow({ outbox, logger, encryption, askedEncrypted, seal, signal }: SealRowOptions): SealRow {
  /** What the homeserver says of keys is not said of the event: it must never be given up for it, nor its device be made again. */
  function aboutKeys(error: unknown, row: OutboxRow): unknown {
    if (error instanceof CryptoUnavailable) return error;
    if (isMatrixError(error)) {
      if (isOutage(error) || error.status === 429 || error.errcode === 'ABORTED') return error;
      return new CryptoUnavailable(`keys: ${error.errcode} ${error.status}`, { cause: error });
    }
    // A bug. The row is tried again, and holds up no other one.
    logger.error({ txn_id: row.txn_id, room_id: row.room_id, err: error }, 'an event could not be encrypted');
    return new CryptoUnavailable('encryption failed', { cause: error });
  }

  return async (row, request) => {
    if (encryption === undefined || row.sealed !== null || !isSealable(row)) return { kind: 'ready', row };
    const room = await orAborted(encryption(row.room_id, askedEncrypted?.(row) ?? false), signal);
    if (room === null) return { kind: 'ready', row };
    if (seal === undefined) return { kind: 'unsendable', reason: 'encrypted room' };
    const content = contentOf(request);
    const sealed = await orAborted(seal({ type: row.event_type, content }, room), signal).catch((error: unknown) => {
      throw aboutKeys(error, row);
    });
    const problem = decideSealProblem(sealed, content);
    return problem === null ? { kind: 'ready', row: await outbox.seal(row, sealed) } : { kind: 'unsendable', reason: problem };
  };
}

/** Servers count reactions, and a redaction is an order to them: clients send these in the clear into encrypted rooms too. So is state. */
const ALWAYS_CLEAR = new Set(['m.reaction', 'm.room.redaction']);
const isSealable = ({ state_key, event_type }: Pick<OutboxRow, 'state_key' | 'event_type'>): boolean =>
  state_key === null && !ALWAYS_CLEAR.has(event_type);

function contentOf({ body }: SendRequest): JsonObject {
  const content: unknown = Buffer.isBuffer(body) ? JSON.parse(body.toString()) : body;
  if (!isJsonObject(content)) throw new Error('the content of an outbox row is no object');
  return content;
}

/** What homeservers accept for an event is 64 KiB, of which they need some for signatures, hashes and the events before it. */
const MAX_SEALED_BYTES = 62 * 1024;

/**
 * Pure: why this must not be sent as the encryption of that; null when it may. Homeservers and clients find threads and edits by the relation in
 * the clear part: without it each edit would be a message of its own.
 */
export function decideSealProblem(sealed: JsonObject, content: JsonObject): string | null {
  const { algorithm, ciphertext } = sealed;
  if (typeof algorithm !== 'string' || typeof ciphertext !== 'string' || Object.hasOwn(sealed, 'body'))
    return 'encryption gave no ciphertext';
  const [inside, outside] = [canonicalJson(content['m.relates_to'] ?? null), canonicalJson(sealed['m.relates_to'] ?? null)];
  if (!inside.ok || !outside.ok || inside.value !== outside.value) return 'encryption lost the relation';
  return Buffer.byteLength(JSON.stringify(sealed)) > MAX_SEALED_BYTES ? TOO_LARGE_SEALED : null;
}

async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = () =>
    aborted.reject(new MatrixError({ errcode: 'ABORTED', status: 0, retryAfterMs: null, certain: true, cause: signal.reason }));
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
