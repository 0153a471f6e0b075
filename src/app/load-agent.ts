/**
 * The agent libraries take over a second and most of the memory, so they are loaded after the listeners are up and the homeserver has its
 * 200s: what arrives meanwhile waits in the inbox (issue "listen first, load the agent after"). Runs start when this resolves.
 */

import { createMainRunner, type MainRunner } from '../agent/main-agent.ts';
import type { Spending } from '../agent/spending.ts';
import type { Config, Environment } from '../config.ts';
import { parseDid } from '../ids.ts';
import { createModels, type ModelSettings, type Models } from '../models/models.ts';
import { readModelSettings } from '../models/read-model-settings.ts';
import type { Logger } from '../observe/logger.ts';
import type { PluginHost } from '../plugin-host/plugin-host.ts';
import { createToolMarks } from '../runs/tool-marks.ts';
import type { ContextServices } from '../runtime-context/build-runtime-context.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import { createSummaries } from '../sessions/summaries.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { AbilityToAsk } from '../sidecar/routes/authorise.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { writeAudit } from '../turn/audit.ts';
import type { Links } from '../turn/links.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import type { Downstream } from '../ucan/downstream.ts';
import { buildResolvedModels } from './build-resolved-models.ts';
import type { OracleHooks } from './plugin-options.ts';
import { StartRefused } from './start-refused.ts';

export interface LoadAgentOptions {
  readonly config: Config;
  readonly host: PluginHost;
  readonly services: ContextServices;
  readonly spending: Spending;
  /** Roles and providers of models are read from it; left out: one model for all roles. */
  readonly environment?: Environment;
  readonly hooks?: OracleHooks;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transcript: Transcript;
  readonly matrix: MatrixAccess;
  readonly links: Pick<Links, 'of'>;
  readonly authority: RunAuthority;
  readonly downstream: Downstream;
  readonly checkpointFolder: string;
  readonly chance: () => number;
}
export interface Agent {
  readonly runner: MainRunner;
  readonly models: Models;
  /** What its tools need people to grant. */
  readonly abilitiesToAsk: readonly AbilityToAsk[];
}

export function loadAgent(options: LoadAgentOptions): Agent {
  const { config, logger, store, clock, host, hooks = {} } = options;
  const configured = createModels({ clock, logger, idleTimeoutMs: config.modelIdleTimeoutS * 1_000, ...readModels(options) });
  const { resolveModel, getRoomTitle } = hooks;
  const models = resolveModel === undefined ? configured : buildResolvedModels(configured, resolveModel);
  const runner = createMainRunner({
    clock,
    logger,
    transcript: options.transcript,
    marks: createToolMarks({ store, clock }),
    models,
    host,
    services: options.services,
    spending: options.spending,
    matrix: options.matrix,
    authority: options.authority,
    downstream: options.downstream,
    audit: (entry) => store.write((tx) => writeAudit(store, tx, entry)),
    checkpointFolder: options.checkpointFolder,
    oracleName: config.oracleName,
    names: { room: (room) => getRoomTitle?.(room) ?? null, speaker: (principal) => nameSpeaker(principal, options.links) },
    contextMessages: config.contextMessages,
    contextTokens: config.modelContextTokens,
    summaries: createSummaries({ store, transcript: options.transcript, clock }),
    chance: options.chance,
  });
  return { runner, models, abilitiesToAsk: planAbilitiesToAsk(host) };
}

function readModels({ environment, config }: Pick<LoadAgentOptions, 'environment' | 'config'>): ModelSettings {
  if (environment === undefined) {
    const { openaiBaseUrl: baseUrl, openaiApiKey: apiKey, modelMain: main, modelsSelectable: selectable } = config;
    return { baseUrl, ...(apiKey === undefined ? {} : { apiKey }), roles: { main }, selectable };
  }
  const settings = readModelSettings(environment);
  if (settings.ok) return settings.value;
  throw new StartRefused(
    `the models are not set up:\n${settings.error.map(({ message, remedy }) => `  ✗ ${message} ${remedy}`).join('\n')}`,
  );
}

/** One entry for each ability, whichever tools need it, those of sub-agents among them. */
function planAbilitiesToAsk({ plugins, tools, subAgents }: Pick<PluginHost, 'plugins' | 'tools' | 'subAgents'>): AbilityToAsk[] {
  const titles = new Map(plugins.map(({ name, manifest }) => [name, manifest.title]));
  const asked = new Map<string, AbilityToAsk>();
  for (const { plugin, definition } of [...tools.values(), ...[...subAgents.values()].flatMap((agent) => [...agent.tools.values()])]) {
    const { capability } = definition;
    if (capability === undefined) continue;
    const { action: can, resource } = capability;
    asked.set(`${can} ${resource}`, { can, with: resource, title: `${titles.get(plugin) ?? plugin}: ${definition.name}` });
  }
  return [...asked.values()];
}

/** In a group the model may repeat how people are named to it, and nobody's DID is said in public (DESIGN §5): signed speakers have their account's name. */
function nameSpeaker(principal: string, links: Pick<Links, 'of'>): string | null {
  const did = parseDid(principal);
  return did.ok ? (links.of(did.value)?.userId ?? 'somebody') : null;
}
