/**
 * `rtCtx.shared`: what other plugins let be read. Lazy: an accessor runs when its key is read, with the context of the plugin that owns it, so that a
 * reader gets what the owner decides and neither sees the other's configuration. It may be absent or fail at any time, and then is undefined:
 * a plugin must work without its neighbours.
 */
import { readThrown } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { ReadonlyState, RuntimeContext, SharedAccessors } from './runtime-context.ts';

export interface SharedReader {
  readonly plugin: string;
  readonly read: (state: ReadonlyState, ctx: RuntimeContext) => unknown;
}
export interface SharedGroupSources {
  readonly readers: ReadonlyMap<string, SharedReader>;
  readonly readState: () => ReadonlyState;
  readonly contextOf: (plugin: string) => RuntimeContext;
  readonly logger: Logger;
  /** Throws once the turn is over. */
  readonly requireLive: () => void;
}

/** Symbols are left alone: the platform looks at them when a value is awaited or printed. */
export function buildSharedGroup({ readers, readState, contextOf, logger, requireLive }: SharedGroupSources): SharedAccessors {
  return new Proxy(Object.freeze({}), {
    get(_target, key) {
      if (typeof key === 'symbol') return undefined;
      requireLive();
      const reader = readers.get(key);
      if (reader === undefined) return undefined;
      const failed = (error: unknown): undefined => {
        const thrown = readThrown(error);
        logger.warn({ plugin: reader.plugin, reason: thrown instanceof Error ? thrown.name : 'thrown value' }, 'a shared accessor failed');
      };
      try {
        const value = reader.read(readState(), contextOf(reader.plugin));
        // One that fails later is undefined later: whoever only looked must not end the process by a rejection that nobody waits for.
        return value instanceof Promise ? value.catch(failed) : value;
      } catch (error) {
        return failed(error);
      }
    },
    has: (_target, key) => typeof key === 'string' && readers.has(key),
  });
}
