/**
 * A second verifier, written from the rules alone and slow on purpose: other decoding (`@ipld/dag-cbor` on what `@ipld/car` reads), own text of the signed
 * payload, WebCrypto instead of node's, every way listed before any is judged. It shares no code with src/ucan, so that a mistake there is not
 * made here too; the two must agree on every generated case. The form of tokens is the gate's and not asked again.
 */
import { CarReader } from '@ipld/car';
import * as dagCbor from '@ipld/dag-cbor';
import { base58btc } from 'multiformats/bases/base58';
import type { CID } from 'multiformats/cid';

interface Right {
  can: string;
  with: string;
  nb?: Record<string, unknown>;
}
interface Block {
  iss: Uint8Array;
  aud: Uint8Array;
  att: Right[];
  exp: number;
  nbf?: number;
  prf: CID[];
  fct?: unknown[];
  nnc?: string;
  s: Uint8Array;
}
interface Token extends Block {
  cid: string;
  from: string;
  to: string;
}
export interface Case {
  /** Files, base64url. */
  readonly file: string;
  readonly beside: readonly string[];
  readonly stored: readonly string[];
  /** Raw keys by DID; `null` for one that does not resolve. */
  readonly keys: Readonly<Record<string, readonly Uint8Array[] | null>>;
  /** `<token id or hex CID> <did>` */
  readonly revoked: ReadonlySet<string>;
  readonly nowMs: number;
}
export interface Answer {
  readonly code: string;
  readonly principal?: string;
  /** CIDs below the token, nearest first. */
  readonly grants?: readonly string[];
  readonly until?: number | null;
}

const SKEW_S = 60;
const DAY_S = 86_400;
const SEVERITY = [
  'BROKEN_CHAIN',
  'NOT_DELEGATED',
  'MISSING_PROOF',
  'BAD_ISSUER',
  'BAD_SIGNATURE',
  'DID_NOT_RESOLVED',
  'GRANT_NOT_YET_VALID',
  'GRANT_LIVES_TOO_LONG',
  'GRANT_EXPIRED',
  'REVOKED',
];
const worst = (codes: string[]) => codes.sort((a, b) => SEVERITY.indexOf(a) - SEVERITY.indexOf(b))[0]!;
const best = (codes: string[]) => codes.sort((a, b) => SEVERITY.indexOf(b) - SEVERITY.indexOf(a))[0]!;

export async function verifyInvocationAgain(given: Case): Promise<Answer> {
  const { leaf, own, all } = await readAll(given);
  // The gate refuses a file whose own links do not fit together.
  for (const token of own.values()) {
    for (const proof of token.prf) {
      const below = own.get(hexOf(proof.bytes));
      if (below !== undefined && below.to !== token.from) return { code: 'BROKEN_CHAIN' };
    }
  }
  if (leaf.from.startsWith('did:key:') && !(await isSigned(leaf, given))) return { code: 'BAD_SIGNATURE' };
  const [right] = leaf.att;
  let ways: { links: Token[]; dead?: string }[] = [{ links: [leaf] }];
  let owner = leaf.from;
  if (leaf.prf.length > 0 && leaf.att.length !== 1) return { code: 'BAD_CAPABILITY' };
  if (leaf.prf.length > 0 && right!.with !== leaf.from) {
    owner = right!.with;
    ways = everyWay([leaf], all);
    if (ways.length > 16 || ways.some(({ links }) => links.length > 5)) return { code: 'TOO_MANY_PROOFS' };
  }

  const failures: string[] = [];
  const good: Token[][] = [];
  for (const { links, dead } of ways) {
    const end = links.findIndex((link) => link.from === owner);
    const used = end < 0 ? links : links.slice(0, end + 1);
    // What may be claimed at each link, from the token upwards.
    let allowed = [right!];
    const holds = used.slice(1).every((link) => {
      allowed = link.att.filter((above) => knowsAll(above) && allowed.some((below) => allows(above, below)));
      return allowed.length > 0;
    });
    if (!holds) failures.push('NOT_DELEGATED');
    else if (end < 0) failures.push(dead ?? 'NOT_DELEGATED');
    else {
      const codes: string[] = [];
      for (const [n, link] of used.entries()) codes.push(...(await judge(link, n, used, given)));
      if (codes.length === 0) good.push(used);
      else failures.push(worst(codes));
    }
  }
  if (good.length === 0) return { code: best(failures) };
  const untilOf = (links: Token[]) => Math.min(Number.POSITIVE_INFINITY, ...links.slice(1).map((link) => link.exp * 1000));
  let chosen = good[0]!;
  for (const other of good) if (untilOf(other) > untilOf(chosen)) chosen = other;
  const until = untilOf(chosen);
  return {
    code: 'verified',
    principal: chosen.at(-1)!.from,
    grants: chosen.slice(1).map(({ cid }) => cid),
    until: Number.isFinite(until) ? until : null,
  };
}

async function judge(link: Token, n: number, way: Token[], given: Case): Promise<string[]> {
  const codes: string[] = [];
  const known = link.from.startsWith('did:key:') || given.keys[link.from];
  if (!known) codes.push('DID_NOT_RESOLVED');
  else if (!(await isSigned(link, given))) codes.push('BAD_SIGNATURE');
  if (n > 0) {
    const now = given.nowMs / 1000;
    if ((link.nbf ?? 0) > now + SKEW_S) codes.push('GRANT_NOT_YET_VALID');
    else if (link.exp > now + (n === 1 ? DAY_S : 30 * DAY_S) + SKEW_S) codes.push('GRANT_LIVES_TOO_LONG');
    else if (link.exp + SKEW_S <= now) codes.push('GRANT_EXPIRED');
  }
  const id = Buffer.from(await crypto.subtle.digest('SHA-256', payloadOf(link))).toString('base64url');
  for (const above of way.slice(n)) {
    if (given.revoked.has(`${id} ${above.from}`) || given.revoked.has(`${link.cid} ${above.from}`)) codes.push('REVOKED');
  }
  return codes;
}

/** Ways as far as they go; a link that is not known, or not made out to whoever rests on it, ends one. */
function everyWay(links: Token[], all: Map<string, Token>): { links: Token[]; dead?: string }[] {
  const last = links.at(-1)!;
  if (last.prf.length === 0) return [{ links }];
  if (links.length > 5) return [{ links }];
  return last.prf.flatMap((proof) => {
    // One link more than is allowed, so that the caller sees it.
    if (links.length === 5) return [{ links: [...links, last] }];
    const below = all.get(hexOf(proof.bytes));
    if (below === undefined) return [{ links, dead: 'MISSING_PROOF' }];
    return below.to === last.from ? everyWay([...links, below], all) : [{ links, dead: 'BROKEN_CHAIN' }];
  });
}

function allows(above: Right, below: Right): boolean {
  if (above.with !== below.with) return false;
  const [wide, narrow] = [above.can.split('/'), below.can.split('/')];
  const star = wide.at(-1) === '*';
  const fixed = star ? wide.slice(0, -1) : wide;
  const fits =
    fixed.every((part, n) => part === narrow[n]) &&
    (star ? narrow.length > fixed.length || above.can === '*' : narrow.length === fixed.length);
  if (!fits) return false;
  return Object.entries(above.nb ?? {}).every(([key, want]) => {
    const has = Object.entries(below.nb ?? {}).find(([name]) => name === key);
    return has !== undefined && sortedJson(has[1]) === sortedJson(want);
  });
}

function knowsAll({ can, nb = {} }: Right): boolean {
  const names: string[] = ['link', 'sender'];
  if (can === 'oracle/message') names.push('room', 'type', 'hash', 'ts', 'thread', 'edits');
  if (can === 'oracle/read') names.push('room');
  return Object.entries(nb).every(([name]) => names.indexOf(name) >= 0);
}

async function isSigned(link: Token, { keys }: Case): Promise<boolean> {
  const candidates = link.from.startsWith('did:key:') ? [link.iss.slice(2)] : (keys[link.from] ?? []);
  for (const raw of candidates) {
    const key = await crypto.subtle.importKey('raw', Uint8Array.from(raw), 'Ed25519', true, ['verify']);
    if (await crypto.subtle.verify('Ed25519', key, Uint8Array.from(link.s.slice(4)), payloadOf(link))) return true;
  }
  return false;
}

/** UCAN 0.9.1: header and payload of the JWT form, keys sorted. */
function payloadOf({ from, to, att, exp, prf, fct, nnc, nbf }: Token): Uint8Array<ArrayBuffer> {
  const payload = {
    ...{ iss: from, aud: to, att, exp, prf: prf.map(String) },
    ...(fct === undefined ? {} : { fct }),
    ...(nnc === undefined || nnc === '' ? {} : { nnc }),
    ...(nbf === undefined ? {} : { nbf }),
  };
  const text = [{ alg: 'EdDSA', ucv: '0.9.1', typ: 'JWT' }, payload].map((part) => Buffer.from(sortedJson(part)).toString('base64url'));
  return new TextEncoder().encode(text.join('.'));
}

function sortedJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(sortedJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${sortedJson(item)}`).join(',')}}`;
}

async function readAll({ file, beside, stored }: Case): Promise<{ leaf: Token; own: Map<string, Token>; all: Map<string, Token> }> {
  const { leaf, tokens: own } = await readFile(file);
  const all = new Map(own);
  for (const text of beside) for (const [cid, token] of (await readFile(text)).tokens) all.set(cid, token);
  // Each stored file is found by its own token only; what that brings along is then known as well.
  const files = await Promise.all(stored.map(readFile));
  const named = new Set([...all.values()].flatMap((token) => token.prf.map((cid) => hexOf(cid.bytes))));
  for (let again = true; again; ) {
    again = false;
    for (const { leaf: found, tokens } of files) {
      if (!named.has(found.cid) || all.has(found.cid)) continue;
      for (const [cid, token] of tokens) all.set(cid, token);
      for (const token of tokens.values()) for (const cid of token.prf) named.add(hexOf(cid.bytes));
      again = true;
    }
  }
  return { leaf, own, all };
}

async function readFile(text: string): Promise<{ leaf: Token; tokens: Map<string, Token> }> {
  const reader = await CarReader.fromBytes(Uint8Array.from(Buffer.from(text, 'base64url')));
  const [root] = await reader.getRoots();
  const tokens = new Map<string, Token>();
  let leaf = '';
  for await (const { cid, bytes } of reader.blocks()) {
    if (cid.equals(root)) {
      leaf = hexOf((dagCbor.decode(bytes) as Record<string, CID>)['ucan@0.9.1']!.bytes);
      continue;
    }
    const block = dagCbor.decode(bytes) as Block;
    tokens.set(hexOf(cid.bytes), { ...block, cid: hexOf(cid.bytes), from: didOf(block.iss), to: didOf(block.aud) });
  }
  return { leaf: tokens.get(leaf)!, tokens };
}

const didOf = (bytes: Uint8Array): string =>
  bytes[0] === 0xed ? `did:key:${base58btc.encode(bytes)}` : `did:${new TextDecoder().decode(bytes.slice(2))}`;
const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
