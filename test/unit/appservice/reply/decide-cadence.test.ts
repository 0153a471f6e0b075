import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CADENCE, type CadenceState, decideCadence } from '../../../../appservice/reply/decide-cadence.ts';
import { LIMITS } from '../../../../src/limits.ts';

const LONG = 'x'.repeat(CADENCE.firstChars);

/** A message that does not exist yet, with its first token at 0. */
const start = (more: Partial<CadenceState>): CadenceState => ({
  now: 0,
  firstTokenAt: 0,
  lastSentAt: null,
  lastSendMs: null,
  editsSent: 0,
  textShown: '',
  textNow: LONG,
  inFlight: false,
  ended: false,
  finalSent: false,
  federated: false,
  ...more,
});
const shown = (more: Partial<CadenceState>): CadenceState =>
  start({ lastSentAt: 0, lastSendMs: 10, textShown: 'a', textNow: 'ab', now: 1e9, ...more });
const wait = (untilMs: number | null) => ({ kind: 'wait', untilMs });
const send = (reason: string) => ({ kind: 'send', reason });

describe('the first version', () => {
  test.each([
    ['enough text, too early', { now: 79 }, wait(80)],
    ['enough text, 80 ms', { now: 80 }, send('first')],
    ['too little text', { now: 399, textNow: LONG.slice(1) }, wait(400)],
    ['too little text, but 400 ms', { now: 400, textNow: 'Hi' }, send('first')],
    ['no token yet', { now: 999, firstTokenAt: null, textNow: '' }, wait(null)],
    ['white space only', { now: 999, textNow: ' \n ' }, wait(null)],
    ['finished before it was shown: one event', { now: 1, textNow: 'Hi', ended: true }, send('final')],
    ['finished without text', { now: 1, textNow: '', ended: true }, wait(null)],
  ])('%s', (_name, state, expected) => {
    expect(decideCadence(start(state))).toEqual(expected);
  });
});

describe('edits', () => {
  test.each([
    ['1.5 s at first', { lastSentAt: 0, now: 100 }, 1_500],
    ['half way to slow', { lastSentAt: 7_500, now: 7_600 }, 7_500 + 3_250],
    ['5 s after 15 s', { lastSentAt: 15_000, now: 15_001 }, 20_000],
    ['5 s much later', { lastSentAt: 100_000, now: 100_001 }, 105_000],
    ['the 11th edit is not doubled', { lastSentAt: 60_000, now: 60_000, editsSent: 10 }, 65_000],
    ['the 12th is', { lastSentAt: 60_000, now: 60_000, editsSent: 11 }, 70_000],
    ['the 13th twice', { lastSentAt: 60_000, now: 60_000, editsSent: 12 }, 80_000],
    ['never more than 30 s', { lastSentAt: 60_000, now: 60_000, editsSent: 18, federated: true }, 90_000],
    ['doubled in federated rooms', { lastSentAt: 0, now: 100, federated: true }, 3_000],
    ['doubled when the homeserver is slow', { lastSentAt: 0, now: 100, lastSendMs: 1_001 }, 3_000],
    ['not doubled at the limit', { lastSentAt: 0, now: 100, lastSendMs: 1_000 }, 1_500],
  ])('%s', (_name, state, untilMs) => {
    expect(decideCadence(shown(state))).toEqual(wait(untilMs));
    expect(decideCadence(shown({ ...state, now: untilMs }))).toEqual(send('edit'));
  });

  test('one edit of the budget is kept for the end', () => {
    expect(decideCadence(shown({ editsSent: LIMITS.editsPerMessage - 2 }))).toEqual(send('edit'));
    expect(decideCadence(shown({ editsSent: LIMITS.editsPerMessage - 1 }))).toEqual(wait(null));
    expect(decideCadence(shown({ editsSent: LIMITS.editsPerMessage - 1, ended: true }))).toEqual(send('final'));
  });

  test('the final version is sent at once, and also when only the live marker goes', () => {
    expect(decideCadence(shown({ now: 1, ended: true }))).toEqual(send('final'));
    expect(decideCadence(shown({ now: 1, ended: true, textNow: 'a' }))).toEqual(send('final'));
    expect(decideCadence(shown({ now: 1, ended: true, finalSent: true }))).toEqual(wait(null));
  });

  test('a bridge that cannot stream gets the final version only', () => {
    expect(decideCadence(start({ now: 1e6, finalOnly: true }))).toEqual(wait(null));
    expect(decideCadence(start({ now: 1e6, finalOnly: true, ended: true }))).toEqual(send('final'));
  });
});

/** Streams `chars` over `lengthMs` against a homeserver that takes `sendMs`, and lists the sends. */
function stream({ lengthMs, chars, sendMs, federated }: { lengthMs: number; chars: number; sendMs: number; federated: boolean }) {
  const sends: { at: number; reason: string; text: string }[] = [];
  let state = start({ textNow: '', federated });
  let freeAt = 0;
  const stepMs = 20;
  for (let now = 0; now <= lengthMs + 10 * sendMs + 1_000; now += stepMs) {
    if (state.inFlight && now >= freeAt) state = { ...state, inFlight: false, lastSentAt: now, lastSendMs: sendMs };
    const textNow = 'y'.repeat(Math.floor((chars * Math.min(now, lengthMs)) / lengthMs));
    state = { ...state, now, textNow, ended: now >= lengthMs };
    const decision = decideCadence(state);
    if (decision.kind === 'wait') continue;
    sends.push({ at: now, reason: decision.reason, text: textNow });
    freeAt = now + sendMs;
    const edits = sends.length === 1 ? 0 : state.editsSent + 1;
    state = { ...state, inFlight: true, textShown: textNow, editsSent: edits, finalSent: decision.reason === 'final' };
  }
  return sends;
}

describe('whole streams', () => {
  test('an answer of two seconds is at most five events', () => {
    const sends = stream({ lengthMs: 2_000, chars: 600, sendMs: 50, federated: false });

    expect(sends.length).toBeLessThanOrEqual(5);
    expect(sends[0]!.at).toBeLessThanOrEqual(400);
    expect(sends.at(-1)).toMatchObject({ reason: 'final', text: 'y'.repeat(600) });
  });

  test('any stream keeps its budget, never repeats a text but the last, and ends with all of it', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 120_000 }),
        fc.integer({ min: 1, max: 5_000 }),
        fc.integer({ min: 1, max: 3_000 }),
        fc.boolean(),
        (lengthMs, chars, sendMs, federated) => {
          const sends = stream({ lengthMs, chars, sendMs, federated });
          const texts = sends.slice(0, -1).map(({ text }) => text);

          expect(sends.length - 1).toBeLessThanOrEqual(LIMITS.editsPerMessage);
          expect(new Set(texts).size).toBe(texts.length);
          expect(sends.filter(({ reason }) => reason === 'final')).toHaveLength(1);
          expect(sends.at(-1)!.text).toHaveLength(chars);
          for (const [index, { at }] of sends.entries()) {
            const before = sends[index - 1];
            if (before !== undefined) expect(at - before.at).toBeGreaterThanOrEqual(sendMs);
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  test('while an edit is in flight nothing is sent, whatever the rest says', () => {
    fc.assert(
      fc.property(fc.boolean(), fc.boolean(), fc.nat(), (ended, federated, now) => {
        expect(decideCadence(shown({ ended, federated, now, inFlight: true }))).toEqual(wait(null));
      }),
    );
  });
});
