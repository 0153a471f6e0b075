/**
 * `rtCtx.history`: what the model was shown, then this turn; and what was said earlier, by words. Lazy: most tools never look, and messages are built
 * only when somebody does. A hit that strangers may have written taints whoever reads it, as it would have in the conversation itself.
 */
import type { BaseMessage } from '@langchain/core/messages';
import { OracleError, refusal } from '../errors.ts';
import type { Run } from '../runs/run.ts';
import type { TranscriptSearch } from '../sessions/search-transcript.ts';
import { isBelow } from '../turn/principal.ts';
import type { RuntimeContext, UserContextData } from './runtime-context.ts';

export interface HistoryGroupSources {
  readonly run: Pick<Run, 'id' | 'principalId' | 'roomId' | 'direct' | 'tier'>;
  readonly readMessages: () => readonly BaseMessage[];
  readonly loadedPlugins: () => ReadonlySet<string>;
  readonly readUserContext: () => UserContextData;
  readonly search: TranscriptSearch;
  readonly readsForeign: () => void;
}

const MAX_QUERY_CHARS = 1_000;
const DEFAULT_HITS = 10;

export function buildHistoryGroup(sources: HistoryGroupSources): RuntimeContext['history'] {
  const { run, search, readsForeign } = sources;
  let messages: readonly BaseMessage[] | undefined;
  const all = (): readonly BaseMessage[] => (messages ??= Object.freeze([...sources.readMessages()]));
  // A copy down to its leaves: what one plugin does to it neither another one nor the prompt sees.
  const userContext = (): UserContextData => Object.freeze(structuredClone(sources.readUserContext()));
  return {
    get messages() {
      return all();
    },
    recent: (n) => (Number.isSafeInteger(n) && n > 0 ? all().slice(-n) : []),
    get userContext() {
      return userContext();
    },
    get state() {
      return Object.freeze({
        messages: all(),
        loadedPlugins: Object.freeze([...sources.loadedPlugins()]),
        userContext: userContext(),
      });
    },
    async search(query, { limit = DEFAULT_HITS } = {}) {
      if (typeof query !== 'string' || query.length > MAX_QUERY_CHARS)
        throw new OracleError(refusal('BAD_REQUEST', { message: `A search takes up to ${MAX_QUERY_CHARS} characters.` }));
      const asker = { principalId: run.principalId, roomId: run.roomId, direct: run.direct, runId: run.id };
      const hits = search.find(asker, query, Number.isSafeInteger(limit) && limit > 0 ? limit : 0);
      if (hits.some(({ tainted, tier }) => tainted || tier === null || isBelow(tier, run.tier))) readsForeign();
      return hits.map(({ text, role, sessionId, at }) => ({ text, role, sessionId, at }));
    },
  };
}
