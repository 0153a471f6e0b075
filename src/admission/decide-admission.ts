/**
 * What becomes of one event, as a value with its reason, so that "why did it not answer?" is a log line and every rule is a table test.
 * Two steps, because the first needs nothing from the network: `screenItem` throws out what can never be a prompt, `decideAdmission`
 * judges a message with the facts of its room (DESIGN §2, §7). Pure; the reasons are the labels of the admission counter.
 */
import {
  type AuthorityCommand,
  afterMention,
  type Command,
  type ControlCommand,
  isControl,
  isPublic,
  readCommand,
} from '../commands/read-command.ts';
import type { EventId, UserId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import { LIMITS } from '../limits.ts';
import type { CancelRefusal } from '../runs/control.ts';
import { type CryptoTrust, decideTrust, type TrustRefusal } from './decide-trust.ts';
import type { InboxItem, MessageItem } from './inbox-item.ts';
import type { RevealRefusal } from './reveal.ts';
import type { RoomFacts } from './room-facts.ts';

export type IgnoreReason =
  | 'own_event'
  | 'not_a_prompt'
  | 'flood'
  | 'notice'
  | 'other_oracle'
  | 'foreign_msgtype'
  | 'empty_body'
  | 'too_long'
  | 'history'
  | 'too_old'
  | 'bot_loop'
  | 'not_addressed'
  | 'not_joined'
  | 'edit_of_nothing'
  | 'edit_too_late'
  | 'edit_of_another'
  | 'unreadable'
  | 'edit_refused'
  | RevealRefusal
  | 'replayed'
  /** Its key came after its sender had been asked to send it again, and had. */
  | 'sent_again'
  | 'never_readable'
  /** More of this sender than wait for keys in one room. */
  | 'too_many_unreadable'
  | 'redaction'
  | CancelRefusal
  | 'membership'
  | 'late'
  | 'not_direct'
  | 'not_allowed';

/** Where the conversation of an admitted message lives; the session itself is found or made in `open`. */
export type Conversation = { readonly kind: 'rolling' } | { readonly kind: 'thread'; readonly root: EventId };

export type Screened =
  | { readonly kind: 'ignore'; readonly reason: IgnoreReason }
  | { readonly kind: 'invite'; readonly accept: true }
  | {
      readonly kind: 'invite';
      readonly accept: false;
      readonly reason: string;
      readonly because: 'not_allowed' | 'flood';
    }
  | { readonly kind: 'room_changed' }
  | { readonly kind: 'own_membership'; readonly membership: 'join' | 'leave' | 'ban' }
  | { readonly kind: 'message'; readonly message: MessageItem }
  | { readonly kind: 'edit'; readonly target: EventId }
  | { readonly kind: 'redaction'; readonly target: EventId }
  /** 🛑 on a prompt or on any event of an answer. */
  | { readonly kind: 'stop'; readonly target: EventId }
  | { readonly kind: 'authority' }
  /** To be decrypted, and screened again as what it is then. */
  | { readonly kind: 'encrypted' }
  | { readonly kind: 'verification' };

export interface Screening {
  readonly oracle: UserId;
  readonly floodAllows: boolean;
  readonly mayInvite: boolean;
  /** Wall clock ms before which an event is older than what `seen` remembers (G2). */
  readonly seenSince: number;
}

const INVITE_REFUSED_REASON = 'This oracle does not take invites from your account. Please ask its operator.';
const FLOOD_REASON = 'Too many invites at once. Please try again later.';
const PROMPT_TYPES = new Set(['m.text', 'm.emote']);
const FILE_TYPES = new Set(['m.file', 'm.image', 'm.audio', 'm.video']);

export function screenItem(item: InboxItem, { oracle, floodAllows, mayInvite, seenSince }: Screening): Screened {
  if (item.kind === 'own') return ignore('own_event');
  if (item.kind === 'own_membership') return { kind: 'own_membership', membership: item.membership };
  if (item.kind === 'room_changed') return { kind: 'room_changed' };
  // An older oracle under this very account kept people's grants in room state; set again or found on joining, never too old to be read.
  if (item.kind === 'state_grant') return floodAllows ? { kind: 'authority' } : ignore('flood');
  if (item.sender === oracle) return ignore('own_event');
  if (item.kind === 'invite') {
    if (!mayInvite) return { kind: 'invite', accept: false, reason: INVITE_REFUSED_REASON, because: 'not_allowed' };
    if (!floodAllows) return { kind: 'invite', accept: false, reason: FLOOD_REASON, because: 'flood' };
    return { kind: 'invite', accept: true };
  }
  if (item.kind === 'other') return ignore('not_a_prompt');
  if (!floodAllows) return ignore('flood');
  if (item.kind === 'redaction') return { kind: 'redaction', target: item.target };
  if (item.kind === 'reaction') return isStopSign(item.key) ? { kind: 'stop', target: item.target } : ignore('not_a_prompt');
  if (item.sentAt < seenSince) return ignore('too_old');
  if (item.kind === 'encrypted') return { kind: 'encrypted' };
  if (item.kind === 'verification') return { kind: 'verification' };
  if (item.kind === 'grant' || item.kind === 'revoke') return { kind: 'authority' };
  if (item.kind === 'edit') return { kind: 'edit', target: item.target };
  return screenMessage(item);
}

/** Clients add a variation selector, or none. */
const isStopSign = (key: string): boolean => /^\u{1F6D1}[\uFE0E\uFE0F]*$/u.test(key);

function screenMessage(item: MessageItem): Screened {
  if (item.msgtype === 'm.notice') return ignore('notice');
  // Answers of oracles are m.text; without this two of them would talk for ever (research/peers.md §6).
  if (Object.hasOwn(item.content, 'ixo.oracle.run') || Object.hasOwn(item.content, 'ixo.oracle.mirror')) return ignore('other_oracle');
  if (!PROMPT_TYPES.has(item.msgtype) && !FILE_TYPES.has(item.msgtype)) return ignore('foreign_msgtype');
  if (item.text.trim() === '') return ignore('empty_body');
  if (item.text.length > LIMITS.promptChars) return ignore('too_long');
  return { kind: 'message', message: item };
}

export type Admission =
  | { readonly kind: 'ignore'; readonly reason: IgnoreReason }
  /** Not addressed in a group, or a file without a word: silent, but kept as context. */
  | { readonly kind: 'overhear'; readonly reason: 'not_addressed' | 'file' }
  | { readonly kind: 'late' }
  | { readonly kind: 'not_allowed' }
  /** Addressed, and from a device or in a form that CRYPTO_TRUST does not obey. */
  | { readonly kind: 'untrusted'; readonly code: TrustRefusal }
  /** In a direct room; also a late one counts: who takes something back must not depend on our having been online. */
  | { readonly kind: 'command'; readonly command: AuthorityCommand }
  /** What is done to runs, in any room. To stop something is never too late. */
  | { readonly kind: 'control'; readonly command: ControlCommand }
  /** To see the oracle's fingerprint, in any room and from any device. */
  | { readonly kind: 'verify' }
  /** Said to the oracle in a group. */
  | { readonly kind: 'command_in_group' }
  | {
      readonly kind: 'admit';
      readonly because: 'direct' | 'mention' | 'reply' | 'active_thread' | 'command';
      readonly text: string;
      readonly conversation: Conversation;
    };

export interface MessageFacts {
  readonly oracle: UserId;
  readonly source: 'push' | 'sync' | 'backfill';
  /** Only the inviter's messages count between invite and join. */
  readonly inviter: UserId | null;
  readonly mayUse: boolean;
  /** A command is not signed, whatever else the message carries. */
  readonly mayCommand: boolean;
  /** How long the event was under way, in ms: `unsigned.age` on arrival + time in our inbox. */
  readonly latenessMs: number;
  readonly maxLatenessMs: number;
  readonly commandPrefix: string;
  readonly oracleName: string;
  /** Sender of the event it replies to. */
  readonly repliesToOracle: boolean;
  /** It stands in a thread in which the oracle has a conversation. */
  readonly inOwnThread: boolean;
  /** The oracle answered this person in this thread at that wall clock ms; null when never. */
  readonly answeredInThreadAt: number | null;
  readonly now: number;
  /** The last answers and prompts of this conversation follow each other faster than a person writes. */
  readonly botLoop: boolean;
  readonly cryptoTrust: CryptoTrust;
}

export function decideAdmission(message: MessageItem, room: RoomFacts, facts: MessageFacts): Admission {
  if (!room.joined) return ignore('not_joined');
  if (facts.source === 'backfill' && message.sender !== facts.inviter) return ignore('history');
  // A push after the join is never history; what /sync and /messages show may be. The cursor is the invite.
  if (facts.source !== 'push' && room.admissionCursor !== null && message.sentAt < room.admissionCursor) return ignore('history');
  const untrusted = decideTrust(facts.cryptoTrust, message.trust, room.encryption);
  if (message.wordless) return decideFile(room, facts, untrusted);
  if (room.kind === 'direct') {
    const command = commandIn(message, message.text);
    if (command?.kind === 'stop') return { kind: 'control', command };
    if (command !== null && !facts.mayCommand) return { kind: 'not_allowed' };
    if (command?.kind === 'verify') return { kind: 'verify' };
    if (command !== null && untrusted !== null) return { kind: 'untrusted', code: untrusted };
    if (command !== null) return isControl(command) ? { kind: 'control', command } : { kind: 'command', command };
  }
  const address = decideAddress(message, room, facts);
  const asked =
    room.kind === 'group' ? commandIn(message, afterMention(address?.text ?? message.text, [facts.oracle, facts.oracleName])) : null;
  if (asked?.kind === 'stop' && (address !== null || facts.inOwnThread)) return { kind: 'control', command: asked };
  if (address === null) return room.kind === 'group' ? { kind: 'overhear', reason: 'not_addressed' } : ignore('not_addressed');
  if (facts.latenessMs > facts.maxLatenessMs) return { kind: 'late' };
  if (!facts.mayUse) return { kind: 'not_allowed' };
  if (asked?.kind === 'verify') return { kind: 'verify' };
  if (untrusted !== null) return { kind: 'untrusted', code: untrusted };
  if (asked !== null && isControl(asked)) return { kind: 'control', command: asked };
  if (asked !== null && isPublic(asked)) return { kind: 'command', command: asked };
  if (asked !== null) return { kind: 'command_in_group' };
  if (facts.botLoop) return ignore('bot_loop');
  return { kind: 'admit', ...address, conversation: decideConversation(message, room) };
}

/** In a direct room it goes into the person's own conversation, and so needs the same right. */
function decideFile({ kind }: RoomFacts, { mayUse }: MessageFacts, untrusted: TrustRefusal | null): Admission {
  if (kind === 'direct' && !mayUse) return ignore('not_allowed');
  return kind === 'direct' && untrusted !== null ? { kind: 'untrusted', code: untrusted } : { kind: 'overhear', reason: 'file' };
}

/** An emote ("/me !revoke all") says something about a command and is none. */
const commandIn = (message: MessageItem, text: string): Command | null =>
  message.msgtype === 'm.text' ? readCommand(text, { isReply: message.inReplyTo !== null }) : null;

function decideAddress(
  message: MessageItem,
  room: RoomFacts,
  facts: MessageFacts,
): { because: 'direct' | 'mention' | 'reply' | 'active_thread' | 'command'; text: string } | null {
  if (room.kind === 'direct') return { because: 'direct', text: message.text };
  const command = afterCommandPrefix(message.text, facts.commandPrefix);
  if (command !== null) return { because: 'command', text: command };
  if (mentions(message, facts)) return { because: 'mention', text: message.text };
  if (facts.repliesToOracle) return { because: 'reply', text: message.text };
  const answered = facts.answeredInThreadAt;
  if (message.thread !== null && answered !== null && facts.now - answered <= LIMITS.activeThreadMs)
    return { because: 'active_thread', text: message.text };
  return null;
}

/** `m.mentions` decides when it is there; only clients without it get the legacy forms (spec v1.19 "User and room mentions"). */
function mentions(message: MessageItem, { oracle, oracleName }: MessageFacts): boolean {
  if (message.mentions !== null) return message.mentions.includes(oracle);
  const text = message.text.toLowerCase();
  const name = oracleName.toLowerCase();
  const startsWithName = text.startsWith(name) && !/^[\p{L}\p{N}]/u.test(text.slice(name.length));
  return namesUser(message.text, oracle) || (name !== '' && startsWithName) || hasPill(message, oracle);
}

/** `@oracle:example.org` is not meant by `@oracle:example.organic`, nor by `me@oracle:…`. */
function namesUser(text: string, user: UserId): boolean {
  for (let at = text.indexOf(user); at >= 0; at = text.indexOf(user, at + 1)) {
    const before = text.slice(0, at);
    const after = text.slice(at + user.length, at + user.length + 2);
    if (!/[\p{L}\p{N}]$/u.test(before.slice(-2)) && !/^(?:[\p{L}\p{N}]|[.:-][\p{L}\p{N}])/u.test(after)) return true;
  }
  return false;
}

function hasPill(message: MessageItem, oracle: UserId): boolean {
  const html = message.content['formatted_body'];
  return (
    typeof html === 'string' &&
    (html.includes(`https://matrix.to/#/${oracle}"`) || html.includes(`https://matrix.to/#/${encodeURIComponent(oracle)}"`))
  );
}

export function afterCommandPrefix(text: string, prefix: string): string | null {
  if (prefix === '' || !text.startsWith(prefix)) return null;
  const rest = text.slice(prefix.length);
  if (rest !== '' && !/^\s/u.test(rest)) return null;
  return rest.trim() === '' ? null : rest.trim();
}

function decideConversation(message: MessageItem, room: RoomFacts): Conversation {
  if (message.thread !== null) return { kind: 'thread', root: message.thread };
  return room.kind === 'direct' ? { kind: 'rolling' } : { kind: 'thread', root: message.eventId };
}

const ignore = (reason: IgnoreReason): { kind: 'ignore'; reason: IgnoreReason } => ({ kind: 'ignore', reason });

/** When a newer run of the same conversation began, and when the one before it ended; wall clock ms, newest first. */
export interface TurnTimes {
  readonly createdAt: number;
  readonly endedAt: number | null;
}
/** No person reads an answer and writes the next message within this time, a dozen times in a row. */
const REFLEX_MS = 2_000;

/**
 * Two bots that answer each other must stop by themselves. A chain of `budget` turns, each begun before or within two seconds of the end
 * of the one before, is a bot; a pause breaks the chain. `budget` 0 switches the rule off.
 */
export function isBotLoop(turns: readonly TurnTimes[], now: number, budget: number): boolean {
  if (budget === 0 || turns.length < budget) return false;
  let nextBegan = now;
  for (const turn of turns.slice(0, budget)) {
    if (turn.endedAt === null || nextBegan > turn.endedAt + REFLEX_MS) return false;
    nextBegan = turn.createdAt;
  }
  return true;
}

/** Lateness of an event at its first claim, in ms (DESIGN §2 "Too late"): no clock of another server takes part. */
export const latenessOf = ({ ageMs, receivedAt, now }: { ageMs: number | null; receivedAt: number; now: number }): number =>
  (ageMs ?? 0) + Math.max(0, now - receivedAt);
/** The same for a row: what waited for its key was claimed when it was set aside, and is no later for that. */
export const latenessOfRow = ({ ageMs, receivedAt, parkedAt }: Pick<InboxRow, 'ageMs' | 'receivedAt' | 'parkedAt'>, now: number): number =>
  latenessOf({ ageMs, receivedAt, now: parkedAt ?? now });
