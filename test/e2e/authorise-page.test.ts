/**
 * The authorise page as people meet it: in a browser, at phone width, with nothing but a keyboard, from a link to "it counts" and back. After every
 * test it is asked whether the page broke its own policy, spoke to anybody else or kept what it must not (DESIGN §5 "Grants from ordinary clients").
 */
import { createHash, createPublicKey, type JsonWebKey, verify } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { base58btc } from 'multiformats/bases/base58';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Did } from '../../src/ids.ts';
import { LIMITS } from '../../src/limits.ts';
import { readAuthorisePage } from '../../src/sidecar/pages/read-pages.ts';
import { keyFromSeed } from '../../src/ucan/signing-key.ts';
import { ALICE, type AuthoriseWorld, startAuthoriseWorld } from './authorise-world.ts';
import { launchChromium } from './chromium.ts';

const PHONE = { width: 320, height: 640 };
const DAY = 24 * 60 * 60_000;

let browser: Browser;
beforeAll(async () => {
  browser = await launchChromium(['--host-resolver-rules=MAP insecure.test 127.0.0.1']);
});
afterAll(() => browser?.close());

const didOf = (words: string): Did => keyFromSeed(createHash('sha256').update(words).digest()).did;

/** A device: what it stores is its own. `hosts` and `complaints` are what the page must have none of. */
async function device(world: AuthoriseWorld, { before }: { before?: string } = {}) {
  const context = await browser.newContext({ viewport: PHONE, locale: 'en-GB', permissions: ['clipboard-write'] });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const requests: { url: string; body: string | null; headers: Record<string, string> }[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => requests.push({ url: request.url(), body: request.postData(), headers: request.headers() }));
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // A refused request is an answer of the oracle, and a header that only counts over https is not for a page without it.
    const expected =
      /^Failed to load resource|^The Cross-Origin-Opener-Policy header has been ignored, because the URL's origin was untrustworthy/u;
    if (message.type() === 'error' && !expected.test(message.text())) complaints.push(message.text());
  });
  if (before !== undefined) await page.addInitScript(before);
  onTestFinished(async () => {
    const own = new RegExp(`^(?:http://[^/]*:${world.port}/|data:,$)`, 'u');
    const foreign = requests.filter(({ url }) => !own.test(url)).map(({ url }) => url);
    await context.close();
    expect({ complaints, foreign }).toEqual({ complaints: [], foreign: [] });
  });
  return { context, page, requests, open: (nonce?: string) => page.goto(nonce === undefined ? world.url : `${world.url}#${nonce}`) };
}

const heading = (page: Page, name: string | RegExp) => page.getByRole('heading', { level: 1, name });
const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: typeof name === 'string' }).click();
const wordsOn = (page: Page): Promise<string[]> => page.locator('ol.words li').allTextContents();

/** Every screen: no scrolling to the side on a phone, focus on its heading, a name for whatever can be used. */
async function expectUsable(page: Page, name: string | RegExp): Promise<void> {
  await heading(page, name).waitFor();
  expect(await page.evaluate('document.activeElement.tagName')).toBe('H1');
  expect(await page.title()).toBe(await page.locator('h1').textContent());
  expect(await page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth')).toBe(0);
  const tree = await page.locator('body').ariaSnapshot();
  expect(tree.match(/^\s*- (?:button|textbox|checkbox|radio|link|region|group)(?! ".).*$/gmu) ?? []).toEqual([]);
  expect(await page.locator('main').count()).toBe(1);
}

async function newAccount(page: Page): Promise<string> {
  await press(page, 'Make a new account');
  await expectUsable(page, /Write down/u);
  const words = await wordsOn(page);
  await press(page, 'I have written them down');
  await expectUsable(page, /Check what/u);
  for (const field of await page.getByRole('textbox').all()) {
    const at = Number((await field.getAttribute('id'))?.slice('word-'.length));
    await field.fill(words[at - 1] ?? '');
  }
  await press(page, 'Go on');
  return words.join(' ');
}

async function restore(page: Page, words: string): Promise<void> {
  await press(page, 'I have words');
  await expectUsable(page, 'Enter your words');
  await page.getByLabel('Your words').fill(words);
  await press(page, 'Go on');
}

/** Everything the browser keeps for this page. */
const kept = (page: Page) =>
  page.evaluate(`(async () => {
    const names = (await indexedDB.databases()).map(({ name }) => name);
    const database = await new Promise((done, failed) => {
      const request = indexedDB.open('matrix-oracle-authorise');
      request.onsuccess = () => done(request.result);
      request.onerror = () => failed(request.error);
    });
    const rows = database.objectStoreNames.length === 0 ? [] : await new Promise((done) => {
      const request = database.transaction('account').objectStore('account').getAll();
      request.onsuccess = () => done(request.result);
    });
    database.close();
    const key = rows[0]?.sessionKey;
    const exported = key === undefined ? null : await Promise.any(['jwk', 'pkcs8', 'raw'].map((f) => crypto.subtle.exportKey(f, key))).catch(() => null);
    const signed = key === undefined ? [] : [...new Uint8Array(await crypto.subtle.sign('Ed25519', key, new Uint8Array([1, 2, 3])))];
    const plain = (value) => value instanceof Uint8Array ? String.fromCharCode(...value) : value;
    const text = JSON.stringify(rows.map(({ sessionKey, ...row }) => row), (_, value) => plain(value));
    return { names, fields: Object.keys(rows[0] ?? {}).sort(), text, extractable: key?.extractable, exported, signed, did: rows[0]?.did,
      sessionDid: rows[0]?.sessionDid, local: localStorage.length, session: sessionStorage.length, cookies: document.cookie };
  })()`) as Promise<{
    names: string[];
    fields: string[];
    text: string;
    extractable: boolean;
    exported: unknown;
    signed: number[];
    did: string;
    sessionDid: string;
    local: number;
    session: number;
    cookies: string;
  }>;

describe('from a link to a permission', () => {
  test('a new account signs a grant that the oracle verifies, and nothing but a key that cannot be taken out stays behind (G12)', async () => {
    const world = await startAuthoriseWorld();
    // The page may write to the clipboard, but its own headers forbid it to read.
    const { page, open, requests, context } = await device(world, {
      before:
        'const write = Clipboard.prototype.writeText; Clipboard.prototype.writeText = function (text) { window.copied = text; return write.call(this, text); };',
    });
    const nonce = await world.sendLink();

    await open(nonce);
    await expectUsable(page, 'Let Testy act for you');
    expect(page.url()).toBe(world.url);
    expect(await page.locator('main').textContent()).toContain(ALICE);
    expect(await page.locator('main').textContent()).toContain(world.oracle.did);
    const words = await newAccount(page);
    await expectUsable(page, 'What Testy may do');
    expect(await page.locator('input:checked').evaluateAll((nodes) => nodes.map(({ id }) => id))).toEqual(['days-7', 'chat']);
    await page.getByLabel('30 days').check();
    await page.getByLabel(/^Read your files/u).check();
    expect(await page.locator('#summary').textContent()).toMatch(
      /^You allow Testy to answer @alice:example.org in your name, and to use: Read your files\./u,
    );
    await press(page, 'Sign and send');
    await expectUsable(page, 'Now send one line to Testy');

    const did = didOf(words);
    const pending = world.pending();
    expect(pending).toMatchObject({ did, audience: world.oracle.did, kind: 'acting', source: 'page', matrixUserId: ALICE });
    expect(pending?.capabilities).toEqual([
      { can: 'oracle/chat', with: did, nb: { link: nonce, sender: ALICE } },
      { can: 'fs/read', with: 'ixo:filesystem' },
    ]);
    expect(Math.abs((pending?.expiresAt ?? 0) - (world.now() + 30 * DAY))).toBeLessThan(120_000);
    expect(world.active(did)).toEqual([]);
    expect(await page.locator('main').textContent()).toContain(did);
    await press(page, /^Copy/u);
    await page.getByText('Copied.').waitFor();
    expect(await page.evaluate('copied')).toBe('!authorise');

    const store = await kept(page);
    expect(store).toMatchObject({
      names: ['matrix-oracle-authorise'],
      extractable: false,
      exported: null,
      local: 0,
      session: 0,
      cookies: '',
      did,
    });
    expect(store.fields).toEqual(['did', 'matrixUserId', 'oracleDid', 'roomId', 'sessionDid', 'sessionGrant', 'sessionKey']);
    const sessionKey = createPublicKey({ key: publicJwk(store.sessionDid), format: 'jwk' });
    expect(verify(null, Uint8Array.of(1, 2, 3), sessionKey, Uint8Array.from(store.signed))).toBe(true);
    expect(store.sessionDid).not.toBe(did);
    expect(store.text).not.toContain(words);
    expect(store.text).not.toContain(nonce);
    expect(await context.cookies()).toEqual([]);

    const told = JSON.stringify(requests);
    expect(told).not.toContain(words);
    expect(requests.filter(({ url, headers }) => (url + JSON.stringify(headers)).includes(nonce) && !url.endsWith(`#${nonce}`))).toEqual(
      [],
    );
    expect(requests.filter(({ body }) => body !== null).map(({ url }) => new URL(url).pathname)).toEqual([
      '/authorise/context',
      '/delegation',
    ]);
    // What stood on the screens is gone with them.
    expect(await page.content()).not.toContain(words.split(' ').slice(0, 3).join('</li><li>'));
  });

  test('the words bring the same account to another device, however they are typed', async () => {
    const world = await startAuthoriseWorld();
    const first = await device(world);
    await first.open(await world.sendLink());
    const words = await newAccount(first.page);
    await heading(first.page, 'What Testy may do').waitFor();

    const second = await device(world);
    await second.open(await world.sendLink());
    await restore(second.page, `  ${words.toUpperCase().replaceAll(' ', '  \n')} `);

    await expectUsable(second.page, 'What Testy may do');
    expect(await second.page.locator('dl').textContent()).toContain(didOf(words));
    await press(second.page, 'Sign and send');
    await heading(second.page, /Now send/u).waitFor();
    expect(world.pending()?.did).toBe(didOf(words));
  });

  test('a wrong word is named before it opens another account; a phrase of another app needs one more yes', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open(await world.sendLink());

    await restore(page, 'legal winner thank year wave sausage worth useful legal winner thank yelow');
    await page.getByRole('alert').filter({ hasText: 'yelow' }).waitFor();
    expect(await page.evaluate('document.activeElement.id')).toBe('words');
    expect(await page.getByLabel('Your words').getAttribute('aria-invalid')).toBe('true');
    await page.getByLabel('Your words').fill('My old phrase of another app');
    await page.getByLabel(/every letter is right/u).check();
    await press(page, 'Go on');

    await heading(page, 'What Testy may do').waitFor();
    expect(await page.locator('dl').textContent()).toContain(didOf('My old phrase of another app'));
  });

  test('who did not write the words down does not get past two of them, and can look again', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open(await world.sendLink());
    await press(page, 'Make a new account');
    const words = await wordsOn(page);
    await press(page, 'I have written them down');

    await press(page, 'Go on');
    await page
      .getByRole('alert')
      .filter({ hasText: /^This is not word/u })
      .waitFor();
    await press(page, 'Show the words again');

    await heading(page, /Write down/u).waitFor();
    expect(await wordsOn(page)).toEqual(words);
  });

  test('a keyboard is enough for all of it', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open(await world.sendLink());
    await heading(page, /Let Testy/u).waitFor();
    const focused = () =>
      page.evaluate(
        '(() => { const e = document.activeElement; return e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent ?? e.textContent; })()',
      ) as Promise<string>;
    const tabTo = async (name: RegExp) => {
      for (let steps = 0; steps < 30; steps++) {
        await page.keyboard.press('Tab');
        if (name.test(await focused())) return;
      }
      throw new Error(`the keyboard does not get to ${name}`);
    };

    await tabTo(/^Make a new account/u);
    await page.keyboard.press('Enter');
    await heading(page, /Write down/u).waitFor();
    const words = await wordsOn(page);
    await tabTo(/^I have written/u);
    await page.keyboard.press('Space');
    await heading(page, /Check what/u).waitFor();
    for (let field = 0; field < 2; field++) {
      await tabTo(/^Word \d+$/u);
      await page.keyboard.type(words[Number((await focused()).slice(5)) - 1] ?? '');
    }
    await page.keyboard.press('Enter');
    await heading(page, 'What Testy may do').waitFor();
    await tabTo(/^7 days/u);
    await page.keyboard.press('ArrowUp');
    await tabTo(/^Remember things/u);
    await page.keyboard.press('Space');
    await tabTo(/^Sign and send/u);
    await page.keyboard.press('Enter');
    await heading(page, /Now send/u).waitFor();

    expect(world.pending()?.capabilities.map(({ can }) => can)).toEqual(['oracle/chat', 'memory/*']);
    expect(Math.abs((world.pending()?.expiresAt ?? 0) - (world.now() + DAY))).toBeLessThan(120_000);
  });

  test('no answer to the first try makes no second permission', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open(await world.sendLink());
    await newAccount(page);
    await page.route('**/delegation', async (route) => {
      await route.fetch();
      await route.abort();
    });
    await press(page, 'Sign and send');
    await page.getByRole('alert').filter({ hasText: 'did not answer' }).waitFor();
    await page.unroute('**/delegation');

    await press(page, 'Sign and send');

    await page.getByRole('alert').filter({ hasText: 'seems to have arrived' }).waitFor();
    expect(world.pending()?.matrixUserId).toBe(ALICE);
  });

  test('a device whose clock is wrong signs with the time of the oracle', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world, { before: 'const now = Date.now; Date.now = () => now() - 3 * 3_600_000;' });
    await open(await world.sendLink());
    await newAccount(page);
    await press(page, 'Sign and send');
    await heading(page, /Now send/u).waitFor();
    await world.confirm();

    await press(page, 'Show my permissions');

    await heading(page, 'Your permissions').waitFor();
    expect(Math.abs((world.active((await kept(page)).did as Did)[0]?.expiresAt ?? 0) - (world.now() + 7 * DAY))).toBeLessThan(120_000);
  });
});

describe('what a link is not good for', () => {
  test.each([
    [
      'was used',
      async (world: AuthoriseWorld, spare: BrowserContext) => {
        const nonce = await world.sendLink();
        const page = await spare.newPage();
        await page.goto(`${world.url}#${nonce}`);
        await newAccount(page);
        await press(page, 'Sign and send');
        await heading(page, /Now send/u).waitFor();
        return nonce;
      },
    ],
    [
      'is a quarter of an hour old',
      async (world: AuthoriseWorld) => {
        const nonce = await world.sendLink();
        world.pass(LIMITS.authoriseLinkMs + 1_000);
        return nonce;
      },
    ],
    ['was copied in part', async (world: AuthoriseWorld) => (await world.sendLink()).slice(0, 9)],
    ['never was one', async () => 'AAAAAAAAAAAAAAAAAAAAAA'],
  ])('a link that %s says so and how to get another', async (_how, make) => {
    const world = await startAuthoriseWorld();
    const { page, open, context } = await device(world);

    await open(await make(world, context));

    await expectUsable(page, 'This link cannot be used');
    expect(await page.getByRole('alert').textContent()).toContain('send !authorise to get a new link');
    expect(page.url()).toBe(world.url);
  });

  test('two pages with one link: the second is told, and nothing of it is stored', async () => {
    const world = await startAuthoriseWorld();
    const nonce = await world.sendLink();
    const [first, second] = [await device(world), await device(world)];
    for (const { page, open } of [first, second]) {
      await open(nonce);
      await newAccount(page);
      await heading(page, 'What Testy may do').waitFor();
    }
    await press(first.page, 'Sign and send');
    await heading(first.page, /Now send/u).waitFor();
    const did = world.pending()?.did;

    await press(second.page, 'Sign and send');

    await second.page.getByRole('alert').filter({ hasText: 'This link does not work any more' }).waitFor();
    expect(world.pending()?.did).toBe(did);
    expect((await kept(second.page)).fields).toEqual([]);
  });

  test('an account that already acts with another identity is told what to do first', async () => {
    const world = await startAuthoriseWorld();
    const first = await device(world);
    await first.open(await world.sendLink());
    await newAccount(first.page);
    await press(first.page, 'Sign and send');
    await heading(first.page, /Now send/u).waitFor();
    await world.confirm();

    const second = await device(world);
    await second.open(await world.sendLink());
    await newAccount(second.page);
    await press(second.page, 'Sign and send');

    await second.page.getByRole('alert').filter({ hasText: '!revoke all' }).waitFor();
  });

  test('a second link opened in the same tab starts anew', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open('AAAAAAAAAAAAAAAAAAAAAA');
    await heading(page, 'This link cannot be used').waitFor();

    await open(await world.sendLink());

    await heading(page, 'Let Testy act for you').waitFor();
    expect(page.url()).toBe(world.url);
  });
});

describe('afterwards', () => {
  async function authorised(world: AuthoriseWorld) {
    const made = await device(world);
    await made.open(await world.sendLink());
    const words = await newAccount(made.page);
    await press(made.page, 'Sign and send');
    await heading(made.page, /Now send/u).waitFor();
    return { ...made, words, did: didOf(words) };
  }

  test('the list shows what counts, and takes it back without the words', async () => {
    const world = await startAuthoriseWorld();
    const { page, open, did } = await authorised(world);
    await open();
    await expectUsable(page, 'Your permissions');
    expect(await page.getByRole('alert').textContent()).toContain('!authorise confirm');
    const grant = await world.confirm();

    await press(page, 'Try again');
    await page.getByRole('heading', { level: 2, name: 'The oracle may' }).waitFor();
    await expectUsable(page, 'Your permissions');
    expect(await page.locator('main').textContent()).toContain(did);
    await press(page, /^Take back: The oracle may, until/u);

    await page.getByText('Taken back.').waitFor();
    await page.getByText('Testy has no permission of yours.').waitFor();
    expect(world.active(did)).toEqual([]);
    expect(world.revoked).toEqual([grant.tokenId]);
  });

  test('all is taken back at once', async () => {
    const world = await startAuthoriseWorld();
    const { page, open, words, did } = await authorised(world);
    await world.confirm();
    await open(await world.sendLink());
    await restore(page, words);
    await press(page, 'Sign and send');
    await heading(page, /Now send/u).waitFor();
    await world.confirm();
    await press(page, 'Show my permissions');
    await page.getByRole('heading', { level: 2, name: 'The oracle may' }).first().waitFor();
    expect(world.active(did)).toHaveLength(2);

    await press(page, 'Take all back');

    await page.getByText('Taken back.').waitFor();
    expect(world.active(did)).toEqual([]);
  });

  test('after a day, or when it was told to forget, the browser asks for the words', async () => {
    const world = await startAuthoriseWorld();
    const { page, open, words, did, context } = await authorised(world);
    await world.confirm();
    await context.clock.setFixedTime(Date.now() + DAY);
    await page.route('**/authorise/oracle', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, headers: { ...response.headers(), date: new Date(Date.now() + DAY).toUTCString() } });
    });
    await open();
    await expectUsable(page, 'Your permissions');
    await page.getByText('has ended').waitFor();
    await page.unroute('**/authorise/oracle');
    await context.clock.setFixedTime(Date.now());

    await page.getByLabel('Your words').fill(words);
    await press(page, 'Show my permissions');
    await page.getByRole('heading', { level: 2, name: 'The oracle may' }).waitFor();
    expect((await kept(page)).did).toBe(did);
    await press(page, 'Forget my account here');

    await page.getByText('has forgotten').waitFor();
    expect((await kept(page)).fields).toEqual([]);
    expect(world.active(did)).toHaveLength(1);
  });

  test('words alone list and take back on a browser that never saw the link', async () => {
    const world = await startAuthoriseWorld();
    const { words, did } = await authorised(world);
    await world.confirm();
    const other = await device(world);
    await other.open();
    await expectUsable(other.page, 'Your permissions');

    await other.page.getByLabel('Your words').fill(words);
    await press(other.page, 'Show my permissions');
    await press(other.page, /^Take back/u);

    await other.page.getByText('Taken back.').waitFor();
    expect(world.active(did)).toEqual([]);
  });

  test('a reload in the middle shows no words and needs the link again', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world);
    await open(await world.sendLink());
    await press(page, 'Make a new account');
    const [word = ''] = await wordsOn(page);

    await page.reload();

    await heading(page, 'Your permissions').waitFor();
    expect(await page.locator('ol.words').count()).toBe(0);
    expect((await kept(page)).text).not.toContain(word);
  });
});

describe('where the page does not work', () => {
  test('inside a frame of another page it is not shown', async () => {
    const world = await startAuthoriseWorld();
    const framing = createServer((_request, response) =>
      response.setHeader('content-type', 'text/html').end(`<iframe src="${world.url}"></iframe>`),
    );
    await new Promise<void>((done) => framing.listen(0, '127.0.0.1', done));
    onTestFinished(() => void framing.close());
    const page = await browser.newPage();
    onTestFinished(() => page.close());
    const refused: string[] = [];
    page.on('console', (message) => refused.push(message.text()));

    await page.goto(`http://127.0.0.1:${(framing.address() as AddressInfo).port}/`);

    await expect.poll(() => page.frames()[1]?.url()).toBe('chrome-error://chromewebdata/');
    expect(refused.join()).toContain('frame-ancestors');
  });

  test('without https it says so, and neither signs nor asks anything', async () => {
    const world = await startAuthoriseWorld();
    const { page, requests } = await device(world);

    await page.goto(`http://insecure.test:${world.port}/authorise#${await world.sendLink()}`);

    await expectUsable(page, 'This page needs a secure connection');
    expect(requests.filter(({ url }) => !/\/authorise(?:\/app\.(?:js|css))?(?:#.*)?$/u.test(url) && url !== 'data:,')).toEqual([]);
  });

  test('a browser without Ed25519 is told which ones have it', async () => {
    const world = await startAuthoriseWorld();
    const { page, open } = await device(world, {
      before: `SubtleCrypto.prototype.generateKey = () => Promise.reject(new DOMException('Unrecognized name.', 'NotSupportedError'));`,
    });

    await open(await world.sendLink());

    await expectUsable(page, 'This browser is too old for this page');
    expect(await page.locator('main').textContent()).toMatch(/Firefox 129.*Safari 17/u);
  });

  test('without JavaScript it says what it needs it for', async () => {
    const world = await startAuthoriseWorld();
    const context = await browser.newContext({ javaScriptEnabled: false });
    onTestFinished(() => context.close());
    const page = await context.newPage();

    await page.goto(world.url);

    expect(await page.locator('main').textContent()).toContain('needs JavaScript');
  });

  test('not built, it answers with a sentence for the operator', async () => {
    const world = await startAuthoriseWorld({ built: false });

    const answer = await fetch(world.url);

    expect(answer.status).toBe(503);
    expect(await answer.text()).toContain('npm run build:pages');
  });
});

test('dark or light, the text is readable against what it stands on (WCAG AA)', async () => {
  const world = await startAuthoriseWorld();
  for (const colorScheme of ['light', 'dark'] as const) {
    const { page, open } = await device(world);
    await page.emulateMedia({ colorScheme });
    await open('AAAAAAAAAAAAAAAAAAAAAA');
    await heading(page, 'This link cannot be used').waitFor();
    const ratios = (await page.evaluate(`(() => {
      const luminance = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((n) => n / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (node) => {
        for (let n = node; n !== null; n = n.parentElement) {
          const { backgroundColor } = getComputedStyle(n);
          if (!backgroundColor.endsWith(', 0)')) return backgroundColor;
        }
        return 'rgb(255, 255, 255)';
      };
      return [...document.querySelectorAll('h1, p:not(:empty), button')].map((node) => {
        const [a, b] = [luminance(getComputedStyle(node).color), luminance(behind(node))];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      });
    })()`)) as number[];
    expect(ratios.length).toBeGreaterThan(2);
    expect(Math.min(...ratios)).toBeGreaterThanOrEqual(4.5);
  }
});

test('the script is one file of at most 150 kB that loads and evaluates nothing further', () => {
  const script = readAuthorisePage()?.script.body.toString('utf8') ?? '';

  expect(script.length).toBeGreaterThan(10_000);
  expect(Buffer.byteLength(script)).toBeLessThanOrEqual(150_000);
  expect(script.match(/\brequire\(|\bimport\s*\(|eval\(|innerHTML/gu) ?? []).toEqual([]);
  expect(script.startsWith('/*!')).toBe(true);
});

function publicJwk(did: string): JsonWebKey {
  const bytes = base58btc.decode(did.slice('did:key:'.length)).subarray(2);
  return { kty: 'OKP', crv: 'Ed25519', x: Buffer.from(bytes).toString('base64url') };
}
