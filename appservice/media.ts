/**
 * Files of rooms, in and out. A download is bounded before its first byte is kept (G14) and asked for with the oracle's own authority; an upload
 * into a room that is encrypted is ciphertext (G11). Nothing is written to disk: a file lives as long as the tool call that wanted it.
 */
import { OracleError, refusal } from '../src/errors.ts';
import type { JsonObject } from '../src/json.ts';
import { LIMITS } from '../src/limits.ts';
import type { FilePlace, SharedFile } from '../src/runtime-context/matrix-access.ts';
import { buildRelation } from './content/relations.ts';
import type { Attachments } from './crypto/attachments.ts';
import { isMatrixError, type MatrixApi, matrixPath } from './matrix-api.ts';
import type { Rooms } from './rooms.ts';
import {
  buildSharedFile,
  cleanFileName,
  type FileKey,
  type MediaPlace,
  parseMxc,
  readSharedFile,
  UNKNOWN_MIME,
} from './wire/read-shared-file.ts';

export interface MediaOptions {
  readonly api: MatrixApi;
  readonly rooms: Pick<Rooms, 'isEncrypted'>;
  readonly attachments: Attachments;
}
export interface Media {
  /** @param event decrypted. @throws OracleError BAD_REQUEST, HOMESERVER_UNAVAILABLE. */
  read(event: JsonObject, signal: AbortSignal): Promise<SharedFile>;
  /** @returns content of the message that shows it. @throws OracleError HOMESERVER_UNAVAILABLE. */
  upload(place: FilePlace, file: SharedFile, signal: AbortSignal): Promise<JsonObject>;
}

const badFile = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));
const TOO_LARGE = `The file is larger than ${LIMITS.fileBytes / 1024 / 1024} MiB.`;

export function createMedia({ api, rooms, attachments }: MediaOptions): Media {
  async function download({ server, mediaId }: MediaPlace, signal: AbortSignal): Promise<Buffer> {
    try {
      return await api.request<Buffer>('GET', matrixPath`/_matrix/client/v1/media/download/${server}/${mediaId}`, {
        bytesUpTo: LIMITS.fileBytes,
        timeoutMs: LIMITS.fileTimeoutMs,
        signal,
      });
    } catch (error) {
      throw aboutFile(error);
    }
  }

  async function put(
    bytes: Uint8Array,
    { contentType, query, signal }: { contentType: string; query: { filename?: string }; signal: AbortSignal },
  ): Promise<string> {
    try {
      const { content_uri: uri } = await api.request<{ content_uri?: unknown }>('POST', '/_matrix/media/v3/upload', {
        body: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
        contentType,
        query,
        timeoutMs: LIMITS.fileTimeoutMs,
        signal,
      });
      if (typeof uri !== 'string' || parseMxc(uri) === null) throw new OracleError(refusal('HOMESERVER_UNAVAILABLE'));
      return uri;
    } catch (error) {
      throw aboutFile(error);
    }
  }

  /** What the media repository gets: neither name nor type of an encrypted file. */
  async function store(
    { name, mimeType, bytes }: SharedFile,
    { isEncrypted, signal }: { isEncrypted: boolean; signal: AbortSignal },
  ): Promise<{ url: string; key: FileKey | null }> {
    if (!isEncrypted) return { url: await put(bytes, { contentType: mimeType, query: { filename: name }, signal }), key: null };
    const sealed = await attachments.encrypt(bytes);
    return { url: await put(sealed.bytes, { contentType: UNKNOWN_MIME, query: {}, signal }), key: sealed.key };
  }

  return {
    async read({ type, content }, signal) {
      const file = type === 'm.room.message' ? readSharedFile(content) : { ok: true as const, value: undefined };
      if (!file.ok) throw badFile('The file is described in a way that cannot be read.');
      if (file.value === undefined)
        throw badFile(type === 'm.room.encrypted' ? 'This message cannot be decrypted.' : 'This message shows no file.');
      const { name, mimeType, size, media, key } = file.value;
      if (size !== null && size > LIMITS.fileBytes) throw badFile(TOO_LARGE);
      const bytes = await download(media, signal);
      if (key === null) return { name, mimeType, bytes };
      const clear = await attachments.decrypt(bytes, key);
      if (!clear.ok) throw badFile('The file is damaged: it is not the one that was sent.');
      return { name, mimeType, bytes: clear.value };
    },
    async upload({ roomId, threadRoot, askedEncrypted }, given, signal) {
      const file = { ...given, name: cleanFileName(given.name) };
      const place = threadRoot === null ? {} : { thread: { root: threadRoot } };
      try {
        let isEncrypted = askedEncrypted || (await rooms.isEncrypted(roomId));
        let stored = await store(file, { isEncrypted, signal });
        // Encrypted since we asked: what its message shows must not be readable without its key.
        if (!isEncrypted && (await rooms.isEncrypted(roomId))) {
          isEncrypted = true;
          stored = await store(file, { isEncrypted, signal });
        }
        const { name, mimeType, bytes } = file;
        return { ...buildSharedFile({ name, mimeType, size: bytes.length, ...stored }), ...buildRelation(place) };
      } catch (error) {
        throw aboutFile(error);
      }
    },
  };
}

/** What a tool can tell its model. A stop stays a stop. */
function aboutFile(error: unknown): unknown {
  if (!isMatrixError(error) || error.errcode === 'ABORTED') return error;
  if (error.errcode === 'TOO_LARGE') return badFile(TOO_LARGE);
  if (error.errcode === 'M_TOO_LARGE') return badFile('The chat server does not take files as large as this.');
  if (error.status === 404) return badFile('The chat server does not have the file any more.');
  if (error.status === 403) return new OracleError(refusal('NOT_ALLOWED', { message: 'The chat server does not allow this.' }));
  return new OracleError(refusal('HOMESERVER_UNAVAILABLE', { cause: error }));
}
