/**
 * Looks over CBOR before any decoder does. Decoders recurse as deep as the input says, reserve what a length header says, and older ones
 * let a map key `__proto__` plant fields that no signature covers (research/ucan.md §0.4, §3.2 E and F). This pass creates no values: it
 * counts items, bounds depth and refuses every form a UCAN has no use for, so that what follows is short, flat and plain (G14).
 * Cost: a few µs for a token.
 */
import { LIMITS } from '../limits.ts';
import { CID_BYTES, CID_PREFIX } from './write-car.ts';

/** Map keys that are dangerous (`__proto__`) or that mean bytes and links in the signed text (`/` in DAG-JSON). */
const FORBIDDEN_KEYS = new Set(['__proto__', '/']);
/** A UCAN nests map → att → capability → nb, and nb itself LIMITS.nbDepth levels (its own map is the first). */
const MAX_DEPTH = LIMITS.nbDepth + 3;
const MAX_ITEMS = 300;
const TAG_CID = 42;
/** A link holds the multibase prefix 0x00 and a CID of the one form we know. */
const LINK_HEAD = Buffer.concat([Buffer.of(0), CID_PREFIX]);

/**
 * True for one CBOR item that fills `bytes` and is made only of shortest-form integers within 2^53-1, byte and text strings, arrays, maps with
 * allowed text keys, links to blocks of our one form, true, false and null. Total: bounded by MAX_ITEMS and MAX_DEPTH, never by a number in the
 * input. `count.cborItems` grows by the items looked at.
 */
export function isPlainCbor(bytes: Uint8Array, count?: { cborItems: number }): boolean {
  const scan = new Scan(bytes);
  const plain = scan.whole();
  if (count !== undefined) count.cborItems += scan.items;
  return plain;
}

class Scan {
  #at = 0;
  #items = 0;
  readonly #bytes: Buffer;
  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get items(): number {
    return this.#items;
  }

  whole(): boolean {
    return this.#item(1) && this.#at === this.#bytes.length;
  }

  #item(depth: number): boolean {
    this.#items += 1;
    const initial = this.#bytes[this.#at];
    if (initial === undefined || depth > MAX_DEPTH + 1 || this.#items > MAX_ITEMS) return false;
    const major = initial >> 5;
    if (major === 7) {
      this.#at += 1;
      return initial === 0xf4 || initial === 0xf5 || initial === 0xf6;
    }
    const value = this.#argument(initial & 0x1f);
    if (value === undefined) return false;
    switch (major) {
      case 0:
      case 1:
        return true;
      case 2:
      case 3:
        return this.#skip(value);
      case 4:
        return depth <= MAX_DEPTH && this.#array(value, depth);
      case 5:
        return depth <= MAX_DEPTH && this.#map(value, depth);
      default:
        return value === TAG_CID && this.#link();
    }
  }

  #array(length: number, depth: number): boolean {
    for (let n = 0; n < length; n += 1) if (!this.#item(depth + 1)) return false;
    return true;
  }

  #map(length: number, depth: number): boolean {
    for (let n = 0; n < length; n += 1) if (!this.#key() || !this.#item(depth + 1)) return false;
    return true;
  }

  #key(): boolean {
    const initial = this.#bytes[this.#at];
    if (initial === undefined || initial >> 5 !== 3) return false;
    const length = this.#argument(initial & 0x1f);
    const start = this.#at;
    return length !== undefined && this.#skip(length) && !FORBIDDEN_KEYS.has(this.#bytes.toString('latin1', start, this.#at));
  }

  /** Tag 42 holds a byte string of 0x00 and a CID of the one form we know (DAG-CBOR spec, "Links"). */
  #link(): boolean {
    const initial = this.#bytes[this.#at];
    if (initial === undefined || initial >> 5 !== 2) return false;
    if (this.#argument(initial & 0x1f) !== CID_BYTES + 1) return false;
    const start = this.#at;
    return this.#skip(CID_BYTES + 1) && LINK_HEAD.equals(this.#bytes.subarray(start, start + LINK_HEAD.length));
  }

  #skip(length: number): boolean {
    this.#at += length;
    return this.#at <= this.#bytes.length;
  }

  /** The number behind an initial byte, or undefined for indefinite lengths, longer forms than needed, and what is past 2^53-1. */
  #argument(short: number): number | undefined {
    this.#at += 1;
    if (short < 24) return short;
    const size = short === 24 ? 1 : short === 25 ? 2 : short === 26 ? 4 : short === 27 ? 8 : 0;
    if (size === 0 || this.#at + size > this.#bytes.length) return undefined;
    const start = this.#at;
    this.#at += size;
    if (size === 1) return atLeast(this.#bytes.readUInt8(start), 24);
    if (size === 2) return atLeast(this.#bytes.readUInt16BE(start), 0x100);
    if (size === 4) return atLeast(this.#bytes.readUInt32BE(start), 0x1_0000);
    const high = this.#bytes.readUInt32BE(start);
    const value = high * 0x1_0000_0000 + this.#bytes.readUInt32BE(start + 4);
    return high === 0 || !Number.isSafeInteger(value) ? undefined : value;
  }
}

const atLeast = (value: number, minimum: number): number | undefined => (value >= minimum ? value : undefined);
