/** What plugins log with: their facts are reduced to fields that log lines may have, so that a plugin cannot write content into a log (G12). */
import type { LogFields, Logger } from '../observe/logger.ts';
import type { PluginLogger } from '../runtime-context/runtime-context.ts';

const MAX_MESSAGE_CHARS = 200;
const MAX_CODE_CHARS = 64;

/** @param clean masks what must not leave the run, where there is one. */
export function createPluginLogger(logger: Logger, clean: (text: string) => string = (text) => text): PluginLogger {
  // Masked before it is cut: half a secret is none that is known.
  const cut = (text: string, maxChars: number): string => clean(text).slice(0, maxChars);
  const say = (message: string): string => cut(message, MAX_MESSAGE_CHARS);
  const fields = (facts: Readonly<Record<string, string | number | boolean>> = {}): LogFields => ({
    ...(typeof facts['code'] === 'string' ? { code: cut(facts['code'], MAX_CODE_CHARS) } : {}),
    ...(typeof facts['reason'] === 'string' ? { reason: cut(facts['reason'], MAX_MESSAGE_CHARS) } : {}),
    ...(typeof facts['status'] === 'number' ? { status: facts['status'] } : {}),
    ...(typeof facts['count'] === 'number' ? { count: facts['count'] } : {}),
    ...(typeof facts['duration_ms'] === 'number' ? { duration_ms: facts['duration_ms'] } : {}),
  });
  return {
    debug: (message, facts) => logger.debug(fields(facts), say(message)),
    info: (message, facts) => logger.info(fields(facts), say(message)),
    warn: (message, facts) => logger.warn(fields(facts), say(message)),
    error: (message, facts) => logger.error(fields(facts), say(message)),
  };
}
