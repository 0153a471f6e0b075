/**
 * From names to plugins: those that come with the package, those that an operator names in PLUGINS, those that a program hands in. What is wrong with any of
 * them is told at once and stops the start, because an oracle that runs without a plugin it was told to have is wrong in ways nobody notices.
 */
import { stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import clock from '../../plugins/clock/plugin.ts';
import credits from '../../plugins/credits/plugin.ts';
import { createMcpPlugin } from '../../plugins/mcp/plugin.ts';
import memory from '../../plugins/memory/plugin.ts';
import room from '../../plugins/room/plugin.ts';
import userPreferences from '../../plugins/user-preferences/plugin.ts';
import type { Config } from '../config.ts';
import type { AnyOraclePlugin, PluginManifest } from '../plugin-api/define-oracle-plugin.ts';
import { readPlugin } from '../plugin-api/read-plugin.ts';
import { type BootProblem, BootRefused } from '../plugin-host/boot-problem.ts';
import { buildPluginHost } from '../plugin-host/build-plugin-host.ts';
import type { BootedPlugins, PluginHostOptions } from '../plugin-host/plugin-host.ts';
import { type Features, type PluginCandidate, type PluginPlan, resolvePlugins } from '../plugin-host/resolve-plugins.ts';
import { err, ok, type Result } from '../result.ts';
import type { PluginOptions } from './plugin-options.ts';

/** Some hold connections, so each host has its own. */
const createBundled = (): readonly AnyOraclePlugin[] => [clock, room, memory, userPreferences, credits, createMcpPlugin()];

export interface PluginSettings extends Omit<PluginOptions, 'hooks'> {
  readonly config: Pick<Config, 'features' | 'plugins'>;
  /** Where paths and packages of PLUGINS are looked for; left out: where the process was started. */
  readonly folder?: string;
}

export async function planPlugins(settings: PluginSettings): Promise<Result<PluginPlan, readonly BootProblem[]>> {
  const { config, environment = {}, plugins = [], manifestOverrides = {}, folder = process.cwd() } = settings;
  const features = readFeatures(config.features, settings.features);
  const loaded = await Promise.all(config.plugins.map((name) => loadPlugin(name, folder)));
  const named = loaded.flatMap((one) => (one.ok ? [one.value] : []));
  const candidates = [
    ...createBundled().map((plugin) => buildCandidate(plugin, 'bundled', manifestOverrides)),
    ...[...plugins, ...named].map((plugin) => buildCandidate(plugin, 'given', manifestOverrides)),
  ];
  const problems = [...features.problems, ...loaded.flatMap((one) => (one.ok ? [] : [one.error]))];
  problems.push(...planUnknownOverrides(candidates, manifestOverrides));
  // What could not be loaded would only be missed again by its name.
  if (problems.length > 0) return err(problems);
  return resolvePlugins(candidates, features.value, environment);
}

/** @throws BootRefused with everything that is wrong. */
export async function openPlugins(settings: PluginSettings, options: PluginHostOptions): Promise<BootedPlugins> {
  const { logger } = options;
  const plan = await planPlugins(settings);
  if (!plan.ok) throw new BootRefused(plan.error);
  for (const { code, plugin, message } of plan.value.warnings) logger.warn({ code, plugin, reason: message }, 'about a plugin');
  const host = await buildPluginHost(plan.value, options);
  if (!host.ok) throw new BootRefused(host.error);
  const { loaded, excluded } = plan.value.status;
  for (const { name, reason } of excluded) logger.debug({ plugin: name, reason }, 'a plugin is not loaded');
  logger.info({ count: loaded.length, reason: loaded.map(({ name }) => name).join(' ') }, 'plugins are loaded');
  return host.value;
}

function buildCandidate(
  plugin: AnyOraclePlugin,
  origin: PluginCandidate['origin'],
  manifestOverrides: Readonly<Record<string, Partial<PluginManifest>>>,
): PluginCandidate {
  const { name } = (plugin ?? {}) as { name?: unknown };
  const overrides = typeof name === 'string' && Object.hasOwn(manifestOverrides, name) ? manifestOverrides[name] : undefined;
  return overrides === undefined ? { plugin, origin } : { plugin, origin, overrides };
}

const planUnknownOverrides = (candidates: readonly PluginCandidate[], overrides: Readonly<Record<string, unknown>>): BootProblem[] =>
  Object.keys(overrides)
    .filter((name) => !candidates.some(({ plugin }) => plugin?.name === name))
    .map((name) => ({
      code: 'boot.plugin.unknown',
      plugin: name,
      message: `manifestOverrides names ${quote(name)}, which is no plugin here. Correct the name.`,
    }));

const FEATURE = /^(?<name>[a-z][a-z0-9-]{0,63})=(?<value>on|off|auto)$/u;
const VALUES = { on: true, off: false, auto: 'auto' } as const;

function readFeatures(entries: readonly string[], asked: Features = {}): { readonly value: Features; readonly problems: BootProblem[] } {
  const problems: BootProblem[] = [];
  const features = new Map<string, boolean | 'auto'>(Object.entries(asked));
  const named = new Set<string>();
  const wrong = (message: string) => problems.push({ code: 'boot.plugin.env_invalid', plugin: null, message });
  for (const entry of entries) {
    const { name, value } = FEATURE.exec(entry)?.groups ?? {};
    if (name === undefined || value === undefined) {
      wrong(`FEATURES has an entry that is not <plugin>=<on|off|auto>: ${quote(entry)}. Write it as in memory=off.`);
      continue;
    }
    if (named.has(name)) wrong(`FEATURES names ${name} twice. Leave one of them out.`);
    named.add(name);
    if (features.get(name) !== false) features.set(name, VALUES[value as keyof typeof VALUES]);
  }
  return { value: Object.fromEntries(features), problems };
}

/** A package is looked for where this program lies, then where it was started: for a package of a project both are the same. */
async function loadPlugin(name: string, folder: string): Promise<Result<AnyOraclePlugin, BootProblem>> {
  const found = await findModule(name, folder);
  if (!found.ok) return err({ code: 'boot.plugin.not_found', plugin: null, message: `PLUGINS names ${quote(name)}, which ${found.error}` });
  let exported: unknown;
  try {
    exported = ((await import(found.value)) as { default?: unknown }).default;
  } catch (error) {
    const why = (error instanceof Error ? error.message : String(error)).slice(0, 300);
    const message = `PLUGINS names ${quote(name)}, which cannot be loaded: ${why.replace(/\.$/u, '')}. Correct it, or take it out of PLUGINS.`;
    return err({ code: 'boot.plugin.not_found', plugin: null, message });
  }
  const plugin = readPlugin(exported);
  if (!('faults' in plugin)) return ok(plugin);
  const message = `PLUGINS names ${quote(name)}, whose default export is no plugin: ${plugin.faults.join('; ')}. Export what defineOraclePlugin returns.`;
  return err({ code: 'boot.plugin.invalid', plugin: null, message });
}

const IS_PATH = /^(?:\.{0,2}\/|file:)/u;

/** @returns the end of a sentence when there is none. */
async function findModule(name: string, folder: string): Promise<Result<string, string>> {
  if (IS_PATH.test(name)) {
    const url = name.startsWith('file:') ? URL.parse(name) : pathToFileURL(resolve(folder, name));
    const kind = url === null ? null : await stat(url).catch(() => null);
    if (url === null || kind === null) return err('does not exist. Correct the path, or take it out of PLUGINS.');
    if (kind.isDirectory()) return err('is a folder. Name the file in it, such as plugin.js.');
    return ok(url.href);
  }
  try {
    return ok(import.meta.resolve(name));
  } catch {
    try {
      return ok(pathToFileURL(createRequire(join(folder, 'package.json')).resolve(name)).href);
    } catch {
      if (await isFile(resolve(folder, name))) return err(`is read as the name of a package. Write ./${name} for the file.`);
      return err('is not installed. Install it (npm install), or correct the name.');
    }
  }
}

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
const quote = (text: string): string => JSON.stringify(text.slice(0, 200));
