/** What plugins log with: their facts are reduced to fields that log lines may have, so that a plugin cannot write content into a log (G12). */
import type { LogFields, Logger } from '../observe/logger.ts';
import type { PluginLogger } from '../runtime-context/runtime-context.ts';

const MAX_MESSAGE_CHARS = 200;

export function createPluginLogger(logger: Logger): PluginLogger {
  const fields = (facts: Readonly<Record<string, string | number | boolean>> = {}): LogFields => ({
    ...(typeof facts['code'] === 'string' ? { code: facts['code'].slice(0, 64) } : {}),
    ...(typeof facts['reason'] === 'string' ? { reason: facts['reason'].slice(0, 200) } : {}),
    ...(typeof facts['status'] === 'number' ? { status: facts['status'] } : {}),
    ...(typeof facts['count'] === 'number' ? { count: facts['count'] } : {}),
    ...(typeof facts['duration_ms'] === 'number' ? { duration_ms: facts['duration_ms'] } : {}),
  });
  return {
    debug: (message, facts) => logger.debug(fields(facts), message.slice(0, MAX_MESSAGE_CHARS)),
    info: (message, facts) => logger.info(fields(facts), message.slice(0, MAX_MESSAGE_CHARS)),
    warn: (message, facts) => logger.warn(fields(facts), message.slice(0, MAX_MESSAGE_CHARS)),
    error: (message, facts) => logger.error(fields(facts), message.slice(0, MAX_MESSAGE_CHARS)),
  };
}
