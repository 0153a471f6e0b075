/**
 * Authority of people whose client signs nothing: from the link in a direct chat over a grant to an answer and back, on a real homeserver. The page is
 * played by the same request that it sends (test/e2e/authorise-page.test.ts has the page itself), because what matters here is who may use whose link,
 * and that nothing counts before its owner has seen and confirmed it (DESIGN §5 "Grants from ordinary clients").
 */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { generateKey, type SigningKey } from '../../src/ucan/signing-key.ts';
import { createGate, heldReply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { codeFor, type Grant, pageGrant, QUICK, recordedFor, START_OF_A_CAR, tellToolResult } from './authority-tools.ts';
import { errorOf, type Talk, type TestOracle, textsAt, useWorld } from './harness.ts';
import { send } from './portal-client.ts';

const world = useWorld({ oracles: 5 });

const PAGE = 'https://oracle.example.org/authorise';
const ORDINARY = { ...QUICK, PUBLIC_URL: 'https://oracle.example.org/' };

async function startOracle(): Promise<TestOracle> {
  const oracle = await world.oracle(ORDINARY);
  await oracle.start();
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  return oracle;
}

/** The nonce of the link in what the oracle said. */
function linkIn(text: string): string {
  const link = /(?<page>https:\/\/\S+)#(?<nonce>[A-Za-z0-9_-]{22})$/u.exec(text)?.groups;
  expect(link?.['page']).toBe(PAGE);
  return link?.['nonce'] ?? '';
}
const sendLink = async (talk: Talk): Promise<string> => linkIn((await talk.ask('!authorise')).text);

/** What the page does at the end. */
async function post(oracle: TestOracle, { raw }: Grant): Promise<[number, JsonObject]> {
  const response = await fetch(`${oracle.sidecarUrl()}/delegation`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ raw }),
  });
  return [response.status, (await response.json()) as JsonObject];
}
const badLink = [403, expect.objectContaining({ code: 'BAD_LINK' })];

async function authorise(talk: Talk, oracle: TestOracle): Promise<SigningKey> {
  const key = generateKey();
  const made = pageGrant(key, { oracle, sender: talk.person.userId, link: await sendLink(talk) });
  expect((await post(oracle, made))[0]).toBe(201);
  await talk.ask('!authorise');
  expect((await talk.ask('!authorise confirm')).text).toMatch(/^Done\./u);
  return key;
}

const locked = (talk: Talk, eventId: string) =>
  talk.watch.waitFor(({ event }) => {
    const relation = event.content['m.relates_to'] as JsonObject | undefined;
    return event.type === 'm.reaction' && relation?.['event_id'] === eventId && relation['key'] === '🔒';
  });

test('from a refusal over the link, the grant, !authorise and its confirmation to an answer, and with !revoke all back (G8)', async () => {
  const oracle = await startOracle();
  const person = await world.person({ signs: false });
  const talk = await person.direct(oracle);
  const account = { oracle, sender: person.userId };
  const [mine, second] = [generateKey(), generateKey()];

  const [refused] = (await talk.ask('Can you hear me?')).parts;
  expect(errorOf(refused?.content ?? {})).toMatchObject({ status: 401, code: 'NO_AUTHORITY' });
  const link = linkIn(refused?.text ?? '');
  expect(refused?.content['ixo.oracle.delegation_required']).toMatchObject({ oracleDid: oracle.did, url: `${PAGE}#${link}` });
  const [status, stored] = await post(oracle, pageGrant(mine, { ...account, link }));
  expect([status, stored]).toEqual([201, expect.objectContaining({ ok: true, kind: 'acting', pending: true })]);
  await locked(talk, await talk.say('And now?'));

  const shown = await talk.ask('!authorise');
  expect(shown.text).toContain(mine.did);
  expect(shown.text).toContain('I may then: answer this account as that identity');
  expect(shown.text).toMatch(/Until: \d{4}-\d\d-\d\d \d\d:\d\d UTC/u);
  await locked(talk, await talk.say('Still not?'));
  expect(oracle.model.requests).toHaveLength(0);
  const confirmed = await talk.ask('!authorise confirm');
  expect(confirmed.text).toMatch(/^Done\. Until /u);

  expect((await talk.ask('Hello at last.')).text).toBe('Re: Hello at last.');
  expect(oracle.rows('SELECT principal_id, matrix_user_id, tier FROM runs')).toEqual([
    { principal_id: mine.did, matrix_user_id: person.userId, tier: 'sender-bound' },
  ]);
  oracle.model.enqueue(toolCallsReply({ name: 'set_room_topic', args: { topic: 'Mine' } }), tellToolResult);
  expect((await talk.ask('Set the topic.')).text).toContain('signed yourself');
  const id = String(stored['token_id']).slice(0, 8);
  expect((await talk.ask('!grants')).text).toContain(id);

  const call = { ...account, key: mine, room: talk.roomId };
  expect((await send({ ...call, path: '/sessions', body: {} })).status).toBe(201);

  // Another identity must wait until this one is taken back.
  expect((await talk.ask('!authorise')).text).toMatch(/You have authorised me until .*less than a minute ago/su);
  oracle.change('UPDATE authorise_links SET created_at = created_at - 61000');
  const next = pageGrant(second, { ...account, link: await sendLink(talk) });
  expect(await post(oracle, next)).toEqual([403, expect.objectContaining({ code: 'LINKED_TO_ANOTHER' })]);
  expect((await talk.ask('!revoke all')).text).toContain(id);
  await locked(talk, await talk.say('Not any more?'));
  expect((await send({ ...call, path: '/sessions', body: {} })).status).toBe(403);
  expect((await talk.ask('!authorise confirm')).text).toMatch(/^Nothing waits/u);
  expect((await post(oracle, next))[0]).toBe(201);
  expect((await talk.ask('!authorise')).text).toContain(second.did);
  expect((await talk.ask('!authorise confirm')).text).toContain(second.did);
  expect((await talk.ask('Under another name.')).text).toBe('Re: Under another name.');

  expect(textsAt(oracle.model)).toEqual(['Hello at last.', 'Set the topic.', 'Under another name.']);
  const audit = await oracle.cli('audit', '--user', person.userId);
  for (const line of ['refused NO_AUTHORITY', 'allowed  grant/confirm', 'refused TIER_TOO_LOW', 'allowed  grant/revoke', 'sender-bound'])
    expect(audit).toContain(line);
  for (const secret of [START_OF_A_CAR, link]) expect(audit).not.toContain(secret);
  for (const secret of [link, next.token.leaf.nonce]) expect(JSON.stringify(oracle.log)).not.toContain(secret);
});

test('a link serves the account it was sent to, once and for 15 minutes; who is talked into !authorise sees whose identity it is, and without confirm nothing changes (G8)', async () => {
  const oracle = await startOracle();
  const [victim, attacker] = await Promise.all([world.person({ signs: false }), world.person({ signs: false })]);
  const [talk, theirs] = await Promise.all([victim.direct(oracle), attacker.direct(oracle)]);
  const [link, own] = [await sendLink(talk), await sendLink(theirs)];
  const evil = generateKey();
  const made = (sender: string, nonce: string) => pageGrant(evil, { oracle, sender, link: nonce });

  expect(await post(oracle, made(attacker.userId, link))).toEqual(badLink);
  expect(await post(oracle, made(victim.userId, own))).toEqual(badLink);
  expect(await post(oracle, made(victim.userId, 'A'.repeat(22)))).toEqual(badLink);
  expect(oracle.rows('SELECT token_id FROM grants')).toEqual([]);

  // The victim was talked into handing the link over.
  const trap = made(victim.userId, link);
  expect((await post(oracle, trap))[0]).toBe(201);
  expect(await post(oracle, made(victim.userId, link))).toEqual(badLink);
  const shown = await talk.ask('!authorise');
  expect(shown.text).toContain(evil.did);
  expect(shown.text).toContain('If you did not make it yourself');
  expect(await codeFor(talk, await talk.say('Does it count?'))).toBe('NO_AUTHORITY');
  expect(oracle.rows('SELECT did FROM links')).toEqual([]);
  expect((await talk.ask(`!revoke ${trap.tokenId.slice(0, 8)}`)).text).toContain('Taken back');
  expect((await talk.ask('!authorise confirm')).text).toMatch(/^Nothing waits/u);
  await locked(talk, await talk.say('Still not me.'));

  oracle.change('UPDATE authorise_links SET created_at = created_at - 15 * 60000');
  expect(await post(oracle, made(attacker.userId, own))).toEqual(badLink);
  expect((await post(oracle, made(attacker.userId, await sendLink(theirs))))[0]).toBe(201);
  expect(oracle.model.requests).toHaveLength(0);
});

test('an identity that was confirmed by mistake has nothing left after !revoke all, also when its maker took the grant back himself (G8, G13)', async () => {
  const oracle = await startOracle();
  const person = await world.person({ signs: false });
  const talk = await person.direct(oracle);
  const evil = { oracle, key: await authorise(talk, oracle), sender: person.userId, room: talk.roomId };

  expect((await send({ ...evil, method: 'DELETE', path: '/delegation', body: {} })).status).toBe(200);
  expect(await codeFor(talk, await talk.say('Who am I?'))).toBe('NO_AUTHORITY');
  expect((await talk.ask('!revoke all')).text).toContain('I no longer know this account');
  const response = await send({ ...evil, path: '/sessions', body: {} });

  expect([response.status, ((await response.json()) as JsonObject)['code']]).toEqual([403, 'NOT_LINKED']);
});

test('an answer that is being written ends with REVOKED when its person takes the grant back, and keeps its text (G8)', async () => {
  const oracle = await startOracle();
  const person = await world.person({ signs: false });
  const talk = await person.direct(oracle);
  await authorise(talk, oracle);
  const gate = createGate();
  const begun = 'Once upon a time there was a king who ruled over all the land between the two rivers.';
  oracle.model.enqueue(heldReply(gate, begun, ' And he died.'));

  const prompt = await talk.say('Tell me a story.');
  await talk.watch.waitUntil((watch) => watch.answersTo(prompt).some(({ text }) => text.includes('Once upon a time')));
  await talk.say('!revoke all');
  const answer = await talk.answerTo(prompt);
  gate.release();

  expect(answer.status).toBe('failed');
  expect(answer.text).toBe(`${begun}\n\n*I stopped here: the authorisation that this rested on was taken back or has ended.*`);
  const [run] = oracle.rows<{ status: string; error: string }>('SELECT status, error FROM runs');
  expect(run?.status).toBe('failed');
  expect(JSON.parse(run?.error ?? '')).toMatchObject({ code: 'REVOKED' });
  expect(await codeFor(talk, await talk.say('Go on.'))).toBe('NO_AUTHORITY');
});

test('in a group the link goes into the direct chat with a 🔒 on the message; without one it says so, and no identity is named in public (G8, G12)', async () => {
  const oracle = await startOracle();
  const [host, known, unknown] = await Promise.all([world.person(), world.person({ signs: false }), world.person({ signs: false })]);
  const invite = [oracle.userId, known.userId, unknown.userId];
  const [direct, group] = await Promise.all([known.direct(oracle), host.group(oracle, { invite })]);
  await Promise.all([known.client.join(group.roomId), unknown.client.join(group.roomId)]);
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
  const [knownHere, unknownHere] = await Promise.all([known.talk(group.roomId, oracle), unknown.talk(group.roomId, oracle)]);

  const refused = await knownHere.say('Oracle, answer me.', mention);
  await locked(knownHere, refused);
  const notice = await direct.notice('NO_AUTHORITY');
  expect(notice.text).toMatch(/^You wrote to me in another room\./u);
  const link = linkIn(notice.text);
  expect(knownHere.watch.answersTo(refused)).toEqual([]);
  const other = await unknownHere.ask('Oracle, and me?', mention);
  expect(other.text).toContain('open a direct chat with me');
  expect(errorOf(other.parts[0]?.content ?? {})).toMatchObject({ status: 401, code: 'NO_AUTHORITY' });
  const command = await knownHere.ask(`${oracle.userId} !authorise`, mention);
  expect(command.text).toContain('in a direct chat with me only');

  const key = generateKey();
  expect((await post(oracle, pageGrant(key, { oracle, sender: known.userId, link })))[0]).toBe(201);
  await direct.ask('!authorise');
  await direct.ask('!authorise confirm');
  const answered = await knownHere.ask('Oracle, and now?', mention);
  expect(answered.text).toContain('and now?');
  expect(await recordedFor(oracle, answered.prompt)).toBeNull();
  const said = JSON.stringify((await group.history()).filter(({ sender }) => sender === oracle.userId));
  for (const secret of ['did:key:', PAGE, link]) expect(said).not.toContain(secret);
});
