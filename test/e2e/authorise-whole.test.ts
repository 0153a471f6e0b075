/**
 * The whole way of somebody with an ordinary client, with nothing played: a refusal in a real room, its link in a real browser, words, the line that the
 * page asks to send, an answer, and the page taking it all back. The parts have tests of their own; this one shows that they are parts of one thing.
 */

import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { QUICK } from './authority-tools.ts';
import { launchChromium } from './chromium.ts';
import { useWorld } from './harness.ts';

const world = useWorld({ oracles: 1 });
let browser: Browser;
beforeAll(async () => {
  browser = await launchChromium();
});
afterAll(() => browser?.close());

const heading = (page: Page, name: string | RegExp) => page.getByRole('heading', { level: 1, name }).waitFor();
const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name }).click();

test('from a refusal in the room over the page in a browser to an answer, and back (G8)', async () => {
  const oracle = await world.oracle({ ...QUICK, PUBLIC_URL: 'https://oracle.example.org', ORACLE_NAME: 'Testy' });
  await oracle.start();
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const person = await world.person({ signs: false });
  const talk = await person.direct(oracle);

  const refused = await talk.ask('Can you hear me?');
  const link = /https:\/\/oracle\.example\.org(?<path>\/authorise#[\w-]{22})$/u.exec(refused.text)?.groups?.['path'];
  const page = await browser.newPage();
  await page.goto(`${oracle.sidecarUrl()}${link}`);
  await heading(page, 'Let Testy act for you');
  expect(await page.locator('main').textContent()).toContain(person.userId);
  await press(page, 'Make a new account');
  const words = await page.locator('ol.words li').allTextContents();
  await press(page, 'I have written them down');
  for (const field of await page.getByRole('textbox').all()) {
    await field.fill(words[Number((await field.getAttribute('id'))?.slice('word-'.length)) - 1] ?? '');
  }
  await press(page, 'Go on');
  await press(page, 'Sign and send');
  await heading(page, /Now send one line/u);
  const did = /did:key:\w+/u.exec((await page.locator('main').textContent()) ?? '')?.[0];

  const shown = await talk.ask('!authorise');
  expect(did).toBeDefined();
  expect(shown.text).toContain(did);
  expect((await talk.ask('!authorise confirm')).text).toMatch(/^Done\./u);
  expect((await talk.ask('And now?')).text).toBe('Re: And now?');
  expect(oracle.rows('SELECT principal_id, tier FROM runs')).toEqual([{ principal_id: did, tier: 'sender-bound' }]);

  // The browser has a key of its own now, and neither the words nor the link.
  await page.goto(`${oracle.sidecarUrl()}/authorise`);
  await heading(page, 'Your permissions');
  await press(page, /^Take back: The oracle may, until/u);
  await page.getByText('Taken back.').waitFor();
  const last = await talk.say('Still?');
  await talk.watch.waitFor(({ event }) => {
    const relation = event.content['m.relates_to'] as JsonObject | undefined;
    return event.type === 'm.reaction' && relation?.['event_id'] === last && relation['key'] === '🔒';
  });
  expect(oracle.model.requests).toHaveLength(1);
});
