import { describe, expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../../appservice/crypto/crypto-service.ts';
import { createGuard } from '../../../../appservice/crypto/engine-guard.ts';
import { fakeClock } from '../../../fakes/fake-clock.ts';

const panic = (): Error => Object.assign(new Error('unreachable'), { name: 'RuntimeError' });
const uncaught = (error: Error): boolean => (process as NodeJS.EventEmitter).emit('uncaughtExceptionMonitor', error, 'uncaughtException');
const never = (): Promise<never> => new Promise(() => undefined);

describe('calls of the engine', () => {
  function setUp() {
    const clock = fakeClock();
    const fatal: string[] = [];
    return { clock, fatal, guard: createGuard({ clock, onFatal: (reason) => void fatal.push(reason) }) };
  }

  test('a call gives what the engine gives, and leaves no timer', async () => {
    const { guard, clock, fatal } = setUp();

    const results = [await guard.call('a', () => 1), await guard.call('b', async () => 2)];

    expect(results).toEqual([1, 2]);
    expect(clock.pending()).toBe(0);
    expect(fatal).toEqual([]);
    guard.close();
  });

  test('an ordinary failure is the caller’s, and ends nothing', async () => {
    const { guard, clock, fatal } = setUp();

    await expect(guard.call('a', () => Promise.reject(new Error('no such room')))).rejects.toThrow('no such room');

    expect(await guard.call('b', () => 1)).toBe(1);
    expect({ fatal, timers: clock.pending() }).toEqual({ fatal: [], timers: 0 });
    guard.close();
  });

  test('a call within its limit is waited for; one beyond it ends the process, and everybody who waits is told to try again', async () => {
    const { guard, clock, fatal } = setUp();
    const stuck = guard.call('encrypt', never);
    const bystander = guard.call('decrypt', never);
    const outcomes = Promise.allSettled([stuck, bystander]);
    clock.advance(29_999);
    const before = [...fatal];

    clock.advance(1);

    const reasons = (await outcomes).map((outcome) => outcome.status === 'rejected' && outcome.reason);
    expect(before).toEqual([]);
    expect(fatal).toEqual(['the cryptographic engine did not finish "encrypt" in time']);
    expect(reasons.every((reason) => reason instanceof CryptoUnavailable)).toBe(true);
  });

  test('a call that grows with the room may be given a longer limit of its own', () => {
    const { guard, clock, fatal } = setUp();
    guard.call('share', never, 60_000).catch(() => undefined);

    clock.advance(59_999);
    const before = [...fatal];
    clock.advance(1);

    expect(before).toEqual([]);
    expect(fatal).toEqual(['the cryptographic engine did not finish "share" in time']);
  });

  test.each<[string, () => Promise<never>]>([
    [
      'at once',
      () => {
        throw panic();
      },
    ],
    ['later', () => Promise.reject(panic())],
  ])('a panic that the call itself tells of (%s) ends the process', async (_name, work) => {
    const { guard, fatal } = setUp();

    await expect(guard.call('a', work)).rejects.toBeInstanceOf(CryptoUnavailable);

    expect(fatal).toEqual(['the cryptographic engine panicked']);
  });

  test('a panic that only the process hears of ends it, and whoever waits is told', async () => {
    const { guard, fatal } = setUp();
    const waiting = expect(guard.call('a', never)).rejects.toBeInstanceOf(CryptoUnavailable);

    uncaught(panic());

    await waiting;
    expect(fatal).toEqual(['the cryptographic engine panicked']);
  });

  test('an uncaught error of somebody else is not ours', () => {
    const { guard, fatal } = setUp();

    uncaught(new Error('other'));

    expect(fatal).toEqual([]);
    guard.close();
  });

  test('once it has ended every call is refused, and it is told once only', async () => {
    const { guard, fatal } = setUp();
    guard.fail('the key store could not be written');
    guard.fail('another');
    let ran = false;

    const refused = guard.call('a', () => {
      ran = true;
    });

    await expect(refused).rejects.toBeInstanceOf(CryptoUnavailable);
    expect(ran).toBe(false);
    expect(fatal).toEqual(['the key store could not be written']);
  });

  test('closing is no failure, frees whoever waits, and leaves no listener', async () => {
    const before = process.listenerCount('uncaughtExceptionMonitor');
    const { guard, fatal } = setUp();
    const waiting = expect(guard.call('a', never)).rejects.toBeInstanceOf(CryptoUnavailable);

    guard.close();

    await waiting;
    expect(fatal).toEqual([]);
    expect(process.listenerCount('uncaughtExceptionMonitor')).toBe(before);
  });
});
