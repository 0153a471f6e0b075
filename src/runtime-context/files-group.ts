/**
 * `rtCtx.files`: files of the run's own room, in and out, whether the room is encrypted or not: a plugin sees neither keys nor ciphertext. What is
 * shared in a room was written by whoever is in it, so a tool that reads it must say `untrusted` (the host taints the run in any case); what is sent
 * is an effect that others see, under the same rules as `matrix.postToRoom`.
 */
import { z } from 'zod';
import { OracleError, refusal } from '../errors.ts';
import { parseEventId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import type { Run } from '../runs/run.ts';
import type { MatrixAccess, SharedFile } from './matrix-access.ts';
import type { Post } from './matrix-group.ts';
import type { RoomFile, RuntimeContext } from './runtime-context.ts';

export interface FilesGroupOptions {
  readonly run: Run;
  readonly access: MatrixAccess;
  readonly post: Post;
  readonly signal: AbortSignal;
}

const MIME = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/iu;
const named = { name: z.string().trim().min(1).max(LIMITS.fileNameChars), mimeType: z.string().regex(MIME) };
const outgoing = z.union([z.strictObject({ ...named, text: z.string() }), z.strictObject({ ...named, bytes: z.instanceof(Uint8Array) })]);

const badRequest = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));

export function buildFilesGroup({ run, access, post, signal }: FilesGroupOptions): RuntimeContext['files'] {
  return {
    async read(eventId) {
      const parsed = parseEventId(eventId);
      if (!parsed.ok) throw badRequest('This is no event id.');
      return buildRoomFile(await access.readFile(run.roomId, parsed.value, signal));
    },
    send(file) {
      const shared = readOutgoingFile(file);
      const askedEncrypted = run.trust !== null && run.trust !== 'clear';
      const place = { roomId: run.roomId, threadRoot: run.threadRoot, askedEncrypted };
      return post({ type: 'm.room.message', isState: false }, () => access.uploadFile(place, shared, signal));
    },
  };
}

/** Throws `BAD_REQUEST` with the reason. */
export function readOutgoingFile(file: unknown): SharedFile {
  const parsed = outgoing.safeParse(file);
  if (!parsed.success) throw badRequest('A file needs a name, a mimeType such as text/plain, and either text or bytes.');
  const { name, mimeType } = parsed.data;
  const bytes = 'text' in parsed.data ? Buffer.from(parsed.data.text) : parsed.data.bytes;
  if (bytes.length > LIMITS.fileBytes) throw badRequest(`A file may have at most ${LIMITS.fileBytes / 1024 / 1024} MiB.`);
  return { name, mimeType: mimeType.toLowerCase(), bytes };
}

/** Types whose bytes are text, besides `text/…`. */
const TEXTUAL = /^text\/|[/+](?:json|xml|yaml)$|^application\/(?:javascript|x-yaml|toml|sql|x-sh)$/u;

/** Pure. `text` only when the type says text and the bytes are UTF-8: half a text would be read as a whole one. */
export function buildRoomFile({ name, mimeType, bytes }: SharedFile): RoomFile {
  const text = TEXTUAL.test(mimeType) ? decode(bytes) : null;
  return Object.freeze({ name, mimeType, size: bytes.length, bytes, ...(text === null ? {} : { text }) });
}

function decode(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}
