/** `rtCtx.history`: what the model was shown, then this turn. Lazy: most tools never look, and messages are built only when somebody does. */
import type { BaseMessage } from '@langchain/core/messages';
import type { RuntimeContext } from './runtime-context.ts';

export function buildHistoryGroup({
  readMessages,
  loadedPlugins,
}: {
  readMessages: () => readonly BaseMessage[];
  loadedPlugins: ReadonlySet<string>;
}): RuntimeContext['history'] {
  let messages: readonly BaseMessage[] | undefined;
  const all = (): readonly BaseMessage[] => (messages ??= Object.freeze([...readMessages()]));
  const userContext = Object.freeze({});
  return {
    get messages() {
      return all();
    },
    recent: (n) => (Number.isSafeInteger(n) && n > 0 ? all().slice(-n) : []),
    userContext,
    get state() {
      return Object.freeze({ messages: all(), loadedPlugins: Object.freeze([...loadedPlugins]), userContext });
    },
  };
}
