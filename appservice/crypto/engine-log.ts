/**
 * What the engine says may name rooms, people and keys, and anybody may make it speak: a hostile message to the device is a line each. So a line of it is
 * reduced to where it was said (G12), and each place is heard once a minute, with how often it spoke (G14). Its warnings are mostly of what others do (a
 * message without its key, a device that left), which is told where it matters, with room and event: here they are for whoever looks for a fault.
 */
import { LRUCache } from 'lru-cache';
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock } from '../../src/time.ts';

export interface EngineLog {
  debug(): void;
  info(): void;
  warn(line: unknown): void;
  error(line: unknown): void;
}

const QUIET_MS = 60_000;
const PLACES = 100;

export function createEngineLog({ logger, clock }: { logger: Logger; clock: Clock }): EngineLog {
  const places = new LRUCache<string, { readonly at: number; unheard: number }>({ max: PLACES });
  function say(level: 'debug' | 'warn', line: unknown, message: string): void {
    const type = placeOf(line);
    const key = `${message} ${type}`;
    const last = places.get(key);
    const now = clock.monotonic();
    if (last !== undefined && now - last.at < QUIET_MS) {
      last.unheard += 1;
      return;
    }
    places.set(key, { at: now, unheard: 0 });
    logger[level]({ type, count: 1 + (last?.unheard ?? 0) }, message);
  }
  return {
    debug: () => undefined,
    info: () => undefined,
    warn: (line) => say('debug', line, 'the cryptographic engine warns'),
    error: (line) => say('warn', line, 'the cryptographic engine reports an error'),
  };
}

/** `WARN matrix_sdk_crypto::machine: text…` */
const placeOf = (line: unknown): string => /^\s*\w+ ([\w:]{1,100}): /u.exec(String(line).slice(0, 200))?.[1] ?? 'unknown';
