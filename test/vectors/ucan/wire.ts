/**
 * Writes UCAN 0.9.1, CBOR and CAR byte by byte, for the vectors only. It shares no line with src/ucan: a writer that leans on the reader it is meant to
 * test can only say what the reader already knows. It writes wrong things as gladly as right ones: any CID over any bytes, keys twice, keys called
 * `__proto__`, floats for integers, fields that came after the signature.
 */
import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto';

const tag = Symbol('verbatim');
interface Verbatim {
  readonly [tag]: true;
  readonly cbor: Buffer;
  /** What stands for it in the signed DAG-JSON text. */
  readonly json: string;
}
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | Verbatim
  | readonly Value[]
  | { readonly [key: string]: Value };
export type Model = Record<string, Value>;

const isVerbatim = (value: object): value is Verbatim => tag in value;
const verbatim = (cbor: Buffer, json: string): Verbatim => ({ [tag]: true, cbor, json });

/** These very bytes, as hex. */
export const raw = (hex: string, json = 'null'): Verbatim => verbatim(Buffer.from(hex, 'hex'), json);
export const link = (cid: Uint8Array): Verbatim =>
  verbatim(Buffer.concat([Buffer.from('d82a', 'hex'), head(2, cid.length + 1), Buffer.of(0), cid]), `{"/":"${cidText(cid)}"}`);
export function float(value: number): Verbatim {
  const bytes = Buffer.alloc(9, 0xfb);
  bytes.writeDoubleBE(value, 1);
  return verbatim(bytes, JSON.stringify(value));
}
/** A map with its keys in the order given, once or more often. */
export const entries = (...pairs: readonly (readonly [string, Value])[]): Verbatim =>
  verbatim(
    Buffer.concat([head(5, pairs.length), ...pairs.flatMap(([key, value]) => [cbor(key), cbor(value)])]),
    `{${pairs.map(([key, value]) => `${JSON.stringify(key)}:${dagJson(value)}`).join(',')}}`,
  );

export function head(major: number, value: number | bigint): Buffer {
  const first = major << 5;
  const n = BigInt(value);
  if (n < 24n) return Buffer.of(first | Number(n));
  if (n < 0x100n) return Buffer.of(first | 24, Number(n));
  if (n < 0x10000n) return Buffer.concat([Buffer.of(first | 25), big(n, 2)]);
  if (n < 0x100000000n) return Buffer.concat([Buffer.of(first | 26), big(n, 4)]);
  return Buffer.concat([Buffer.of(first | 27), big(n, 8)]);
}
const big = (n: bigint, size: number): Buffer => Buffer.from(n.toString(16).padStart(size * 2, '0'), 'hex');

/** DAG-CBOR: shorter keys first, then by bytes. */
export function cbor(value: Value): Buffer {
  if (value === null) return Buffer.of(0xf6);
  if (typeof value === 'boolean') return Buffer.of(value ? 0xf5 : 0xf4);
  if (typeof value === 'bigint' || typeof value === 'number') return value < 0 ? head(1, -1n - BigInt(value)) : head(0, value);
  if (typeof value === 'string') return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)]);
  if (value instanceof Uint8Array) return Buffer.concat([head(2, value.length), value]);
  if (Array.isArray(value)) return Buffer.concat([head(4, value.length), ...value.map(cbor)]);
  if (isVerbatim(value as object)) return (value as Verbatim).cbor;
  const map = value as Model;
  const keys = Object.keys(map).sort(
    (a, b) => Buffer.byteLength(a) - Buffer.byteLength(b) || Buffer.compare(Buffer.from(a), Buffer.from(b)),
  );
  return Buffer.concat([head(5, keys.length), ...keys.flatMap((key) => [cbor(key), cbor(map[key] as Value)])]);
}

/** DAG-JSON: the text that UCAN 0.9.1 signs; keys by bytes. */
export function dagJson(value: Value): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'number') return JSON.stringify(value);
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'string') return JSON.stringify(value);
  if (value instanceof Uint8Array) return `{"/":{"bytes":"${Buffer.from(value).toString('base64').replaceAll('=', '')}"}}`;
  if (Array.isArray(value)) return `[${value.map(dagJson).join(',')}]`;
  if (isVerbatim(value as object)) return (value as Verbatim).json;
  const map = value as Model;
  const keys = Object.keys(map).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return `{${keys.map((key) => `${JSON.stringify(key)}:${dagJson(map[key] as Value)}`).join(',')}}`;
}

export const sha256 = (data: Uint8Array | string): Buffer => createHash('sha256').update(data).digest();
/** CIDv1, dag-cbor, sha2-256. */
export const cidOf = (block: Uint8Array): Buffer => Buffer.concat([Buffer.from('01711220', 'hex'), sha256(block)]);
/** Multibase base32 without padding, prefix `b`. */
function cidText(cid: Uint8Array): string {
  const alphabet = 'abcdefghijklmnopqrstuvwxyz234567';
  let bits = '';
  for (const byte of cid) bits += byte.toString(2).padStart(8, '0');
  let text = 'b';
  for (let at = 0; at < bits.length; at += 5) text += alphabet[Number.parseInt(bits.slice(at, at + 5).padEnd(5, '0'), 2)];
  return text;
}

export function varint(value: number | bigint): Buffer {
  const bytes: number[] = [];
  let rest = BigInt(value);
  for (; rest >= 0x80n; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

export interface Section {
  readonly cid: Uint8Array;
  readonly bytes: Uint8Array;
}
export const section = (bytes: Uint8Array, cid: Uint8Array = cidOf(bytes)): Section => ({ cid, bytes });
export const carHeader = (roots: readonly Uint8Array[], version = 1): Buffer => {
  const header = cbor({ roots: roots.map(link), version });
  return Buffer.concat([varint(header.length), header]);
};
export const carSection = ({ cid, bytes }: Section): Buffer => Buffer.concat([varint(cid.length + bytes.length), cid, bytes]);
export const car = (roots: readonly Uint8Array[], sections: readonly Section[]): Buffer =>
  Buffer.concat([carHeader(roots), ...sections.map(carSection)]);
export const variant = (leafCid: Uint8Array, name = 'ucan@0.9.1'): Buffer => cbor({ [name]: link(leafCid) });
export const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');

// Identities

export interface Signer {
  readonly did: string;
  /** As `iss` and `aud` hold it. */
  readonly principal: Buffer;
  /** Raw Ed25519 public key. */
  readonly publicKey: Buffer;
  /** varsig: algorithm, length, signature. */
  readonly varsig: (payload: string) => Buffer;
  readonly algorithm: string;
}

const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
export function base58btc(bytes: Uint8Array): string {
  let n = BigInt(`0x${Buffer.from(bytes).toString('hex') || '0'}`);
  let text = '';
  for (; n > 0n; n /= 58n) text = ALPHABET[Number(n % 58n)] + text;
  for (const byte of bytes) {
    if (byte !== 0) break;
    text = `1${text}`;
  }
  return `z${text}`;
}
export const didKey = (multicodecKey: Uint8Array): string => `did:key:${base58btc(multicodecKey)}`;
/** How UCAN writes a DID of any method but `key`: code 0x0d1d, then the text behind `did:`. */
export const didCore = (did: string): Buffer => Buffer.concat([Buffer.from('9d1a', 'hex'), Buffer.from(did.slice('did:'.length))]);

export const privateKey = (name: string): KeyObject =>
  createPrivateKey({
    key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), sha256(name)]),
    format: 'der',
    type: 'pkcs8',
  });
const publicKeyOf = (key: KeyObject): Buffer => Buffer.from(String(createPublicKey(key).export({ format: 'jwk' }).x), 'base64url');
export const eddsa = (signature: Uint8Array): Buffer => Buffer.concat([Buffer.from('eda10340', 'hex'), signature]);

/** The did:key of the seed SHA-256(name). */
export function keySigner(name: string): Signer {
  const key = privateKey(name);
  const publicKey = publicKeyOf(key);
  const principal = Buffer.concat([Buffer.from('ed01', 'hex'), publicKey]);
  return { did: didKey(principal), principal, publicKey, algorithm: 'EdDSA', varsig: (text) => eddsa(sign(null, Buffer.from(text), key)) };
}
/** Any DID text, right or wrong, that signs with the key of `name`. */
export function didSigner(did: string, name: string): Signer {
  return { ...keySigner(name), did, principal: didCore(did) };
}
/** Says it is `did` and signs nothing: code 0xd000, no bytes ("absentee"). */
export const absentee = (of: { did: string; principal: Buffer; publicKey: Buffer }): Signer => ({
  ...of,
  algorithm: '',
  varsig: () => Buffer.from('80a00300', 'hex'),
});

// Tokens

export interface Capability {
  readonly can: string;
  readonly with: string;
  readonly nb?: Value;
}
export interface UcanSpec {
  readonly issuer: Signer;
  readonly audience: { readonly did: string; readonly principal: Uint8Array };
  readonly att: readonly (Capability | Value)[];
  /** Seconds. */
  readonly exp: Value;
  readonly nbf?: Value;
  readonly nnc?: string;
  readonly fct?: readonly Value[];
  /** In the file. */
  readonly prf?: readonly Ucan[];
  /** Only named. */
  readonly links?: readonly Uint8Array[];
  readonly version?: string;
  /** Changes the block after it was signed. */
  readonly after?: (model: Model) => void;
}
export interface Ucan {
  readonly cid: Buffer;
  readonly block: Buffer;
  readonly model: Model;
  /** The signed text. */
  readonly payload: string;
  /** SHA-256 of it, base64url. */
  readonly tokenId: string;
  /** Everything below and itself, proofs first, each once. */
  readonly blocks: readonly Buffer[];
}

export function ucan(spec: UcanSpec): Ucan {
  const prf = [...(spec.prf ?? []).map(({ cid }) => cid), ...(spec.links ?? [])];
  const version = spec.version ?? '0.9.1';
  const shared = {
    att: spec.att as Value,
    exp: spec.exp,
    ...(spec.fct === undefined ? {} : { fct: spec.fct }),
    ...(spec.nnc === undefined ? {} : { nnc: spec.nnc }),
    ...(spec.nbf === undefined ? {} : { nbf: spec.nbf }),
  };
  const text = {
    iss: spec.issuer.did,
    aud: spec.audience.did,
    prf: prf.map(cidText),
    ...shared,
  };
  const header = { alg: spec.issuer.algorithm, ucv: version, typ: 'JWT' };
  const payload = `${base64url(Buffer.from(dagJson(header)))}.${base64url(Buffer.from(dagJson(text)))}`;
  const model: Model = {
    ...{ s: spec.issuer.varsig(payload), v: version, iss: spec.issuer.principal, aud: spec.audience.principal, prf: prf.map(link) },
    ...shared,
  };
  spec.after?.(model);
  const block = cbor(model);
  const blocks = new Map<string, Buffer>();
  for (const proof of spec.prf ?? []) for (const one of proof.blocks) blocks.set(one.toString('hex'), one);
  blocks.set(block.toString('hex'), block);
  return { cid: cidOf(block), block, model, payload, tokenId: sha256(payload).toString('base64url'), blocks: [...blocks.values()] };
}

/** The file of a token: all its blocks, then the root. */
export function file(token: Ucan): Buffer {
  const root = variant(token.cid);
  return car([cidOf(root)], [...token.blocks.map((block) => section(block)), section(root)]);
}
export const encode = (token: Ucan): string => base64url(file(token));
/** The token with its proofs only named. */
export const bare = (token: Ucan): Ucan => ({ ...token, blocks: [token.block] });
/** Any bytes in the place of the token, with a CID that fits. */
export function fileOf(block: Uint8Array, before: readonly Uint8Array[] = []): Buffer {
  const root = variant(cidOf(block));
  return car([cidOf(root)], [...before.map((one) => section(one)), section(block), section(root)]);
}
export { publicKeyOf };
