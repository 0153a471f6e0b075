/**
 * The body of `PUT /_matrix/app/v1/transactions/{txnId}`. Refusing a body makes the homeserver send it again for ever, so only what cannot be a
 * transaction at all is refused; a bad event is a value among its neighbours (G17), a bad extension counts as absent. Extensions come under
 * stable and unstable names, depending on the server's age and flags.
 */
import { parseUserId, type UserId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { err, ok, type Result } from '../../src/result.ts';
import type { EventProblem, RoomEvent } from './event.ts';
import { readRoomEvent } from './read-event.ts';

export interface Transaction {
  /** In the order they came; `json` is the event as sent. */
  readonly events: readonly { readonly json: unknown; readonly read: Result<RoomEvent, EventProblem> }[];
  /** Typing, receipts, presence. */
  readonly ephemeral: readonly JsonObject[];
  readonly toDevice: readonly JsonObject[];
  readonly deviceLists: { readonly changed: readonly UserId[]; readonly left: readonly UserId[] };
  /** `{ user: { device: { algorithm: count } } }`; absent when the server sent none. */
  readonly oneTimeKeyCounts?: JsonObject;
  /** `{ user: { device: [algorithm] } }`. */
  readonly unusedFallbackKeyTypes?: JsonObject;
}

export type TransactionProblem = 'not_an_object' | 'events_not_an_array' | 'too_many_events';

// Newest name first. The second names are MSC2409 and MSC3202; Synapse 1.163.2 sends the counts under two of them.
const EPHEMERAL = ['ephemeral', 'de.sorunome.msc2409.ephemeral'];
const TO_DEVICE = ['to_device', 'de.sorunome.msc2409.to_device'];
const DEVICE_LISTS = ['device_lists', 'org.matrix.msc3202.device_lists'];
const KEY_COUNTS = [
  'device_one_time_keys_count',
  'org.matrix.msc3202.device_one_time_keys_count',
  'org.matrix.msc3202.device_one_time_key_counts',
];
const FALLBACK_KEYS = ['device_unused_fallback_key_types', 'org.matrix.msc3202.device_unused_fallback_key_types'];

export function readTransaction(body: unknown): Result<Transaction, TransactionProblem> {
  if (!isJsonObject(body)) return err('not_an_object');
  const events = body['events'];
  if (!Array.isArray(events)) return err('events_not_an_array');
  if (events.length > LIMITS.transactionMaxEvents) return err('too_many_events');
  const lists = pick(body, DEVICE_LISTS, isJsonObject) ?? {};
  const oneTimeKeyCounts = pick(body, KEY_COUNTS, isJsonObject);
  const unusedFallbackKeyTypes = pick(body, FALLBACK_KEYS, isJsonObject);
  return ok({
    events: events.map((json) => ({ json, read: readRoomEvent(json) })),
    ephemeral: objectsOf(body, EPHEMERAL),
    toDevice: objectsOf(body, TO_DEVICE),
    deviceLists: { changed: usersOf(lists['changed']), left: usersOf(lists['left']) },
    ...(oneTimeKeyCounts === undefined ? {} : { oneTimeKeyCounts }),
    ...(unusedFallbackKeyTypes === undefined ? {} : { unusedFallbackKeyTypes }),
  });
}

/** First name that has a value of the right kind; an empty stable list does not hide a full unstable one. */
function pick<T extends JsonValue>(body: JsonObject, names: readonly string[], is: (value: unknown) => value is T): T | undefined {
  const found = names.map((name) => body[name]).filter(is);
  return found.find((value) => Object.keys(value as object).length > 0) ?? found[0];
}

const isArray = (value: unknown): value is JsonValue[] => Array.isArray(value);

const objectsOf = (body: JsonObject, names: readonly string[]): JsonObject[] => (pick(body, names, isArray) ?? []).filter(isJsonObject);

function usersOf(value: JsonValue | undefined): UserId[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((id) => {
    const user = parseUserId(id);
    return user.ok ? [user.value] : [];
  });
}
