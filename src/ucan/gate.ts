/**
 * The first and only door for token bytes. `@ucanto/*` and its codecs were written for honest senders: one Matrix event of 445 bytes
 * stops the event loop for ever, others take minutes, and several spellings carry one valid signature (research/ucan.md §0). So before any
 * library sees a byte: size, strict base64, container, hash of every block, counts, depth, canonical form (G14).
 * Synchronous, bounded, total: any input gives a value, within the bounds of src/limits.ts. Cost: about 100 µs for an honest token.
 */
import type { ErrorCode } from '../errors.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { type Car, type CarBlock, CID_BYTES, readCar } from './car.ts';
import { readUcan, type Ucan } from './read-ucan.ts';
import { isPlainCbor } from './scan-cbor.ts';

/** A token whose form is proven and nothing else: made by `gateInvocation` only. */
export interface GatedUcan extends Ucan {
  /** Hex of the CID bytes, recomputed from the block. */
  readonly cid: string;
}

/** A whole file whose form is proven: the token and the proofs that came with it. Signatures, alignment and rights are the chain's questions. */
export interface GatedToken {
  readonly leaf: GatedUcan;
  /** Everything in the file by CID, the leaf included. Proofs that are only named are not here. */
  readonly links: ReadonlyMap<string, GatedUcan>;
  /** The file itself, unpadded base64url: the one canonical spelling. */
  readonly car: string;
}

/** The root block names the version: `{ "ucan@0.9.1": <link> }` in its one DAG-CBOR encoding. */
export const VARIANT_HEAD = Buffer.from('a16a7563616e40302e392e31d82a582500', 'hex');
const MAX_ENCODED_CHARS = Math.ceil(LIMITS.invocationBytes / 3) * 4;

/** @returns UCAN_TOO_LARGE, UCAN_MALFORMED, PROOFS_NOT_SUPPORTED, or a code of `readUcan`. Never throws, whatever the input. */
export function gateInvocation(encoded: string): Result<GatedUcan, ErrorCode> {
  if (typeof encoded !== 'string') return err('UCAN_MALFORMED');
  if (encoded.length > MAX_ENCODED_CHARS) return err('UCAN_TOO_LARGE');
  const file = decodeStrictBase64(encoded);
  if (file === undefined) return err('UCAN_MALFORMED');
  if (file.length > LIMITS.invocationBytes) return err('UCAN_TOO_LARGE');
  const car = readCar(file);
  if (!car.ok) return err('UCAN_MALFORMED');
  const leaf = readLeaf(car.value);
  if (leaf === undefined || !isPlainCbor(leaf.bytes)) return err('UCAN_MALFORMED');
  const ucan = readUcan(leaf.bytes);
  if (!ucan.ok) return ucan;
  // Without proofs nothing but leaf and root is reachable; the writers of UCAN put the root last, and one token has one file.
  if (car.value.blocks.length !== 2 || car.value.blocks[0] !== leaf) return err('UCAN_MALFORMED');
  return ok({ ...ucan.value, cid: leaf.cid });
}

/**
 * Unpadded base64url, or padded base64 as IXO sends it. Node's decoder skips what it does not know, so only text that its own bytes
 * encode back to is accepted: one token, two spellings, no more (research/ucan.md §1.3).
 */
export function decodeStrictBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64url') === text || bytes.toString('base64') === text ? bytes : undefined;
}

/** The block that the root links to. */
function readLeaf(car: Car): CarBlock | undefined {
  const root = car.blocks.find((block) => block.cid === car.root);
  if (root === undefined || root.bytes.length !== VARIANT_HEAD.length + CID_BYTES) return undefined;
  if (!VARIANT_HEAD.equals(root.bytes.subarray(0, VARIANT_HEAD.length))) return undefined;
  const link = Buffer.from(root.bytes.subarray(VARIANT_HEAD.length)).toString('hex');
  return car.blocks.find((block) => block.cid === link);
}
