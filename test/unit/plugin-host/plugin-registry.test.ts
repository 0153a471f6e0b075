import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';
import { buildPluginRegistry } from '../../../src/plugin-host/plugin-registry.ts';

const manifest = { title: 'T', summary: 'S.', whenToUse: [] };
const aTool = (name: string) =>
  defineTool({ name, description: 'd', schema: z.object({ city: z.string().describe('A city.') }), handler: () => 'x' });
const plugin = (name: string, ...tools: string[]) => defineOraclePlugin({ name, version: '1', manifest, getTools: () => tools.map(aTool) });

test('tools are found by name, with the JSON schema that models want', () => {
  const registry = buildPluginRegistry([plugin('a', 'one'), plugin('b', 'two')], {});

  expect(registry.ok && [...registry.value.tools.keys()]).toEqual(['one', 'two']);
  expect(registry.ok && registry.value.tools.get('one')?.parameters).toMatchObject({
    type: 'object',
    properties: { city: { type: 'string', description: 'A city.' } },
    required: ['city'],
  });
});

test('collisions and bad configuration stop the start, all named at once', () => {
  const strict = defineOraclePlugin({
    name: 'strict',
    version: '1',
    manifest,
    configSchema: z.object({ URL: z.string() }),
    getTools: () => [],
  });

  const registry = buildPluginRegistry([plugin('a', 'one'), plugin('b', 'one'), plugin('a'), strict], {});

  expect(!registry.ok && registry.error).toEqual([
    'tool one is defined by plugin a and by plugin b',
    'plugin a is there twice',
    expect.stringContaining('plugin strict: URL'),
  ]);
});

test('a plugin gets its own part of the configuration', () => {
  let seen: unknown;
  const own = defineOraclePlugin({
    name: 'own',
    version: '1',
    manifest,
    configSchema: z.object({ MAX: z.coerce.number().default(3) }),
    getTools: ({ config }) => {
      seen = config;
      return [];
    },
  });

  buildPluginRegistry([own], { MAX: '5', OTHER_SECRET: 'x' });

  expect(seen).toEqual({ MAX: 5 });
});
