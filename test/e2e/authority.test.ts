/**
 * Signed messages on a real homeserver: everybody in a room can read and copy a token, so none of them may be worth anything outside the one event it
 * was made for; and what is granted to a key or to the oracle counts until it is taken back (DESIGN §5, docs/security.md).
 */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { contentHash } from '../../src/ucan/content-hash.ts';
import { mintUcan, newNonce } from '../../src/ucan/mint.ts';
import { generateKey, type SigningKey } from '../../src/ucan/signing-key.ts';
import { createGate, heldReply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import {
  codeFor,
  grant,
  NOTES_ABILITY,
  QUICK,
  recordedFor,
  refusedWith,
  START_OF_A_CAR,
  sessionGrant,
  tellToolResult,
  testTools,
} from './authority-tools.ts';
import { errorOf, messagesIn, type Person, sign, type Talk, type TestOracle, textsAt, useWorld } from './harness.ts';
import { type Call, send } from './portal-client.ts';

const world = useWorld({ oracles: 4 });

const keyOf = ({ key }: Person): SigningKey => {
  if (key === null) throw new Error('this person signs');
  return key;
};
const withToken = (content: JsonObject, inv: string): JsonObject => ({ ...content, 'ixo.oracle.ucan': { v: 1, inv } });
const tokenOf = (content: JsonObject): string => (content['ixo.oracle.ucan'] as { inv: string }).inv;

/** A token whose end can be chosen: the library makes no such. */
function endingAt(talk: Talk, { did }: TestOracle, body: string, endsInS: number): JsonObject {
  const key = keyOf(talk.person);
  const content = { msgtype: 'm.text', body };
  const hash = contentHash(content);
  if (!hash.ok) throw new Error('no hash');
  const nb = { room: talk.roomId, sender: talk.person.userId, type: 'm.room.message', hash: hash.value, ts: Date.now() };
  const expiration = Math.floor(Date.now() / 1_000) + endsInS;
  const capabilities = [{ can: 'oracle/message', with: key.did, nb }];
  return withToken(content, mintUcan({ key, audience: did, capabilities, expiration, nonce: newNonce() }));
}

/** The same token in another spelling of its container: the length of the header in two bytes, where one is enough. */
function respell(inv: string): string {
  const bytes = Buffer.from(inv, 'base64url');
  return Buffer.concat([Buffer.from([(bytes[0] ?? 0) | 0x80, 0]), bytes.subarray(1)]).toString('base64url');
}

test('a token is worth nothing but in its own event: another sender, room, thread, text, spelling, time or use is refused with its own code (G8)', async () => {
  const oracle = await world.oracle(QUICK);
  await oracle.start();
  const [author, member] = await Promise.all([world.person(), world.person()]);
  const [talk, elsewhere] = await Promise.all([author.direct(oracle), author.direct(oracle)]);
  const group = await author.group(oracle, { invite: [oracle.userId, member.userId] });
  await member.client.join(group.roomId);
  const membersTalk = await member.talk(group.roomId, oracle);
  const fresh = (text: string) => talk.content(text);

  const used = fresh('Once.');
  const first = await talk.answerTo(await author.client.send(talk.roomId, used));
  const said = group.content('In the group.', { 'm.mentions': { user_ids: [oracle.userId] } });
  const inGroup = await group.answerTo(await author.client.send(group.roomId, said));
  expect([first.status, inGroup.status]).toEqual(['completed', 'completed']);

  expect(await refusedWith(membersTalk, said)).toBe('WRONG_SENDER');
  expect(await refusedWith(elsewhere, fresh('Over here.'))).toBe('WRONG_ROOM');
  const threaded = { ...fresh('In a thread.'), 'm.relates_to': { rel_type: 'm.thread', event_id: first.prompt } };
  expect(await refusedWith(talk, threaded)).toBe('WRONG_THREAD');
  expect(await refusedWith(talk, { ...fresh('Pay Bob.'), body: 'Pay Eve.' })).toBe('WRONG_CONTENT');
  expect(await refusedWith(talk, withToken(used, respell(tokenOf(used))))).toBe('UCAN_MALFORMED');
  expect(await refusedWith(talk, used)).toBe('REPLAY');
  // Padded base64, the other spelling that is read: it is the same token all the same.
  const padded = withToken(used, Buffer.from(tokenOf(used), 'base64url').toString('base64'));
  expect(await recordedFor(oracle, await author.client.send(talk.roomId, padded))).toBe('REPLAY');
  expect(await refusedWith(talk, endingAt(talk, oracle, 'Too late.', -120))).toBe('TOKEN_EXPIRED');
  const old = {
    oracle,
    roomId: talk.roomId,
    sender: author.userId,
    content: { msgtype: 'm.text', body: 'Old.' },
    ts: Date.now() - 120_000,
  };
  expect(await refusedWith(talk, sign(keyOf(author), old))).toBe('WRONG_TIME');
  const foreign = { ...old, ts: Date.now(), oracle: { did: generateKey().did } };
  expect(await refusedWith(talk, sign(keyOf(author), foreign))).toBe('BAD_AUDIENCE');
  const theirs = { ...old, ts: Date.now(), as: author.did() };
  expect(await refusedWith(talk, sign(keyOf(member), theirs))).toBe('BAD_SIGNATURE');

  expect(textsAt(oracle.model)).toEqual(['Once.', expect.stringContaining('In the group.')]);
  for (const { content } of [...talk.notices(), ...elsewhere.notices()]) expect(errorOf(content)).toMatchObject({ status: 401 });
  // Control: an honest one is answered, and one that ended within the skew.
  expect((await talk.ask('Still me.')).status).toBe('completed');
  expect(await refusedWith(talk, endingAt(talk, oracle, 'Just in time.', -30))).not.toMatch(/^[A-Z_]+$/u);
});

test('a session key speaks for its person, by proof and by name, until the grant is taken back; what is granted beside a message opens its tool (G8)', async () => {
  const oracle = await world.oracle(QUICK, [testTools]);
  await oracle.start();
  const [person, thief] = await Promise.all([world.person(), world.person()]);
  const [talk, theirs] = await Promise.all([person.direct(oracle), thief.direct(oracle)]);
  const root = keyOf(person);
  const session = generateKey();
  const proof = sessionGrant(root, session);
  const by = (key: SigningKey, on: Talk, body: string, more: object) =>
    sign(key, { oracle, roomId: on.roomId, sender: on.person.userId, content: { msgtype: 'm.text', body }, as: root.did, ...more });
  const carried = { proofs: [proof.token] };
  const named = { proofLinks: [proof.token.leaf.cid] };
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const ask = async (content: JsonObject) => (await talk.answerTo(await person.client.send(talk.roomId, content))).text;

  expect(await refusedWith(talk, by(session, talk, 'Not known yet.', named))).toBe('MISSING_PROOF');
  expect(await ask(by(session, talk, 'With its proof.', carried))).toBe('Re: With its proof.');
  expect(await ask(by(session, talk, 'By name.', named))).toBe('Re: By name.');
  // The name of a proof, and the proof itself, are for everybody to read.
  expect(await refusedWith(theirs, by(keyOf(thief), theirs, 'Mine now.', named))).toBe('BROKEN_CHAIN');
  expect(new Set(oracle.rows('SELECT principal_id, tier FROM runs').map((run) => JSON.stringify(run)))).toEqual(
    new Set([JSON.stringify({ principal_id: root.did, tier: 'signed' })]),
  );

  oracle.model.enqueue(toolCallsReply({ name: 'read_notes', args: {} }), tellToolResult);
  expect(await ask(by(session, talk, 'Read my notes.', named))).toMatch(/You have not granted me.*notes\/read on ixo:notes/su);
  const acting = grant(root, oracle.did, NOTES_ABILITY);
  const foreign = grant(keyOf(thief), oracle.did, NOTES_ABILITY);
  const beside = (content: JsonObject, dlg: string): JsonObject => ({
    ...content,
    'ixo.oracle.ucan': { ...(content['ixo.oracle.ucan'] as JsonObject), dlg: [dlg] },
  });
  expect(await refusedWith(talk, beside(by(session, talk, 'With the grant of another.', named), foreign.raw))).toBe('BAD_ISSUER');
  oracle.model.enqueue(toolCallsReply({ name: 'read_notes', args: {} }), tellToolResult);
  expect(await ask(beside(by(session, talk, 'Read them now.', named), acting.raw))).toBe('The tool said: Milk and bread.');
  const call: Call = { oracle, key: root, sender: person.userId, method: 'GET', path: '/delegation' };
  const listed = (await (await send(call)).json()) as { authorized: boolean; grants: JsonObject[] };
  expect(listed.authorized).toBe(true);
  expect(listed.grants.map(({ token_id, kind, source, revoked }) => ({ token_id, kind, source, revoked }))).toEqual([
    { token_id: acting.tokenId, kind: 'acting', source: 'dlg', revoked: false },
    { token_id: proof.tokenId, kind: 'session', source: 'proof', revoked: false },
  ]);

  const revoke = await person.client.send(talk.roomId, { token_id: proof.tokenId, body: 'Log out.' }, { type: 'ixo.oracle.revoke' });
  expect((await talk.answerTo(revoke)).text).toContain('Taken back');
  expect(await refusedWith(talk, by(session, talk, 'By name again.', named))).toBe('REVOKED');
  expect((await talk.notice('REVOKED')).text).toBe('This authorisation was taken back.');
  const again = await person.client.send(talk.roomId, by(session, talk, 'With its proof again.', carried));
  expect(await recordedFor(oracle, again)).toBe('REVOKED');
  // Control: the person's own key needs no grant.
  expect((await talk.ask('My own key.')).text).toBe('Re: My own key.');

  const audit = await oracle.cli('audit', '--user', person.userId);
  expect(audit.match(/ {2}(?:allowed|refused [A-Z_]+) {2}\S+/gu)?.map((line) => line.trim())).toEqual([
    'refused MISSING_PROOF  oracle/message',
    'allowed  oracle/message',
    'allowed  oracle/message',
    'allowed  oracle/message',
    'refused NEEDS_GRANT  notes/read',
    'refused BAD_ISSUER  oracle/message',
    'allowed  oracle/message',
    'allowed  notes/read',
    'allowed  grant/revoke',
    'refused REVOKED  oracle/message',
    'refused REVOKED  oracle/message',
    'allowed  oracle/message',
  ]);
  expect(audit).not.toContain(START_OF_A_CAR);
  expect(await oracle.cli('audit', '--user', root.did)).toContain(acting.tokenId);
});

test('a portal that logs out stops the answer which its session key asked for, and the text so far stays (G8)', async () => {
  const oracle = await world.oracle(QUICK);
  await oracle.start();
  const person = await world.person();
  const talk = await person.direct(oracle);
  const root = keyOf(person);
  const session = generateKey();
  const proof = sessionGrant(root, session);
  const gate = createGate();
  const begun = 'There was a young lady of Niger, who smiled as she rode on a tiger.';
  oracle.model.enqueue(heldReply(gate, begun, ' They returned from the ride.'));
  const content = { msgtype: 'm.text', body: 'A limerick, please.' };
  const signing = { oracle, roomId: talk.roomId, sender: person.userId, content, as: root.did, proofs: [proof.token] };

  const prompt = await person.client.send(talk.roomId, sign(session, signing));
  await talk.watch.waitUntil((watch) => watch.answersTo(prompt).some(({ text }) => text.includes('tiger')));
  const call: Call = { oracle, key: root, sender: person.userId, room: talk.roomId, path: '/delegation' };
  const response = await send({ ...call, method: 'DELETE', body: { token_id: proof.tokenId } });
  const answer = await talk.answerTo(prompt);
  gate.release();

  expect(await response.json()).toEqual({ ok: true, revoked: [proof.tokenId] });
  expect(answer.status).toBe('failed');
  expect(answer.text).toBe(`${begun}\n\n*I stopped here: the authorisation that this rested on was taken back or has ended.*`);
  // What nobody revoked goes on.
  expect((await talk.ask('Are you there?')).status).toBe('completed');
});

test('nobody registers, sees or takes back a grant in somebody else’s name, in a room or over HTTP (G8, G13)', async () => {
  const oracle = await world.oracle(QUICK);
  await oracle.start();
  const [person, other] = await Promise.all([world.person(), world.person()]);
  const [talk, theirs] = await Promise.all([person.direct(oracle), other.direct(oracle)]);
  await Promise.all([talk.ask('hello'), theirs.ask('hello')]);
  const register = (on: Talk, dlg: string) =>
    on.person.client.send(on.roomId, { v: 1, dlg, body: 'A grant.' }, { type: 'ixo.oracle.grant' });
  const named = (key: SigningKey, sender: string) => grant(key, oracle.did, { ...NOTES_ABILITY, nb: { sender } });

  expect(await codeFor(talk, await register(talk, named(keyOf(person), other.userId).raw))).toBe('WRONG_SENDER');
  expect(await codeFor(theirs, await register(theirs, named(keyOf(person), person.userId).raw))).toBe('WRONG_SENDER');
  expect(await codeFor(theirs, await register(theirs, grant(keyOf(person), oracle.did, NOTES_ABILITY).raw))).toBe('NOT_LINKED');
  const wide = grant(keyOf(person), oracle.did, { can: 'oracle/*', with: person.did() });
  expect(await codeFor(talk, await register(talk, wide.raw))).toBe('GRANT_TOO_WIDE');
  expect(oracle.rows('SELECT token_id FROM grants')).toEqual([]);

  const mine = grant(keyOf(person), oracle.did, NOTES_ABILITY);
  const sent = await register(talk, mine.raw);
  const { event: receipt } = await talk.watch.waitFor(({ event }) => event.type === 'ixo.oracle.grant_receipt');
  expect(receipt.content).toMatchObject({
    token_id: mine.tokenId,
    expires_at: mine.token.leaf.expiration * 1_000,
    capabilities: [NOTES_ABILITY],
    'm.relates_to': { event_id: sent },
  });
  expect((await talk.ask('!grants')).text).toContain(mine.tokenId.slice(0, 8));
  expect((await theirs.ask('!grants')).text).not.toContain(mine.tokenId.slice(0, 8));
  expect(errorOf((await theirs.ask(`!revoke ${mine.tokenId}`)).parts[0]?.content ?? {})).toMatchObject({ code: 'NOT_FOUND' });

  const thief = { oracle, key: keyOf(other), sender: other.userId, room: theirs.roomId, path: '/delegation' };
  const outcome = async (call: Call) => {
    const response = await send(call);
    return [response.status, ((await response.json()) as JsonObject)['code']];
  };
  expect(await outcome({ ...thief, body: { raw: mine.raw } })).toEqual([401, 'BAD_ISSUER']);
  expect(await outcome({ ...thief, method: 'DELETE', body: { token_id: mine.tokenId } })).toEqual([404, 'NOT_FOUND']);
  expect(await outcome({ ...thief, room: talk.roomId, method: 'DELETE', body: { token_id: mine.tokenId } })).toEqual([403, 'NOT_LINKED']);
  expect(await outcome({ ...thief, sender: person.userId, room: talk.roomId, path: '/sessions', body: {} })).toEqual([403, 'NOT_LINKED']);
  expect(await outcome({ ...thief, sender: person.userId, method: 'GET' })).toEqual([200, undefined]);
  expect(oracle.rows('SELECT token_id, did, revoked_at FROM grants')).toEqual([
    { token_id: mine.tokenId, did: person.did(), revoked_at: null },
  ]);
  expect(messagesIn(await talk.history(), oracle.userId).filter(({ content }) => content['msgtype'] === 'm.text')).toHaveLength(1);
});
