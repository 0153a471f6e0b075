/**
 * The signing side: clients, the demo's user, tests and `matrix-oracle mint` make tokens with this, so what the gate accepts and what is
 * made cannot drift apart. Signs by node:crypto (0.04 ms; the library's own signer takes 0.26). Time and nonce are arguments.
 */
import { randomBytes, sign } from 'node:crypto';
import type { Did, EventId, RoomId, SessionId, UserId } from '../ids.ts';
import { type JsonObject, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { MESSAGE_ABILITY, READ_ABILITY } from './abilities.ts';
import { buildFile } from './build-file.ts';
import { buildUcan } from './build-ucan.ts';
import { cidOf } from './car.ts';
import { contentHash, UCAN_KEY } from './content-hash.ts';
import type { GatedToken, GatedUcan } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';
import type { SigningKey } from './signing-key.ts';

/** What a token rests on. */
export interface MintProofs {
  /** Put into the file, with what they rest on. */
  readonly proofs?: readonly GatedToken[] | undefined;
  /** Named only, hex of CIDs: whoever checks it must have them. */
  readonly proofLinks?: readonly string[] | undefined;
}

export interface UcanToMint extends MintProofs {
  readonly key: SigningKey;
  /** Whom the key signs for: `key.did`, unless it is a key of a did:ixo. */
  readonly issuer?: Did | undefined;
  readonly audience: Did;
  readonly capabilities: readonly UcanCapability[];
  /** Seconds since the epoch; Infinity makes a token without end, which the gate refuses. */
  readonly expiration: number;
  readonly notBefore?: number;
  readonly nonce: string;
  readonly facts?: readonly JsonObject[];
}

const NONCE_BYTES = 16;
/** 128 bits from the system's randomness as base64url. */
export const newNonce = (): string => randomBytes(NONCE_BYTES).toString('base64url');

/** A signed UCAN as unpadded base64url CAR. Mints what it is told: whether it is acceptable is the question of gate and chain. */
export function mintUcan({ key, issuer = key.did, proofs = [], proofLinks = [], ...ucan }: UcanToMint): string {
  const named = [...proofs.map((proof) => proof.leaf.cid), ...proofLinks];
  const unsigned = buildUcan({ ...ucan, issuer, proofs: named.map((cid) => Uint8Array.from(Buffer.from(cid, 'hex'))) });
  const block = unsigned.withSignature(sign(null, unsigned.payload, key.privateKey));
  const known = new Map<string, GatedUcan>(proofs.flatMap((proof) => [...proof.links]));
  return buildFile({ cid: cidOf(block).toString('hex'), block, proofs: named }, known);
}

export interface GrantToSign extends Omit<UcanToMint, 'expiration' | 'facts'> {
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** A grant: acting when it is made out to the oracle, session when to a key of the client. */
export const mintGrant = ({ expiresAt, ...grant }: GrantToSign): string => mintUcan({ ...grant, expiration: Math.floor(expiresAt / 1000) });

/** Who signs an invocation, and for whom. */
export interface Signer extends MintProofs {
  readonly key: SigningKey;
  /** The person's DID when the key is a session key under a grant, which then must be among the proofs, or a key of a did:ixo. */
  readonly as?: Did | undefined;
}

export interface MessageToSign extends Signer {
  readonly audience: Did;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly type: string;
  /** Milliseconds since the epoch; the homeserver must see the event within LIMITS.clockSkewS of it. */
  readonly ts: number;
  readonly thread?: EventId | undefined;
  readonly edits?: EventId | undefined;
  /** At least 96 random bits: `newNonce()`. */
  readonly nonce: string;
}

/** The `inv` of an event. Throws for content without canonical form, which no homeserver takes either. */
export function mintMessageInvocation(message: MessageToSign & { readonly content: JsonObject }): string {
  const hash = contentHash(message.content);
  if (!hash.ok) throw new Error('the content has no canonical JSON');
  const { room, sender, type, ts, thread, edits } = message;
  const nb = {
    room,
    sender,
    type,
    hash: hash.value,
    ts,
    ...(thread === undefined ? {} : { thread }),
    ...(edits === undefined ? {} : { edits }),
  };
  return mintOwn(message, MESSAGE_ABILITY, nb);
}

/** The content with its token: what a signing client sends. */
export const signContent = (message: MessageToSign, content: JsonObject): JsonObject => ({
  ...content,
  [UCAN_KEY]: { v: 1, inv: mintMessageInvocation({ ...message, content }) },
});

export interface RequestToSign extends Signer {
  readonly audience: Did;
  /** Upper case; GET and HEAD need a read token, everything else a token for this very request. */
  readonly method: string;
  /** As in the request line, without the query. */
  readonly path: string;
  readonly body?: string | Uint8Array | undefined;
  readonly sender: UserId;
  /** The direct room with the oracle; left out only as long as there is none. */
  readonly room?: RoomId | undefined;
  readonly thread?: SessionId | undefined;
  /** Milliseconds since the epoch. */
  readonly ts: number;
  readonly nonce: string;
}

/** The bearer token of an HTTP request. */
export function mintRequestInvocation(request: RequestToSign): string {
  const { method, path, body, sender, room, thread, ts } = request;
  if (method === 'GET' || method === 'HEAD') return mintReadInvocation(request);
  return mintOwn(request, MESSAGE_ABILITY, {
    ...{ sender, type: `${method} ${path}`, hash: sha256Base64Url(body ?? ''), ts },
    ...(room === undefined ? {} : { room }),
    ...(thread === undefined ? {} : { thread }),
  });
}

type OwnToSign = Signer & Pick<RequestToSign, 'audience' | 'ts' | 'nonce'>;

/** A token for every read of the own sessions, reusable for LIMITS.invocationLifetimeS. */
export const mintReadInvocation = (read: OwnToSign): string => mintOwn(read, READ_ABILITY);

/** A did:ixo has keys of its own and signs as itself; a session key signs as the key it is, on the DID that granted it. */
function mintOwn({ key, as = key.did, audience, ts, nonce, proofs, proofLinks }: OwnToSign, can: string, nb?: JsonObject): string {
  const restsOnGrant = (proofs?.length ?? 0) + (proofLinks?.length ?? 0) > 0;
  return mintUcan({
    ...{ key, issuer: restsOnGrant ? key.did : as, audience, nonce, proofs, proofLinks },
    capabilities: [nb === undefined ? { can, with: as } : { can, with: as, nb }],
    expiration: Math.floor(ts / 1000) + LIMITS.invocationLifetimeS,
  });
}
