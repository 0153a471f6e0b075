import { createMiddleware } from 'langchain';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { type AnyOraclePlugin, defineOraclePlugin, type PluginContext } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineSubAgent } from '../../../src/plugin-api/define-sub-agent.ts';
import { type AnyTool, defineTool } from '../../../src/plugin-api/define-tool.ts';
import { buildPluginHost } from '../../../src/plugin-host/build-plugin-host.ts';
import type { BootedPlugins } from '../../../src/plugin-host/plugin-host.ts';
import { resolvePlugins } from '../../../src/plugin-host/resolve-plugins.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';

const IDENTITY = { name: 'Testy', did: 'did:key:z6Mk', entityDid: null };
const manifest = { title: 'T', summary: 'S.', whenToUse: ['Sometimes.'] };
const plugin = (name: string, more: Partial<AnyOraclePlugin> = {}): AnyOraclePlugin =>
  defineOraclePlugin({ name, version: '1.0.0', manifest: { ...manifest, title: name }, ...more });
const tool = (name: string, more: Partial<AnyTool> = {}) =>
  defineTool({ name, description: 'd', schema: z.object({ city: z.string().describe('A city.') }), handler: () => name, ...more });
const agent = (name: string, tools: readonly AnyTool[] = []) => defineSubAgent({ name, description: 'd', systemPrompt: 'p', tools });
const context = {} as RuntimeContext;

function prepare(plugins: readonly AnyOraclePlugin[], env: Record<string, string> = {}) {
  const plan = resolvePlugins(
    plugins.map((one) => ({ plugin: one, origin: 'given' })),
    {},
    env,
  );
  if (!plan.ok) throw new Error(JSON.stringify(plan.error));
  const clock = fakeClock();
  const logger = fakeLogger();
  return { clock, logger, built: buildPluginHost(plan.value, { identity: IDENTITY, logger, clock }) };
}
async function start(plugins: readonly AnyOraclePlugin[], env: Record<string, string> = {}) {
  const { clock, logger, built } = prepare(plugins, env);
  const host = await built;
  if (!host.ok) throw new Error(JSON.stringify(host.error));
  return { clock, logger, host: host.value };
}
async function refused(...plugins: AnyOraclePlugin[]): Promise<string[]> {
  const host = await prepare(plugins).built;
  return host.ok ? [] : host.error.map(({ code, message }) => `${code.replace('boot.plugin.', '')}: ${message}`);
}
const failing = () => {
  throw new Error('boom');
};
/** A list whose only entry throws when it is looked at; one that itself does. */
const unreadable = () => [
  {
    get name(): never {
      throw new Error('not to be read');
    },
  },
];
const revoked = () => {
  const { proxy, revoke } = Proxy.revocable<unknown[]>([], {});
  revoke();
  return proxy;
};
const forever = () => new Promise<never>(() => undefined);
const toolsOf = (host: BootedPlugins) => [...host.tools.keys()];

describe('boot hooks', () => {
  test('run once, each with its own configuration, and nobody else’s (G12)', async () => {
    const seen: PluginContext<unknown>[] = [];
    const note = (ctx: PluginContext<unknown>) => {
      seen.push(ctx);
      return [];
    };
    const { host } = await start(
      [
        plugin('a', { configSchema: z.object({ A: z.string() }), getTools: note }),
        plugin('b', { configSchema: z.object({ B: z.string() }), getSubAgents: note }),
      ],
      { A: '1', B: '2' },
    );
    await host.forRequest(() => context);

    expect(seen.map(({ config }) => config)).toEqual([{ A: '1' }, { B: '2' }]);
    expect(seen[0]).toMatchObject({ identity: IDENTITY, availablePlugins: new Set(['a', 'b']) });
    expect([host.configOf('a'), host.configOf('nobody')]).toEqual([{ A: '1' }, {}]);
  });

  test('bring tools and sub-agents with the JSON schemas that models want, in the order of the plugins', async () => {
    const { host } = await start([
      plugin('slow', { getTools: async () => [tool('one')] }),
      plugin('fast', { getTools: () => [tool('two')], getSubAgents: () => [agent('helper', [tool('two')])] }),
    ]);

    expect(toolsOf(host)).toEqual(['one', 'two']);
    expect(host.tools.get('one')).toMatchObject({
      plugin: 'slow',
      parameters: { type: 'object', properties: { city: { type: 'string', description: 'A city.' } }, required: ['city'] },
    });
    expect(host.subAgents.get('helper')).toMatchObject({ plugin: 'fast', toolName: 'call_helper' });
    expect([...(host.subAgents.get('helper')?.tools.keys() ?? [])]).toEqual(['two']);
  });

  test.each(['getTools', 'getSubAgents', 'getMiddlewares'] as const)(
    'one that throws (%s) is logged and costs only what it would have brought',
    async (hook) => {
      const brings = {
        getTools: () => [tool('one')],
        getSubAgents: () => [agent('helper')],
        getMiddlewares: () => [createMiddleware({ name: 'm' })],
      };
      const { host, logger } = await start([plugin('a', { ...brings, [hook]: failing }), plugin('b', { getTools: () => [tool('two')] })]);

      expect({
        getTools: host.tools.has('one'),
        getSubAgents: host.subAgents.has('helper'),
        getMiddlewares: host.middlewares.length > 0,
      }).toEqual({
        getTools: true,
        getSubAgents: true,
        getMiddlewares: true,
        [hook]: false,
      });
      expect(host.tools.has('two')).toBe(true);
      expect(logger.lines).toMatchObject([{ level: 'error', plugin: 'a', reason: hook }]);
    },
  );

  test('one that never answers holds up the start for so long and no longer', async () => {
    const { clock, logger, built } = prepare([plugin('a', { getTools: forever }), plugin('b', { getTools: () => [tool('two')] })]);
    await clock.advanceAsync(30_000);
    const host = await built;

    expect(host.ok && toolsOf(host.value)).toEqual(['two']);
    expect(logger.lines).toMatchObject([{ level: 'error', plugin: 'a', reason: 'getTools' }]);
    expect(clock.pending()).toBe(0);
  });

  test('of a class keep their `this`', async () => {
    class Weather {
      readonly name = 'weather';
      readonly version = '1';
      readonly manifest = manifest;
      readonly #city = 'berlin';
      getTools = undefined as unknown as () => AnyTool[];
      getRequestTools() {
        return [tool(`weather_in_${this.#city}`)];
      }
    }
    const weather = new Weather();
    delete (weather as { getTools?: unknown }).getTools;
    const { host } = await start([weather]);

    expect([...(await host.forRequest(() => context)).tools.keys()]).toEqual(['weather_in_berlin']);
  });
});

describe('what stops the start', () => {
  test.each<[string, AnyOraclePlugin[], string]>([
    [
      'two tools of one name',
      [plugin('a', { getTools: () => [tool('one')] }), plugin('b', { getTools: () => [tool('one')] })],
      'collision: Two names collide: plugin b defines one, which is defined by plugin a already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'a tool twice in a plugin',
      [plugin('a', { getTools: () => [tool('one'), tool('one')] })],
      'collision: Two names collide: plugin a defines one, which is defined by itself already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'a tool with the name of a sub-agent',
      [plugin('a', { getTools: () => [tool('call_helper')] }), plugin('b', { getSubAgents: () => [agent('helper')] })],
      'collision: Two names collide: plugin b defines call_helper, which is defined by plugin a already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      "a tool with the name of one of the runtime's",
      [plugin('a', { getTools: () => [tool('load_capability')] })],
      'collision: Two names collide: plugin a defines load_capability, which is defined by the runtime already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'one key of shared state from two',
      [plugin('a', { getSharedState: () => ({ key: () => 1 }) }), plugin('b', { getSharedState: () => ({ key: () => 2 }) })],
      'collision: Two names collide: plugin b shares "key", which plugin a shares already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'two middlewares of one name',
      [
        plugin('a', { getMiddlewares: () => [createMiddleware({ name: 'm' })] }),
        plugin('b', { getMiddlewares: () => [createMiddleware({ name: 'm' })] }),
      ],
      'collision: Two names collide: the middleware "m" of plugin b is defined by plugin a already. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'prices from two',
      [1, 2].map((n) => plugin(`p${n}`, { getCreditPolicy: () => ({ hold: n, initial: 0, priceOf: () => 1 }) })),
      'collision: Two names collide: plugin p2 sets prices, as does plugin p1. Rename one, or switch a plugin off in FEATURES.',
    ],
    [
      'a tool whose effect is mistyped, which would be said to read',
      [plugin('a', { getTools: () => [{ ...tool('one'), effect: 'writes' } as unknown as AnyTool] })],
      'invalid: Plugin a cannot be used: effect of tool one must be read or write.',
    ],
    [
      'shared state that throws',
      [plugin('a', { getSharedState: failing })],
      'hook_failed: Plugin a cannot start, getSharedState failed: boom. Correct it, or switch it off in FEATURES.',
    ],
    [
      'prices that cannot be had, for everybody would be answered for nothing',
      [plugin('a', { getCreditPolicy: failing })],
      'hook_failed: Plugin a cannot start, getCreditPolicy failed: boom. Correct it, or switch it off in FEATURES.',
    ],
    [
      'an example that calls what is not there',
      [
        plugin('a', {
          manifest: { ...manifest, examples: [{ user: 'u', tool: 'gone' }] },
          getTools: () => [tool('one')],
        }),
      ],
      'manifest_invalid: The manifest of plugin a is not valid: an example calls "gone", which the plugin does not define.',
    ],
    [
      'a state without defaults',
      [plugin('a', { stateSchema: z.object({ count: z.number(), ok: z.number().default(1) }) })],
      'invalid: Plugin a cannot be used: every field of its stateSchema needs a default, which these have not: count.',
    ],
  ])('%s', async (_, plugins, expected) => {
    expect(await refused(...plugins)).toEqual([expected]);
  });

  test('is told all at once, and what was opened is closed', async () => {
    const closed: string[] = [];
    const close = (name: string) => async () => void closed.push(name);
    const found = await refused(
      plugin('a', { getTools: () => [tool('one')], getSharedState: failing, close: close('a') }),
      plugin('b', { getTools: () => [tool('one')], close: close('b') }),
    );

    expect(found.map((line) => line.slice(0, line.indexOf(':')))).toEqual(['collision', 'hook_failed']);
    expect(closed).toEqual(['b', 'a']);
  });

  test.each([
    ['a sub-agent', { getTools: () => [tool('one')], getSubAgents: () => [agent('helper')] }, 'call_helper'],
    ['tools made per turn only', {}, 'one_of_a_turn'],
    ['tools whose hook failed', { getTools: failing }, 'one'],
  ])('an example may call %s', async (_, hooks, name) => {
    const examples = [{ user: 'u', tool: name }];

    expect(await refused(plugin('a', { manifest: { ...manifest, examples }, ...hooks }))).toEqual([]);
  });
});

test('a tool that throws when it is read is a problem with a code, not a crash of the start', async () => {
  expect(await refused(plugin('a', { getTools: unreadable as never }))).toEqual([
    'invalid: Plugin a cannot be used: it cannot be read (Error).',
  ]);
});

describe('what is made for one turn', () => {
  test('is asked with the context of its plugin and kept by nobody: two turns never see each other’s (G13)', async () => {
    const perPerson = plugin('a', {
      getRequestTools: async ({ user }) => {
        await Promise.resolve();
        return [tool(`of_${user.did}`)];
      },
      getRequestSubAgents: ({ user }) => [agent(`for_${user.did}`)],
    });
    const { host } = await start([perPerson]);
    const turnOf = (did: string) => host.forRequest((name) => ({ user: { did }, name }) as unknown as RuntimeContext);

    const turns = await Promise.all(Array.from({ length: 100 }, (_, n) => turnOf(`p${n}`)));

    turns.forEach(({ tools, subAgents }, n) => {
      expect([[...tools.keys()], [...subAgents.keys()]]).toEqual([[`of_p${n}`], [`for_p${n}`]]);
    });
    expect([host.tools.size, host.subAgents.size]).toEqual([0, 0]);
  });

  test('is missing when its hook throws, without a word to others', async () => {
    const { host, logger } = await start([
      plugin('a', { getRequestTools: failing, getRequestSubAgents: () => [agent('helper')] }),
      plugin('b', { getRequestTools: () => [tool('two')] }),
    ]);

    const { tools, subAgents } = await host.forRequest(() => context);

    expect([[...tools.keys()], [...subAgents.keys()]]).toEqual([['two'], ['helper']]);
    expect(logger.lines).toMatchObject([{ level: 'warn', plugin: 'a', reason: 'getRequestTools: Error' }]);
  });

  test('is missing without a word of what its hook knew of the person (G12)', async () => {
    const { host, logger } = await start([
      plugin('a', {
        getRequestTools: () => {
          throw new Error('cannot log in with hunter2-of-alice');
        },
      }),
    ]);

    await host.forRequest(() => context);

    expect(JSON.stringify(logger.lines.map((line) => ({ ...line, err: String(line['err']) })))).not.toContain('hunter2');
  });

  test.each([
    ['getRequestTools', unreadable],
    ['getRequestSubAgents', unreadable],
    ['getRequestTools', revoked],
  ] as const)('that throws when it is read (%s) is missing alone: the turns of others are not its to end', async (hook, odd) => {
    const { host } = await start([plugin('a', { [hook]: () => odd() }), plugin('b', { getRequestTools: () => [tool('two')] })]);

    expect([...(await host.forRequest(() => context)).tools.keys()]).toEqual(['two']);
  });

  test.each([
    [1_999, ['late', 'two']],
    [2_001, ['two']],
  ])('after %i ms of a hook it holds %j', async (ms, expected) => {
    const { clock, host } = await start([
      plugin('a', { getRequestTools: () => new Promise((resolve) => void clock.after(ms, () => resolve([tool('late')]))) }),
      plugin('b', { getRequestTools: () => [tool('two')] }),
    ]);

    const asked = host.forRequest(() => context);
    await clock.advanceAsync(3_000);

    expect([...(await asked).tools.keys()]).toEqual(expected);
  });

  test('never takes a name that is there: the first in the order of the plugins keeps it, whoever answered first', async () => {
    const { clock, host, logger } = await start([
      plugin('boot', { getTools: () => [tool('taken')], getSubAgents: () => [agent('helper')] }),
      plugin('slow', {
        getRequestTools: () =>
          new Promise((resolve) => void clock.after(100, () => resolve([tool('taken'), tool('fresh'), tool('call_helper')]))),
      }),
      plugin('fast', { getRequestTools: () => [tool('fresh'), tool('list_capabilities')] }),
    ]);

    const asked = host.forRequest(() => context);
    await clock.advanceAsync(100);
    const { tools } = await asked;

    expect([...tools].map(([name, registered]) => `${name} of ${registered.plugin}`)).toEqual(['fresh of slow']);
    expect(logger.lines.map(({ plugin: name, tool: skipped, code }) => `${name} ${skipped} ${code}`)).toEqual([
      'slow taken collision',
      'slow call_helper collision',
      'fast fresh collision',
      'fast list_capabilities collision',
    ]);
  });

  test.each([
    [100, 100],
    [101, 0],
  ])('of %i tools of one plugin, %i count (G14)', async (given, counted) => {
    const { host } = await start([plugin('a', { getRequestTools: () => Array.from({ length: given }, (_, n) => tool(`t${n}`)) })]);

    expect((await host.forRequest(() => context)).tools.size).toBe(counted);
  });

  test('is checked like what is there from the start', async () => {
    const odd = [{ name: 'no_handler', description: 'd', schema: z.object({}) }, null, tool('good')] as unknown as AnyTool[];
    const { host, logger } = await start([plugin('a', { getRequestTools: () => odd })]);

    expect([...(await host.forRequest(() => context)).tools.keys()]).toEqual(['good']);
    expect(logger.said('warn')).toHaveLength(2);
  });

  test('costs one JSON schema for each schema, not for each turn', async () => {
    const made = tool('same');
    const { host } = await start([plugin('a', { getRequestTools: () => [made] })]);

    const [one, two] = [await host.forRequest(() => context), await host.forRequest(() => context)];

    expect(one.tools.get('same')?.parameters).toBe(two.tools.get('same')?.parameters);
  });
});

describe('routes', () => {
  const asked = (host: BootedPlugins) =>
    host.routes((name) => () => ({ did: `caller of ${name}`, matrixUserId: null, storage: {} as never }));

  test('are asked with the plugin’s own context, and say which are open', async () => {
    let seen: unknown;
    const { host } = await start(
      [
        plugin('a', {
          configSchema: z.object({ A: z.string() }),
          getRoutes: ({ config, callerOf }) => {
            seen = [config, callerOf({}).did];
            return async () => undefined;
          },
          getAuthExcludedRoutes: () => [{ path: '/a/hook', method: 'post' }],
        }),
        plugin('b'),
      ],
      { A: '1' },
    );

    const routes = asked(host);

    expect(seen).toEqual([{ A: '1' }, 'caller of a']);
    expect(routes).toMatchObject({ ok: true, value: [{ plugin: 'a', open: [{ path: '/a/hook', method: 'POST' }] }] });
  });

  test.each<[string, Partial<AnyOraclePlugin>]>([
    ['throws', { getRoutes: failing }],
    ['returns no Fastify plugin', { getRoutes: () => ({}) as never }],
    ['names open routes that are none', { getRoutes: () => async () => undefined, getAuthExcludedRoutes: () => [{ path: 'x y' }] }],
    ['throws when asked for open routes', { getRoutes: () => async () => undefined, getAuthExcludedRoutes: failing }],
  ])('of a plugin that %s are a problem of the start', async (_, hooks) => {
    const { host } = await start([plugin('a', hooks)]);

    expect(asked(host)).toMatchObject({ ok: false, error: [{ code: 'boot.plugin.hook_failed', plugin: 'a' }] });
  });
});

describe('closing', () => {
  test('goes from the last to the first; one that throws or hangs is logged and keeps no other from it', async () => {
    const closed: string[] = [];
    const { clock, host, logger } = await start([
      plugin('a', { close: async () => void closed.push('a') }),
      plugin('b', { close: failing }),
      plugin('c', { close: forever }),
      plugin('d', { close: async () => void closed.push('d') }),
    ]);

    const closing = host.close();
    await clock.advanceAsync(5_000);
    await closing;

    expect(closed).toEqual(['d', 'a']);
    expect(logger.lines.map(({ plugin: name }) => name)).toEqual(['c', 'b']);
  });
});

test('who asks for the visibility of a plugin gets what the manifest says', async () => {
  const { host } = await start([plugin('a', { manifest: { ...manifest, visibility: 'silent' } }), plugin('b')]);

  expect([host.visibilityOf('a'), host.visibilityOf('b')]).toEqual(['silent', 'on-demand']);
  expect(host.status().loaded.map(({ name, visibility }) => `${name} ${visibility}`)).toEqual(['a silent', 'b on-demand']);
});
