/**
 * The first and only door for token bytes. `@ucanto/*` and its codecs were written for honest senders: one Matrix event of 445 bytes
 * stops the event loop for ever, others take minutes, and several spellings carry one valid signature (research/ucan.md §0). So before any
 * library sees a byte: size, strict base64, container, hash of every block, counts, depth, canonical form, one order of blocks (G14).
 * Synchronous, bounded, total: any input gives a value, within the bounds of src/limits.ts. Cost: about 100 µs for each link.
 */
import type { ErrorCode } from '../errors.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { type CarBlock, readCar } from './car.ts';
import { readUcan, type Ucan } from './read-ucan.ts';
import { isPlainCbor } from './scan-cbor.ts';
import { CID_BYTES, VARIANT_HEAD } from './write-car.ts';

/** A token whose form is proven and nothing else: made by the gate only. */
export interface GatedUcan extends Ucan {
  /** Hex of the CID bytes, recomputed from the block. */
  readonly cid: string;
  /** The canonical bytes. */
  readonly block: Uint8Array;
}

/** A whole file whose form is proven: the token and the proofs that came with it. Signatures and rights are the chain's questions. */
export interface GatedToken {
  readonly leaf: GatedUcan;
  /** Everything in the file by CID, the leaf included. Proofs that are only named are not here. */
  readonly links: ReadonlyMap<string, GatedUcan>;
  /** The file itself, unpadded base64url: the one canonical spelling. */
  readonly car: string;
}

/** What the gate did, for tests and the bench: work is bounded by counts, not by a clock. */
export interface GateCount {
  /** Blocks hashed. */
  blocks: number;
  cborItems: number;
  /** Blocks given to the codec. */
  decoded: number;
}

/** `inv` of an event, or a bearer token. */
export const gateInvocation = (encoded: string): Result<GatedToken, ErrorCode> => gateText(encoded, LIMITS.invocationBytes);
/** A grant with its proofs. */
export const gateDelegation = (encoded: string): Result<GatedToken, ErrorCode> => gateText(encoded, LIMITS.delegationBytes);

function gateText(encoded: unknown, maxBytes: number): Result<GatedToken, ErrorCode> {
  if (typeof encoded !== 'string') return err('UCAN_MALFORMED');
  if (encoded.length > Math.ceil(maxBytes / 3) * 4) return err('UCAN_TOO_LARGE');
  const file = decodeStrictBase64(encoded);
  return file === undefined ? err('UCAN_MALFORMED') : gate(file, maxBytes);
}

/**
 * A token has one file: its proofs before what rests on them, in the order they are named and each once, then the token, then the root block,
 * as `Delegation.archive()` of @ucanto/core writes it. Another order, a block twice or one that nothing names is another spelling, refused.
 * @returns UCAN_TOO_LARGE, UCAN_MALFORMED, TOO_MANY_PROOFS, BROKEN_CHAIN, or a code of `readUcan`. Never throws, whatever the input.
 */
export function gate(file: Uint8Array, maxBytes: number, count?: GateCount): Result<GatedToken, ErrorCode> {
  if (!(file instanceof Uint8Array)) return err('UCAN_MALFORMED');
  if (file.length > maxBytes) return err('UCAN_TOO_LARGE');
  const car = readCar(file, count);
  if (!car.ok) return err('UCAN_MALFORMED');
  const { blocks, root } = car.value;
  const [leaf, last] = blocks.slice(-2);
  if (leaf === undefined || last === undefined || last.cid !== root || readVariant(last) !== leaf.cid) return err('UCAN_MALFORMED');

  const links = readLinks(leaf, new Map(blocks.slice(0, -1).map((block) => [block.cid, block])), count);
  if (!links.ok) return links;
  // The map is in the one right order; whatever is elsewhere in the file, or not reached, shows here.
  const inOrder = [...links.value.keys()];
  if (inOrder.length !== blocks.length - 1 || inOrder.some((cid, n) => blocks[n]?.cid !== cid)) return err('UCAN_MALFORMED');
  if (!isWithinBounds(links.value)) return err('TOO_MANY_PROOFS');
  const token = links.value.get(leaf.cid);
  return token === undefined ? err('UCAN_MALFORMED') : ok({ leaf: token, links: links.value, car: toBase64Url(file) });
}

/**
 * Unpadded base64url, or padded base64 as IXO sends it. Node's decoder skips what it does not know, so only text that its own bytes
 * encode back to is accepted: one token, two spellings, no more (research/ucan.md §1.3).
 */
export function decodeStrictBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64url') === text || bytes.toString('base64') === text ? bytes : undefined;
}

const toBase64Url = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64url');

/** Hex of the CID that a root block links to. */
function readVariant({ bytes }: CarBlock): string | undefined {
  if (bytes.length !== VARIANT_HEAD.length + CID_BYTES) return undefined;
  if (Buffer.compare(VARIANT_HEAD, bytes.subarray(0, VARIANT_HEAD.length)) !== 0) return undefined;
  return Buffer.from(bytes.subarray(VARIANT_HEAD.length)).toString('hex');
}

/** The links reached from the leaf, proofs first. Each block is read once; hashes were checked, so that no link can rest on itself. */
function readLinks(leaf: CarBlock, blocks: ReadonlyMap<string, CarBlock>, count?: GateCount): Result<Map<string, GatedUcan>, ErrorCode> {
  const links = new Map<string, GatedUcan>();
  const visit = (block: CarBlock): Result<GatedUcan, ErrorCode> => {
    if (!isPlainCbor(block.bytes, count)) return err('UCAN_MALFORMED');
    if (count !== undefined) count.decoded += 1;
    const ucan = readUcan(block.bytes);
    if (!ucan.ok) return ucan;
    for (const cid of ucan.value.proofs) {
      const proof = blocks.get(cid);
      if (proof === undefined) continue;
      const link = links.get(cid);
      const read = link === undefined ? visit(proof) : ok(link);
      if (!read.ok) return read;
      if (read.value.audience !== ucan.value.issuer) return err('BROKEN_CHAIN');
    }
    const gated = { ...ucan.value, cid: block.cid, block: block.bytes };
    links.set(block.cid, gated);
    return ok(gated);
  };
  const read = visit(leaf);
  return read.ok ? ok(links) : read;
}

/** Ways to an end and links on the longest of them, counted from the ends on, so that a diamond costs its blocks and not its ways. */
function isWithinBounds(links: ReadonlyMap<string, GatedUcan>): boolean {
  const seen = new Map<string, { paths: number; depth: number }>();
  for (const { cid, proofs } of links.values()) {
    // A proof that is only named is an end of a way.
    const below = proofs.map((proof) => seen.get(proof) ?? { paths: 1, depth: 1 });
    const paths = below.reduce((sum, next) => sum + next.paths, proofs.length === 0 ? 1 : 0);
    const depth = 1 + Math.max(0, ...below.map((next) => next.depth));
    if (paths > LIMITS.pathsPerToken || depth > LIMITS.proofDepth) return false;
    seen.set(cid, { paths, depth });
  }
  return true;
}
