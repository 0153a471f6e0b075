/**
 * What an author sees in the editor. `tsc` is the test: a line that should not compile is marked, and is an error when it does. Each type follows from the
 * plugin's own schemas, so that a renamed variable or field is found before a start.
 */
import { createMiddleware } from 'langchain';
import {
  defineOraclePlugin,
  defineSubAgent,
  defineTool,
  type PluginStorage,
  type RuntimeContext,
  type ToolDefinition,
} from 'matrix-oracle';
import type { createOracleApp, OracleHooks } from 'matrix-oracle/app';
import { createTestRuntime } from 'matrix-oracle/testing';
import { expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';

const MANIFEST = { title: 'Weather', summary: 'Tells the weather.', whenToUse: ['The user asks for the weather.'] };
const configSchema = z.object({ WEATHER_URL: z.url(), WEATHER_DAYS: z.coerce.number().default(3) });
const stateSchema = z.object({ lastCity: z.string().nullable().default(null) });
type Config = z.output<typeof configSchema>;
type State = z.output<typeof stateSchema>;

test('hooks and handlers see the configuration and state of the own schemas', () => {
  const plugin = defineOraclePlugin({
    name: 'weather',
    version: '1.0.0',
    manifest: MANIFEST,
    configSchema,
    stateSchema,
    getTools: ({ config }) => {
      expectTypeOf(config).toEqualTypeOf<Config>();
      return [
        defineTool({
          name: 'weather',
          description: 'Tells the weather.',
          schema: z.object({ city: z.string(), days: z.number().optional() }),
          handler: ({ city, days }, ctx) => {
            expectTypeOf(city).toEqualTypeOf<string>();
            expectTypeOf(days).toEqualTypeOf<number | undefined>();
            expectTypeOf(ctx.config).toEqualTypeOf<Config>();
            expectTypeOf(ctx.state.get()).toEqualTypeOf<State>();
            ctx.state.update({ lastCity: city });
            // @ts-expect-error no such field
            ctx.state.update({ lastTown: city });
            // @ts-expect-error a city is a text
            ctx.state.update({ lastCity: 1 });
            // @ts-expect-error no such variable
            return ctx.config.WEATHER_URI;
          },
        }),
      ];
    },
    getRequestTools: (ctx) => {
      expectTypeOf(ctx.config).toEqualTypeOf<Config>();
      return [];
    },
    getPromptContribution: ({ config, state }) => `${config.WEATHER_DAYS.toFixed()} ${state.get().lastCity ?? ''}`,
    getSharedState: () => ({ lastCity: (_state, ctx) => ctx.state.get().lastCity }),
    getRoutes:
      ({ config, callerOf }) =>
      async (app) => {
        expectTypeOf(config).toEqualTypeOf<Config>();
        app.get('/weather', async (request) => callerOf(request).did);
      },
  });

  expect(plugin.name).toBe('weather');
});

test('a tool that stands alone says what it needs, and fits only a plugin that has it', () => {
  const alone = defineTool({
    name: 'weather',
    description: 'Tells the weather.',
    schema: z.object({}),
    handler: (_args, { config }: RuntimeContext<{ WEATHER_URL: string }>) => config.WEATHER_URL,
  });
  const anywhere = defineTool({ name: 'now', description: 'Now.', schema: z.object({}), handler: (_args, { user }) => user.currentTime });

  const fits = defineOraclePlugin({
    name: 'a',
    version: '1',
    manifest: MANIFEST,
    configSchema,
    stateSchema,
    getTools: () => [alone, anywhere],
  });
  const other = defineOraclePlugin({
    name: 'b',
    version: '1',
    manifest: MANIFEST,
    configSchema: z.object({ OTHER: z.string() }),
    // @ts-expect-error its configuration has no WEATHER_URL
    getTools: () => [alone],
  });

  expect([fits.name, other.name]).toEqual(['a', 'b']);
});

test('without a type the configuration is unknown, not anything', () => {
  const tool = defineTool({
    name: 'x',
    description: 'x',
    schema: z.object({}),
    handler: (_args, { config }) => {
      expectTypeOf(config['ANY']).toEqualTypeOf<unknown>();
    },
  });

  expect(tool.effect).toBeUndefined();
});

test('words that decide what a tool may do are checked', () => {
  const base = { name: 'x', description: 'x', schema: z.object({}), handler: () => '' } as const;

  // @ts-expect-error neither read nor write
  expect(() => defineTool({ ...base, effect: 'writes' })).toThrow(TypeError);
  // @ts-expect-error neither own nor external
  expect(() => defineTool({ ...base, reach: 'everybody' })).toThrow(TypeError);
  // @ts-expect-error a tool needs a name
  expect(() => defineTool({ description: 'x', schema: z.object({}), handler: () => '' })).toThrow(TypeError);
  expectTypeOf<ToolDefinition['effect']>().toEqualTypeOf<'read' | 'write' | undefined>();
});

test('a hook that does not exist is an error, not a plugin that does nothing', () => {
  // @ts-expect-error no such hook
  expect(() => defineOraclePlugin({ name: 'a', version: '1', manifest: MANIFEST, getTool: () => [] })).toThrow(
    /getTool: there is no such hook/u,
  );
  // @ts-expect-error no such visibility
  expect(defineOraclePlugin({ name: 'a', version: '1', manifest: { ...MANIFEST, visibility: 'sometimes' } }).name).toBe('a');
});

declare module 'matrix-oracle' {
  interface SharedAccessors {
    readonly weatherOfTypeTest?: { readonly city: string };
  }
}

test('shared state of other plugins is typed by declaration merging, and may be absent', () => {
  type Shared = RuntimeContext['shared']['weatherOfTypeTest'];
  expectTypeOf<Shared>().toEqualTypeOf<{ readonly city: string } | undefined>();
});

test('without its parameter `getTools` does not tell its handlers their types: they are unknown, never anything', () => {
  defineOraclePlugin({
    name: 'weather',
    version: '1.0.0',
    manifest: MANIFEST,
    configSchema,
    getTools: () => [
      defineTool({
        name: 'weather',
        description: 'Tells the weather.',
        schema: z.object({}),
        handler: (_args, { config }) => {
          expectTypeOf(config['WEATHER_URL']).toEqualTypeOf<unknown>();
        },
      }),
    ],
  });
});

test('sub-agents see the same types as tools, and name a role for their model', () => {
  const plugin = defineOraclePlugin({
    name: 'weather',
    version: '1.0.0',
    manifest: MANIFEST,
    configSchema,
    stateSchema,
    getSubAgents: (_context) => [
      defineSubAgent({
        name: 'forecaster',
        description: 'Forecasts.',
        systemPrompt: ({ config, state }) => {
          expectTypeOf(config).toEqualTypeOf<Config>();
          return `Ask ${config.WEATHER_URL} about ${state.get().lastCity ?? 'the city'}.`;
        },
        model: 'utility',
        tools: [],
      }),
    ],
    getMiddlewares: ({ config }) => {
      expectTypeOf(config).toEqualTypeOf<Config>();
      return [createMiddleware({ name: 'nothing', beforeModel: () => undefined })];
    },
    // @ts-expect-error a price is asked of a policy, not given as a number
    getCreditPolicy: () => 3,
  });

  expect(plugin.name).toBe('weather');
});

test('a test runtime takes the arguments of the tool that it calls, and a plugin with any configuration', async () => {
  const tool = defineTool({
    name: 'weather',
    description: 'Tells the weather.',
    schema: z.object({ city: z.string().default('Lisbon') }),
    handler: ({ city }, { config }: RuntimeContext<Config>) => `${city} ${config.WEATHER_DAYS}`,
  });
  const plugin = defineOraclePlugin({ name: 'weather', version: '1', manifest: MANIFEST, configSchema, getTools: () => [tool] });
  const runtime = createTestRuntime({ now: 0, plugin, env: { WEATHER_URL: 'https://example.org' } });

  expect(await runtime.call(tool, {})).toBe('Lisbon 3');
  // @ts-expect-error a city is a text
  await expect(runtime.call(tool, { city: 1 })).rejects.toThrow();
  // @ts-expect-error a tier is one of three words
  expect(() => createTestRuntime({ now: 0, tier: 'anybody' })).not.toThrow();
});

test('what a program hands to createOracleApp is checked by name', () => {
  type Options = NonNullable<Parameters<typeof createOracleApp>[0]>;
  expectTypeOf<Options['features']>().toEqualTypeOf<Readonly<Record<string, boolean | 'auto'>> | undefined>();
  expectTypeOf<NonNullable<OracleHooks['resolveModel']>>().returns.toEqualTypeOf<string | null>();
  expectTypeOf<Options>().not.toHaveProperty('environment');
  expectTypeOf<PluginStorage['get']>().returns.resolves.toEqualTypeOf<string | null>();
});
