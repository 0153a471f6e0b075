/** A logger that remembers its lines, so that a test can ask what an operator was told, and that nothing secret was (G12). */
import type { LogFields, Logger } from '../../src/observe/logger.ts';

export interface LogLine extends LogFields {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
}
export interface FakeLogger extends Logger {
  readonly lines: LogLine[];
  /** Messages of one level, in order. */
  said(level: LogLine['level']): string[];
}

export function fakeLogger(): FakeLogger {
  const lines: LogLine[] = [];
  const build = (bound: LogFields): Logger => ({
    debug: (fields, message) => void lines.push({ ...bound, ...fields, level: 'debug', message }),
    info: (fields, message) => void lines.push({ ...bound, ...fields, level: 'info', message }),
    warn: (fields, message) => void lines.push({ ...bound, ...fields, level: 'warn', message }),
    error: (fields, message) => void lines.push({ ...bound, ...fields, level: 'error', message }),
    child: (fields) => build({ ...bound, ...fields }),
  });
  return { ...build({}), lines, said: (level) => lines.filter((line) => line.level === level).map(({ message }) => message) };
}
