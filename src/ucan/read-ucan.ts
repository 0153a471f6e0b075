/**
 * One UCAN 0.9.1 from the bytes of its block, or why it is not one we look at. The codec alone accepts at least six spellings of the same
 * signed text, dates past the end of time, abilities of any alphabet and keys of any kind (research/ucan.md §3.2). Only the one
 * canonical spelling of a small, plain token passes, so nothing later has to ask again. Needs `isPlainCbor` to have passed.
 * Cost: about 80 µs, most of it the codec's decode, encode and text of the signed payload.
 */
import { decode, encode, format } from '@ipld/dag-ucan';
import type { ErrorCode } from '../errors.ts';
import { type Did, parseDid, type TokenId } from '../ids.ts';
import { canonicalJson, type JsonObject, type JsonValue, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { isAcceptablePublicKey } from './ed25519-points.ts';

export interface UcanCapability {
  readonly can: string;
  readonly with: string;
  readonly nb?: JsonObject;
}

/** What one block says. Nothing here is proven: the signature is checked by the chain. */
export interface Ucan {
  /** A did:key or a did:ixo. */
  readonly issuer: Did;
  /** Raw Ed25519 key of a did:key; null for a did:ixo, whose document has to be asked. */
  readonly issuerKey: Uint8Array | null;
  readonly audience: Did;
  readonly capabilities: readonly UcanCapability[];
  /** Seconds since the epoch, finite. */
  readonly expiration: number;
  readonly notBefore?: number;
  readonly nonce: string;
  readonly facts: readonly JsonObject[];
  /** What it rests on: hex of CIDs, distinct, at most LIMITS.proofsPerLink. */
  readonly proofs: readonly string[];
  /** Raw 64 bytes. */
  readonly signature: Uint8Array;
  /** The text that is signed: `<header>.<payload>` of the JWT form. */
  readonly signPayload: string;
  readonly tokenId: TokenId;
}

const VERSION = '0.9.1';
/** 2100-01-01T00:00:00Z in seconds: milliseconds given as seconds lie far behind it. */
const END_OF_TIME_S = 4_102_444_800;
const MAX_CAPABILITIES = 8;
const MAX_FACTS = 8;
/** multicodec ed25519-pub (0xed) as varint, and the DID_CORE code of dag-ucan (0x0d1d) for every other method. */
const ED25519_PREFIX = Buffer.from('ed01', 'hex');
const DID_CORE_PREFIX = Buffer.from('9d1a', 'hex');
/** varsig of dag-ucan: EdDSA (0xd0ed) and the length 64, both as varint. */
const EDDSA_PREFIX = Buffer.from('eda10340', 'hex');
const OTHER_DID = /^did:(?:ixo:[a-z0-9]+(?::[a-z0-9]+)*|web:[a-z0-9]+(?:[.-][a-z0-9]+)*(?:%3A[0-9]{1,5})?(?::[A-Za-z0-9_-]+)*)$/u;
const ABILITY = /^(?:\*|[a-z0-9_-]{1,64}(?:\/[a-z0-9_-]{1,64}){0,4}(?:\/\*)?)$/u;
const RESOURCE = /^[a-z][a-z0-9+.-]{0,31}:[A-Za-z0-9._~:/@!$&'()*+,;=%-]{1,255}$/u;
const NONCE = /^[A-Za-z0-9._~+/=-]{0,128}$/u;

/**
 * @returns TOO_MANY_PROOFS for more than LIMITS.proofsPerLink; BAD_SIGNATURE, BAD_ISSUER, BAD_AUDIENCE, BAD_CAPABILITY, TOKEN_LIVES_TOO_LONG for a
 * form of those that is never accepted; UCAN_MALFORMED for the rest.
 */
export function readUcan(block: Uint8Array): Result<Ucan, ErrorCode> {
  const view = decodeCanonical(block);
  if (view === undefined || view.version !== VERSION) return err('UCAN_MALFORMED');
  if (view.proofs.length > LIMITS.proofsPerLink) return err('TOO_MANY_PROOFS');
  const proofs = view.proofs.map((link) => Buffer.from(link.bytes).toString('hex'));
  if (new Set(proofs).size < proofs.length) return err('UCAN_MALFORMED');
  const { iss, aud, s } = view.model as unknown as { iss: Uint8Array; aud: Uint8Array; s: Uint8Array };
  if (s.length !== EDDSA_PREFIX.length + 64 || !startsWith(s, EDDSA_PREFIX)) return err('BAD_SIGNATURE');
  const issuer = readPrincipal(iss, () => view.issuer.did());
  // A did:web speaks for a service, never for a person: its document is wherever the token says (research/ucan.md §3.2 J).
  if (issuer === undefined || issuer.did.startsWith('did:web:')) return err('BAD_ISSUER');
  const audience = readPrincipal(aud, () => view.audience.did());
  if (audience === undefined) return err('BAD_AUDIENCE');

  // An empty nonce stands in the block but not in the signed text: a second CID for one signature (research/ucan.md §3.2 E).
  if (view.nonce === '') return err('UCAN_MALFORMED');
  const { expiration, notBefore, nonce = '' } = view;
  if (!(expiration < END_OF_TIME_S)) return err('TOKEN_LIVES_TOO_LONG');
  if (expiration <= 0 || (notBefore !== undefined && (notBefore <= 0 || notBefore >= END_OF_TIME_S))) return err('UCAN_MALFORMED');
  if (!NONCE.test(nonce)) return err('UCAN_MALFORMED');
  const capabilities = readCapabilities(view.capabilities);
  if (!capabilities.ok) return capabilities;
  if (view.facts.length > MAX_FACTS || !view.facts.every(isPlainObject)) return err('UCAN_MALFORMED');

  const jwt = format(view);
  const signPayload = jwt.slice(0, jwt.lastIndexOf('.'));
  return ok({
    issuer: issuer.did,
    issuerKey: issuer.key,
    audience: audience.did,
    capabilities: capabilities.value,
    expiration,
    nonce,
    ...(notBefore === undefined ? {} : { notBefore }),
    facts: view.facts as readonly JsonObject[],
    proofs,
    signature: Uint8Array.from(s.subarray(EDDSA_PREFIX.length)),
    signPayload,
    tokenId: sha256Base64Url(signPayload) as TokenId,
  });
}

/** The codec falls back to reading a JWT; such a view, and every spelling but the codec's own, is refused. Errors hold token bytes: dropped. */
function decodeCanonical(block: Uint8Array) {
  try {
    // A copy with a buffer of its own: the codec's DID view reads on to the end of the buffer below it.
    const view = decode(Uint8Array.from(block) as unknown as Parameters<typeof decode>[0]);
    if ((view as { jwt?: unknown }).jwt !== undefined) return undefined;
    return Buffer.from(encode(view)).equals(block) ? view : undefined;
  } catch {
    return undefined;
  }
}

function readDidKey(bytes: Uint8Array): Uint8Array | undefined {
  if (bytes.length !== 34 || !startsWith(bytes, ED25519_PREFIX)) return undefined;
  const raw = Uint8Array.from(bytes.subarray(2));
  return isAcceptablePublicKey(raw) ? raw : undefined;
}

/** The DID_CORE form can spell `did:key:…` a second time; only other methods may use it. */
function readPrincipal(bytes: Uint8Array, didKeyText: () => string): { did: Did; key: Uint8Array | null } | undefined {
  if (!startsWith(bytes, DID_CORE_PREFIX)) {
    const key = readDidKey(bytes);
    return key === undefined ? undefined : { did: didKeyText() as Did, key };
  }
  const parsed = parseDid(`did:${Buffer.from(bytes.subarray(DID_CORE_PREFIX.length)).toString('latin1')}`);
  return parsed.ok && OTHER_DID.test(parsed.value) ? { did: parsed.value, key: null } : undefined;
}

function readCapabilities(list: readonly unknown[]): Result<UcanCapability[], ErrorCode> {
  if (list.length < 1 || list.length > MAX_CAPABILITIES) return err('BAD_CAPABILITY');
  const capabilities: UcanCapability[] = [];
  const seen = new Set<string>();
  for (const item of list) {
    const { can, with: resource, nb, ...rest } = item as Record<string, unknown>;
    if (Object.keys(rest).length > 0 || typeof can !== 'string' || typeof resource !== 'string') return err('BAD_CAPABILITY');
    // `ucan/attest` lets its holder speak for others, and `ucan:*` stands for everything the issuer has (research/ucan.md §3.2 L).
    if (!ABILITY.test(can) || can.startsWith('ucan/') || !RESOURCE.test(resource) || resource.startsWith('ucan:'))
      return err('BAD_CAPABILITY');
    if (Object.hasOwn(item as object, 'nb') && !isPlainObject(nb)) return err('UCAN_MALFORMED');
    const text = canonicalJson(item);
    if (!text.ok || seen.has(text.value)) return err('BAD_CAPABILITY');
    seen.add(text.value);
    capabilities.push(nb === undefined ? { can, with: resource } : { can, with: resource, nb: nb as JsonObject });
  }
  return ok(capabilities);
}

const isPlainObject = (value: unknown): value is JsonObject => isMap(value) && isPlain(value, 1);
const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** Strings, safe integers, booleans, null, arrays and maps of those: no bytes, no links, no floats. */
function isPlain(value: unknown, depth: number): value is JsonValue {
  if (value === null || typeof value === 'boolean') return true;
  if (typeof value === 'number') return Number.isSafeInteger(value);
  if (typeof value === 'string') return value.length <= LIMITS.nbStringChars;
  if (depth > LIMITS.nbDepth) return false;
  if (Array.isArray(value)) return value.every((item) => isPlain(item, depth + 1));
  if (!isMap(value)) return false;
  return Object.keys(value).every((key) => key !== '__proto__' && key.length <= LIMITS.nbStringChars && isPlain(value[key], depth + 1));
}

const startsWith = (bytes: Uint8Array, prefix: Buffer): boolean => prefix.equals(bytes.subarray(0, prefix.length));
