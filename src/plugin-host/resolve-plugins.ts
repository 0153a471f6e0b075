/**
 * Which of the plugins that are there are loaded, in which order, and why the others are not: a pure function of the plugins, the operator's switches
 * and the environment, so that `matrix-oracle plugins` says what `start` would do, and any graph can be tested.
 */
import type { AnyOraclePlugin, PluginEnvironment, PluginManifest } from '../plugin-api/define-oracle-plugin.ts';
import type { Result } from '../result.ts';
import type { BootProblem, BootWarning } from './boot-problem.ts';
import type { LoadedPlugin, PluginStatus } from './plugin-host.ts';

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

/** All problems at once. */
export type ResolvePlugins = (
  candidates: readonly PluginCandidate[],
  features: Features,
  env: PluginEnvironment,
) => Result<PluginPlan, readonly BootProblem[]>;
