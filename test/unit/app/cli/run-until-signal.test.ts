import { EventEmitter } from 'node:events';
import { expect, test } from 'vitest';
import { runUntilSignal, STOP_LIMIT_MS } from '../../../../src/app/cli/run-until-signal.ts';
import { fakeClock } from '../../../fakes/fake-clock.ts';

function createCase({ stop = async () => {}, ready = Promise.resolve() }: { stop?: () => Promise<void>; ready?: Promise<void> } = {}) {
  const signals = new EventEmitter();
  const clock = fakeClock();
  const exits: number[] = [];
  const events: string[] = [];
  const start = async () => {
    events.push('started');
    return {
      ready,
      stop: async () => {
        events.push('stopping');
        await stop();
        events.push('stopped');
      },
    };
  };
  const done = runUntilSignal({ start, clock, signals, exit: (code) => exits.push(code) });
  return { signals, clock, exits, events, done };
}
const settle = () => new Promise((resolve) => setImmediate(resolve));

test.each(['SIGTERM', 'SIGINT'])('%s stops the oracle and leaves no listener and no timer', async (signal) => {
  const { signals, clock, exits, events, done } = createCase();
  await settle();

  signals.emit(signal);
  await done;

  expect(events).toEqual(['started', 'stopping', 'stopped']);
  expect(exits).toEqual([]);
  expect(signals.listenerCount('SIGTERM') + signals.listenerCount('SIGINT')).toBe(0);
  expect(clock.pending()).toBe(0);
});

test('a signal while it starts is not lost', async () => {
  const { signals, events, done } = createCase();

  signals.emit('SIGTERM');
  await done;

  expect(events).toEqual(['started', 'stopping', 'stopped']);
});

test('the echo of a signal that npm passes on as well is not a second one', async () => {
  const { signals, clock, exits, events, done } = createCase();
  await settle();

  signals.emit('SIGINT');
  clock.advance(20);
  signals.emit('SIGINT');
  await done;

  expect(exits).toEqual([]);
  expect(events).toEqual(['started', 'stopping', 'stopped']);
});

test('a second signal exits at once', async () => {
  const { signals, clock, exits } = createCase({ stop: () => new Promise(() => {}) });
  await settle();

  signals.emit('SIGTERM');
  await settle();
  expect(exits).toEqual([]);
  clock.advance(1_000);
  signals.emit('SIGINT');

  expect(exits).toEqual([130]);
});

test('a drain that hangs ends with the limit', async () => {
  const { signals, clock, exits } = createCase({ stop: () => new Promise(() => {}) });
  await settle();
  signals.emit('SIGTERM');
  await settle();

  clock.advance(STOP_LIMIT_MS - 1);
  expect(exits).toEqual([]);
  clock.advance(1);

  expect(exits).toEqual([1]);
});

test('a start that fails is thrown on, with no listener left', async () => {
  const signals = new EventEmitter();
  const start = () => Promise.reject(new Error('no'));

  await expect(runUntilSignal({ start, clock: fakeClock(), signals, exit: () => {} })).rejects.toThrow('no');

  expect(signals.listenerCount('SIGTERM')).toBe(0);
});

test('an oracle that cannot become ready is stopped and the reason thrown on', async () => {
  const { events, done, clock } = createCase({ ready: Promise.reject(new Error('unknown as_token')) });

  await expect(done).rejects.toThrow('unknown as_token');

  expect(events).toEqual(['started', 'stopping', 'stopped']);
  expect(clock.pending()).toBe(0);
});

test('a signal before it is ready does not wait for that', async () => {
  const { signals, events, done } = createCase({ ready: new Promise(() => {}) });
  await settle();

  signals.emit('SIGTERM');
  await done;

  expect(events).toEqual(['started', 'stopping', 'stopped']);
});
