import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Fastify from 'fastify';
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import { afterEach, expect, test } from 'vitest';
import { LIMITS } from '../../../../src/limits.ts';
import { type AuthorisePage, readAuthorisePage } from '../../../../src/sidecar/pages/read-pages.ts';
import { readFailure, sendProblem } from '../../../../src/sidecar/problem.ts';
import { authoriseRoutes } from '../../../../src/sidecar/routes/authorise.ts';
import { createAuthoriseLinks } from '../../../../src/ucan/authorise-links.ts';
import { newNonce } from '../../../../src/ucan/mint.ts';
import { fakeClock } from '../../../fakes/fake-clock.ts';
import { memoryStore } from '../../../fakes/memory-store.ts';
import { ALICE, DM, ORACLE } from './people.ts';

const page: AuthorisePage = {
  html: { type: 'text/html; charset=utf-8', body: Buffer.from('<h1>hello</h1>') },
  script: { type: 'text/javascript; charset=utf-8', body: Buffer.from('let a') },
  style: { type: 'text/css; charset=utf-8', body: Buffer.from('a{}') },
};
const ABILITY = { can: 'fs/read', with: 'ixo:filesystem', title: 'Read your files' };

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

function world(built: AuthorisePage | null = page) {
  const clock = fakeClock();
  const store = memoryStore();
  const authoriseLinks = createAuthoriseLinks({ store, newNonce });
  const app = Fastify().withTypeProvider<ZodTypeProvider>();
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.setErrorHandler(async (error, request, reply) => sendProblem(reply, request, readFailure(error)));
  const identity = { name: 'Testy', did: ORACLE };
  void app.register(authoriseRoutes({ identity, page: built, authoriseLinks, abilities: () => [ABILITY], clock }));
  closing.push(() => app.close());
  const issue = async () => (await store.write((tx) => authoriseLinks.issue(tx, { user: ALICE, room: DM }, clock.now()))) ?? '';
  const ask = (nonce: unknown) => app.inject({ method: 'POST', url: '/authorise/context', payload: { nonce } });
  return { app, clock, store, authoriseLinks, issue, ask };
}

test.each([
  ['/authorise', page.html],
  ['/authorise/app.js', page.script],
  ['/authorise/app.css', page.style],
])('%s is served as built, and lets in nothing but its own files', async (url, { type, body }) => {
  const reply = await world().app.inject({ url });

  expect(reply.statusCode).toBe(200);
  expect(reply.rawPayload).toEqual(body);
  expect(reply.headers).toMatchObject({
    'content-type': type,
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
  });
  const policy = String(reply.headers['content-security-policy']).split('; ');
  expect(policy).toEqual(
    expect.arrayContaining(["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"]),
  );
  expect(policy.join()).not.toMatch(/unsafe|\*|https?:/u);
});

test('a page that was not built is a sentence for the operator, not half a page', async () => {
  for (const url of ['/authorise', '/authorise/app.js', '/authorise/app.css']) {
    const reply = await world(null).app.inject({ url });

    expect(reply.statusCode).toBe(503);
    expect(reply.body).toContain('npm run build:pages');
  }
});

test('a folder without all three files is a page that was not built', () => {
  const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-pages-'));
  closing.push(() => rmSync(folder, { recursive: true }));
  const write = (name: string) => writeFileSync(join(folder, name), name);

  for (const name of ['index.html', 'app.js']) write(name);
  expect(readAuthorisePage(folder)).toBeNull();
  write('app.css');
  expect(readAuthorisePage(folder)?.script.body.toString()).toBe('app.js');
});

test('whose page it is can be asked without a link', async () => {
  const reply = await world().app.inject({ url: '/authorise/oracle' });

  expect(reply.json()).toEqual({ did: ORACLE, name: 'Testy' });
});

test('a link says for whom it was sent and what may be granted, as often as it is asked', async () => {
  const { issue, ask } = world();
  const nonce = await issue();

  for (let again = 0; again < 2; again++) {
    const reply = await ask(nonce);
    expect(reply.statusCode).toBe(200);
    expect(reply.json()).toEqual({
      oracle: { did: ORACLE, name: 'Testy' },
      matrixUserId: ALICE,
      roomId: DM,
      abilities: [ABILITY],
      expiresInMs: LIMITS.authoriseLinkMs,
      maxDays: 30,
    });
  }
});

test.each([
  ['is unknown', async () => newNonce()],
  [
    'was used',
    async ({ issue, store, authoriseLinks, clock }: ReturnType<typeof world>) => {
      const nonce = await issue();
      await store.write((tx) => authoriseLinks.use(tx, nonce, clock.now()));
      return nonce;
    },
  ],
  [
    'is a quarter of an hour old',
    async ({ issue, clock }: ReturnType<typeof world>) => {
      const nonce = await issue();
      clock.advance(LIMITS.authoriseLinkMs);
      return nonce;
    },
  ],
  ['is half a link', async ({ issue }: ReturnType<typeof world>) => (await issue()).slice(0, 11)],
  ['is empty', async () => ''],
])('a link that %s says nothing about anybody: BAD_LINK (G12)', async (_how, make) => {
  const made = world();

  const reply = await made.ask(await make(made));

  expect(reply.statusCode).toBe(403);
  expect(reply.json()).toMatchObject({ code: 'BAD_LINK' });
  expect(reply.body).not.toContain('alice');
});

test.each([[{ nonce: 'x'.repeat(45) }], [{ nonce: 1 }], [{}], [{ nonce: 'x', more: 1 }]])('%j is no question (G14)', async (payload) => {
  const reply = await world().app.inject({ method: 'POST', url: '/authorise/context', payload });

  expect(reply.statusCode).toBe(400);
});

test('a question past a kilobyte is not read (G14)', async () => {
  const reply = await world().ask('x'.repeat(2_000));

  expect(reply.statusCode).toBe(413);
});
