/**
 * Which of the plugins that are there are loaded, in which order, and why the others are not: a pure function of the plugins, the operator's switches
 * and the environment, so that `matrix-oracle plugins` says what `start` would do, and any graph can be tested. All that is wrong is said at once.
 */
import { describeConfig } from '../config.ts';
import type { AnyOraclePlugin, PluginEnvironment, PluginManifest } from '../plugin-api/define-oracle-plugin.ts';
import { readPlugin } from '../plugin-api/read-plugin.ts';
import { err, ok, type Result } from '../result.ts';
import type { BootProblem, BootWarning } from './boot-problem.ts';
import { type CompleteManifest, planManifestWarnings, readManifest } from './check-manifest.ts';
import type { LoadedPlugin, PluginStatus } from './plugin-host.ts';
import { readOwnConfig } from './read-own-config.ts';

/** `false` wins over everything; `true` makes it an error that the plugin cannot work; `auto` lets it decide. */
export type Features = Readonly<Record<string, boolean | 'auto'>>;

export interface PluginCandidate {
  readonly plugin: AnyOraclePlugin;
  /** A given one takes the place of a bundled one of the same name. */
  readonly origin: 'bundled' | 'given';
  /** Laid over the manifest before it is checked. */
  readonly overrides?: Partial<PluginManifest>;
}
export interface PluginPlan {
  /** Each after what it depends on, otherwise in the order of the candidates. */
  readonly loaded: readonly LoadedPlugin[];
  readonly status: PluginStatus;
  readonly warnings: readonly BootWarning[];
}

type Verdict = { readonly on: true; readonly because: string } | { readonly on: false; readonly reason: string };
interface Notes {
  readonly problems: BootProblem[];
  readonly warnings: BootWarning[];
}

export function resolvePlugins(
  candidates: readonly PluginCandidate[],
  features: Features,
  env: PluginEnvironment,
): Result<PluginPlan, readonly BootProblem[]> {
  const notes: Notes = { problems: [], warnings: [] };
  const known = pickByName(candidates, notes);
  for (const name of Object.keys(features)) {
    if (known.has(name)) continue;
    const message = `FEATURES names ${quote(name)}, which is no plugin here. Correct the name, or add the plugin to PLUGINS.`;
    notes.problems.push({ code: 'boot.plugin.unknown', plugin: name, message });
  }
  const verdicts = new Map(
    [...known].map(([name, candidate]) => [
      name,
      decideOwn(candidate, features[name] ?? 'auto', { env: buildVisible(candidate, known, env), notes }),
    ]),
  );
  cascade(known, { verdicts, features, notes });
  const chosen = [...known.values()].filter(({ plugin }) => verdicts.get(plugin.name)?.on === true);
  const ordered = order(chosen, { known, notes });
  const loaded = ordered.flatMap((candidate) => load(candidate, env, notes) ?? []);
  planSharedVariables(loaded, notes);
  planSharedTitles(loaded, notes);
  if (notes.problems.length > 0) return err(notes.problems);
  return ok({ loaded, status: buildStatus(loaded, known, { verdicts, notes }), warnings: notes.warnings });
}

/** One candidate a name, in the place where the name came first. */
function pickByName(candidates: readonly PluginCandidate[], { problems }: Notes): Map<string, PluginCandidate> {
  const known = new Map<string, PluginCandidate>();
  for (const candidate of candidates) {
    const read = readPlugin(candidate.plugin);
    if ('faults' in read) {
      const name: unknown = (candidate.plugin as { name?: unknown } | null)?.name;
      const shown = typeof name === 'string' ? name.slice(0, 64) : null;
      problems.push(...read.faults.map((fault) => invalid(shown, fault)));
      continue;
    }
    const { name } = candidate.plugin;
    const other = known.get(name);
    if (other === undefined || (other.origin === 'bundled' && candidate.origin === 'given')) known.set(name, candidate);
    else if (other.origin === candidate.origin) {
      const message = `Two plugins are called ${name}. Take one of them out of PLUGINS.`;
      problems.push({ code: 'boot.plugin.duplicate', plugin: name, message });
    }
  }
  return known;
}
const invalid = (plugin: string | null, fault: string): BootProblem => ({
  code: 'boot.plugin.invalid',
  plugin,
  message: `Plugin ${plugin ?? 'without a name'} cannot be used: ${fault}. Correct it, or take it out of PLUGINS.`,
});

const OWN_SECRETS: ReadonlySet<string> = new Set(describeConfig().flatMap(({ name, secret }) => (secret === true ? [name] : [])));

const variablesOf = ({ plugin }: PluginCandidate): readonly string[] => Object.keys(plugin.configSchema?.shape ?? {});

/** What a plugin may look at to decide whether it can work: neither secrets of the oracle nor what only others read (G12). */
function buildVisible(own: PluginCandidate, known: ReadonlyMap<string, PluginCandidate>, env: PluginEnvironment): PluginEnvironment {
  const mine = new Set(variablesOf(own));
  const hidden = new Set([...OWN_SECRETS, ...[...known.values()].flatMap(variablesOf)].filter((name) => !mine.has(name)));
  return Object.freeze(Object.fromEntries(Object.entries(env).filter(([name]) => !hidden.has(name))));
}

function decideOwn(
  { plugin }: PluginCandidate,
  feature: boolean | 'auto',
  { env, notes }: { env: PluginEnvironment; notes: Notes },
): Verdict {
  if (feature === false) return { on: false, reason: 'switched off' };
  if (plugin.autoDetect === undefined) return { on: true, because: feature === true ? 'switched on' : 'on unless switched off' };
  const hint = plugin.autoDetectHint === undefined ? '' : `: ${plugin.autoDetectHint}`;
  let detected: boolean;
  try {
    detected = plugin.autoDetect(env) === true;
  } catch (error) {
    notes.problems.push(hookFailed(plugin.name, 'autoDetect', error));
    return { on: false, reason: 'autoDetect failed' };
  }
  if (detected) return { on: true, because: feature === true ? 'switched on' : 'it is configured' };
  if (feature === true) {
    const message = `Plugin ${plugin.name} is switched on, but it is not configured${hint}. Set what it needs, or switch it off in FEATURES.`;
    notes.problems.push({ code: 'boot.plugin.env_missing', plugin: plugin.name, message });
  }
  return { on: false, reason: `not configured${hint}` };
}

export const hookFailed = (plugin: string, hook: string, error: unknown): BootProblem => ({
  code: 'boot.plugin.hook_failed',
  plugin,
  message: `Plugin ${plugin} cannot start, ${hook} failed: ${(error instanceof Error ? error.message : String(error)).slice(0, 200)}. Correct it, or switch it off in FEATURES.`,
});

interface Graph {
  readonly verdicts: Map<string, Verdict>;
  readonly features: Features;
  readonly notes: Notes;
}
/** Until nothing changes: whatever needs what is off is off. */
function cascade(known: ReadonlyMap<string, PluginCandidate>, { verdicts, features, notes }: Graph): void {
  for (let changed = true; changed; ) {
    changed = false;
    for (const { plugin } of known.values()) {
      const missing = (plugin.dependsOn ?? []).find((need) => verdicts.get(need)?.on === false);
      if (verdicts.get(plugin.name)?.on !== true || missing === undefined) continue;
      verdicts.set(plugin.name, { on: false, reason: `it needs ${missing}, which is not loaded` });
      changed = true;
      if (features[plugin.name] === true) {
        const message = `Plugin ${plugin.name} is switched on, but it needs ${missing}, which is not loaded. Switch ${missing} on as well, or ${plugin.name} off.`;
        notes.problems.push({ code: 'boot.plugin.dep_missing', plugin: plugin.name, message });
      } else {
        const message = `Plugin ${plugin.name} is not loaded because it needs ${missing}.`;
        notes.warnings.push({ code: 'boot.plugin.cascaded_off', plugin: plugin.name, message });
      }
    }
  }
}

/** The first that has everything it needs goes next, so that what needs nothing stays where it was. */
function order(
  chosen: readonly PluginCandidate[],
  { known, notes }: { known: ReadonlyMap<string, PluginCandidate>; notes: Notes },
): readonly PluginCandidate[] {
  for (const { plugin } of chosen) {
    for (const need of (plugin.dependsOn ?? []).filter((name) => !known.has(name))) {
      const message = `Plugin ${plugin.name} needs ${quote(need)}, which is no plugin here. Add it to PLUGINS, or switch ${plugin.name} off in FEATURES.`;
      notes.problems.push({ code: 'boot.plugin.dep_missing', plugin: plugin.name, message });
    }
  }
  const names = new Set(chosen.map(({ plugin }) => plugin.name));
  const placed = new Map<string, PluginCandidate>();
  const rest = [...chosen];
  for (;;) {
    const next = rest.findIndex(({ plugin }) => (plugin.dependsOn ?? []).every((need) => placed.has(need) || !names.has(need)));
    if (next === -1) break;
    for (const candidate of rest.splice(next, 1)) placed.set(candidate.plugin.name, candidate);
  }
  if (rest.length > 0) notes.problems.push(...planCycles(rest.map(({ plugin }) => plugin)));
  return [...placed.values()];
}

/** What is left has each a need that is left as well: following it comes back. Each circle is named once. */
function planCycles(rest: readonly AnyOraclePlugin[]): BootProblem[] {
  const left = new Map(rest.map((plugin) => [plugin.name, plugin]));
  const told = new Set<string>();
  return rest.flatMap(({ name: start }) => {
    const path: string[] = [];
    for (let name: string | undefined = start; name !== undefined && !told.has(name); ) {
      const from = path.indexOf(name);
      if (from !== -1) {
        const circle = path.slice(from);
        for (const member of circle) told.add(member);
        const message = `These plugins need each other: ${[...circle, name].join(' → ')}. Switch one of them off in FEATURES.`;
        return [{ code: 'boot.plugin.cycle' as const, plugin: name, message }];
      }
      path.push(name);
      name = left.get(name)?.dependsOn?.find((need) => left.has(need));
    }
    return [];
  });
}

function load({ plugin, overrides }: PluginCandidate, env: PluginEnvironment, { problems, warnings }: Notes): LoadedPlugin | null {
  const { name, version } = plugin;
  const manifest = readManifest({ ...plugin.manifest, ...overrides });
  if (!manifest.ok) {
    for (const fault of manifest.error) {
      const where = overrides === undefined ? 'in the plugin' : 'in the plugin or in manifestOverrides';
      problems.push({
        code: 'boot.plugin.manifest_invalid',
        plugin: name,
        message: `The manifest of plugin ${name} is not valid: ${fault}. Correct it ${where}.`,
      });
    }
  } else {
    for (const warning of planManifestWarnings(manifest.value))
      warnings.push({ code: 'boot.plugin.manifest', plugin: name, message: `In the manifest of plugin ${name}, ${warning}.` });
  }
  const config = readOwnConfig(plugin, env);
  if (!config.ok) problems.push(...config.error);
  return manifest.ok && config.ok ? { name, version, manifest: manifest.value, config: config.value, plugin } : null;
}

/** A value that two read is one that an operator changes for one and breaks the other; of the oracle's own, a secret may go astray. */
function planSharedVariables(loaded: readonly LoadedPlugin[], { warnings }: Notes): void {
  const readers = new Map<string, string>();
  for (const { name, plugin } of loaded) {
    for (const variable of Object.keys(plugin.configSchema?.shape ?? {})) {
      const other = readers.get(variable) ?? (OWN_SECRETS.has(variable) ? 'the oracle itself' : undefined);
      readers.set(variable, name);
      if (other === undefined) continue;
      const by = other === 'the oracle itself' ? other : `plugin ${other}`;
      warnings.push({ code: 'boot.plugin.shared_variable', plugin: name, message: `Plugin ${name} reads ${variable}, as does ${by}.` });
    }
  }
}

function planSharedTitles(loaded: readonly { readonly name: string; readonly manifest: CompleteManifest }[], { warnings }: Notes): void {
  const titles = new Map<string, string>();
  for (const { name, manifest } of loaded) {
    const other = titles.get(manifest.title);
    titles.set(manifest.title, name);
    if (other !== undefined)
      warnings.push({ code: 'boot.plugin.manifest', plugin: name, message: `Plugins ${other} and ${name} have the same title.` });
  }
}

function buildStatus(
  loaded: readonly LoadedPlugin[],
  known: ReadonlyMap<string, PluginCandidate>,
  { verdicts, notes: { warnings } }: Pick<Graph, 'verdicts' | 'notes'>,
): PluginStatus {
  const names = new Set(loaded.map(({ name }) => name));
  const softGaps = loaded.flatMap(({ name, plugin }) =>
    (plugin.softDependsOn ?? []).filter((wish) => !names.has(wish)).map((missing) => ({ plugin: name, missing })),
  );
  for (const { plugin, missing } of softGaps)
    warnings.push({ code: 'boot.plugin.soft_gap', plugin, message: `Plugin ${plugin} works without ${missing}, with less.` });
  return {
    loaded: loaded.map(({ name, version, manifest: { visibility } }) => {
      const verdict = verdicts.get(name);
      const because = verdict?.on === true ? verdict.because : '';
      return { name, version, visibility, origin: known.get(name)?.origin ?? 'bundled', because };
    }),
    excluded: [...verdicts].flatMap(([name, verdict]) => (verdict.on ? [] : [{ name, reason: verdict.reason }])),
    softGaps,
  };
}

const quote = (name: string): string => JSON.stringify(name.slice(0, 64));
