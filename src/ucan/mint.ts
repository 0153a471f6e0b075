/**
 * The signing side: clients, the demo's user, tests and `matrix-oracle mint` make tokens with this, so what the gate accepts and what is
 * made cannot drift apart. Signs by node:crypto (0.04 ms; the library's own signer takes 0.26). Time and nonce are arguments.
 */
import { randomBytes, sign } from 'node:crypto';
import { encode, format } from '@ipld/dag-ucan';
import { parse as parsePrincipal } from '@ipld/dag-ucan/did';
import { create as createSignature, EdDSA } from '@ipld/dag-ucan/signature';
import type { Did, EventId, RoomId, SessionId, UserId } from '../ids.ts';
import { type JsonObject, sha256Base64Url } from '../json.ts';
import { LIMITS } from '../limits.ts';
import { MESSAGE_ABILITY } from './bind-event.ts';
import { READ_ABILITY } from './bind-request.ts';
import { buildCar, cidOf } from './car.ts';
import { contentHash, UCAN_KEY } from './content-hash.ts';
import { VARIANT_HEAD } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';
import type { SigningKey } from './signing-key.ts';

export interface UcanToMint {
  readonly key: SigningKey;
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

/** A signed UCAN without proofs as unpadded base64url CAR. Mints what it is told: whether it is acceptable is the gate's question. */
export function mintUcan(ucan: UcanToMint): string {
  const model = {
    v: '0.9.1' as const,
    iss: parsePrincipal(ucan.key.did),
    aud: parsePrincipal(ucan.audience),
    att: ucan.capabilities,
    prf: [],
    exp: Number.isFinite(ucan.expiration) ? ucan.expiration : null,
    fct: ucan.facts ?? [],
    nnc: ucan.nonce,
    ...(ucan.notBefore === undefined ? {} : { nbf: ucan.notBefore }),
  };
  const codecModel = (signature: Uint8Array) =>
    ({ ...model, s: createSignature(EdDSA, signature) }) as unknown as Parameters<typeof encode>[0];
  const unsigned = format(codecModel(new Uint8Array(64)));
  const payload = unsigned.slice(0, unsigned.lastIndexOf('.'));
  const block = encode(codecModel(sign(null, Buffer.from(payload), ucan.key.privateKey)));
  const root = Buffer.concat([VARIANT_HEAD, cidOf(block)]);
  return buildCar(root, [block, root]).toString('base64url');
}

export interface MessageToSign {
  readonly key: SigningKey;
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

export interface RequestToSign {
  readonly key: SigningKey;
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

/** A token for every read of the own sessions, reusable for LIMITS.invocationLifetimeS. */
export const mintReadInvocation = (read: Pick<RequestToSign, 'key' | 'audience' | 'ts' | 'nonce'>): string => mintOwn(read, READ_ABILITY);

function mintOwn(
  { key, audience, ts, nonce }: Pick<RequestToSign, 'key' | 'audience' | 'ts' | 'nonce'>,
  can: string,
  nb?: JsonObject,
): string {
  const capability = nb === undefined ? { can, with: key.did } : { can, with: key.did, nb };
  return mintUcan({ key, audience, capabilities: [capability], expiration: Math.floor(ts / 1000) + LIMITS.invocationLifetimeS, nonce });
}
