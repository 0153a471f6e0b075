/**
 * A UCAN from what it shall say to the bytes that travel, with signing and hashing as arguments: node signs by node:crypto, the authorise
 * page by WebCrypto with a key it cannot read, and both make the same bytes. So nothing here may import node, and nothing here decides
 * whether a token is acceptable: that is the gate's question.
 */
import { encode, format } from '@ipld/dag-ucan';
import { parse as parsePrincipal } from '@ipld/dag-ucan/did';
import { create as createSignature, EdDSA } from '@ipld/dag-ucan/signature';
import { base58btc } from 'multiformats/bases/base58';
import { base64url } from 'multiformats/bases/base64';
import { CID } from 'multiformats/cid';
import type { Did } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import { buildVariant, cidOfDigest, type Section, writeCar } from './write-car.ts';

export interface UcanToBuild {
  readonly issuer: Did;
  readonly audience: Did;
  readonly capabilities: readonly { readonly can: string; readonly with: string; readonly nb?: JsonObject }[];
  /** Seconds since the epoch; Infinity makes a token without end, which the gate refuses. */
  readonly expiration: number;
  readonly notBefore?: number;
  /** Empty for none, which only a grant may do without. */
  readonly nonce: string;
  readonly facts?: readonly JsonObject[];
  /** CIDs of what it rests on, 36 bytes each. */
  readonly proofs?: readonly Uint8Array[];
}

export interface UnsignedUcan {
  /** What the issuer signs. */
  readonly payload: Uint8Array<ArrayBuffer>;
  /** The block with the 64 bytes of the signature in it. */
  readonly withSignature: (signature: Uint8Array) => Uint8Array;
}

export function buildUcan(ucan: UcanToBuild): UnsignedUcan {
  const model = {
    v: '0.9.1' as const,
    iss: parsePrincipal(ucan.issuer),
    aud: parsePrincipal(ucan.audience),
    att: ucan.capabilities,
    prf: (ucan.proofs ?? []).map((cid) => CID.decode(cid)),
    exp: Number.isFinite(ucan.expiration) ? ucan.expiration : null,
    fct: ucan.facts ?? [],
    ...(ucan.nonce === '' ? {} : { nnc: ucan.nonce }),
    ...(ucan.notBefore === undefined ? {} : { nbf: ucan.notBefore }),
  };
  const signed = (signature: Uint8Array) => ({ ...model, s: createSignature(EdDSA, signature) }) as unknown as Parameters<typeof encode>[0];
  const text = format(signed(new Uint8Array(64)));
  return {
    payload: new TextEncoder().encode(text.slice(0, text.lastIndexOf('.'))),
    withSignature: (signature) => encode(signed(signature)),
  };
}

/** What signs and hashes in a browser: `crypto.subtle` behind both. */
export interface WebSigner {
  readonly sign: (payload: Uint8Array<ArrayBuffer>) => Promise<Uint8Array>;
  readonly sha256: (bytes: Uint8Array) => Promise<Uint8Array>;
}

/** A signed token resting on the one given whole (a session key's on its session grant), and that token's own section for further ones. */
export async function signUcan(
  ucan: Omit<UcanToBuild, 'proofs'> & { readonly proof?: readonly Section[] },
  signer: WebSigner,
): Promise<{ car: string; sections: readonly Section[] }> {
  const { proof = [], ...rest } = ucan;
  const restsOn = proof.at(-1);
  const unsigned = buildUcan({ ...rest, proofs: restsOn === undefined ? [] : [restsOn.cid] });
  const leaf = await buildSection(unsigned.withSignature(await signer.sign(unsigned.payload)), signer);
  const root = await buildSection(buildVariant(leaf.cid), signer);
  return { car: toBase64Url(writeCar(root.cid, [...proof, leaf, root])), sections: [...proof, leaf] };
}

const buildSection = async (block: Uint8Array, { sha256 }: WebSigner): Promise<Section> => ({
  cid: cidOfDigest(await sha256(block)),
  block,
});

/** did:key of a raw 32-byte Ed25519 public key. */
export const didKeyOf = (rawPublicKey: Uint8Array): Did => `did:key:${base58btc.encode(Uint8Array.of(0xed, 0x01, ...rawPublicKey))}` as Did;

/** Unpadded. */
export const toBase64Url = (bytes: Uint8Array): string => base64url.baseEncode(bytes);
