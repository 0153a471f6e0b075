import { expect, test } from 'vitest';
import { createRedactor } from '../../../src/secrets/redactor.ts';

test('a value is masked wherever it stands, from the moment it was given out (G12)', () => {
  const redactor = createRedactor();
  expect(redactor.clean('sk-123456')).toBe('sk-123456');

  redactor.add('sk-123456');

  expect(redactor.clean('a sk-123456 b sk-123456')).toBe('a [secret] b [secret]');
  expect(redactor.holds('x sk-123456 y')).toBe(true);
  expect(redactor.holds('x sk-12345 y')).toBe(false);
});

test('what short values would blot out stays', () => {
  const redactor = createRedactor(['abc', '12345', '      ']);

  expect(redactor.clean('abc 12345 abcdef')).toBe('abc 12345 abcdef');
});

test('of two values one of which holds the other nothing is left standing', () => {
  const redactor = createRedactor(['secret', 'my-secret-value']);

  expect(redactor.clean('my-secret-value')).toBe('[secret]');
});

test('the forms that a plugin makes of a value by itself are masked too: trimmed, and as JSON', () => {
  const redactor = createRedactor(['  line "one"\nline two \n']);

  expect(redactor.clean('<line "one"\nline two>')).toBe('<[secret]>');
  expect(redactor.clean(JSON.stringify({ value: 'line "one"\nline two' }))).toBe('{"value":"[secret]"}');
});

test('values are text, not patterns', () => {
  const redactor = createRedactor(['$&.*+?()']);

  expect(redactor.clean('a $&.*+?() b')).toBe('a [secret] b');
});

test('in a value that has JSON every string is masked, names of fields too', () => {
  const redactor = createRedactor(['topsecret']);

  expect(redactor.cleanJson({ a: ['x topsecret', 1, null], topsecret: { b: true } })).toEqual({
    a: ['x [secret]', 1, null],
    '[secret]': { b: true },
  });
});
