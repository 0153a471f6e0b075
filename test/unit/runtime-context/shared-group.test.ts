import { expect, test } from 'vitest';
import { type AnyOraclePlugin, defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { buildContext, refusedWith } from './context-fixture.ts';

const sharing = (name: string, shared: ReturnType<NonNullable<AnyOraclePlugin['getSharedState']>>): AnyOraclePlugin =>
  defineOraclePlugin({ name, version: '1.0.0', manifest: { title: name, summary: name, whenToUse: ['x'] }, getSharedState: () => shared });
const read = (context: RuntimeContext, key: string): unknown => (context.shared as Record<string, unknown>)[key];

test('an accessor runs when its key is read, every time, with the context of the plugin that owns it', async () => {
  let reads = 0;
  const owner = sharing('owner', {
    profile: (_state, ctx) => {
      reads += 1;
      return { config: ctx.config, did: ctx.user.did, call: ctx.toolCallId, reads };
    },
  });
  const services = fakeServices({ plugins: [owner, sharing('p', {})], configs: { owner: { OWNER_KEY: 'o' }, p: { P_KEY: 'p' } } });
  const { context } = buildContext({ services });
  expect(reads).toBe(0);

  expect(read(context, 'profile')).toEqual({ config: { OWNER_KEY: 'o' }, did: 'did:key:zAlice', call: undefined, reads: 1 });
  expect(read(context, 'profile')).toMatchObject({ reads: 2 });
});

test('what nobody shares is undefined', () => {
  const { context } = buildContext();

  expect(read(context, 'nothing')).toBeUndefined();
  expect('nothing' in context.shared).toBe(false);
});

test('an accessor that throws is undefined and said in the log, with the name of its plugin', () => {
  const owner = sharing('owner', {
    broken: () => {
      throw new TypeError('what the person wrote');
    },
  });
  const { context, logger } = buildContext({ services: fakeServices({ plugins: [owner] }) });

  expect(read(context, 'broken')).toBeUndefined();
  expect(logger.lines).toMatchObject([{ level: 'warn', plugin: 'owner', reason: 'TypeError' }]);
  expect(JSON.stringify(logger.lines)).not.toContain('what the person wrote');
});

test('an accessor that fails later is undefined later, also when nobody waits for it', async () => {
  const owner = sharing('owner', { late: () => Promise.reject(new RangeError('what the person wrote')) });
  const { context, logger } = buildContext({ services: fakeServices({ plugins: [owner] }) });

  expect(await read(context, 'late')).toBeUndefined();
  expect(logger.lines).toMatchObject([{ level: 'warn', plugin: 'owner', reason: 'RangeError' }]);
});

test('what an accessor emits counts with the call that reads it, however often it is read (G14)', () => {
  const owner = sharing('owner', {
    flood: (_state, ctx) => {
      for (let frame = 0; frame < 400; frame += 1) ctx.emit.router({ step: 'again' });
      return 1;
    },
  });
  const { context, emitted } = buildContext({ services: fakeServices({ plugins: [owner] }) });

  for (let times = 0; times < 5; times += 1) read(context, 'flood');

  expect(emitted).toHaveLength(1_000);
});

test('two accessors that read each other come to an end', () => {
  const plugins = [
    sharing('a', { one: (_state, ctx) => read(ctx, 'two') ?? 'end' }),
    sharing('b', { two: (_state, ctx) => read(ctx, 'one') ?? 'end' }),
  ];

  expect(read(buildContext({ services: fakeServices({ plugins }) }).context, 'one')).toBe('end');
});

test('an accessor writes nothing into rooms, whatever the tool that reads it may', async () => {
  let posted: unknown;
  const owner = sharing('owner', {
    trick: (_state, ctx) => {
      posted = ctx.matrix.postToRoom('!room:test', { msgtype: 'm.text', body: 'x' }).catch((error: unknown) => error);
      return 1;
    },
  });
  read(buildContext({ services: fakeServices({ plugins: [owner] }) }).context, 'trick');

  expect(await posted).toEqual(refusedWith('NOT_ALLOWED'));
});

test('kept after the turn it gives nothing', () => {
  const owner = sharing('owner', { profile: () => 1 });
  const { context, end } = buildContext({ services: fakeServices({ plugins: [owner] }) });
  const { shared } = context;
  end();

  expect(() => (shared as Record<string, unknown>)['profile']).toThrow(refusedWith('STALE_CONTEXT'));
});
