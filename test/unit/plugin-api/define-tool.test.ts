import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineSubAgent } from '../../../src/plugin-api/define-sub-agent.ts';
import { defineTool, readTool } from '../../../src/plugin-api/define-tool.ts';
import { readPlugin } from '../../../src/plugin-api/read-plugin.ts';

const base = { description: 'd', schema: z.object({}), handler: () => 'x' };

test.each(['', 'Upper', 'has space', '1st', 'x'.repeat(65), 'ixo.oracle'])('a tool may not be called %j', (name) => {
  expect(() => defineTool({ ...base, name })).toThrow(TypeError);
});

test('a tool needs a description of bearable length', () => {
  expect(() => defineTool({ ...base, name: 'ok', description: '' })).toThrow(TypeError);
  expect(() => defineTool({ ...base, name: 'ok', description: 'x'.repeat(5_000) })).toThrow(TypeError);
});

test('definitions cannot be changed afterwards', () => {
  expect(Object.isFrozen(defineTool({ ...base, name: 'ok' }))).toBe(true);
  expect(
    Object.isFrozen(
      defineOraclePlugin({ name: 'ok', version: '1', manifest: { title: '', summary: '', whenToUse: [] }, getTools: () => [] }),
    ),
  ).toBe(true);
  expect(() =>
    defineOraclePlugin({ name: 'Not ok', version: '1', manifest: { title: '', summary: '', whenToUse: [] }, getTools: () => [] }),
  ).toThrow(TypeError);
});

test('a capability is one that a grant can name: no wildcard, nothing of the oracle itself, a resource with a scheme', () => {
  const withCapability = (action: string, resource = 'ixo:memory') => defineTool({ ...base, name: 'ok', capability: { action, resource } });

  expect(withCapability('memory/read').capability).toEqual({ action: 'memory/read', resource: 'ixo:memory' });
  for (const action of ['*', 'memory/*', 'memory', 'Memory/Read', 'oracle/message', 'ucan/*', ''])
    expect(() => withCapability(action), action).toThrow(TypeError);
  for (const resource of ['', 'memory', '*', 'ixo:', 'ixo:a b'])
    expect(() => withCapability('memory/read', resource), resource).toThrow(TypeError);
});

test.each([
  [{}, undefined],
  [{ effect: 'read' as const }, undefined],
  [{ effect: 'write' as const }, 'external'],
  [{ effect: 'write' as const, reach: 'own' as const }, 'own'],
])('what others notice is the default of what writes: %j reaches %s (G8)', (more, reach) => {
  expect(defineTool({ ...base, name: 'ok', ...more }).reach).toBe(reach);
  // The same for one that an author froze without asking us.
  expect(readTool(Object.freeze({ ...base, name: 'ok', ...more }))).toMatchObject(reach === undefined ? {} : { reach });
});

test.each<[string, Record<string, unknown> | null, RegExp]>([
  ['nothing', null, /must be an object/u],
  ['a schema of another zod', { ...base, name: 'x', schema: { parse: () => ({}) } }, /z\.object\(\) of zod 4/u],
  ['a schema that is no object', { ...base, name: 'x', schema: z.string() }, /z\.object\(\) of zod 4/u],
  ['no handler', { ...base, name: 'x', handler: 'x' }, /needs a handler/u],
  ['a mistyped effect', { ...base, name: 'x', effect: 'writes' }, /effect of tool x must be read or write/u],
  ['a mistyped reach', { ...base, name: 'x', reach: true }, /reach of tool x must be own or external/u],
  [
    'a mistyped field, which would be one that is not there',
    { ...base, name: 'x', Effect: 'write' },
    /a field that does not exist: "Effect"/u,
  ],
  ['an untrusted that is a word', { ...base, name: 'x', untrusted: 'no' }, /untrusted of tool x must be true or false/u],
])('a tool from JavaScript with %s is told so, and never taken for one that reads', (_, tool, fault) => {
  const read = readTool(tool);

  expect('fault' in read && read.fault).toMatch(fault);
});

test.each([
  ['has two tools of one name', { tools: [base, base].map((tool) => defineTool({ ...tool, name: 'one' })) }, /two tools called one/u],
  ['has a tool that is none', { tools: [{ name: 'x' }] }, /in sub-agent helper, the description of tool x/u],
  ['has no prompt', { systemPrompt: '' }, /systemPrompt of sub-agent helper/u],
  ['has a name that no tool can have', { name: 'x'.repeat(60) }, /a sub-agent name must fit/u],
])('a sub-agent that %s is refused', (_, more, fault) => {
  const agent = { name: 'helper', description: 'd', systemPrompt: 'p', tools: [], ...more };

  expect(() => defineSubAgent(agent as unknown as Parameters<typeof defineSubAgent>[0])).toThrow(fault);
});

test.each([
  ['a name with a capital', { name: 'Weather' }, 'name: must fit'],
  ['no version', { version: '' }, 'version: is empty'],
  ['a hook that is no function', { getTools: [] }, 'getTools: must be a function'],
  ['a schema that is none', { configSchema: {} }, 'configSchema: must be a z.object() of zod 4'],
  ['a hook that nobody calls', { getTool: () => [] }, 'getTool: there is no such hook'],
  ['needs that are no names', { dependsOn: ['A b'] }, 'dependsOn.0: must fit'],
])('a plugin with %s is no plugin', (_, more, fault) => {
  const read = readPlugin({ name: 'weather', version: '1', manifest: {}, ...more });

  expect('faults' in read && read.faults.join()).toContain(fault);
});

test('what is read is the very plugin, so that hooks of a class keep their `this`', () => {
  const plugin = { name: 'weather', version: '1', manifest: {} };

  expect(readPlugin(plugin)).toBe(plugin);
});

test.each([0, -1, 0.5, '5', Number.NaN])('a price of %s credits is none', (credits) => {
  const priced = { name: 'pay', description: 'Pays.', schema: z.object({}), billing: { credits: credits as number }, handler: () => '' };
  expect(() => defineTool(priced)).toThrow(/billing of tool pay/u);
});

test('a plugin that throws when it is looked at is none, and says so', () => {
  const hostile = {
    get name(): never {
      throw new RangeError('no');
    },
  };

  expect(readPlugin(hostile)).toEqual({ faults: ['it cannot be read (RangeError)'] });
});
