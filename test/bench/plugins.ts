/**
 * What plugins cost: a start with 50 plugins of 10 tools (in a process that has done it never before, as every start is, and again when the compiler
 * knows it), the context that each tool call is given, and what each model call needs of 500 tools of which 20 are loaded.
 */
import { z } from 'zod';
import { buildSystemPrompt } from '../../src/agent/prompt.ts';
import { createToolBinder, createToolSet } from '../../src/agent/tool-set.ts';
import { createModels } from '../../src/models/models.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { type AnyOraclePlugin, defineOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { defineTool } from '../../src/plugin-api/define-tool.ts';
import type { PluginHost } from '../../src/plugin-host/plugin-host.ts';
import { buildRuntimeContext } from '../../src/runtime-context/build-runtime-context.ts';
import { openStore } from '../../src/store/store.ts';
import { systemClock } from '../../src/system-clock.ts';
import { fakeServices } from '../fakes/context-services.ts';
import { hostOf } from '../fakes/plugin-host.ts';
import { fakeRun, noDownstream, noMatrix } from '../unit/agent/turn-fixture.ts';
import { median, round } from './measure.ts';

const PLUGINS = 50;
const TOOLS = 10;
/** Of 10 tools each. */
const LOADED = new Set(['plugin0', 'plugin1']);
const BOOTS = 9;
const WARM_UP = 200;
const ROUNDS = 2_000;

export async function benchPlugins(onProgress: (line: string) => void): Promise<Record<string, number>> {
  onProgress(`starts with ${PLUGINS} plugins of ${TOOLS} tools`);
  const boots: { readonly ms: number; readonly cpu: number }[] = [];
  const defined: number[] = [];
  let host: PluginHost | undefined;
  for (let n = 0; n < BOOTS; n += 1) {
    // Plugins define their tools when their files are loaded, before the host sees them; the schemas are new to it each time.
    const start = performance.now();
    const plugins = buildPlugins();
    defined.push(performance.now() - start);
    const [before, used] = [performance.now(), process.cpuUsage()];
    host = await hostOf(plugins);
    const { user, system } = process.cpuUsage(used);
    boots.push({ ms: performance.now() - before, cpu: (user + system) / 1_000 });
  }
  if (host === undefined || host.tools.size !== PLUGINS * TOOLS) throw new Error('a tool is missing');
  onProgress('contexts');
  const context = benchContext(host);
  onProgress('model calls');
  const calls = await benchModelCalls(host);
  const [first = { ms: Number.NaN, cpu: Number.NaN }, ...further] = boots;
  return {
    boot_50_plugins_ms: round(first.ms),
    // Beside it on a busy machine: threads that compile and collect included.
    boot_50_plugins_cpu_ms: round(first.cpu),
    boot_50_plugins_warm_ms: round(median(further.map(({ ms }) => ms))),
    define_500_tools_ms: round(defined[0] ?? Number.NaN),
    ...context,
    ...calls,
  };
}

/** As an author's file has them: made anew for each start. */
const buildPlugins = (): AnyOraclePlugin[] =>
  Array.from({ length: PLUGINS }, (_, at) => {
    const tools = Array.from({ length: TOOLS }, (_none, tool) => buildTool(`plugin${at}_tool${tool}`));
    return defineOraclePlugin({
      name: `plugin${at}`,
      version: '1.0.0',
      manifest: {
        title: `Plugin ${at}`,
        summary: `Does the things of number ${at} for the user.`,
        whenToUse: [`The user wants something of number ${at}.`, 'The user asks what there is.'],
        examples: [{ user: 'Do it.', tool: `plugin${at}_tool0`, args: { query: 'it' } }],
      },
      ...(at === 0 ? {} : { softDependsOn: [`plugin${at - 1}`] }),
      configSchema: z.object({ [`PLUGIN${at}_URL`]: z.url().default('https://example.org') }),
      getTools: () => tools,
    });
  });
const buildTool = (name: string) =>
  defineTool({
    name,
    description: 'Looks something up, with a description of a usual length that says when it is of use and what comes back.',
    schema: z.object({
      query: z.string().min(1).max(200).describe('What is looked for.'),
      limit: z.number().int().min(1).max(100).default(10).describe('At most so many.'),
      kind: z.enum(['news', 'people', 'places']).optional(),
      filter: z.object({ since: z.string().optional(), tags: z.array(z.string()).optional() }).optional(),
    }),
    handler: () => 'nothing',
  });

/** Each `measure` in turn after a warm-up, as its median. */
function medianOf(measure: (n: number) => void): number {
  const times: number[] = [];
  for (let n = 0; n < WARM_UP + ROUNDS; n += 1) {
    const before = performance.now();
    measure(n);
    if (n >= WARM_UP) times.push(performance.now() - before);
  }
  return round(median(times), 3);
}

function benchContext(host: PluginHost): Record<string, number> {
  const services = { ...fakeServices({ store: openStore({ path: ':memory:', now: 0 }) }), host };
  const run = fakeRun();
  const logger = createLogger({ level: 'silent', format: 'json' });
  const models = createModels({ clock: systemClock, baseUrl: 'http://127.0.0.1:9/v1', roles: { main: 'none' }, idleTimeoutMs: 1_000 });
  const { signal } = new AbortController();
  const build = (n: number) =>
    buildRuntimeContext({
      ...{ run, now: () => 0, services, models, matrix: noMatrix, logger, readMessages: () => [], signal, downstream: noDownstream },
      ...{ sendToolCall: () => undefined, emit: () => undefined, actingGrants: () => [], isTainted: () => false, isOver: () => false },
      plugin: `plugin${n % PLUGINS}`,
      call: { id: `call${n}`, tool: 'lookup', mayWriteExternally: false },
    });
  return { context_build_p50_ms: medianOf(build) };
}

async function benchModelCalls(host: PluginHost): Promise<Record<string, number>> {
  const models = createModels({ clock: systemClock, baseUrl: 'http://127.0.0.1:9/v1', roles: { main: 'none' }, idleTimeoutMs: 1_000 });
  const all = createToolSet(host.tools, host.visibilityOf);
  if (all.offered(LOADED).tools.length !== LOADED.size * TOOLS) throw new Error('not the tools that were loaded');
  // A turn has a model of its own, which tells it what a call cost, so its first call binds.
  const binder = createToolBinder();
  const first = medianOf(() => void binder(models.get('main', undefined, { onUsage: () => undefined }), all.offered(LOADED)));
  const model = models.get('main');
  const further = medianOf(() => void binder(model, all.offered(LOADED)));
  // Right after `load_capability` brought a set that nobody had.
  const fresh = medianOf((n) => {
    const set = new Set([`plugin${n % PLUGINS}`, `plugin${(n * 7 + 1) % PLUGINS}`]);
    binder(model, createToolSet(host.tools, host.visibilityOf).offered(set));
  });
  const prompt = medianOf(() => buildPrompt(host));
  await models.close();
  return {
    bind_500_tools_p50_ms: first,
    bind_500_tools_same_turn_p50_ms: further,
    bind_500_tools_new_set_p50_ms: fresh,
    prompt_compose_p50_ms: prompt,
  };
}

/** As a turn does (src/agent/start-turn.ts), with a section of every plugin that is loaded. */
function buildPrompt(host: PluginHost): string {
  const isThere = ({ name }: { name: string }): boolean => host.visibilityOf(name) === 'always' || LOADED.has(name);
  const there = host.plugins.filter(isThere);
  return buildSystemPrompt({
    oracleName: 'Oracle',
    room: { kind: 'direct', name: null },
    user: '@alice:example.org',
    plugins: there.map(({ manifest }) => manifest),
    onDemand: host.plugins.filter((plugin) => !isThere(plugin)).map(({ name, manifest }) => ({ name, summary: manifest.summary })),
    sections: there.map(({ name, manifest }) => ({ plugin: name, title: manifest.title, text: 'Something for this turn. '.repeat(20) })),
    userContext: { identity: ['The user is called Ada.'], work: Array.from({ length: 20 }, (_, n) => `The user has done thing ${n}.`) },
    localTime: '2026-11-30T13:00:59+01:00',
    weekday: 'Monday',
    timeZone: 'Europe/Berlin',
  });
}
