/**
 * What a thread keeps beside its conversation: which plugins the agent has loaded, and the fields that plugins own. It stands in the checkpoint, so
 * it changes in the same step as the tool result that changed it (G5), and a turn reads it once, at its start. Fields belong to a plugin and to the
 * person whose turn it is: in a group others share the thread, not what a plugin remembers of somebody (G13).
 */
import { ReducedValue, StateSchema } from '@langchain/langgraph';
import { z } from 'zod';
import type { PrincipalId } from '../ids.ts';
import type { JsonObject } from '../json.ts';

const stored = z.object({
  values: z.record(z.string(), z.unknown()),
  /** Written by a run that had read text of strangers; never taken back. */
  tainted: z.boolean(),
});
/** By plugin, by person. */
const pluginStates = z.record(z.string(), z.record(z.string(), stored));
type PluginStates = z.infer<typeof pluginStates>;
const loadedPlugins = z.array(z.string());

/** Of one plugin in one thread; whoever wrote longest ago is forgotten (G14). */
const MAX_PERSONS = 100;
const MAX_LOADED = 1_000;

/** Channels of the graph: a set that only grows, and fields that are merged one by one. */
export const THREAD_CHANNELS = new StateSchema({
  loadedPlugins: new ReducedValue(
    loadedPlugins.default(() => []),
    { inputSchema: loadedPlugins, reducer: (known: string[], more: string[]) => [...new Set([...known, ...more])].slice(0, MAX_LOADED) },
  ),
  plugins: new ReducedValue(
    pluginStates.default(() => ({})),
    { inputSchema: pluginStates, reducer: mergeStates },
  ),
});
export type ThreadUpdate = { readonly loadedPlugins?: string[]; readonly plugins?: PluginStates };

function mergeStates(known: PluginStates, more: PluginStates): PluginStates {
  const merged = { ...known };
  for (const [plugin, persons] of Object.entries(more)) {
    const kept = { ...merged[plugin] };
    for (const [person, patch] of Object.entries(persons)) {
      const before = kept[person];
      // Moved to the end: it is the newest.
      delete kept[person];
      kept[person] = { values: { ...before?.values, ...patch.values }, tainted: before?.tainted === true || patch.tainted };
    }
    merged[plugin] = Object.fromEntries(Object.entries(kept).slice(-MAX_PERSONS));
  }
  return merged;
}

export interface StoredState {
  readonly values: JsonObject;
  readonly tainted: boolean;
}
/** Of one turn: what the checkpoint held, with what this turn has changed. */
export interface ThreadState {
  readonly loadedPlugins: ReadonlySet<string>;
  stateOf(plugin: string): StoredState | undefined;
  /** Returns what was new. `call` is the call of the main loop whose result takes the change into the checkpoint. */
  load(names: readonly string[], call: string): readonly string[];
  patch(plugin: string, patch: StoredState, call: string): void;
  /** What a call has changed, once. */
  takeUpdate(call: string): ThreadUpdate | null;
  /** Whether anything outlives the turn. */
  readonly isEmpty: boolean;
}

/**
 * What does not fit was written by no release of ours and counts as absent.
 * @param values channels of the checkpoint.
 */
export function createThreadState(
  values: Readonly<Record<string, unknown>> = {},
  { principal, pending = [] }: { principal: PrincipalId; pending?: readonly (readonly [string, string, unknown])[] | undefined },
): ThreadState {
  const read = <T>(channel: string, schema: z.ZodType<T>): T[] =>
    [values[channel], ...pending.filter(([, name]) => name === channel).map(([, , value]) => value)].flatMap((value) => {
      const parsed = schema.safeParse(value);
      return parsed.success ? [parsed.data] : [];
    });
  let loaded: ReadonlySet<string> = new Set(read('loadedPlugins', loadedPlugins).flat());
  let current: PluginStates = read('plugins', pluginStates).reduce(mergeStates, {});
  const updates = new Map<string, ThreadUpdate>();
  return {
    get loadedPlugins() {
      return loaded;
    },
    stateOf: (plugin) => current[plugin]?.[principal] as StoredState | undefined,
    load(wanted, call) {
      const added = wanted.filter((name) => !loaded.has(name));
      if (added.length === 0) return added;
      loaded = new Set([...loaded, ...added]);
      const before = updates.get(call);
      updates.set(call, { ...before, loadedPlugins: [...(before?.loadedPlugins ?? []), ...added] });
      return added;
    },
    patch(plugin, patch, call) {
      const more = { [plugin]: { [principal]: { values: { ...patch.values }, tainted: patch.tainted } } };
      current = mergeStates(current, more);
      const before = updates.get(call);
      updates.set(call, { ...before, plugins: mergeStates(before?.plugins ?? {}, more) });
    },
    takeUpdate(call) {
      const update = updates.get(call) ?? null;
      updates.delete(call);
      return update;
    },
    get isEmpty() {
      return loaded.size === 0 && Object.keys(current).length === 0;
    },
  };
}
