/**
 * Writes the answer as frames in exactly the form that `readAnswer` gives for the finished turn, so that what viewers fold from frames and what
 * is stored are one text. On resume it first brings what was shown back to what the checkpoint knows (G5: the same message is finished).
 */
import type { RunOutput } from '../runs/runner.ts';
import { ANSWER_GAP, hasText } from './turn-messages.ts';

export interface AnswerWriter {
  /** A model call begins (or begins again): an empty line goes in front of its text if there is text before. */
  startMessage(): void;
  push(delta: string): void;
  /** The call came to its end: its text belongs to the turn's messages now. */
  endMessage(): void;
  /** Text of the current call that was shown. */
  readonly partial: string;
  /** Shows this until there is text, or until it is taken away: it is no part of the answer. */
  aside(text: string): void;
  endAside(): void;
  /** Makes the shown text equal to `text`. */
  repair(text: string): void;
}

export function createAnswerWriter(output: Pick<RunOutput, 'text' | 'truncate'>, shownText: string): AnswerWriter {
  let shown = shownText;
  let held = '';
  let partial = '';
  /** Where the aside begins. */
  let asideAt: number | null = null;
  const cut = (length: number): void => {
    output.truncate(length);
    shown = shown.slice(0, length);
  };
  const endAside = (): void => {
    if (asideAt !== null) cut(asideAt);
    asideAt = null;
  };
  const send = (delta: string): void => {
    shown += delta;
    output.text(delta);
  };
  return {
    startMessage() {
      held = '';
      partial = '';
    },
    push(delta) {
      if (partial !== '') {
        partial += delta;
        return send(delta);
      }
      // White space alone is no text: it waits until something follows it.
      held += delta;
      if (!hasText(held)) return;
      partial = held;
      endAside();
      send((shown === '' ? '' : ANSWER_GAP) + held);
    },
    endMessage() {
      partial = '';
    },
    get partial() {
      return partial;
    },
    aside(text) {
      endAside();
      asideAt = shown.length;
      send((shown === '' ? '' : ANSWER_GAP) + text);
    },
    endAside,
    repair(text) {
      asideAt = null;
      const { keep, add } = planRepair(shown, text);
      if (keep < shown.length) cut(keep);
      if (add !== '') send(add);
    },
  };
}

/** How far the shown text may stay, and what follows it. Never cuts a surrogate pair. */
export function planRepair(shown: string, wanted: string): { keep: number; add: string } {
  const most = Math.min(shown.length, wanted.length);
  let keep = 0;
  if (wanted.startsWith(shown)) keep = shown.length;
  else if (shown.startsWith(wanted)) keep = wanted.length;
  else while (keep < most && shown.charCodeAt(keep) === wanted.charCodeAt(keep)) keep += 1;
  const last = keep > 0 && keep < Math.max(shown.length, wanted.length) ? shown.charCodeAt(keep - 1) : 0;
  if (last >= 0xd800 && last <= 0xdbff) keep -= 1;
  return { keep, add: wanted.slice(keep) };
}
