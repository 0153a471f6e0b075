import type { FastifyPluginAsync } from 'fastify';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import userPreferences from '../../../plugins/user-preferences/plugin.ts';
import type { PluginRoutesContext, PluginStorage } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { buildPluginHost } from '../../../src/plugin-host/build-plugin-host.ts';
import type { PluginRoutes } from '../../../src/plugin-host/plugin-host.ts';
import { resolvePlugins } from '../../../src/plugin-host/resolve-plugins.ts';
import { createPluginStore } from '../../../src/plugin-storage/plugin-store.ts';
import { ok } from '../../../src/result.ts';
import { buildPluginStorage } from '../../../src/runtime-context/storage-group.ts';
import type { PluginRoutePorts } from '../../../src/sidecar/plugin-routes.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';
import { memoryStore } from '../../fakes/memory-store.ts';
import { alice, mallory } from '../ucan/tokens.ts';
import { ALICE, createWorld, DM, MALLORY, MALLORY_DM, signed } from './world.ts';

type CallerOf = PluginRoutesContext<unknown>['callerOf'];
interface Added {
  readonly plugin?: string;
  readonly open?: PluginRoutes['open'];
  readonly routes: (callerOf: CallerOf) => FastifyPluginAsync;
}

function start(...added: Added[]) {
  const stored: string[] = [];
  const storageOf: PluginRoutePorts['storageOf'] = (plugin, did) =>
    ({ put: async (key: string, value: string) => void stored.push(`${plugin} ${did} ${key}=${value}`) }) as unknown as PluginStorage;
  const world = createWorld({
    plugins: {
      routes: (callerOf) =>
        ok(added.map(({ plugin = 'notes', open = [], routes }) => ({ plugin, open, register: routes(callerOf(plugin)) }))),
      storageOf,
    },
  });
  return { ...world, stored };
}
const notes =
  (callerOf: CallerOf): FastifyPluginAsync =>
  async (app) => {
    app.get('/notes', async (request) => ({ of: callerOf(request).did, account: callerOf(request).matrixUserId }));
    app.put('/notes', { schema: { body: z.strictObject({ text: z.string() }) } }, async (request) => {
      await callerOf(request).storage.put('text', (request.body as { text: string }).text);
      return { done: true };
    });
  };
const put = (text: string, more: Partial<Parameters<typeof signed>[0]> = {}) =>
  signed({ method: 'PUT', path: '/notes', body: { text }, ...more });
const refusedStart = async (...added: Added[]): Promise<string> => {
  const { app } = start(...added);
  const said = await app.ready().then(
    () => 'it started',
    (error: Error & { code?: string }) => `${error.code} ${error.message}`,
  );
  await app.close();
  return said;
};

describe('a route of a plugin', () => {
  test('is told who signed the request: DID, account, and a storage that is this plugin and this person only (G13)', async () => {
    const { inject, prepare, close, stored } = start({ routes: notes });
    await prepare();

    const read = await inject(signed({ method: 'GET', path: '/notes' }));
    await inject(put('mine'));
    await inject(put('theirs', { key: mallory, sender: MALLORY, room: MALLORY_DM }));

    expect(read.json()).toEqual({ of: alice.did, account: ALICE });
    expect(stored).toEqual([`notes ${alice.did} text=mine`, `notes ${mallory.did} text=theirs`]);
    await close();
  });

  test.each([
    ['without a token', { method: 'GET' as const, url: '/notes' }, 'UNAUTHENTICATED'],
    ['with a token for another path', { ...signed({ method: 'PUT', path: '/other', body: { text: 'x' } }), url: '/notes' }, 'WRONG_TYPE'],
    ['with another body than was signed', { ...put('x'), payload: '{"text":"y"}' }, 'WRONG_CONTENT'],
    ["in another's room", put('x', { room: MALLORY_DM }), 'NOT_LINKED'],
    ['of somebody who was never seen in Matrix', put('x', { key: mallory, sender: ALICE, room: DM }), 'NOT_LINKED'],
  ])('%s is not reached (G8)', async (_, request, code) => {
    const { inject, prepare, close, stored } = start({ routes: notes });
    await prepare();

    const answer = await inject(request);

    expect(answer.json()).toMatchObject({ code });
    expect(stored).toEqual([]);
    await close();
  });

  test('takes a request that changes something once: the same token again is a replay', async () => {
    const { inject, prepare, close, stored } = start({ routes: notes });
    await prepare();
    const request = put('once');

    const answers = [await inject(request), await inject(request)];

    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 401]);
    expect(answers[1]?.json()).toMatchObject({ code: 'REPLAY' });
    expect(stored).toHaveLength(1);
    await close();
  });

  test('may be asked again with the same token when it only reads', async () => {
    const { inject, prepare, close } = start({ routes: notes });
    await prepare();
    const request = signed({ method: 'GET', path: '/notes' });

    expect([(await inject(request)).statusCode, (await inject(request)).statusCode]).toEqual([200, 200]);
    await close();
  });

  test("sees a body only after the signature was held against it: hooks and schemas of the plugin come after the host's", async () => {
    const seen: string[] = [];
    const { inject, prepare, close } = start({
      routes: () => async (app) => {
        app.addHook('preValidation', async () => void seen.push('hook of the plugin'));
        app.post(
          '/notes',
          { schema: { body: z.strictObject({ text: z.string() }) }, preValidation: async () => void seen.push('of the route') },
          async () => 'x',
        );
      },
    });
    await prepare();

    await inject({ method: 'POST', url: '/notes', headers: { 'content-type': 'application/json' }, payload: '{"wrong":1}' });

    expect(seen).toEqual([]);
    await close();
  });

  test('with a parser of its own is refused: nothing is left to hold the signature against', async () => {
    const { inject, prepare, close } = start({
      routes: () => async (app) => {
        app.addContentTypeParser('text/plain', { parseAs: 'string' }, (_request, body, done) => done(null, body));
        app.post('/notes', async () => 'reached');
      },
    });
    await prepare();
    const request = signed({ method: 'POST', path: '/notes' });

    const answer = await inject({ ...request, headers: { ...request.headers, 'content-type': 'text/plain' }, payload: 'anything' });

    expect(answer.json()).toMatchObject({ code: 'BAD_REQUEST' });
    await close();
  });

  test.each([
    [256 * 1024 + 1, 413],
    [100 * 1024, 200],
  ])('takes a body of %i bytes with %i, whatever limit the plugin sets (G14)', async (bytes, status) => {
    const { inject, prepare, close } = start({
      open: [{ path: '/notes' }],
      routes: () => async (app) => {
        app.post('/notes', { bodyLimit: 64 * 1024 * 1024 }, async () => 'taken');
      },
    });
    await prepare();
    const payload = JSON.stringify('x'.repeat(bytes - 2));

    const answer = await inject({ method: 'POST', url: '/notes', headers: { 'content-type': 'application/json' }, payload });

    expect(answer.statusCode).toBe(status);
    await close();
  });

  test('counts into the limits of its address (G14)', async () => {
    const { app, inject, prepare, close } = start({ open: [{ path: '/notes' }], routes: notes });
    await prepare();
    const ask = () => inject({ method: 'GET', url: '/models' });
    for (let n = 0; n < 600; n++) await app.inject({ method: 'GET', url: '/models' });

    expect((await ask()).statusCode).toBe(429);
    expect((await inject(signed({ method: 'GET', path: '/notes' }))).statusCode).toBe(429);
    await close();
  });

  test('that throws is answered like our own: a refusal by its code, anything else without a word (G12)', async () => {
    const { inject, prepare, close, lines } = start({
      open: [{ path: '/notes' }],
      routes: () => async (app) => {
        app.get('/notes', async () => {
          throw new Error('the password is hunter2');
        });
      },
    });
    await prepare();

    const answer = await inject({ method: 'GET', url: '/notes' });

    expect([answer.statusCode, answer.json().code]).toEqual([500, 'INTERNAL']);
    expect(answer.body).not.toContain('hunter2');
    expect(lines.some(({ msg }) => msg === 'a request failed')).toBe(true);
    await close();
  });

  test('stands in the description of the interface', async () => {
    const { app, close } = start({ open: [{ path: '/notes', method: 'GET' }], routes: notes });
    await app.ready();

    const { paths } = (await app.inject({ method: 'GET', url: '/docs/json' })).json() as {
      paths: Record<string, Record<string, { security?: unknown }>>;
    };

    expect(paths['/notes']?.['put']?.security).toEqual([{ ucan: [] }]);
    expect(paths['/notes']?.['get']?.security).toBeUndefined();
    await close();
  });
});

describe('a route that is excluded from authentication', () => {
  const hook =
    (callerOf: CallerOf): FastifyPluginAsync =>
    async (app) => {
      app.post('/hook', async () => 'open');
      app.post('/hook/:id', async () => 'open');
      app.get('/hook', async (request) => callerOf(request).did);
    };

  test('is served to anybody, and no other route or method with it', async () => {
    const { inject, prepare, close } = start({ open: [{ path: '/hook', method: 'POST' }], routes: hook });
    await prepare();

    const answers = await Promise.all(
      (['POST /hook', 'POST /hook/1', 'GET /hook'] as const).map((line) => {
        const [method = '', url = ''] = line.split(' ');
        return inject({ method: method as 'GET', url });
      }),
    );

    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 401, 401]);
    await close();
  });

  test('has no caller: to ask for one is a mistake of the plugin', async () => {
    const { inject, prepare, close } = start({ open: [{ path: '/hook' }], routes: hook });
    await prepare();

    expect((await inject({ method: 'GET', url: '/hook' })).statusCode).toBe(500);
    await close();
  });

  test('that does not exist is logged', async () => {
    const { app, close, lines } = start({ open: [{ path: '/hok' }], routes: hook });
    await app.ready();

    expect(lines).toContainEqual(expect.objectContaining({ plugin: 'notes', path: '/hok' }));
    await close();
  });
});

describe('the start is refused', () => {
  const at = (url: string, plugin = 'notes'): Added => ({ plugin, routes: () => async (app) => void app.get(url, async () => 'x') });

  test.each(['/messages/evil', '/sessions/export', '/health', '/health/more', '/', '/authorise/app2.js', '//sessions', '/runs'])(
    'for the path %s, which is the sidecar’s',
    async (url) => {
      expect(await refusedStart(at(url))).toMatch(/^START_REFUSED .*belongs to the sidecar.*boot\.plugin\.collision/su);
    },
  );

  test.each(['/:any', '/*', '*', '/a:b', '/:a/notes'])('for the path %s, which could take requests of others', async (url) => {
    expect(await refusedStart(at(url))).toMatch(/^START_REFUSED .*must begin with a fixed name/su);
  });

  test('for two plugins below one first segment, and both problems of two plugins are told', async () => {
    const said = await refusedStart(at('/one'), at('/one/deeper', 'second'), at('/runs/x', 'third'));

    expect(said).toContain('2 plugin problems');
    expect(said).toContain('plugin second lies below /one, which belongs to plugin notes');
    expect(said).toContain('plugin third lies below /runs');
  });

  test('for one route twice in a plugin, also in a scope within it', async () => {
    const twice: Added = {
      routes: () => async (app) => {
        app.get('/notes', async () => 'x');
        app.register(async (inner) => void inner.get('/notes', async () => 'y'));
      },
    };

    expect(await refusedStart(twice)).toMatch(/^START_REFUSED .*cannot be registered/su);
  });

  test('for a plugin whose routes cannot be made', async () => {
    const broken: Added = {
      routes: () => async () => {
        throw new Error('no database');
      },
    };

    expect(await refusedStart(broken)).toMatch(/^START_REFUSED .*no database/su);
  });
});

test('hooks of a plugin stay with its routes, also when it tries to break out of its scope', async () => {
  const seen: string[] = [];
  const outside: FastifyPluginAsync = async (app) => {
    app.addHook('onRequest', async ({ url }) => void seen.push(url));
    app.get('/notes', async () => 'x');
  };
  Object.defineProperty(outside, Symbol.for('skip-override'), { value: true });
  const { inject, prepare, close } = start({ open: [{ path: '/notes' }], routes: () => outside });
  await prepare();

  await inject({ method: 'GET', url: '/models' });
  await inject({ method: 'GET', url: '/notes' });

  expect(seen).toEqual(['/notes']);
  await close();
});

test('preferences of one person are kept over HTTP and read by nobody else: the bundled plugin over the real storage (G13)', async () => {
  const plan = resolvePlugins([{ plugin: userPreferences, origin: 'bundled' }], {}, {});
  if (!plan.ok) throw new Error(JSON.stringify(plan.error));
  const identity = { name: 'Testy', did: 'did:key:z6Mk', entityDid: null };
  const host = await buildPluginHost(plan.value, { identity, logger: fakeLogger(), clock: fakeClock() });
  if (!host.ok) throw new Error(JSON.stringify(host.error));
  const rows = createPluginStore({ store: memoryStore(), now: () => 0 });
  const world = createWorld({
    plugins: {
      routes: host.value.routes,
      storageOf: (plugin, principal) =>
        buildPluginStorage({ store: rows, owner: { plugin, principal }, isTainted: () => false, readsForeign: () => undefined }),
    },
  });
  await world.prepare();
  const path = '/user-preferences';

  const put = await world.inject(signed({ method: 'PUT', path, body: { language: 'German' } }));
  const own = await world.inject(signed({ method: 'GET', path }));
  const theirs = await world.inject(signed({ method: 'GET', path, key: mallory, sender: MALLORY, room: MALLORY_DM }));
  const wrong = await world.inject(signed({ method: 'PUT', path, body: { language: 1 } }));

  expect([put.statusCode, own.json(), theirs.json()]).toEqual([200, { language: 'German' }, {}]);
  expect(wrong.json()).toMatchObject({ statusCode: 400, code: 'BAD_REQUEST', details: { field: 'language' } });
  await world.close();
});
