import { createTestRuntime } from 'matrix-oracle/testing';
import { expect, test } from 'vitest';
import plugin, { addItem, listItems } from '../../../plugins/template/plugin.ts';

/** A person, a room and the host's real rules; models and the homeserver do only what a test says. Time stands still until `advance`. */
const world = (env: Record<string, string> = {}, direct = true) => createTestRuntime({ now: 0, plugin, env, direct });
const promptOf = (runtime: ReturnType<typeof world>) => runtime.with((context) => plugin.getPromptContribution?.(context));

test('what was put on the list is shown, newest first, and found by a word of it', async () => {
  const runtime = world();

  await runtime.call(addItem, { item: 'oat milk' });
  runtime.advance(1_000);
  await runtime.call(addItem, { item: 'dark bread' });

  expect(await runtime.call(listItems, {})).toEqual({ items: ['dark bread', 'oat milk'] });
  expect(await runtime.call(listItems, { word: 'bread' })).toEqual({ items: ['dark bread'] });
});

test('the same item twice is one', async () => {
  const runtime = world();
  await runtime.call(addItem, { item: 'oat milk' });

  expect(await runtime.call(addItem, { item: 'Oat Milk' })).toBe('It was on the list already.');

  expect(await runtime.call(listItems, {})).toEqual({ items: ['Oat Milk'] });
});

test('a full list takes no more', async () => {
  const runtime = world({ TEMPLATE_MAX_ITEMS: '1' });
  await runtime.call(addItem, { item: 'one' });

  expect(await runtime.call(addItem, { item: 'two' })).toBe('The list is full: 1 items at most.');
});

test('nobody else sees the list', async () => {
  const runtime = world();
  await runtime.call(addItem, { item: 'oat milk' });

  expect(await runtime.as('bob').call(listItems, {})).toBe('Nothing.');
});

test('the prompt of a direct chat says how long the list is, in a group it says nothing', async () => {
  const direct = world();
  expect(await promptOf(direct)).toBeNull();

  await direct.call(addItem, { item: 'oat milk' });

  expect(await promptOf(direct)).toBe("Items on the user's list: 1.");
  expect(await promptOf(world({}, false))).toBeNull();
});

test('an empty item is refused before the tool runs', async () => {
  await expect(world().call(addItem, { item: ' ' })).rejects.toThrow();
});
