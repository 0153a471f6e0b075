/**
 * What an answer of `/sync`, or a transaction, brought for the key-holding device, as it is stored before the engine sees it. Anybody on any server may
 * send to-device events, and one that makes the engine refuse the whole batch would stop all keys behind it: each is measured alone and left out when
 * it cannot be one, and its neighbours go on (G14, G17). A count of keys that nobody gave stays unknown: the engine takes an absent one as none left
 * and uploads fifty more each time (research/e2ee.md §8). Pure.
 */
import { type DeviceId, parseUserId, type UserId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { err, ok, type Result } from '../../src/result.ts';
import { decideJsonBounds } from '../wire/measure-json.ts';
import type { Transaction } from '../wire/read-transaction.ts';
import type { ToDeviceBatch } from './crypto-db.ts';

export interface ReadBatch {
  readonly batch: ToDeviceBatch;
  /** To-device events that cannot be any. */
  readonly skipped: number;
  /** More than can be taken came at once: what was left out must be asked for. */
  readonly cut: boolean;
}

/** Who holds the keys: a transaction carries events and counts of every account and device of the application service. */
export interface KeyDevice {
  readonly user: UserId;
  readonly device: DeviceId;
}

/** Deepest nesting that the engine's reader is given; its own limit is twice that. */
const MAX_DEPTH = 60;
const MAX_TYPE_CHARS = 255;
const MAX_ALGORITHMS = 20;
const MAX_ALGORITHM_CHARS = 100;
const MAX_COUNT = 1_000_000;

/** @returns `no_position`: it is no answer of `/sync`; nothing of it may be taken, because it could not be acknowledged. */
export function readKeySync(answer: unknown): Result<ReadBatch & { readonly nextBatch: string }, 'no_position'> {
  if (!isJsonObject(answer)) return err('no_position');
  const nextBatch = answer['next_batch'];
  if (typeof nextBatch !== 'string' || nextBatch === '' || nextBatch.length > LIMITS.syncPositionChars) return err('no_position');
  const { to_device: toDevice, device_lists: lists } = answer;
  const read = readBatch({
    events: isJsonObject(toDevice) ? toDevice['events'] : undefined,
    changed: isJsonObject(lists) ? lists['changed'] : undefined,
    left: isJsonObject(lists) ? lists['left'] : undefined,
    counts: answer['device_one_time_keys_count'],
    fallback: answer['device_unused_fallback_key_types'],
  });
  // Synapse names the algorithm also when nothing is left of it; an empty map is somebody's who does not count.
  const { oneTimeKeys } = read.batch;
  const isCounted = oneTimeKeys !== null && Object.keys(oneTimeKeys).length > 0;
  return ok({ ...read, batch: { ...read.batch, oneTimeKeys: isCounted ? oneTimeKeys : null }, nextBatch });
}

/** Null: the transaction says nothing to this device, or about anybody's devices. */
export function readPushedKeys(transaction: Transaction, { user, device }: KeyDevice): ReadBatch | null {
  const { toDevice, deviceLists, oneTimeKeyCounts, unusedFallbackKeyTypes } = transaction;
  // Addressed by two fields that `/sync` does not have; the engine is not to see them.
  const own = toDevice.filter((event) => event['to_user_id'] === user && event['to_device_id'] === device);
  const counts = ofDevice(oneTimeKeyCounts, { user, device });
  const read = readBatch({
    events: own.map(({ to_user_id: _user, to_device_id: _device, ...event }) => event),
    changed: [...deviceLists.changed],
    left: [...deviceLists.left],
    // Here an empty map for this very device is Synapse's way to say that none is left (1.163.2).
    counts: isJsonObject(counts) && Object.keys(counts).length === 0 ? { signed_curve25519: 0 } : counts,
    fallback: ofDevice(unusedFallbackKeyTypes, { user, device }),
  });
  const { events, changed, left, oneTimeKeys, unusedFallback } = read.batch;
  const isEmpty = events.length + changed.length + left.length === 0 && oneTimeKeys === null && unusedFallback === null;
  return isEmpty && read.skipped === 0 ? null : read;
}

const ofDevice = (value: JsonObject | undefined, { user, device }: KeyDevice): JsonValue | undefined => {
  const devices = value !== undefined && Object.hasOwn(value, user) ? value[user] : undefined;
  return isJsonObject(devices) && Object.hasOwn(devices, device) ? devices[device] : undefined;
};

interface Parts {
  readonly events: JsonValue | undefined;
  readonly changed: JsonValue | undefined;
  readonly left: JsonValue | undefined;
  readonly counts: JsonValue | undefined;
  readonly fallback: JsonValue | undefined;
}

function readBatch({ events, changed, left, counts, fallback }: Parts): ReadBatch {
  const all = Array.isArray(events) ? events : [];
  const taken = all.slice(0, LIMITS.toDeviceEvents);
  const kept = taken.filter(isToDeviceEvent);
  const changedUsers = readUsers(changed);
  const leftUsers = readUsers(left);
  return {
    batch: {
      events: kept,
      changed: changedUsers.slice(0, LIMITS.deviceListUsers),
      left: leftUsers.slice(0, LIMITS.deviceListUsers),
      oneTimeKeys: readCounts(counts),
      unusedFallback: readAlgorithms(fallback),
    },
    skipped: all.length - kept.length,
    cut: all.length > taken.length || changedUsers.length > LIMITS.deviceListUsers,
  };
}

function isToDeviceEvent(event: JsonValue): event is JsonObject {
  if (!isJsonObject(event) || !parseUserId(event['sender']).ok || !isJsonObject(event['content'])) return false;
  const { type } = event;
  if (typeof type !== 'string' || type === '' || type.length > MAX_TYPE_CHARS) return false;
  return decideJsonBounds(event, { maxBytes: LIMITS.toDeviceEventBytes, maxDepth: MAX_DEPTH }) === 'fits';
}

function readUsers(value: JsonValue | undefined): UserId[] {
  const users = new Set<UserId>();
  for (const id of Array.isArray(value) ? value : []) {
    const user = parseUserId(id);
    if (user.ok) users.add(user.value);
  }
  return [...users];
}

function readCounts(value: JsonValue | undefined): Record<string, number> | null {
  if (!isJsonObject(value)) return null;
  const entries = Object.entries(value).filter(
    (entry): entry is [string, number] =>
      isAlgorithm(entry[0]) && Number.isSafeInteger(entry[1]) && (entry[1] as number) >= 0 && (entry[1] as number) <= MAX_COUNT,
  );
  // A count that cannot be read is not none left.
  return entries.length < Object.keys(value).length ? null : Object.fromEntries(entries.slice(0, MAX_ALGORITHMS));
}

function readAlgorithms(value: JsonValue | undefined): string[] | null {
  if (!Array.isArray(value)) return null;
  return value.filter((name): name is string => typeof name === 'string' && isAlgorithm(name)).slice(0, MAX_ALGORITHMS);
}

const isAlgorithm = (name: string): boolean => name !== '__proto__' && name.length > 0 && name.length <= MAX_ALGORITHM_CHARS;
