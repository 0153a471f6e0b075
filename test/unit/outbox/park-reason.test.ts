import { expect, test } from 'vitest';
import { parkReasonOf } from '../../../src/outbox/park-reason.ts';

test.each([
  ['M_FORBIDDEN 403', 'forbidden'],
  ['M_NOT_FOUND 404', 'not_found'],
  ['M_TOO_LARGE 413', 'too_large'],
  ['M_BAD_JSON 400', 'bad_request'],
  ['M_ANYTHING_A_SERVER_MAY_SAY 418', 'bad_request'],
  ['deadline', 'deadline'],
  ['encrypted room', 'encrypted'],
  ['the edited event was never sent', 'other'],
])('%s is counted as %s', (error, reason) => {
  expect(parkReasonOf(error)).toBe(reason);
});
