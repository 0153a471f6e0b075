/**
 * The last word of a run, planned against what the room shows: every message ends with its final text and without the live marker, and
 * one that is right already costs no event. A resumed model may say less than before the crash, so a message can be left without
 * text; it cannot be unsent (others have seen it), so it says that it no longer counts.
 */
import type { ErrorCode } from '../../src/errors.ts';
import { assertNever } from '../../src/result.ts';
import type { RunStatus } from '../../src/runs/run.ts';
import type { MarkerKind } from '../content/mark-answer.ts';
import type { Part } from '../content/split-answer.ts';
import type { Shown, ShownMessage } from './read-shown.ts';

export const WITHDRAWN_TEXT = '*This part does not belong to the answer any more.*';

export interface FinalVersion {
  readonly part: number;
  readonly text: string;
  /** Null: the message does not exist yet. */
  readonly message: ShownMessage | null;
}

/** `parts` of the whole answer, marker included. */
export function planFinal(parts: readonly Part[], shown: Shown): FinalVersion[] {
  const spoken = parts.filter(({ text }) => text !== '');
  const last = spoken.at(-1)?.part;
  const plan: FinalVersion[] = [];
  for (const { part, text } of spoken) {
    const message = shown.messages.get(part) ?? null;
    if (message !== null && (message.parked || isFinal(message, text, part === last))) continue;
    plan.push({ part, text, message });
  }
  const kept = new Set(spoken.map(({ part }) => part));
  for (const message of shown.messages.values()) {
    if (kept.has(message.part) || message.parked || isFinal(message, WITHDRAWN_TEXT, true)) continue;
    plan.push({ part: message.part, text: WITHDRAWN_TEXT, message });
  }
  return plan;
}

/** The last message carries the status of the run; in the others the text is all that matters. */
const isFinal = (message: ShownMessage, text: string, isLast: boolean): boolean =>
  message.text === text && !message.live && (message.ended || !isLast);

/** What the run rested on went away under it (G8): "try again" would be wrong. */
const LOST_AUTHORITY: ReadonlySet<string | undefined> = new Set<ErrorCode>(['REVOKED', 'GRANT_EXPIRED', 'EXPIRES_TOO_SOON']);

/** What is said under an answer that stopped early; null under one that is complete. `code` is that of the error it ended with. */
export function markerOf(status: RunStatus, code?: string): MarkerKind | null {
  switch (status) {
    case 'completed':
      return null;
    case 'cancelled':
    case 'interrupted':
      return status;
    case 'failed':
      return LOST_AUTHORITY.has(code) ? 'unauthorised' : 'failed';
    case 'expired':
    case 'queued':
    case 'running':
    case 'waiting':
      return 'failed';
    default:
      return assertNever(status);
  }
}
