/**
 * The writing half of the container, without node: the authorise page writes the same bytes in a browser. The reader (`car.ts`) takes its
 * constants from here, so what is written and what is accepted cannot drift apart. Hashes are arguments: a browser's are asynchronous.
 */

/** CIDv1, dag-cbor (0x71), sha2-256 (0x12) with 32 bytes: the only form a UCAN block may have. */
export const CID_PREFIX = fromHex('01711220');
export const CID_BYTES = 36;
/** A CARv1 header with exactly one root of that form has one canonical encoding: these bytes, the CID, these bytes (CARv1 spec, "Header"). */
export const HEADER_HEAD = fromHex('3aa265726f6f747381d82a582500');
export const HEADER_TAIL = fromHex('6776657273696f6e01');
/** The root block names the version: `{ "ucan@0.9.1": <link> }` in its one DAG-CBOR encoding; the CID of the token follows. */
export const VARIANT_HEAD = fromHex('a16a7563616e40302e392e31d82a582500');

export interface Section {
  readonly cid: Uint8Array;
  readonly block: Uint8Array;
}

export const cidOfDigest = (sha256: Uint8Array): Uint8Array => concat([CID_PREFIX, sha256]);
/** The root block of the token with this CID. */
export const buildVariant = (token: Uint8Array): Uint8Array => concat([VARIANT_HEAD, token]);

/** The file: sections in the order given, the root named in the header. */
export function writeCar(root: Uint8Array, sections: readonly Section[]): Uint8Array {
  const parts: Uint8Array[] = [HEADER_HEAD, root, HEADER_TAIL];
  for (const { cid, block } of sections) parts.push(encodeLength(cid.length + block.length), cid, block);
  return concat(parts);
}

function encodeLength(value: number): Uint8Array {
  if (value < 0x80) return Uint8Array.of(value);
  if (value < 0x4000) return Uint8Array.of((value & 0x7f) | 0x80, value >> 7);
  throw new Error('a CAR section past 16 KiB is never written');
}

function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function fromHex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: text.length / 2 }, (_, n) => Number.parseInt(text.slice(2 * n, 2 * n + 2), 16));
}
