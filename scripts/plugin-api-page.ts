/** docs/plugin-api.md: the types that authors see, from the source, and where each hook fires. A hook without a row here does not compile. */
import { join } from 'node:path';
import { LIMITS } from '../src/limits.ts';
import type { AnyOraclePlugin } from '../src/plugin-api/define-oracle-plugin.ts';
import { type Declaration, readDeclarations } from './read-declarations.ts';

type Hook = Extract<keyof AnyOraclePlugin, `get${string}` | 'autoDetect' | 'close'>;
interface HookRow {
  readonly fires: string;
  readonly bound: string;
  /** What becomes of it when it throws or comes too late. */
  readonly fails: string;
}

const seconds = (ms: number): string => `${ms / 1_000} s`;
const BOOT = { bound: `${seconds(LIMITS.pluginBootHookMs)}, once`, fails: 'logged; what it would have brought is missing' };
const STOPS = { bound: 'at once, once', fails: 'stops the start and is named' };
const TURN = { bound: `${seconds(LIMITS.pluginHookMs)}, once per turn`, fails: 'logged; missing in this turn' };
const HOOKS: Record<Hook, HookRow> = {
  autoDetect: {
    fires: 'at the start, unless the operator switched the plugin on or off',
    bound: 'at once',
    fails: 'stops the start and is named',
  },
  getTools: { fires: 'at the start, in the order of dependencies', ...BOOT },
  getSubAgents: { fires: 'at the start, after `getTools`', ...BOOT },
  getMiddlewares: { fires: 'at the start, after `getSubAgents`', ...BOOT },
  getSharedState: {
    fires: 'at the start; the readers it returns fire whenever somebody reads `ctx.shared.<key>`',
    ...STOPS,
    fails: `${STOPS.fails}; a reader that throws is logged and read as undefined`,
  },
  getCreditPolicy: { fires: 'at the start; its `priceOf` after each model call', ...STOPS },
  getRoutes: { fires: 'at the start, when the sidecar registers its routes', ...STOPS },
  getAuthExcludedRoutes: { fires: 'at the start, with `getRoutes`', ...STOPS },
  getUserContext: { fires: 'before the first model call of a turn', ...TURN },
  getRequestTools: { fires: 'at the same time', ...TURN },
  getRequestSubAgents: { fires: 'at the same time', ...TURN },
  getPromptContribution: { fires: 'after `getUserContext` of all plugins, before the first model call', ...TURN },
  close: { fires: 'when the oracle stops, or a start that began fails', bound: seconds(LIMITS.pluginCloseMs), fails: 'logged' },
};
const IN_THE_LOOP: readonly (readonly [string, string, string])[] = [
  ['`beforeAgent`, `afterAgent`', 'a middleware', 'around the whole loop of a turn, and of each sub-agent'],
  ['`beforeModel`', 'a middleware', 'before each model call, first plugin first'],
  ['`wrapModelCall`', 'a middleware', 'around each model call; the first plugin is the outermost, inside the host’s own guards'],
  ['`afterModel`', 'a middleware', 'after each model call, last plugin first'],
  ['`wrapToolCall`', 'a middleware', 'around each tool call that the host’s guards let through'],
  ['`handler`', 'a tool', `when the model calls it and its arguments fit; ${seconds(LIMITS.toolTimeoutMs)} at most`],
  ['`systemPrompt`', 'a sub-agent', 'when the model calls `call_<name>`'],
  ['route handlers', '`getRoutes`', `for each request, after the host has verified who sent it; ${seconds(LIMITS.pluginRouteMs)} at most`],
];

const ENTRIES = [
  { name: 'matrix-oracle', path: 'src/index.ts', about: 'What plugins import.' },
  { name: 'matrix-oracle/testing', path: 'src/testing.ts', about: 'What their tests import.' },
  { name: 'matrix-oracle/app', path: 'src/app/create-oracle-app.ts', about: 'An oracle inside a program of your own.' },
] as const;

const cell = (text: string): string => text.replaceAll('|', '\\|');
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.map(cell).join(' | ')} |`).join('\n');

export async function buildPluginApiPage(root: string): Promise<string> {
  const sections = await Promise.all(
    ENTRIES.map(async ({ name, path, about }) => {
      const declarations = await readDeclarations(join(root, path));
      return `## \`${name}\`\n\n${about}\n\n${declarations.map(buildDeclaration).join('\n')}`;
    }),
  );
  return `<!-- Generated from src/index.ts and what it exports by \`npm run generate\`. Do not edit. -->
# Plugin API

Everything a plugin imports, as it stands in the types. [plugins.md](plugins.md) is the way in; this page is for looking things up.

## Hooks

A plugin brings the hooks it needs. Boot hooks are given a \`PluginContext\`, hooks of a turn a \`RuntimeContext\` of this plugin and of the person who asks.

${table(
  ['Hook', 'Fires', 'Bound', 'When it throws or is late'],
  Object.entries(HOOKS).map(([hook, { fires, bound, fails }]) => [`\`${hook}\``, fires, bound, fails]),
)}

In the loop of model and tools, in sub-agents as well:

${table(['What', 'Of', 'Fires'], IN_THE_LOOP)}

The host’s own guards stand outside of all plugins: capability gate, validation of arguments, repetition guard, room in the context. A middleware’s hook
that throws is logged with its plugin and left out; the call goes on without it. A handler that throws becomes a message to the model.

${sections.join('\n')}`;
}

function buildDeclaration({ name, comment, text }: Declaration): string {
  return `### \`${name}\`\n\n${comment === '' ? '' : `${comment}\n\n`}\`\`\`ts\n${text}\n\`\`\`\n`;
}
