/**
 * Own reader of the container (CARv1) a token travels in. The usual readers never compare a block's bytes with its CID, collapse
 * duplicates into a map and accept unrelated blocks; a 445-byte file whose only proof names itself then hangs the chain evaluator for
 * ever (research/ucan.md §0, §3.2 E and F). Here every section is counted raw and hashed, so a CID is a fact and a cycle impossible (G14).
 * Cost: one pass over at most LIMITS.delegationBytes and one SHA-256 per block, about 10 µs for two blocks.
 */
import { createHash } from 'node:crypto';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { CID_BYTES, CID_PREFIX, HEADER_HEAD, HEADER_TAIL, writeCar } from './write-car.ts';

/** Why a container was refused: for logs and tests; the person sees UCAN_MALFORMED (or UCAN_TOO_LARGE). */
export type CarProblem =
  | 'HEADER'
  | 'TRUNCATED'
  | 'TOO_MANY_BLOCKS'
  | 'BLOCK_TOO_LARGE'
  | 'CID_FORM'
  | 'CID_MISMATCH'
  | 'DUPLICATE'
  | 'ROOT_MISSING';

export interface CarBlock {
  /** The 36 CID bytes as hex: key of maps, never a label we did not recompute. */
  readonly cid: string;
  readonly bytes: Uint8Array;
}

export interface Car {
  readonly root: string;
  /** In file order, distinct, each hashed. */
  readonly blocks: readonly CarBlock[];
}

const HEADER_BYTES = HEADER_HEAD.length + CID_BYTES + HEADER_TAIL.length;

/** The 36 CID bytes of a dag-cbor block. */
export function cidOf(block: Uint8Array): Buffer {
  return Buffer.concat([CID_PREFIX, createHash('sha256').update(block).digest()]);
}

/**
 * Reads a CARv1 with one root; total, bounded by LIMITS.carBlocks and LIMITS.carBlockBytes. CARv2, whose pragma is another header, is refused.
 * `count.blocks` grows by the blocks that were hashed.
 */
export function readCar(file: Uint8Array, count?: { blocks: number }): Result<Car, CarProblem> {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  if (bytes.length < HEADER_BYTES || !startsWith(bytes, 0, HEADER_HEAD)) return err('HEADER');
  const rootAt = HEADER_HEAD.length;
  if (!startsWith(bytes, rootAt, CID_PREFIX) || !startsWith(bytes, rootAt + CID_BYTES, HEADER_TAIL)) return err('HEADER');
  const root = bytes.toString('hex', rootAt, rootAt + CID_BYTES);

  const blocks: CarBlock[] = [];
  const seen = new Set<string>();
  let at = HEADER_BYTES;
  while (at < bytes.length) {
    if (blocks.length >= LIMITS.carBlocks) return err('TOO_MANY_BLOCKS');
    const length = readSectionLength(bytes, at);
    if (!length.ok) return length;
    const start = at + length.value.size;
    const end = start + length.value.value;
    if (end > bytes.length || length.value.value <= CID_BYTES) return err('TRUNCATED');
    if (length.value.value - CID_BYTES > LIMITS.carBlockBytes) return err('BLOCK_TOO_LARGE');
    if (!startsWith(bytes, start, CID_PREFIX)) return err('CID_FORM');
    const block = bytes.subarray(start + CID_BYTES, end);
    if (count !== undefined) count.blocks += 1;
    if (!cidOf(block).equals(bytes.subarray(start, start + CID_BYTES))) return err('CID_MISMATCH');
    const cid = bytes.toString('hex', start, start + CID_BYTES);
    if (seen.has(cid)) return err('DUPLICATE');
    seen.add(cid);
    blocks.push({ cid, bytes: block });
    at = end;
  }
  return seen.has(root) ? ok({ root, blocks }) : err('ROOT_MISSING');
}

/** Writes what `readCar` reads; blocks in the order given, the root named in the header. */
export function buildCar(root: Uint8Array, blocks: readonly Uint8Array[]): Buffer {
  const sections = blocks.map((block) => ({ cid: cidOf(block), block }));
  return Buffer.from(writeCar(cidOf(root), sections).buffer);
}

const startsWith = (bytes: Buffer, at: number, prefix: Uint8Array): boolean =>
  at + prefix.length <= bytes.length && bytes.compare(prefix, 0, prefix.length, at, at + prefix.length) === 0;

/** Unsigned LEB128 of at most two bytes (16,383 > carBlockBytes), shortest form only: a longer one is a second spelling of the same file. */
function readSectionLength(bytes: Buffer, at: number): Result<{ value: number; size: number }, CarProblem> {
  const first = bytes[at];
  if (first === undefined) return err('TRUNCATED');
  if (first < 0x80) return ok({ value: first, size: 1 });
  const second = bytes[at + 1];
  if (second === undefined) return err('TRUNCATED');
  if (second >= 0x80) return err('BLOCK_TOO_LARGE');
  if (second === 0) return err('TRUNCATED');
  return ok({ value: (first & 0x7f) | (second << 7), size: 2 });
}
