import { beforeEach, expect, test } from 'vitest';
import { ok, type Result } from '../../../../src/result.ts';
import { createLookUp } from '../../../../src/ucan/did/look-up.ts';
import { type FakeClock, fakeClock } from '../../../fakes/fake-clock.ts';

type Answer = Result<{ key: string }, 'FAILED'>;
let clock: FakeClock;
let asked: { key: string; timeoutMs: number; answer: (answer: Answer) => void }[];
let lookUp: (key: string) => Promise<Answer>;
beforeEach(() => {
  clock = fakeClock();
  asked = [];
  lookUp = createLookUp<{ key: string }, 'FAILED'>({
    clock,
    failure: 'FAILED',
    ask: (key, timeoutMs) => new Promise((answer) => asked.push({ key, timeoutMs, answer })),
  });
});
const many = (count: number, from = 0): Promise<Answer>[] => Array.from({ length: count }, (_, index) => lookUp(`key-${from + index}`));
const settle = () => clock.advanceAsync(0);

test('sixteen questions are open at a time; the others follow in their order, with the time that is left (G14)', async () => {
  const calls = many(18);
  await settle();
  const first = asked.map(({ key }) => key);
  await clock.advanceAsync(1_000);
  asked[0]?.answer(ok({ key: 'a' }));
  asked[1]?.answer(ok({ key: 'b' }));
  await settle();
  for (const { key, answer } of asked) answer(ok({ key }));

  expect(first).toHaveLength(16);
  expect(asked.slice(16).map(({ key, timeoutMs }) => [key, timeoutMs])).toEqual([
    ['key-16', 2_000],
    ['key-17', 2_000],
  ]);
  expect((await Promise.all(calls)).every((answer) => answer.ok)).toBe(true);
  expect(clock.pending()).toBe(0);
});

test('a question that gets no turn within 3 s fails, and one beyond 256 at once', async () => {
  const open = many(16);
  const waiting = many(256, 16);
  const beyond = await lookUp('one more');
  await clock.advanceAsync(3_000);

  expect(beyond).toEqual({ ok: false, error: 'FAILED' });
  expect(new Set((await Promise.all(waiting)).map(({ ok }) => ok))).toEqual(new Set([false]));
  for (const { key, answer } of asked) answer(ok({ key }));
  expect((await Promise.all(open)).every((answer) => answer.ok)).toBe(true);
  expect(asked).toHaveLength(16);
  expect(clock.pending()).toBe(0);

  const later = lookUp('later');
  await settle();
  asked.at(-1)?.answer(ok({ key: 'later' }));
  expect(await later).toEqual(ok({ key: 'later' }));
});

test('whoever was found before is looked up at once, however many invented identities are asked for (G14)', async () => {
  const first = lookUp('alice');
  await settle();
  asked[0]?.answer(ok({ key: 'alice' }));
  await first;
  await clock.advanceAsync(60_000);
  const flood = many(16 + 256);
  await settle();
  const again = lookUp('alice');
  await settle();
  asked.find(({ key }, at) => at > 0 && key === 'alice')?.answer(ok({ key: 'alice' }));

  expect(await again).toEqual(ok({ key: 'alice' }));
  await clock.advanceAsync(3_000);
  for (const { answer } of asked) answer(ok({ key: 'x' }));
  await Promise.all(flood);
  expect(clock.pending()).toBe(0);
});

test('an answer counts from the question, not from when it came', async () => {
  const call = lookUp('slow');
  await clock.advanceAsync(2_000);
  asked[0]?.answer(ok({ key: 'slow' }));
  await call;
  clock.advance(57_999);
  await lookUp('slow');
  const fresh = asked.length;
  clock.advance(1);
  void lookUp('slow');
  await settle();

  expect([fresh, asked.length]).toEqual([1, 2]);
});

test('a question that throws gives its turn back', async () => {
  const broken = createLookUp<{ key: string }, 'FAILED'>({ clock, failure: 'FAILED', ask: () => Promise.reject(new Error('bug')) });

  for (let time = 0; time < 40; time += 1) await expect(broken(`key-${time}`)).rejects.toThrow('bug');
});
