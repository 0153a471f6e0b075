/**
 * The agent libraries take over a second and most of the memory, so they are loaded after the listeners are up and the homeserver has its
 * 200s: what arrives meanwhile waits in the inbox (issue "listen first, load the agent after"). Runs start when this resolves.
 */

import clock from '../../plugins/clock/plugin.ts';
import room from '../../plugins/room/plugin.ts';
import { createMainRunner, type MainRunner } from '../agent/main-agent.ts';
import type { Config } from '../config.ts';
import { parseDid } from '../ids.ts';
import { createModels, type Models } from '../models/models.ts';
import type { Logger } from '../observe/logger.ts';
import type { AnyOraclePlugin, CreditPolicy } from '../plugin-api/define-oracle-plugin.ts';
import { buildPluginRegistry, type PluginRegistry } from '../plugin-host/plugin-registry.ts';
import { createToolMarks } from '../runs/tool-marks.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { AbilityToAsk } from '../sidecar/routes/authorise.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { writeAudit } from '../turn/audit.ts';
import type { Links } from '../turn/links.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import type { Downstream } from '../ucan/downstream.ts';
import { StartRefused } from './start-refused.ts';

export interface LoadAgentOptions {
  readonly config: Config;
  /** Besides the built-in ones. */
  readonly plugins: readonly AnyOraclePlugin[];
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
  /** Null: everybody is answered for nothing. */
  readonly creditPolicy: CreditPolicy | null;
}

export function loadAgent(options: LoadAgentOptions): Agent {
  const { config, logger, store } = options;
  const registry = buildPluginRegistry([clock, room, ...options.plugins], {});
  if (!registry.ok) throw new StartRefused(`the plugins do not fit together: ${registry.error.join('; ')}.`);
  const models = createModels({
    clock: options.clock,
    baseUrl: config.openaiBaseUrl,
    // The client insists on a key; servers that need none ignore it.
    apiKey: config.openaiApiKey?.reveal() ?? 'none',
    roles: { main: config.modelMain },
    idleTimeoutMs: config.modelIdleTimeoutS * 1_000,
  });
  const runner = createMainRunner({
    clock: options.clock,
    logger,
    transcript: options.transcript,
    marks: createToolMarks({ store, clock: options.clock }),
    models,
    registry: registry.value,
    matrix: options.matrix,
    authority: options.authority,
    downstream: options.downstream,
    audit: (entry) => store.write((tx) => writeAudit(store, tx, entry)),
    checkpointFolder: options.checkpointFolder,
    oracleName: config.oracleName,
    names: { room: () => null, speaker: (principal) => nameSpeaker(principal, options.links) },
    contextMessages: config.contextMessages,
    chance: options.chance,
  });
  return { runner, models, abilitiesToAsk: planAbilitiesToAsk(registry.value), creditPolicy: null };
}

/** One entry for each ability, whichever tools need it. */
function planAbilitiesToAsk({ plugins, tools }: PluginRegistry): AbilityToAsk[] {
  const titles = new Map(plugins.map(({ name, manifest }) => [name, manifest.title]));
  const asked = new Map<string, AbilityToAsk>();
  for (const { plugin, definition } of tools.values()) {
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
