/** Runs a vector through what a token really goes through: gate, chain, binding, account, single use; and counts the work. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ErrorCode } from '../../../src/errors.ts';
import type { Did, EventId, RoomId, SessionId, TokenId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { err, ok, type Result } from '../../../src/result.ts';
import { bindToEvent } from '../../../src/ucan/bind-event.ts';
import { bindToRequest } from '../../../src/ucan/bind-request.ts';
import { type ChainPorts, createVerifier } from '../../../src/ucan/chain.ts';
import { decideGrant } from '../../../src/ucan/decide-grant.ts';
import { decodeStrictBase64, type GateCount, type GatedToken, gate, gateDelegation } from '../../../src/ucan/gate.ts';
import { checkIxoAccount } from '../../../src/ucan/ixo-account.ts';
import type { Context, Vector } from './cast.ts';

export const readVectors = (): Vector[] =>
  readdirSync(import.meta.dirname)
    .filter((name) => name.endsWith('.json'))
    .flatMap((name) => JSON.parse(readFileSync(join(import.meta.dirname, name), 'utf8')) as Vector[]);

export interface Work extends GateCount {
  signatures: number;
  lookUps: number;
  storeReads: number;
  revocationReads: number;
}
export const noWork = (): Work => ({ blocks: 0, cborItems: 0, decoded: 0, signatures: 0, lookUps: 0, storeReads: 0, revocationReads: 0 });

export interface Given {
  readonly principal: Did;
  readonly grantsUntil?: number | null;
  readonly expiresAt?: number;
  readonly path?: number;
}

const storedOnce = new Map<string, GatedToken>();
/** What the store read when the grant came in. */
function readStored(text: string): GatedToken {
  const known = storedOnce.get(text);
  if (known !== undefined) return known;
  const gated = gateDelegation(text);
  if (!gated.ok) throw new Error('a stored token passed the gate once');
  storedOnce.set(text, gated.value);
  return gated.value;
}

export function portsOf(context: Context, work: Work): ChainPorts {
  const stored = new Map<string, GatedToken>();
  for (const { token, cid } of context.stored ?? []) {
    const gated = readStored(token);
    stored.set(cid ?? gated.leaf.cid, gated);
  }
  return {
    findToken(cid) {
      work.storeReads += 1;
      return stored.get(cid);
    },
    async keysOf(did) {
      work.lookUps += 1;
      const document = context.didDocuments?.[did];
      if (document === 'throws') throw new Error('the resolver breaks');
      if (document === undefined || typeof document === 'string') return err('DID_NOT_RESOLVED');
      return ok({ keys: document.keys.map((key) => Uint8Array.from(Buffer.from(key, 'hex'))), homeserver: document.homeserver });
    },
    isRevoked({ tokenId, cid }, issuers) {
      work.revocationReads += 1;
      return (context.revoked ?? []).some(({ id, by }) => (id === tokenId || id === cid) && issuers.includes(by as Did));
    },
    now: () => context.now,
  };
}

/** As `gateInvocation` and `gateDelegation`, counting. A test compares the two on every vector. */
export function gateCounted(text: string, maxBytes: number, work: GateCount): Result<GatedToken, ErrorCode> {
  if (text.length > Math.ceil(maxBytes / 3) * 4) return err('UCAN_TOO_LARGE');
  const file = decodeStrictBase64(text);
  return file === undefined ? err('UCAN_MALFORMED') : gate(file, maxBytes, work);
}

export async function runVector(vector: Vector, work: Work = noWork()): Promise<Result<Given, ErrorCode>> {
  const { context } = vector;
  const ports = portsOf(context, work);
  const verifier = createVerifier(ports, work);
  const token = gateCounted(vector.token, vector.as === 'grant' ? LIMITS.delegationBytes : LIMITS.invocationBytes, work);
  if (!token.ok) return token;
  if (vector.as === 'grant') {
    const grant = await verifier.grant(token.value);
    if (!grant.ok) return grant;
    const decided = decideGrant(grant.value, { oracleDids: [context.oracle as Did], now: context.now });
    return decided.ok ? ok({ principal: grant.value.principal, expiresAt: grant.value.expiresAt, path: grant.value.path.length }) : decided;
  }
  const beside: GatedToken[] = [];
  for (const text of vector.beside ?? []) {
    const gated = gateCounted(text, LIMITS.delegationBytes, work);
    if (!gated.ok) return gated;
    beside.push(gated.value);
  }
  const verified = await verifier.invocation(token.value, beside);
  if (!verified.ok) return verified;
  const { principal, grantsUntil, tokenId } = verified.value;
  if (vector.as === 'request') {
    const { method, path, body, session } = context.request ?? { method: 'POST', path: '/', body: '' };
    const bodySha256 = createHash('sha256').update(body).digest('base64url');
    const bound = bindToRequest(
      verified.value,
      { method, path, bodySha256, sessionId: session as SessionId | undefined },
      { oracleDid: context.oracle as Did, now: context.now },
    );
    return bound.ok ? ok({ principal, grantsUntil }) : bound;
  }
  const event = context.event;
  if (event === undefined) throw new Error(`${vector.name} has no event`);
  const bound = bindToEvent(
    verified.value,
    {
      ...{ roomId: event.room as RoomId, sender: event.sender as UserId, type: event.type, content: event.content as JsonObject },
      ...{
        originServerTs: event.originServerTs,
        threadRoot: event.thread as EventId | undefined,
        editsTarget: event.edits as EventId | undefined,
      },
    },
    { oracleDid: context.oracle as Did, now: context.now, maxLatenessMs: 15 * 60_000 },
  );
  if (!bound.ok) return bound;
  const isTrusted = (user: string) => user.endsWith(':example.org');
  const account = await checkIxoAccount(principal, event.sender as UserId, { isTrusted, keysOf: ports.keysOf });
  if (!account.ok) return account;
  const spent = context.spent?.find((mark) => mark.tokenId === (tokenId as TokenId));
  return spent !== undefined && spent.on !== context.eventId ? err('REPLAY') : ok({ principal, grantsUntil });
}
