/** What whoever starts an oracle decides about plugins and models in code, beside the settings: handed through from `startOracle` to host and agent. */
import type { Environment } from '../config.ts';
import type { AnyOraclePlugin, PluginManifest } from '../plugin-api/define-oracle-plugin.ts';
import type { Features } from '../plugin-host/resolve-plugins.ts';

export interface OracleHooks {
  /**
   * Which model answers, as MODEL_MAIN names one (`[provider:]model`); null: the one that was going to. Asked before each call of the role `main`. A name,
   * not a client: what the call costs, its time-out and its stand-ins are the runtime's.
   */
  readonly resolveModel?: (request: { readonly role: 'main'; readonly model: string }) => string | null;
  /** What a group room is called in the prompt; null when it is not known at once. */
  readonly getRoomTitle?: (roomId: string) => string | null;
  /** Not available: checkpoints decide which tools run again (G6), so they are kept by the runtime's own saver. */
  readonly checkpointerForUser?: (userDid: string) => unknown;
  /** Not available. */
  readonly safetyModel?: (request: { readonly role: string }) => unknown;
}
export interface PluginOptions {
  /** Of which each plugin sees what its own schema names. */
  readonly environment?: Environment;
  /** Besides the bundled ones and those of PLUGINS; one with the name of a bundled one takes its place. */
  readonly plugins?: readonly AnyOraclePlugin[];
  /** Off is off, whoever says so: this or FEATURES. Otherwise FEATURES wins. */
  readonly features?: Features;
  /** By plugin name, laid over its manifest. */
  readonly manifestOverrides?: Readonly<Record<string, Partial<PluginManifest>>>;
  readonly hooks?: OracleHooks;
}
