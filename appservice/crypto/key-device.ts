/**
 * The device that holds the keys. It is made with its store and dies with it: a store that is lost, or put back from a copy, would offer one-time keys again
 * and use ratchets again, so a new store always has a new device, with a name that was never used. The devices that send and catch up hold no keys and
 * keep their names (G4). What nobody can read with any more is deleted, once the new device is signed.
 */
import { randomInt } from 'node:crypto';
import type { DeviceId, UserId } from '../../src/ids.ts';
import { isJsonObject } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { putDevice } from '../account.ts';
import { isMatrixError, type MatrixApi, type MatrixConnection, matrixPath } from '../matrix-api.ts';
import type { CryptoDb } from './crypto-db.ts';

export interface KeyDeviceOptions {
  readonly connection: Pick<MatrixConnection, 'as'>;
  readonly db: Pick<CryptoDb, 'meta' | 'path'>;
  readonly userId: UserId;
  /** MATRIX_DEVICE_ID, whose name the new one begins with. */
  readonly sendingDevice: DeviceId;
  /** Of the oracle, for lists of devices. */
  readonly name: string;
}
export interface KeyDeviceProblem {
  readonly code: 'KEY_DEVICE_GONE' | 'KEY_DEVICE_NOT_ECHOED' | 'STORE_OF_ANOTHER';
  /** One sentence for the operator. */
  readonly remedy: string;
  readonly cause?: unknown;
}

const SUFFIX_CHARS = 6;
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
const newSuffix = (): string => Array.from({ length: SUFFIX_CHARS }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');

/** Whether the device was made for the keys of an earlier store. */
export const isOfAStore = (device: string, sendingDevice: DeviceId): boolean =>
  device.startsWith(`${sendingDevice}_`) && /^[A-Z0-9]{6}$/u.test(device.slice(sendingDevice.length + 1));

/** The store's device, made on the homeserver when it is new. @throws MatrixError when the homeserver is away. */
export async function ensureKeyDevice(options: KeyDeviceOptions): Promise<Result<DeviceId, KeyDeviceProblem>> {
  const { connection, db, userId, sendingDevice } = options;
  const { meta } = db;
  const owner = meta.get('user_id');
  if (owner !== null && owner !== userId) {
    const remedy = `${db.path} holds the keys of ${owner}: give ${userId} a DATA_DIR of its own.`;
    return err({ code: 'STORE_OF_ANOTHER', remedy });
  }
  // Remembered before the homeserver hears of it: a crash in between makes the same one again.
  if (owner === null) meta.set({ user_id: userId, device_id: `${sendingDevice}_${newSuffix()}` });
  const deviceId = meta.get('device_id') as DeviceId;
  if (meta.get('device_made') === null) {
    await putDevice(connection, { userId, deviceId, name: `${options.name} (encryption)` });
    meta.set({ device_made: 'yes' });
  } else if (!(await isThere(connection.as({ userId }), deviceId))) {
    const remedy = `The device ${deviceId}, which holds the oracle's keys, was deleted on the homeserver, and its keys with it: \`matrix-oracle crypto new-device\` makes another with the same identity.`;
    return err({ code: 'KEY_DEVICE_GONE', remedy });
  }
  const echo = await connection
    .as({ userId, deviceId })
    .request<{ user_id?: unknown; device_id?: unknown }>('GET', '/_matrix/client/v3/account/whoami');
  if (echo.user_id === userId && echo.device_id === deviceId) return ok(deviceId);
  const remedy =
    'The homeserver does not let the oracle act as the device of its keys: it must support device masquerading (Synapse 1.141 or newer).';
  return err({ code: 'KEY_DEVICE_NOT_ECHOED', remedy });
}

async function isThere(api: MatrixApi, deviceId: DeviceId): Promise<boolean> {
  try {
    await api.request('GET', matrixPath`/_matrix/client/v3/devices/${deviceId}`);
    return true;
  } catch (error) {
    if (!isMatrixError(error)) throw error;
    if (error.errcode === 'M_NOT_FOUND') return false;
    // A homeserver that does not show devices to an application service says nothing about this one.
    if (error.certain && error.status === 403) return true;
    throw error;
  }
}

/** Those of earlier stores. @returns how many. @throws MatrixError */
export async function deleteOldDevices(
  api: MatrixApi,
  { deviceId, sendingDevice }: { deviceId: DeviceId; sendingDevice: DeviceId },
): Promise<number> {
  const answer = await api.request<{ devices?: unknown }>('GET', '/_matrix/client/v3/devices');
  const all = Array.isArray(answer.devices) ? answer.devices : [];
  const old = all.flatMap((device: unknown) =>
    isJsonObject(device) && typeof device['device_id'] === 'string' ? [device['device_id']] : [],
  );
  const doomed = old.filter((device) => device !== deviceId && isOfAStore(device, sendingDevice));
  for (const device of doomed) await api.request('DELETE', matrixPath`/_matrix/client/v3/devices/${device}`, { body: {} });
  return doomed.length;
}
