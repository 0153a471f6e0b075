/**
 * An edit is an event for ever: in the room's history, at every server of the room, in every client's next sync. A stream that edits per token
 * makes a room unusable; one that waits for the end looks dead. This is the one place that decides when the next version of a message goes out
 * (DESIGN §6 "Cadence"): soon at first, then slower and slower, and always at the end. Pure: time comes in, nothing is remembered.
 */
import { LIMITS } from '../../src/limits.ts';

export const CADENCE = {
  /** Enough to be worth a notification, which shows the first version. */
  firstChars: 24,
  firstAfterMs: 80,
  firstAtLatestMs: 400,
  /** Gap between versions: grows linearly with the age of the answer. */
  gapMs: 1_500,
  slowGapMs: 5_000,
  slowAfterMs: 15_000,
  /** From this edit on the gap doubles each time. */
  doublingFromEdit: 12,
  maxGapMs: 30_000,
  /** A send that took longer means the homeserver has too much to do. */
  serverSlowMs: 1_000,
} as const;

/** All times in monotonic milliseconds. One state per message: a further part starts with its own. */
export interface CadenceState {
  readonly now: number;
  /** When the first text of this message came; null before. */
  readonly firstTokenAt: number | null;
  /** When the homeserver confirmed the newest version; null while the message does not exist. */
  readonly lastSentAt: number | null;
  /** How long that send took. */
  readonly lastSendMs: number | null;
  /** Edits of this message, the original not counted. */
  readonly editsSent: number;
  readonly textShown: string;
  readonly textNow: string;
  readonly inFlight: boolean;
  /** No more text will come for this message: the run ended, or the answer goes on in the next part. */
  readonly ended: boolean;
  /** The version that says so (without the live marker) is out. */
  readonly finalSent: boolean;
  /** Another server is in the room. */
  readonly federated: boolean;
  /** Bridges that turn each edit into a call of their own get the final text only. */
  readonly finalOnly?: boolean;
}

/** `untilMs` null: nothing to do until something changes. Ask again at every change and at `untilMs`. */
export type Cadence =
  | { readonly kind: 'wait'; readonly untilMs: number | null }
  | { readonly kind: 'send'; readonly reason: 'first' | 'edit' | 'final' };

const WAIT_FOR_CHANGE: Cadence = { kind: 'wait', untilMs: null };

export function decideCadence(state: CadenceState): Cadence {
  if (state.inFlight) return WAIT_FOR_CHANGE;
  if (state.ended) return decideFinal(state);
  if (state.finalOnly || state.firstTokenAt === null || state.textNow.trim() === '') return WAIT_FOR_CHANGE;
  if (state.lastSentAt === null) return dueAt(state.now, firstDue(state.firstTokenAt, state.textNow), 'first');
  if (state.textNow === state.textShown) return WAIT_FOR_CHANGE;
  // The last edit of the budget belongs to the end: a message that never loses its live marker looks unfinished for ever.
  if (state.editsSent >= LIMITS.editsPerMessage - 1) return WAIT_FOR_CHANGE;
  return dueAt(state.now, state.lastSentAt + gapMs(state, state.lastSentAt - state.firstTokenAt), 'edit');
}

/** The final version goes out even when its text is unchanged, because it takes the live marker away and carries the status. */
function decideFinal({ finalSent, lastSentAt, textNow }: CadenceState): Cadence {
  const nothingToSay = lastSentAt === null && textNow.trim() === '';
  return finalSent || nothingToSay ? WAIT_FOR_CHANGE : { kind: 'send', reason: 'final' };
}

const firstDue = (firstTokenAt: number, text: string): number =>
  firstTokenAt + (text.trim().length >= CADENCE.firstChars ? CADENCE.firstAfterMs : CADENCE.firstAtLatestMs);

/** Gap before edit number `editsSent + 1` of an answer that was `ageMs` old at its newest version. */
function gapMs({ editsSent, federated, lastSendMs }: CadenceState, ageMs: number): number {
  const share = Math.min(1, Math.max(0, ageMs) / CADENCE.slowAfterMs);
  const base = CADENCE.gapMs + share * (CADENCE.slowGapMs - CADENCE.gapMs);
  const doublings = Math.max(0, editsSent + 2 - CADENCE.doublingFromEdit);
  const slow = federated || (lastSendMs ?? 0) > CADENCE.serverSlowMs;
  return Math.min(CADENCE.maxGapMs, base * 2 ** Math.min(doublings, 10) * (slow ? 2 : 1));
}

const dueAt = (now: number, untilMs: number, reason: 'first' | 'edit'): Cadence =>
  now >= untilMs ? { kind: 'send', reason } : { kind: 'wait', untilMs };
