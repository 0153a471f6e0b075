/**
 * From words to the account's key and back to nothing: the seed is SHA-256 of the trimmed text, as SIGNING_MNEMONIC's, so one phrase is one DID in
 * every program. Keys are WebCrypto's and not extractable; the text and the seed live only as long as this function runs (DESIGN §5).
 */
import type { Did } from '../../../ids.ts';
import { didKeyOf } from '../../../ucan/build-ucan.ts';

/** WebCrypto's key, under a name that Node's types have too. */
export type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

interface KeyPair {
  readonly privateKey: Key;
  readonly publicKey: Key;
}

/** Whoever signs: the account itself, or a key of this browser that speaks for it. */
export interface Signer {
  readonly did: Did;
  readonly privateKey: Key;
}

const ED25519 = { name: 'Ed25519' } as const;
/** PrivateKeyInfo of an Ed25519 key (RFC 8410 §7) up to its 32-byte seed. */
const PKCS8_HEAD = Uint8Array.of(0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20);
const KEY_BYTES = 32;

/** The account of these words, spelled as they are; only white space around them does not count. */
export async function openAccount(words: string): Promise<Signer> {
  const seed = await sha256(new TextEncoder().encode(words.trim()));
  const pkcs8 = new Uint8Array(PKCS8_HEAD.length + KEY_BYTES);
  pkcs8.set(PKCS8_HEAD);
  pkcs8.set(seed, PKCS8_HEAD.length);
  // Only a key that can be exported tells its public half; the one that is kept cannot.
  const open = await crypto.subtle.importKey('pkcs8', pkcs8, ED25519, true, ['sign']);
  const { x } = await crypto.subtle.exportKey('jwk', open);
  const privateKey = await crypto.subtle.importKey('pkcs8', pkcs8, ED25519, false, ['sign']);
  pkcs8.fill(0);
  seed.fill(0);
  return { did: didKeyOf(decodeBase64Url(String(x))), privateKey };
}

/** A fresh key of this browser: it signs here and nowhere else, because it cannot be taken out. */
export async function createSessionKey(): Promise<Signer> {
  const { privateKey, publicKey } = (await crypto.subtle.generateKey(ED25519, false, ['sign', 'verify'])) as KeyPair;
  return { did: didKeyOf(new Uint8Array(await crypto.subtle.exportKey('raw', publicKey))), privateKey };
}

export const sign = async ({ privateKey }: Signer, payload: Uint8Array<ArrayBuffer>): Promise<Uint8Array> =>
  new Uint8Array(await crypto.subtle.sign(ED25519, privateKey, payload));

export const sha256 = async (bytes: Uint8Array): Promise<Uint8Array<ArrayBuffer>> =>
  new Uint8Array(await crypto.subtle.digest('SHA-256', Uint8Array.from(bytes)));

/** Whether this browser can do what the page needs; false where WebCrypto is missing (no secure context) or knows no Ed25519. */
export async function knowsEd25519(): Promise<boolean> {
  try {
    await createSessionKey();
    return true;
  } catch {
    return false;
  }
}

const decodeBase64Url = (text: string): Uint8Array =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
