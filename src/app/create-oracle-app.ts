/**
 * An oracle inside somebody's own program: the same start as the command line's, with plugins, switches and hooks in code. What is wrong with settings or plugins
 * is thrown before anything listens. The agent library and the listeners are loaded by `start`, so that a program that only asks stays light.
 */

import type { configSchema } from '../config/fields.ts';
import { readEnvironment } from '../config.ts';
import { NotAvailableError } from '../errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { BootRefused } from '../plugin-host/boot-problem.ts';
import type { PluginStatus } from '../plugin-host/plugin-host.ts';
import { systemClock } from '../system-clock.ts';
import { configError } from './cli/cli-error.ts';
import { loadConfig } from './load-config.ts';
import { planPlugins } from './load-plugins.ts';
import type { Oracle } from './main.ts';
import type { PluginOptions } from './plugin-options.ts';
import { StartRefused } from './start-refused.ts';

export type { Features } from '../plugin-host/resolve-plugins.ts';
export type { OracleHooks, PluginOptions } from './plugin-options.ts';
export type { Oracle, PluginStatus };
export { BootRefused, StartRefused };

/** Settings by their names in docs/configuration.md, and those of plugins. */
export type OracleSettings = { readonly [Name in keyof typeof configSchema.shape]?: string | undefined } & Readonly<
  Record<string, string | undefined>
>;

export interface OracleAppOptions extends Omit<PluginOptions, 'environment'> {
  /** Laid over the environment and `.env`, from which everything else is read. */
  readonly config?: OracleSettings;
  /** Left out: JSON lines at LOG_LEVEL. */
  readonly logger?: Logger;
}
export interface OracleApp {
  readonly plugins: {
    /** Which are loaded and why, and why the others are not. */
    status(): PluginStatus;
  };
  /** Resolves when messages of the homeserver are taken; `ready` of what it returns when they are answered. Once. */
  start(): Promise<Oracle>;
}

/** @throws StartRefused for settings, BootRefused for plugins, NotAvailableError for a hook that cannot do anything yet. */
export async function createOracleApp({
  config: settings = {},
  logger: given,
  hooks = {},
  ...options
}: OracleAppOptions = {}): Promise<OracleApp> {
  for (const hook of ['checkpointerForUser', 'safetyModel'] as const)
    if (hooks[hook] !== undefined) throw new NotAvailableError(`hooks.${hook}`);
  const loaded = await loadConfig({ environment: { ...readEnvironment(), ...settings } });
  if (!loaded.ok) throw new StartRefused(configError(loaded.error).message);
  const { config, environment, warnings } = loaded.value;
  const plan = await planPlugins({ ...options, config, environment });
  if (!plan.ok) throw new BootRefused(plan.error);
  const logger = given ?? createLogger({ level: config.logLevel, format: 'json' });
  for (const { message, remedy } of warnings) logger.warn({ reason: `${message} ${remedy}` }, 'setting without effect');
  let started = false;
  return {
    plugins: { status: () => plan.value.status },
    async start() {
      if (started) throw new Error('this oracle was started already: make another one');
      started = true;
      const { startOracle } = await import('./main.ts');
      const start = { ...options, hooks, environment, config, logger, clock: systemClock };
      return startOracle(start);
    },
  };
}
