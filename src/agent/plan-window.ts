/**
 * The part of the conversation that goes in front of the turn at each model call. Strict providers answer 400 for a tool call without its result,
 * a result without its call, or a history that starts with an answer, so the window is cut at a human message and repaired by construction.
 * Cost is by the window's size, never by the length of the thread (G16).
 */
import type { PrincipalId } from '../ids.ts';
import type { TranscriptEntry } from '../sessions/transcript.ts';
import { hasText, readStoredMessage, type WindowMessage } from './turn-messages.ts';

export interface WindowRules {
  readonly maxChars: number;
  /** In a group: whose turn it is. Of others' turns only prompt and answer are shown (G13). Null in a direct room. */
  readonly onlyDetailsOf: PrincipalId | null;
  /** In a group: how a speaker is named in front of what they said. Null in a direct room. */
  readonly nameOf: ((speaker: string) => string) | null;
  /** Whether the entry taints the run that is shown it (src/agent/taint.ts). */
  readonly isForeign: (entry: TranscriptEntry) => boolean;
}

/** @param entries the newest of the session, oldest first. */
export function planWindow(entries: readonly TranscriptEntry[], rules: WindowRules): WindowMessage[] {
  const speakers = new Map<string, string>();
  for (const entry of entries) if (entry.role === 'human' && entry.runId !== null) speakers.set(entry.runId, entry.speaker);
  const messages = entries.flatMap((entry): WindowMessage[] => {
    const { role, text, runId, id } = entry;
    if (role === 'human') {
      const said = rules.nameOf === null ? text : `${rules.nameOf(entry.speaker)}: ${text}`;
      return [{ role, text: said, stored: null, isForeign: rules.isForeign(entry), entry: id }];
    }
    const isOwn = rules.onlyDetailsOf === null || (runId !== null && speakers.get(runId) === rules.onlyDetailsOf);
    // Others may have asked for these very words, and what they asked may have left the window already.
    const isForeign = rules.isForeign(entry) || !isOwn;
    const stored = isOwn ? readStoredMessage(entry.message) : null;
    if (role === 'tool') return stored?.kind === 'tool' ? [{ role, text, stored, isForeign, entry: id }] : [];
    return [{ role, text, stored: stored?.kind === 'ai' ? stored : null, isForeign, entry: id }];
  });
  return cutAtHuman(repairCalls(takeNewest(messages, rules.maxChars)));
}

/** The newest that fit, without a gap: what is older than a message that does not fit is left out as well. */
function takeNewest(messages: readonly WindowMessage[], maxChars: number): WindowMessage[] {
  let chars = 0;
  let from = messages.length;
  for (const message of messages.toReversed()) {
    chars += sizeOf(message);
    if (chars > maxChars) break;
    from -= 1;
  }
  return messages.slice(from);
}

const sizeOf = ({ text, stored }: WindowMessage): number =>
  text.length + (stored?.kind === 'ai' ? JSON.stringify(stored.toolCalls).length : 0);

/** Keeps calls whose results all follow at once, and results whose call stands before them; drops what says nothing then. */
function repairCalls(messages: readonly WindowMessage[]): WindowMessage[] {
  const repaired: WindowMessage[] = [];
  for (let at = 0; at < messages.length; at += 1) {
    const message = messages[at];
    if (message === undefined || message.role === 'tool') continue;
    if (message.stored?.kind !== 'ai') {
      if (message.role === 'human' || hasText(message.text)) repaired.push(message);
      continue;
    }
    const calls = message.stored.toolCalls;
    const results = messages.slice(at + 1, at + 1 + calls.length);
    const isWhole =
      calls.length > 0 && calls.every((call) => results.some(({ stored }) => stored?.kind === 'tool' && stored.callId === call.id));
    if (isWhole) repaired.push(message, ...results);
    else if (hasText(message.text)) repaired.push({ ...message, stored: null });
    // Results were taken along or have lost their call; either way the next turn of the loop drops them.
  }
  return repaired;
}

function cutAtHuman(messages: readonly WindowMessage[]): WindowMessage[] {
  const first = messages.findIndex(({ role }) => role === 'human');
  return first === -1 ? [] : messages.slice(first);
}

/** What a first mention may refer to: enough for "what do you think?", not a second conversation. */
const OVERHEARD_MAX_CHARS = 8_000;
export const OVERHEARD_MAX_MESSAGES = 20;
const OVERHEARD_TITLE = 'Said in the room before, not to you (for context only):';

/** The room's newest talk outside any session as one message; none when nobody spoke. */
export function planOverheard(
  entries: readonly TranscriptEntry[],
  { nameOf, isForeign }: { nameOf: (speaker: string) => string; isForeign: (entry: TranscriptEntry) => boolean },
): WindowMessage[] {
  const said = entries
    .filter(({ role, text }) => role === 'human' && hasText(text))
    .map(
      (entry): WindowMessage => ({
        role: 'human',
        text: `${nameOf(entry.speaker)}: ${indent(entry.text)}`,
        stored: null,
        isForeign: isForeign(entry),
      }),
    );
  const newest = takeNewest(said, OVERHEARD_MAX_CHARS);
  if (newest.length === 0) return [];
  const text = [OVERHEARD_TITLE, ...newest.map((message) => message.text)].join('\n');
  return [{ role: 'human', text, stored: null, isForeign: newest.some((message) => message.isForeign) }];
}

/** A line that begins like somebody's words is told from theirs by where it stands. */
const indent = (text: string): string => text.trim().replaceAll(/\r\n?|[\n\u2028\u2029]/gu, '\n  ');
