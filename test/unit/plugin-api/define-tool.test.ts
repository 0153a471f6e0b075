import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';

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
