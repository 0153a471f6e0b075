import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { MAX_STATE_BYTES, mergePluginState } from '../../../src/runtime-context/state-group.ts';
import { createRedactor } from '../../../src/secrets/redactor.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { buildContext, memoryState, refusedWith } from './context-fixture.ts';

const counting = defineOraclePlugin({
  name: 'p',
  version: '1.0.0',
  manifest: { title: 'P', summary: 'p', whenToUse: ['x'] },
  stateSchema: z.object({ count: z.number().int().default(0), names: z.array(z.string()).default([]), any: z.unknown().optional() }),
});

describe('storage', () => {
  test('a plugin finds what it kept in an earlier run of the same person', async () => {
    const services = fakeServices();
    await buildContext({ services }).context.storage.put('k', 'a dog');

    const { storage } = buildContext({ services }).context;

    expect(await storage.get('k')).toBe('a dog');
    expect(await storage.get('other')).toBeNull();
    expect(await storage.list()).toEqual([{ key: 'k', value: 'a dog' }]);
    expect(await storage.search('dog')).toEqual([{ key: 'k', value: 'a dog' }]);
    expect(await storage.delete('k')).toBe(true);
  });

  test('what a tainted run kept taints whoever reads it, by whichever way (DESIGN §5 "Taint")', async () => {
    const services = fakeServices();
    const writer = buildContext({ services, isTainted: () => true });
    await writer.context.storage.put('k', 'a stranger dog');
    expect(writer.foreign.count).toBe(0);

    for (const read of ['get', 'list', 'search'] as const) {
      const reader = buildContext({ services });
      await (read === 'get'
        ? reader.context.storage.get('k')
        : read === 'list'
          ? reader.context.storage.list()
          : reader.context.storage.search('dog'));
      expect(reader.foreign.count).toBe(1);
    }
  });

  test('control: what an untainted run kept taints nobody', async () => {
    const services = fakeServices();
    await buildContext({ services }).context.storage.put('k', 'dog');
    const reader = buildContext({ services });
    await reader.context.storage.get('k');
    await reader.context.storage.list();

    expect(reader.foreign.count).toBe(0);
  });

  test.each([
    ['a handler that was given text of strangers before', undefined, true],
    ['a tool that reads what strangers wrote', true, false],
  ])('what is kept by %s taints whoever reads it, although its run is not tainted yet', async (_case, untrusted, reads) => {
    const state = memoryState();
    const services = fakeServices({ plugins: [counting] });
    const call = { id: 'c1', tool: 't', mayWriteExternally: false, untrusted };
    const { context } = buildContext({ services, stateOf: () => state, call });
    if (reads) await context.matrix.getRoomState('!room:test');

    await context.storage.put('k', 'what a stranger wrote');
    context.state.update({ count: 1 });
    const blobId = await context.blobStore.put({ userDid: context.user.did, name: 'n', value: 'what a stranger wrote' });

    for (const read of [
      (reader: RuntimeContext) => reader.storage.get('k'),
      (reader: RuntimeContext) => reader.state.get(),
      (reader: RuntimeContext) => reader.blobStore.get({ userDid: reader.user.did, blobId }),
    ]) {
      const later = buildContext({ services, stateOf: () => state });
      await read(later.context);
      expect(later.foreign.count).toBe(1);
    }
  });

  test('a secret that was given out is not kept in the clear (G12)', async () => {
    const redactor = createRedactor(['top-secret-value']);
    const { storage } = buildContext({ redactor }).context;

    await expect(storage.put('k', 'x top-secret-value y')).rejects.toMatchObject({ refusal: { code: 'BAD_REQUEST' } });
    await expect(storage.put('top-secret-value', 'x')).rejects.toMatchObject({ refusal: { code: 'BAD_REQUEST' } });
    expect(await storage.list()).toEqual([]);
  });
});

describe('state', () => {
  const services = () => fakeServices({ plugins: [counting] });

  test('fields begin with their defaults and are merged one by one', () => {
    const port = memoryState();
    const { state } = buildContext({ services: services(), stateOf: () => port }).context;
    expect(state.get()).toEqual({ count: 0, names: [] });

    state.update({ count: 2 });
    state.update({ names: ['a'] });

    expect(state.get()).toEqual({ count: 2, names: ['a'] });
    expect(port.stored).toEqual({ values: { count: 2, names: ['a'] }, tainted: false });
  });

  test('what does not fit the schema is refused, and nothing of it is kept', () => {
    const port = memoryState();
    const { state } = buildContext({ services: services(), stateOf: () => port }).context;

    for (const patch of [{ count: 'two' }, { unknown: 1 }, { count: 1, unknown: 1 }, null, 'text'] as never[])
      expect(() => state.update(patch)).toThrow(refusedWith('BAD_REQUEST'));
    expect(port.stored).toBeUndefined();
  });

  test('what an older version left and no longer fits falls back to its default, field by field', () => {
    const port = memoryState({ values: { count: 'many', names: ['a'], gone: true }, tainted: false });

    expect(buildContext({ services: services(), stateOf: () => port }).context.state.get()).toEqual({ count: 0, names: ['a'] });
  });

  test('what a tainted run wrote taints whoever reads it, also after an untainted one changed it', () => {
    const port = memoryState();
    buildContext({ services: services(), stateOf: () => port, isTainted: () => true }).context.state.update({ count: 1 });
    buildContext({ services: services(), stateOf: () => port }).context.state.update({ count: 2 });
    const reader = buildContext({ services: services(), stateOf: () => port });
    reader.context.state.get();

    expect(reader.foreign.count).toBe(1);
    expect(mergePluginState({ values: {}, tainted: true }, { values: { a: 1 }, tainted: false })).toEqual({
      values: { a: 1 },
      tainted: true,
    });
  });

  test('it is small, is JSON, and holds no secret (G12, G14)', () => {
    const port = memoryState();
    const redactor = createRedactor(['top-secret-value']);
    const { state } = buildContext({ services: services(), stateOf: () => port, redactor }).context;

    expect(() => state.update({ names: ['x'.repeat(MAX_STATE_BYTES)] })).toThrow(refusedWith('BAD_REQUEST'));
    expect(() => state.update({ names: ['top-secret-value'] })).toThrow(refusedWith('BAD_REQUEST'));
    expect(() => state.update({ names: ['ok'] })).not.toThrow();
  });

  test('what is read is a copy: a change without update is none', () => {
    const port = memoryState({ values: { any: { list: ['a'] } }, tainted: false });
    const { state } = buildContext({ services: services(), stateOf: () => port }).context;

    (state.get() as { any: { list: string[] } }).any.list.push('b');

    expect(state.get()).toMatchObject({ any: { list: ['a'] } });
  });

  test('a plugin without a schema has none', () => {
    const { state } = buildContext().context;

    expect(state.get()).toEqual({});
    expect(() => state.update({ a: 1 } as never)).toThrow(refusedWith('BAD_REQUEST'));
  });
});
