/**
 * The secrets a person keeps in a room for the oracle's tools, as the IXO family stores them: state `ixo.room.secret.index` under the secret's name
 * points to an event `ixo.room.secret` whose value is encrypted to the oracle's key. Whoever has the power may overwrite another's state, so an entry
 * counts only for the person who wrote both the entry and the value: nobody can slip a token of their own into somebody else's runs (G13).
 * Cost: one look at the room's state per question; a value is fetched and decrypted once a day, or when its entry names another event.
 */
import type { KeyObject } from 'node:crypto';
import { compactDecrypt } from 'jose';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import { type EventId, parseEventId, type RoomId, type UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import type { Logger } from '../observe/logger.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import { JWE_ALGORITHM, JWE_ENCRYPTION, readCompactJwe } from './read-jwe.ts';

export const SECRET_INDEX_TYPE = 'ixo.room.secret.index';
export const SECRET_TYPE = 'ixo.room.secret';

/** Whose secrets, and where. */
export interface SecretOwner {
  readonly room: RoomId;
  readonly user: UserId;
}
export interface SecretEntry {
  readonly name: string;
  readonly eventId: EventId;
  readonly publicKeyId: string | null;
}
export interface Secrets {
  /** By name; never a value. */
  index(owner: SecretOwner): Promise<readonly SecretEntry[]>;
  /** Those of the names that have a value we can read; without a key none. */
  values(owner: SecretOwner, names: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /**
   * Values of this person in this room that runs were given since the start, to be masked. Never another's: whoever sees a guess masked would know
   * that it was right.
   */
  known(room: RoomId, user?: UserId): readonly string[];
  /** Something in the room was taken back: what is kept of it is read again. */
  forget(room: RoomId): void;
}
export interface SecretsOptions {
  readonly matrix: Pick<MatrixAccess, 'roomState' | 'event'>;
  /** Null: names only. */
  readonly key: KeyObject | null;
  /** Milliseconds that never go back. */
  readonly monotonic: () => number;
  readonly logger: Logger;
}

export const MAX_SECRETS = 200;
export const MAX_NAMES_PER_CALL = 50;
const MAX_VALUE_BYTES = 8 * 1024;
const KEPT_MS = 24 * 60 * 60_000;
const MAX_KEPT = 2_000;
const AT_ONCE = 8;

const NAME = /^[^\u0000-\u001f\u007f]{1,200}$/u;
export const isSecretName = (name: unknown): name is string => typeof name === 'string' && NAME.test(name) && name.isWellFormed();

const indexContent = z.object({ eventId: z.string(), publicKeyId: z.string().max(200).optional().catch(undefined) });
const valueEvent = z.object({ type: z.literal(SECRET_TYPE), sender: z.string(), content: z.object({ value: z.unknown() }) });

/** Entries of this user; an empty content is a deleted one. Pure. */
export function readSecretIndex(state: Awaited<ReturnType<MatrixAccess['roomState']>>, user: UserId): SecretEntry[] {
  const entries: SecretEntry[] = [];
  for (const { type, stateKey: name, sender, content } of state) {
    if (type !== SECRET_INDEX_TYPE || sender !== user || !isSecretName(name)) continue;
    const parsed = indexContent.safeParse(content);
    const eventId = parsed.success ? parseEventId(parsed.data.eventId) : null;
    if (!parsed.success || eventId?.ok !== true) continue;
    entries.push({ name, eventId: eventId.value, publicKeyId: parsed.data.publicKeyId ?? null });
    if (entries.length >= MAX_SECRETS) break;
  }
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
}

export function createSecrets({ matrix, key, monotonic, logger }: SecretsOptions): Secrets {
  const kept = new LRUCache<string, { readonly owner: SecretOwner; readonly value: string }>({
    max: MAX_KEPT,
    ttl: KEPT_MS,
    ttlResolution: 0,
    perf: { now: monotonic },
  });
  /** How often anything was forgotten. */
  let forgotten = 0;
  /** The user is part of it: an entry that points to another's event must not find what was decrypted for them. */
  const idOf = ({ room, user }: SecretOwner, eventId: EventId): string => JSON.stringify([room, user, eventId]);

  async function read(owner: SecretOwner, { eventId }: SecretEntry): Promise<string | null> {
    if (key === null) return null;
    const present = kept.get(idOf(owner, eventId));
    if (present !== undefined) return present.value;
    const before = forgotten;
    const event = await matrix.event(owner.room, eventId).catch((error: unknown) => {
      // Gone, or not for us to see; anything else is an outage, and a plugin must not take it for "there is no secret".
      if (isGone(error)) return {};
      throw error;
    });
    const value = await open(key, event, owner.user);
    if (value === null) {
      logger.warn({ room_id: owner.room, event_id: eventId, reason: 'cannot be read' }, 'a secret has no value that can be used');
      return null;
    }
    // What was taken back while it was on its way is good for this call at most.
    if (before === forgotten) kept.set(idOf(owner, eventId), { owner, value });
    return value;
  }

  const index: Secrets['index'] = async (owner) => readSecretIndex(await matrix.roomState(owner.room), owner.user);
  return {
    index,
    async values(owner, names) {
      const values = new Map<string, string>();
      if (key === null || names.length === 0) return values;
      const wanted = new Set(names.slice(0, MAX_NAMES_PER_CALL));
      const entries = (await index(owner)).filter(({ name }) => wanted.has(name));
      for (let from = 0; from < entries.length; from += AT_ONCE) {
        const step = entries.slice(from, from + AT_ONCE);
        const found = await Promise.all(step.map((entry) => read(owner, entry)));
        for (const [at, entry] of step.entries()) {
          const value = found[at];
          if (typeof value === 'string') values.set(entry.name, value);
        }
      }
      return values;
    },
    known: (room, user) =>
      [...kept.values()]
        .filter(({ owner }) => owner.room === room && (user === undefined || owner.user === user))
        .map(({ value }) => value),
    forget(room) {
      forgotten += 1;
      for (const [id, { owner }] of kept.entries()) if (owner.room === room) kept.delete(id);
    },
  };
}

/** What a transport says of an event that is not there for us. */
const isGone = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'status' in error && (error.status === 404 || error.status === 403);

/** Null for everything that is no value for us: an event that was taken back, somebody else's, another algorithm, another key. */
async function open(key: KeyObject, event: JsonObject, user: UserId): Promise<string | null> {
  const parsed = valueEvent.safeParse(event);
  if (!parsed.success || parsed.data.sender !== user) return null;
  const jwe = readCompactJwe(parsed.data.content.value);
  if (!jwe.ok) return null;
  try {
    const { plaintext } = await compactDecrypt(jwe.value, key, {
      keyManagementAlgorithms: [JWE_ALGORITHM],
      contentEncryptionAlgorithms: [JWE_ENCRYPTION],
    });
    return plaintext.byteLength > MAX_VALUE_BYTES ? null : new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(plaintext);
  } catch {
    // What the library says may hold parts of the token.
    return null;
  }
}
