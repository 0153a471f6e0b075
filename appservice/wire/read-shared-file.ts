/**
 * A message that shows a file, as its sender described it. The description is a stranger's: name and type are cleaned before a model or a log sees
 * them, the size is a claim, and the keys of an encrypted file have exactly the form that the engine takes (G14).
 * Shapes: spec v1.19 §"m.room.message", `EncryptedFile`; `filename` beside a caption since v1.10.
 */
import { z } from 'zod';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { err, ok, type Result } from '../../src/result.ts';

/** Where a media repository keeps it. */
export interface MediaPlace {
  readonly server: string;
  readonly mediaId: string;
}
/** `EncryptedFile` without its address: what decrypts it. */
export interface FileKey {
  readonly v: 'v2';
  readonly key: { readonly kty: 'oct'; readonly key_ops: string[]; readonly alg: 'A256CTR'; readonly k: string; readonly ext: true };
  readonly iv: string;
  readonly hashes: { readonly sha256: string };
}
export interface SharedFileField {
  readonly name: string;
  readonly mimeType: string;
  /** Bytes, as claimed; null when nothing is. */
  readonly size: number | null;
  /** What the sender says about it; null without a caption. */
  readonly caption: string | null;
  readonly media: MediaPlace;
  /** Null: it is not encrypted. */
  readonly key: FileKey | null;
}

const FILE_TYPES = new Set(['m.file', 'm.image', 'm.audio', 'm.video']);
export const UNKNOWN_MIME = 'application/octet-stream';

const MXC = /^mxc:\/\/(?<server>[A-Za-z0-9.:[\]-]{1,255})\/(?<mediaId>[A-Za-z0-9_-]{1,255})$/u;
const MIME = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/u;
/** Unpadded base64 of so many bytes, in either alphabet; some clients pad. */
const base64 = (chars: number) => z.string().regex(new RegExp(`^[A-Za-z0-9+/_-]{${chars}}={0,2}$`, 'u'));
const Key = z.object({
  v: z.literal('v2'),
  key: z.object({
    kty: z.literal('oct'),
    key_ops: z.array(z.string().max(20)).max(8),
    alg: z.literal('A256CTR'),
    k: base64(43),
    ext: z.literal(true),
  }),
  iv: base64(22),
  hashes: z.object({ sha256: base64(43) }),
});

export function parseMxc(url: unknown): MediaPlace | null {
  const { server, mediaId } = (typeof url === 'string' ? MXC.exec(url)?.groups : undefined) ?? {};
  return server === undefined || mediaId === undefined ? null : { server, mediaId };
}

/** Undefined: the message shows no file. @param content of an `m.room.message` */
export function readSharedFile(content: unknown): Result<SharedFileField | undefined, 'BAD_FILE'> {
  if (!isJsonObject(content) || typeof content['msgtype'] !== 'string' || !FILE_TYPES.has(content['msgtype'])) return ok(undefined);
  const { body, filename, info, file, url } = content;
  const described = isJsonObject(info) ? info : {};
  const key = file === undefined ? null : Key.safeParse(file);
  const media = parseMxc(isJsonObject(file) ? file['url'] : url);
  if (media === null || key?.success === false) return err('BAD_FILE');
  const named = typeof filename === 'string' ? filename : body;
  const size = described['size'];
  return ok({
    name: cleanFileName(named),
    mimeType: readMime(described['mimetype']),
    size: typeof size === 'number' && Number.isSafeInteger(size) && size >= 0 ? size : null,
    caption: typeof filename === 'string' && typeof body === 'string' && body !== filename && body.trim() !== '' ? body : null,
    media,
    key: key === null ? null : key.data,
  });
}

const readMime = (value: unknown): string => {
  const mime = typeof value === 'string' ? value.slice(0, 255).toLowerCase().split(';')[0]?.trim() : undefined;
  return mime !== undefined && MIME.test(mime) ? mime : UNKNOWN_MIME;
};

/** One line, no path, nothing that turns the reading direction or hides: it is shown to people and to the model. */
export function cleanFileName(name: unknown): string {
  const text = typeof name === 'string' ? name.slice(0, 4 * LIMITS.fileNameChars) : '';
  const last =
    text
      .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '')
      .split(/[/\\]/u)
      .at(-1)
      ?.trim() ?? '';
  return last === '' || last === '.' || last === '..' ? 'file' : last.slice(0, LIMITS.fileNameChars).toWellFormed();
}

/** Content of the message that shows a file of ours. */
export function buildSharedFile({
  name,
  mimeType,
  size,
  url,
  key,
}: {
  readonly name: string;
  readonly mimeType: string;
  readonly size: number;
  readonly url: string;
  readonly key: FileKey | null;
}): JsonObject {
  return {
    msgtype: msgtypeOf(mimeType),
    body: name,
    filename: name,
    info: { mimetype: mimeType, size },
    ...(key === null ? { url } : { file: { ...key, key: { ...key.key }, hashes: { ...key.hashes }, url } }),
    'm.mentions': {},
  };
}

/** Only what clients show as a picture; a drawing that may hold scripts is a file. */
const IMAGES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
function msgtypeOf(mimeType: string): string {
  if (IMAGES.has(mimeType)) return 'm.image';
  if (mimeType.startsWith('audio/')) return 'm.audio';
  return mimeType.startsWith('video/') ? 'm.video' : 'm.file';
}
