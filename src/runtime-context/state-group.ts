/**
 * `rtCtx.state`: the fields that a plugin keeps per thread. They live in the graph's checkpoint, which the agent owns; here they are checked by the
 * plugin's own schema on the way in and out, so that a value of an older version or a mistake of a tool never reaches a plugin as something else.
 * What a tainted run puts there keeps its taint, as in the storage.
 */
import { z } from 'zod';
import { OracleError, refusal } from '../errors.ts';
import { isJsonObject, type JsonObject, jsonBytes } from '../json.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';
import type { PluginState, RuntimeContext } from './runtime-context.ts';

/** What the checkpoint holds of one plugin, under `plugins.<name>`. */
export interface StoredPluginState {
  readonly values: JsonObject;
  /** Written by a run that had read text of strangers; never taken back. */
  readonly tainted: boolean;
}
/** One plugin's place in the graph's state; the agent brings it. */
export interface PluginStatePort {
  /** What is there now, `update`s of this turn included; undefined before the first one ever. */
  get(): StoredPluginState | undefined;
  /** To be merged (`mergePluginState`) and written with the step's checkpoint. */
  update(patch: StoredPluginState): void;
}

/** The reducer of the channel: by field, newest wins; taint stays. Pure. */
export const mergePluginState = (known: StoredPluginState | undefined, patch: StoredPluginState): StoredPluginState => ({
  values: { ...known?.values, ...patch.values },
  tainted: known?.tainted === true || patch.tainted,
});

/** It is written into every checkpoint of the thread (G16). */
export const MAX_STATE_BYTES = 16 * 1024;

export interface StateGroupSources {
  readonly port: PluginStatePort;
  /** The plugin's `stateSchema`; undefined when it has none. */
  readonly schema: z.ZodObject | undefined;
  readonly isTainted: () => boolean;
  readonly readsForeign: () => void;
  readonly redactor: Pick<SecretRedactor, 'holds'>;
}

export function buildStateGroup({ port, schema, isTainted, readsForeign, redactor }: StateGroupSources): RuntimeContext['state'] {
  const read = (values: JsonObject): PluginState => {
    if (schema === undefined) return {};
    const parsed = schema.safeParse(values);
    if (parsed.success) return parsed.data;
    // Field by field: one that no longer fits falls back to its default, the others stay.
    const kept = Object.entries(values).filter(([field, value]) => schema.shape[field]?.safeParse(value).success === true);
    return schema.parse(Object.fromEntries(kept));
  };
  return {
    get() {
      const stored = port.get();
      if (stored?.tainted === true) readsForeign();
      // A copy: what is changed in it without `update` would be there until the next start and then not.
      return Object.freeze(read(structuredClone(stored?.values ?? {})));
    },
    update(patch) {
      if (schema === undefined) throw badRequest('This plugin declares no stateSchema, so it keeps nothing per thread.');
      const parsed = z.strictObject(schema.partial().shape).safeParse(patch);
      if (!parsed.success) throw badRequest(`The state does not fit the plugin's stateSchema: ${describe(parsed.error)}.`);
      // Only what was named: a default of the schema must not overwrite what is there.
      const named = Object.fromEntries(Object.entries(parsed.data).filter(([field]) => Object.hasOwn(patch, field)));
      const json = toJson(named);
      if (json === null) throw badRequest('The state of a plugin is JSON.');
      if (redactor.holds(JSON.stringify(json))) throw badRequest('A secret must not be kept in the state: use the blob store.');
      const merged = mergePluginState(port.get(), { values: json, tainted: isTainted() });
      if (jsonBytes(merged) > MAX_STATE_BYTES) throw badRequest(`The state of a plugin may have ${MAX_STATE_BYTES / 1024} KiB.`);
      port.update({ values: json, tainted: isTainted() });
    },
  };
}

const describe = (error: z.ZodError): string =>
  error.issues
    .slice(0, 3)
    .map(({ path, message }) => `${path.join('.') || 'state'}: ${message}`)
    .join('; ');

function toJson(value: unknown): JsonObject | null {
  try {
    const json: unknown = JSON.parse(JSON.stringify(value));
    return isJsonObject(json) ? json : null;
  } catch {
    return null;
  }
}
const badRequest = (message: string): OracleError => new OracleError(refusal('BAD_REQUEST', { message }));
