import { expect, test } from 'vitest';
import { createEngineLog } from '../../../../appservice/crypto/engine-log.ts';
import { fakeClock } from '../../../fakes/fake-clock.ts';
import { fakeLogger } from '../../../fakes/fake-logger.ts';

const LINE = '  WARN matrix_sdk_crypto::machine: Failed to decrypt for @alice:x with key SECRET\n    at machine/mod.rs:1';

test('of what the engine says only the place is logged (G12), and its warnings only for whoever looks for a fault', () => {
  const logger = fakeLogger();
  const log = createEngineLog({ logger, clock: fakeClock() });

  log.warn(LINE);
  log.error('SECRET without a place');
  log.info();
  log.debug();

  expect(logger.lines).toEqual([
    { level: 'debug', type: 'matrix_sdk_crypto::machine', count: 1, message: 'the cryptographic engine warns' },
    { level: 'warn', type: 'unknown', count: 1, message: 'the cryptographic engine reports an error' },
  ]);
});

test('a place that speaks all the time is heard once a minute, with how often it spoke (G14)', () => {
  const logger = fakeLogger();
  const clock = fakeClock();
  const log = createEngineLog({ logger, clock });

  for (let second = 0; second < 121; second += 1) {
    log.warn(LINE);
    clock.advance(1_000);
  }

  expect(logger.lines.map(({ count }) => count)).toEqual([1, 60, 60]);
});
