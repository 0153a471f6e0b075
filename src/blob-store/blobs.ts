/**
 * Values that one tool hands to another behind the model's back: signed invocations, tokens. The model sees an id that says nothing; the value is
 * found only by the same person's runs of the same plugin (G13), encrypted in the database with a key that is not in it (G12), for a day at most.
 * On disk, because the tool that needs it may run after a restart.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { sql as raw } from 'kysely';
import { z } from 'zod';
import { OracleError, refusal } from '../errors.ts';
import type { PrincipalId } from '../ids.ts';
import type { Store } from '../store/store.ts';

export interface BlobOwner {
  readonly plugin: string;
  readonly principal: PrincipalId;
}
export interface Blob {
  readonly name: string;
  readonly value: string;
  /** Put there by a run that had read text of strangers. */
  readonly tainted: boolean;
}
export interface Blobs {
  /** @returns its id. @throws OracleError BAD_REQUEST past the limits. */
  put(owner: BlobOwner, blob: Blob, ttlSeconds?: number): Promise<string>;
  /** Null when there is none, when its time is over, and when it is somebody else's. */
  get(owner: BlobOwner, id: string): Blob | null;
  /** Removes what is over; returns how many. */
  sweep(now: number): Promise<number>;
}
export interface BlobsOptions {
  readonly store: Store;
  /** 32 bytes. */
  readonly key: Uint8Array;
  readonly now: () => number;
}

export const BLOB_LIMITS = { nameChars: 200, valueBytes: 64 * 1024, perPrincipal: 100, ttlSeconds: 3_600, maxTtlSeconds: 86_400 } as const;
const BLOB_ID = /^blob_[0-9a-f]{16}$/u;
export const isValidBlobId = (value: unknown): value is string => typeof value === 'string' && BLOB_ID.test(value);

const ID_BYTES = 8;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const SWEEP_BATCH = 1_000;
const stored = z.strictObject({ v: z.literal(1), name: z.string(), value: z.string(), tainted: z.boolean() });

export function createBlobs({ store, key, now }: BlobsOptions): Blobs {
  const { sql } = store;
  const live = ({ principal }: BlobOwner, at: number) =>
    sql.selectFrom('blobs').where('principal_id', '=', principal).where('expires_at', '>', at);
  return {
    async put(owner, { name, value, tainted }, ttlSeconds = BLOB_LIMITS.ttlSeconds) {
      requireText('name', name, BLOB_LIMITS.nameChars);
      requireText('value', value, BLOB_LIMITS.valueBytes);
      if (!Number.isFinite(ttlSeconds) || ttlSeconds <= 0) throw badRequest('ttlSeconds of a blob is a number above 0.');
      const id = `blob_${randomBytes(ID_BYTES).toString('hex')}`;
      const sealed = seal(key, JSON.stringify({ v: 1, name, value, tainted }), boundTo(owner, id));
      const at = now();
      const lifetimeMs = Math.round(Math.min(ttlSeconds, BLOB_LIMITS.maxTtlSeconds) * 1_000);
      await store.write((tx) => {
        const { n } = tx.get(live(owner, at).select(raw<number>`count(*)`.as('n'))) ?? { n: 0 };
        if (n >= BLOB_LIMITS.perPrincipal) throw badRequest(`One person may have ${BLOB_LIMITS.perPrincipal} blobs at a time.`);
        tx.run(
          sql.insertInto('blobs').values({
            blob_id: id,
            principal_id: owner.principal,
            plugin: owner.plugin,
            sealed,
            expires_at: at + lifetimeMs,
          }),
        );
      });
      return id;
    },
    get(owner, id) {
      if (!isValidBlobId(id)) return null;
      const row = store.read.get(live(owner, now()).select('sealed').where('blob_id', '=', id).where('plugin', '=', owner.plugin));
      const text = row === undefined ? null : unseal(key, row.sealed, boundTo(owner, id));
      if (text === null) return null;
      const { name, value, tainted } = stored.parse(JSON.parse(text));
      return { name, value, tainted };
    },
    async sweep(at) {
      let count = 0;
      for (let gone = SWEEP_BATCH; gone >= SWEEP_BATCH; count += gone) {
        const over = sql.selectFrom('blobs').select('blob_id').where('expires_at', '<=', at).limit(SWEEP_BATCH);
        gone = await store.write((tx) => tx.run(sql.deleteFrom('blobs').where('blob_id', 'in', over)));
      }
      return count;
    },
  };
}

/** A row that is moved to another person, plugin or id does not decrypt. */
const boundTo = ({ plugin, principal }: BlobOwner, id: string): Buffer => Buffer.from(JSON.stringify([id, principal, plugin]));

function seal(key: Uint8Array, text: string, bound: Buffer): Buffer {
  const iv = randomBytes(IV_BYTES);
  const cipher = createCipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES }).setAAD(bound);
  return Buffer.concat([iv, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
}

/** Null when it was sealed with another key: the oracle's was changed, or the row was tampered with. Both are no blob any more. */
function unseal(key: Uint8Array, sealed: Uint8Array, bound: Buffer): string | null {
  const bytes = Buffer.from(sealed);
  if (bytes.length < IV_BYTES + TAG_BYTES) return null;
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), { authTagLength: TAG_BYTES })
    .setAAD(bound)
    .setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    return decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
  } catch {
    return null;
  }
}

function requireText(field: string, text: unknown, most: number): void {
  const fits = typeof text === 'string' && text !== '' && text.isWellFormed() && Buffer.byteLength(text) <= most;
  if (!fits) throw badRequest(`The ${field} of a blob is text of 1 to ${most} bytes.`);
}
const badRequest = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));
