/**
 * What a room's state says about who is in it, who may do what, and whether plain text may be sent there. Pure, because these answers
 * decide about speaking (G11) and authority (no confused deputy, DESIGN §5), and room versions differ: in version 12 creators stand above
 * every number (research/synapse.md §14). State is written by strangers, so whatever cannot be read counts as absent.
 */
import { type EventId, parseEventId, parseUserId, serverOf, type UserId } from '../src/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue } from '../src/json.ts';
import type { RoomStateEvent } from '../src/runtime-context/matrix-access.ts';

export interface RoomPower {
  /** Above every number. */
  readonly creators: ReadonlySet<UserId>;
  /** Null: the room has no power levels, then nothing is guarded and (before version 12) its creator has 100. */
  readonly levels: JsonObject | null;
  /** Creator of a room without power levels, before version 12. */
  readonly founder: UserId | null;
}
export interface Member {
  readonly membership: string;
  readonly displayName: string | null;
}
export type HistoryVisibility = 'invited' | 'joined' | 'shared' | 'world_readable';
/** When the key that messages are encrypted with is replaced. Null: as the engine does when nobody says. */
export interface Rotation {
  readonly periodMs: number | null;
  readonly messages: number | null;
}
export interface RoomSnapshot {
  readonly encrypted: boolean;
  readonly rotation: Rotation;
  readonly historyVisibility: HistoryVisibility;
  /** Others may come in without being let in, or read without coming in. */
  readonly open: boolean;
  readonly name: string | null;
  readonly power: RoomPower;
  /** Joined and invited. */
  readonly members: ReadonlyMap<UserId, Member>;
  /** Whether the oracle's own invite said `is_direct`: said by its join, or to be asked of this event, or not to be known. */
  readonly invite: { readonly isDirect: boolean } | { readonly eventId: EventId } | null;
}

export function readRoomSnapshot(state: readonly unknown[], oracle: UserId): RoomSnapshot {
  const members = new Map<UserId, Member>();
  let encrypted = false;
  let rotation: Rotation = NO_ROTATION;
  // Without the event, and with a word that nobody knows, it is this one (spec v1.19, `m.room.history_visibility`).
  let historyVisibility: HistoryVisibility = 'shared';
  let open = false;
  let name: string | null = null;
  let create: { sender: JsonValue | undefined; content: JsonObject } | null = null;
  let levels: JsonObject | null = null;
  let invite: RoomSnapshot['invite'] = null;
  for (const event of state) {
    if (!isJsonObject(event)) continue;
    const content = isJsonObject(event['content']) ? event['content'] : {};
    const key = event['state_key'];
    if (event['type'] === 'm.room.member') {
      const member = readMember(content);
      const user = parseUserId(key);
      if (user.ok && member !== null) members.set(user.value, member);
      if (key === oracle) invite = readInvite(event);
    }
    if (key !== '') continue;
    // Any such state, also one whose algorithm cannot be read: it is never taken back (G11).
    if (event['type'] === 'm.room.encryption') {
      encrypted = true;
      rotation = readRotation(content);
    }
    if (event['type'] === 'm.room.name' && typeof content['name'] === 'string') name = content['name'].slice(0, MAX_NAME_CHARS);
    if (event['type'] === 'm.room.join_rules' && !CLOSED_RULES.has(content['join_rule'])) open = true;
    if (event['type'] === 'm.room.history_visibility') historyVisibility = readHistoryVisibility(content['history_visibility']);
    if (event['type'] === 'm.room.create') create = { sender: event['sender'], content };
    if (event['type'] === 'm.room.power_levels') levels = content;
  }
  if (historyVisibility === 'world_readable') open = true;
  return { encrypted, rotation, historyVisibility, open, name, power: readPower(create, levels), members, invite };
}

const VISIBILITIES: readonly HistoryVisibility[] = ['invited', 'joined', 'shared', 'world_readable'];
const readHistoryVisibility = (value: JsonValue | undefined): HistoryVisibility =>
  VISIBILITIES.find((known) => known === value) ?? 'shared';

const NO_ROTATION: Rotation = { periodMs: null, messages: null };
const HOUR_MS = 60 * 60_000;
/**
 * What a room may ask for. A key for every message, or every second, would be a share with every device of the room for each; a key for ever would
 * show whoever gets it everything that is said from then on. The engine has the same lower bounds and the same number of messages.
 */
const ROTATION_PERIOD = { min: HOUR_MS, max: 30 * 24 * HOUR_MS };
const ROTATION_MESSAGES = { min: 1, max: 10_000 };

function readRotation(content: JsonObject): Rotation {
  const within = (value: JsonValue | undefined, { min, max }: { min: number; max: number }): number | null =>
    typeof value === 'number' && Number.isFinite(value) && value > 0 ? Math.min(max, Math.max(min, Math.trunc(value))) : null;
  return {
    periodMs: within(content['rotation_period_ms'], ROTATION_PERIOD),
    messages: within(content['rotation_period_msgs'], ROTATION_MESSAGES),
  };
}

/**
 * Pure: who can read what is said now, and so gets its key. Invited people read it once they join, unless the room shows them nothing from before
 * (`joined`): that is how Element decides as well.
 */
export function planReaders({ members, historyVisibility }: Pick<RoomSnapshot, 'members' | 'historyVisibility'>): UserId[] {
  const invitedRead = historyVisibility !== 'joined';
  return [...members].flatMap(([user, { membership }]) => (membership === 'join' || invitedRead ? [user] : []));
}

/** Who comes in by these was let in by somebody who is there. Without the event the rule is `invite`; any other counts as open. */
const CLOSED_RULES: ReadonlySet<JsonValue | undefined> = new Set(['invite', 'private', 'knock']);
const MAX_NAME_CHARS = 255;

function readMember(content: JsonObject): Member | null {
  const { membership, displayname } = content;
  if (membership !== 'join' && membership !== 'invite') return null;
  return { membership, displayName: typeof displayname === 'string' ? displayname.slice(0, MAX_NAME_CHARS) : null };
}

/** Synapse gives `prev_content` only while it has the event in memory; afterwards there is its id. */
function readInvite(event: JsonObject): RoomSnapshot['invite'] {
  const content = isJsonObject(event['content']) ? event['content'] : {};
  if (content['membership'] === 'invite') return { isDirect: content['is_direct'] === true };
  const unsigned = isJsonObject(event['unsigned']) ? event['unsigned'] : {};
  const previous = unsigned['prev_content'] ?? event['prev_content'];
  if (isJsonObject(previous)) return { isDirect: previous['membership'] === 'invite' && previous['is_direct'] === true };
  const replaced = parseEventId(unsigned['replaces_state'] ?? event['replaces_state']);
  return replaced.ok ? { eventId: replaced.value } : null;
}

function readPower(create: { sender: JsonValue | undefined; content: JsonObject } | null, levels: JsonObject | null): RoomPower {
  const sender = parseUserId(create?.sender);
  const founder = sender.ok ? sender.value : null;
  if (create === null || !creatorsAreAboveAll(create.content['room_version'])) return { creators: new Set(), levels, founder };
  const additional = create.content['additional_creators'];
  const named = (Array.isArray(additional) ? additional : []).flatMap((id) => {
    const user = parseUserId(id);
    return user.ok ? [user.value] : [];
  });
  return { creators: new Set(founder === null ? named : [founder, ...named]), levels, founder };
}

/** From version 12 on. A version with another name is taken for an old one: that gives creators less, never more. */
const creatorsAreAboveAll = (version: JsonValue | undefined): boolean =>
  typeof version === 'string' && /^\d{1,3}$/u.test(version) && Number(version) >= 12;

/** `Infinity` for creators of version 12 and later. */
export function decidePowerLevel({ creators, levels, founder }: RoomPower, user: UserId): number {
  if (creators.has(user)) return Number.POSITIVE_INFINITY;
  if (levels === null) return user === founder ? 100 : 0;
  const users = isJsonObject(levels['users']) ? levels['users'] : {};
  return (Object.hasOwn(users, user) ? readLevel(users[user]) : null) ?? readLevel(levels['users_default']) ?? 0;
}

/** What sending this event needs (spec v1.19, `m.room.power_levels`). */
export function decideNeededLevel({ levels }: RoomPower, { type, isState }: { type: string; isState: boolean }): number {
  const events = isJsonObject(levels?.['events']) ? levels['events'] : {};
  const named = Object.hasOwn(events, type) ? readLevel(events[type]) : null;
  if (named !== null) return named;
  if (!isState) return readLevel(levels?.['events_default']) ?? 0;
  return readLevel(levels?.['state_default']) ?? (levels === null ? 0 : 50);
}

/** What taking back an event of somebody else needs. */
export const decideRedactLevel = ({ levels }: RoomPower): number => readLevel(levels?.['redact']) ?? 50;

/** Old rooms have levels written as text (room version 9 and before). */
function readLevel(value: JsonValue | undefined): number | null {
  if (typeof value === 'number') return Number.isFinite(value) ? value : null;
  return typeof value === 'string' && /^\s*[+-]?\d{1,15}\s*$/u.test(value) ? Number(value) : null;
}

export function isFederated(members: ReadonlyMap<UserId, Member>, oracle: UserId): boolean {
  const home = serverOf(oracle);
  for (const user of members.keys()) if (serverOf(user) !== home) return true;
  return false;
}

export const MAX_STATE_EVENTS_READ = 50_000;

export function readStateEvents(state: readonly unknown[]): RoomStateEvent[] {
  return state.slice(0, MAX_STATE_EVENTS_READ).flatMap((event) => {
    if (!isJsonObject(event) || typeof event['type'] !== 'string' || typeof event['state_key'] !== 'string') return [];
    const content = isJsonObject(event['content']) ? event['content'] : {};
    return [
      { type: event['type'], stateKey: event['state_key'], sender: typeof event['sender'] === 'string' ? event['sender'] : '', content },
    ];
  });
}
