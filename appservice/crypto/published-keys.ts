/**
 * What the homeserver shows everybody of the oracle's keys: its identity, the devices that hold keys, and whether the identity signed them. Clients decide by
 * exactly this whom they give their keys to, so whoever looks for a fault (`doctor`, `crypto status`) must look here and not into our own files.
 * Signatures are verified: that one is there says nothing.
 */
import { createPublicKey, verify } from 'node:crypto';
import type { DeviceId, UserId } from '../../src/ids.ts';
import { canonicalJson, isJsonObject, type JsonObject } from '../../src/json.ts';
import type { MatrixApi } from '../matrix-api.ts';
import { isOfAStore } from './key-device.ts';

/** All keys are unpadded base64. */
export interface PublishedKeys {
  readonly masterKey: string | null;
  readonly selfSigningKey: string | null;
  readonly userSigningKey: string | null;
  /** Those that are named like devices of the oracle's key stores and have uploaded keys. */
  readonly devices: readonly PublishedDevice[];
}
export interface PublishedDevice {
  readonly deviceId: DeviceId;
  readonly fingerprint: string;
  /** By the identity that is published, all the way to its master key. */
  readonly isSigned: boolean;
}

const TIMEOUT_MS = 10_000;

/** @throws MatrixError */
export async function queryPublishedKeys(api: MatrixApi, whose: { user: UserId; sendingDevice: DeviceId }): Promise<PublishedKeys> {
  const body = { device_keys: { [whose.user]: [] } };
  return readPublishedKeys(await api.request<JsonObject>('POST', '/_matrix/client/v3/keys/query', { body, timeoutMs: TIMEOUT_MS }), whose);
}

/** Of an answer to `/keys/query`; what is malformed counts as absent. */
export function readPublishedKeys(answer: JsonObject, { user, sendingDevice }: { user: UserId; sendingDevice: DeviceId }): PublishedKeys {
  const master = of(answer['master_keys'], user);
  const self = of(answer['self_signing_keys'], user);
  const masterKey = keyOf(master);
  const selfSigningKey = keyOf(self);
  const selfIsGood = self !== null && masterKey !== null && isSignedBy(self, user, masterKey);
  const devices = Object.entries(of(answer['device_keys'], user) ?? {}).flatMap(([id, device]): PublishedDevice[] => {
    if (!isOfAStore(id, sendingDevice) || !isJsonObject(device)) return [];
    const fingerprint = asKey(of(device, 'keys')?.[`ed25519:${id}`]);
    if (fingerprint === null) return [];
    const isSigned = selfIsGood && selfSigningKey !== null && isSignedBy(device, user, selfSigningKey);
    return [{ deviceId: id as DeviceId, fingerprint, isSigned }];
  });
  return { masterKey, selfSigningKey, userSigningKey: keyOf(of(answer['user_signing_keys'], user)), devices };
}

function of(value: unknown, name: string): JsonObject | null {
  const found = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : null;
  return isJsonObject(found) ? found : null;
}
const asKey = (value: unknown): string | null => (typeof value === 'string' && /^[A-Za-z0-9+/]{43}$/u.test(value) ? value : null);
const keyOf = (key: JsonObject | null): string | null => asKey(Object.values(of(key, 'keys') ?? {})[0]);

function isSignedBy(signed: JsonObject, user: string, key: string): boolean {
  const { signatures, unsigned: _, ...rest } = signed;
  const signature = of(signatures, user)?.[`ed25519:${key}`];
  const text = canonicalJson(rest);
  if (typeof signature !== 'string' || !text.ok) return false;
  const x = Buffer.from(key, 'base64').toString('base64url');
  return verify(
    null,
    Buffer.from(text.value),
    createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' }),
    Buffer.from(signature, 'base64'),
  );
}
