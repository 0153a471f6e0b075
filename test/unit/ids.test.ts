import fc from 'fast-check';
import { expect, test } from 'vitest';
import { matrixPath } from '../../appservice/matrix-api.ts';
import { nextRunId, parseEventId, parseRoomId, parseUserId, type RunId } from '../../src/ids.ts';

test('every id that is accepted can stand in a URL and comes back the same from UTF-8 (G14)', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 20 }), fc.constantFrom('$', '!', '@a:'), (text, head) => {
      for (const parse of [parseEventId, parseRoomId, parseUserId]) {
        const id = parse(head + text);
        if (!id.ok) continue;
        expect(Buffer.from(id.value).toString()).toBe(id.value);
        expect(() => matrixPath`/${id.value}`).not.toThrow();
      }
    }),
  );
  for (const id of ['$\ud800', '!a\udc00', '@a:\ud800b'])
    expect([parseEventId(id), parseRoomId(id), parseUserId(id)].map(({ ok }) => ok)).toEqual([false, false, false]);
});

test.each(['@a:B', '@:x', '@a:x:8448', '@a b:x', '@a', '@a:', '', '@a:x\n', `@${'a'.repeat(255)}:x`])(
  '%j is parsed as an account or not at all',
  (text) => {
    expect(parseUserId(text).ok).toBe(['@a:B', '@:x', '@a:x:8448'].includes(text));
  },
);

test.each([
  ['01KDVDNA00FBRW2QXGX92JCYEZ', '01KDVDNA00FBRW2QXGX92JCYF0'],
  ['01KDVDNA00FBRW2QXGX92JCYE9', '01KDVDNA00FBRW2QXGX92JCYEA'],
  ['01KDVDNA000ZZZZZZZZZZZZZZZ', '01KDVDNA001000000000000000'],
  ['01KDVDNA00ZZZZZZZZZZZZZZZZ', null],
])('the run id behind %s is %s (G3)', (id, next) => {
  expect(nextRunId(id as RunId)).toBe(next);
});
