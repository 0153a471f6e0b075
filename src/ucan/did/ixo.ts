/**
 * The document of a did:ixo, as the Blocksync indexer tells it. Such documents mix keys of several chains, agreement keys and blockchain addresses,
 * and one strange entry must not lock its owner out (research/ucan.md §3.2 G: other resolvers refuse the whole document). So every method is
 * looked at by itself, what is no Ed25519 key is skipped, and nothing but 32-byte keys of full order leaves this file. Which relationship a
 * method has (`assertionMethod` …) is not asked: IXO ignores it too, and registers signing keys under several.
 */
import { base58btc } from 'multiformats/bases/base58';
import { z } from 'zod';
import { LIMITS } from '../../limits.ts';
import { isAcceptablePublicKey } from '../ed25519-points.ts';
import { ED25519_PREFIX } from './key.ts';
import type { DidKeys } from './resolve-keys.ts';

/** Entries of a document that are looked at; 64 kB hold more. */
const MAX_ENTRIES = 256;
/** No spelling of an Ed25519 key is longer: base58 takes time that grows with the square. */
const MAX_KEY_CHARS = 128;

/** `service` is asked for where the indexer knows it. */
export function buildIxoQuery(did: string, fields: 'all' | 'keys-only'): string {
  const service = fields === 'all' ? ' service' : '';
  const query = `query Iid($id: String!) { iids(filter: { id: { equalTo: $id } }) { nodes { id verificationMethod${service} } } }`;
  return JSON.stringify({ query, variables: { id: did } });
}

const answerSchema = z.object({
  data: z.object({ iids: z.object({ nodes: z.array(z.unknown()) }).nullish() }).nullish(),
  errors: z.array(z.object({ message: z.string() }).catch({ message: '' })).nullish(),
});
const nodeSchema = z.object({ id: z.string(), verificationMethod: z.unknown().optional(), service: z.unknown().optional() });

export type IxoAnswer =
  | { readonly kind: 'keys'; readonly value: DidKeys }
  /** No such DID, or no key of it that we can use. */
  | { readonly kind: 'no_keys' }
  /** Not what was asked. */
  | { readonly kind: 'nothing' }
  /** GraphQL refused the query; `unknownService` when it said that it does not know that field. */
  | { readonly kind: 'errors'; readonly unknownService: boolean };

/** Never throws, whatever the text. */
export function readIxoAnswer(text: string, did: string): IxoAnswer {
  const answer = answerSchema.safeParse(readJson(text));
  if (!answer.success) return { kind: 'nothing' };
  const { data, errors } = answer.data;
  if (errors != null && errors.length > 0) {
    return { kind: 'errors', unknownService: errors.some(({ message }) => /cannot query field\W+service\b/iu.test(message)) };
  }
  const nodes = data?.iids?.nodes;
  if (nodes === undefined) return { kind: 'nothing' };
  if (nodes.length === 0) return { kind: 'no_keys' };
  const node = nodeSchema.safeParse(nodes[0]);
  // Whoever answers for somebody else, or for several, was not asked that.
  if (nodes.length !== 1 || !node.success || node.data.id !== did) return { kind: 'nothing' };
  const keys = readKeys(readList(node.data.verificationMethod));
  return keys.length === 0
    ? { kind: 'no_keys' }
    : { kind: 'keys', value: { keys, homeserver: readHomeserver(readList(node.data.service)) } };
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A JSON column is a list, or its text: how PostGraphile shows it is a setting of the indexer. */
function readList(value: unknown): readonly unknown[] {
  const list = typeof value === 'string' ? readJson(value) : value;
  return Array.isArray(list) ? list.slice(0, MAX_ENTRIES) : [];
}

const keyText = z.string().max(MAX_KEY_CHARS).optional().catch(undefined);
const methodSchema = z.object({
  id: z.string().catch(''),
  type: z.string().catch(''),
  publicKeyMultibase: keyText,
  publicKeyHex: keyText,
  publicKeyBase58: keyText,
  publicKeyJwk: z
    .object({ kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: z.string().max(MAX_KEY_CHARS) })
    .optional()
    .catch(undefined),
});
type Method = z.infer<typeof methodSchema>;

function readKeys(methods: readonly unknown[]): Uint8Array[] {
  const keys = new Map<string, Uint8Array>();
  for (const entry of methods) {
    const method = methodSchema.safeParse(entry);
    if (!method.success) continue;
    for (const key of readMethodKeys(method.data)) keys.set(Buffer.from(key).toString('hex'), key);
  }
  // More than a token may have signatures would never be tried.
  return [...keys.values()].slice(0, LIMITS.signaturesPerToken);
}

const OTHER_CURVE = /x25519|secp|bls|p-?(?:256|384|521)|rsa|ecdsa|sr25519/iu;

function readMethodKeys(method: Method): Uint8Array[] {
  const isEd25519 = method.type.includes('Ed25519');
  const isSigning = method.id.includes('signing');
  if (!isEd25519 && !isSigning && method.type !== 'JsonWebKey2020') return [];
  // Bytes without a header are what the type says they are.
  const bare = isEd25519 || (isSigning && !OTHER_CURVE.test(method.type) && method.type !== 'JsonWebKey2020');
  const { publicKeyMultibase = '', publicKeyHex = '', publicKeyBase58 = '', publicKeyJwk } = method;
  const spelled = [
    publicKeyMultibase.startsWith('z') ? decodeBase58(publicKeyMultibase) : undefined,
    publicKeyBase58 === '' ? undefined : decodeBase58(`z${publicKeyBase58}`),
    /^(?:[0-9a-fA-F]{2})+$/u.test(publicKeyHex) ? Buffer.from(publicKeyHex, 'hex') : undefined,
  ].map((bytes) => (bytes === undefined ? undefined : withoutHeader(bytes, bare)));
  return [...spelled, publicKeyJwk === undefined ? undefined : decodeBase64Url(publicKeyJwk.x)]
    .filter((key) => key !== undefined)
    .filter(isAcceptablePublicKey);
}

function withoutHeader(bytes: Uint8Array, bare: boolean): Uint8Array | undefined {
  if (bytes.length === 34 && ED25519_PREFIX.equals(bytes.subarray(0, 2))) return Uint8Array.from(bytes.subarray(2));
  return bare && bytes.length === 32 ? Uint8Array.from(bytes) : undefined;
}
function decodeBase58(text: string): Uint8Array | undefined {
  try {
    return base58btc.decode(text);
  } catch {
    return undefined;
  }
}
function decodeBase64Url(text: string): Uint8Array | undefined {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? Uint8Array.from(bytes) : undefined;
}

const serviceSchema = z.object({ type: z.literal('MatrixHomeServer'), serviceEndpoint: z.string().max(512) });
const SERVER_NAME = /^(?=.{1,230}$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?$/u;

/** The server that the owner of the DID named for their account: an address or a bare name. Two that differ name none. */
function readHomeserver(services: readonly unknown[]): string | null {
  const names = new Set<string | undefined>();
  for (const entry of services) {
    const service = serviceSchema.safeParse(entry);
    if (service.success) names.add(readServerName(service.data.serviceEndpoint));
  }
  const [name] = names;
  return names.size === 1 && name !== undefined ? name : null;
}

function readServerName(endpoint: string): string | undefined {
  const name = /^https?:\/\//iu.test(endpoint) ? URL.parse(endpoint)?.host : endpoint.toLowerCase();
  return name !== undefined && SERVER_NAME.test(name) ? name : undefined;
}
