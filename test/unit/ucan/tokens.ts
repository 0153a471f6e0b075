/** Honest tokens and the tools to break them: a CAR is taken apart, changed and put together again with hashes that fit. */
import { createHash } from 'node:crypto';
import * as dagCbor from '@ipld/dag-cbor';
import type { Did, EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { err } from '../../../src/result.ts';
import { buildCar, cidOf, readCar } from '../../../src/ucan/car.ts';
import { type ChainPorts, createVerifier, type VerifiedInvocation } from '../../../src/ucan/chain.ts';
import { type GatedToken, gateDelegation, gateInvocation } from '../../../src/ucan/gate.ts';
import { mintMessageInvocation, mintUcan, type UcanToMint } from '../../../src/ucan/mint.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { buildVariant } from '../../../src/ucan/write-car.ts';

export const alice = keyFromSeed(createHash('sha256').update('alice').digest());
export const mallory = keyFromSeed(createHash('sha256').update('mallory').digest());
export const oracle = keyFromSeed(createHash('sha256').update('oracle').digest());

export const TS = 1_800_000_000_000;
export const NONCE = 'AAECAwQFBgcICQoLDA0ODw';
export const CONTENT: JsonObject = { msgtype: 'm.text', body: 'hello' };
export const MESSAGE = {
  key: alice,
  audience: oracle.did,
  room: '!dm:example.org' as RoomId,
  sender: '@alice:example.org' as UserId,
  type: 'm.room.message',
  ts: TS,
  nonce: NONCE,
};
export const EVENT = { roomId: MESSAGE.room, sender: MESSAGE.sender, type: MESSAGE.type, content: CONTENT, originServerTs: TS + 200 };
export const BINDING = { oracleDid: oracle.did as Did, now: TS + 500, maxLatenessMs: 15 * 60_000 };
export const ROOT = '$root' as EventId;

export const honest = (change: Partial<typeof MESSAGE & { thread: EventId; edits: EventId; content: JsonObject }> = {}): string =>
  mintMessageInvocation({ ...MESSAGE, content: CONTENT, ...change });

export const NB = { room: MESSAGE.room, sender: MESSAGE.sender, type: MESSAGE.type, hash: 'x', ts: TS };
export const custom = (change: Partial<UcanToMint> = {}): string =>
  mintUcan({
    ...{ key: alice, audience: oracle.did, expiration: TS / 1000 + 300, nonce: NONCE },
    capabilities: [{ can: 'oracle/message', with: alice.did, nb: NB }],
    ...change,
  });

export const carBytes = (encoded: string): Buffer => Buffer.from(encoded, 'base64url');

/** The UCAN block of a CAR. */
export function leafOf(encoded: string): Uint8Array {
  const car = readCar(carBytes(encoded));
  if (!car.ok) throw new Error(car.error);
  return car.value.blocks[0]!.bytes;
}

export const variantOf = (leaf: Uint8Array): Buffer => Buffer.from(buildVariant(cidOf(leaf)));

/** A CAR around any leaf bytes, every hash right. */
export function wrap(leaf: Uint8Array, others: readonly Uint8Array[] = []): string {
  const root = variantOf(leaf);
  return buildCar(root, [...others, leaf, root]).toString('base64url');
}

/** The token with its decoded block changed; the signature stays as it was. */
export function reEncoded(encoded: string, change: (model: Record<string, any>) => void): string {
  const model = dagCbor.decode(leafOf(encoded)) as Record<string, any>;
  change(model);
  return wrap(dagCbor.encode(model));
}

export function gated(encoded: string): GatedToken {
  const result = gateInvocation(encoded);
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

/** A grant, or a longer chain, that has the form of one. */
export function gatedGrant(encoded: string): GatedToken {
  const result = gateDelegation(encoded);
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

/** Nothing stored, nothing revoked, no DID but did:key. */
export const NO_PORTS: ChainPorts = {
  findToken: () => undefined,
  keysOf: async () => err('DID_NOT_RESOLVED'),
  isRevoked: () => false,
  now: () => TS + 500,
};
const verifyAlone = createVerifier(NO_PORTS).invocation;

export async function verified(encoded: string): Promise<VerifiedInvocation> {
  const result = await verifyAlone(gated(encoded));
  if (!result.ok) throw new Error(result.error);
  return result.value;
}

/** The code with which the gate or, behind it, the chain refuses; 'accepted' otherwise. */
export async function outcome(encoded: string): Promise<string> {
  const form = gateInvocation(encoded);
  if (!form.ok) return form.error;
  const chain = await verifyAlone(form.value);
  return chain.ok ? 'accepted' : chain.error;
}
