import { afterEach, beforeEach, expect, test } from 'vitest';
import { refusal } from '../../../../src/errors.ts';
import type { SessionId } from '../../../../src/ids.ts';
import { err } from '../../../../src/result.ts';
import { alice, mallory, oracle } from '../../ucan/tokens.ts';
import { ALICE, createWorld, DM, MALLORY, MALLORY_DM, MALLORY_SESSION, readHistory, SESSION, say, signed, type World } from '../world.ts';

let world: World;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
});
afterEach(() => world.close());

const open = (more = {}) => signed({ method: 'POST', path: '/sessions', ...more });
const list = (query = '') => signed({ method: 'GET', path: '/sessions', query });

test('a session is opened in the direct room and can be spoken in', async () => {
  const reply = await world.inject(open());
  expect(reply.statusCode).toBe(201);
  const session = reply.json();
  expect(session).toMatchObject({ roomId: DM, oracleName: 'Testy', oracleDid: oracle.did, oracleEntityDid: oracle.did });
  expect(session.createdAt).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
  expect(world.opened).toMatchObject([{ roomId: DM, userId: ALICE, did: alice.did }]);
  const said = await world.inject(say('hi', { session: session.sessionId }));
  expect(said.json().message.content).toBe('hello world');
});

test('the same token opens the same session, an empty JSON object is no other request than itself (G2)', async () => {
  const request = open({ body: {} });
  const first = await world.inject(request);
  const again = await world.inject(request);
  expect(again.json()).toEqual(first.json());
  expect(world.rows('sessions')).toHaveLength(3);
  const other = await world.inject(open({ token: request.token, body: ' {}' }));
  expect([other.statusCode, other.json().code]).toEqual([409, 'CONFLICT']);
});

test('without a direct room one is opened with the linked account, and the link remembers it', async () => {
  await world.store.write((tx) => tx.run(world.store.sql.updateTable('links').set({ room_id: null }).where('did', '=', alice.did)));
  const request = open({ room: null });
  const reply = await world.inject(request);
  expect([reply.statusCode, reply.json().roomId]).toEqual([201, '!new:example.org']);
  expect(world.opened[0]).toMatchObject({ roomId: null, userId: ALICE });
  expect(world.links.of(alice.did)).toEqual({ userId: ALICE, directRoom: '!new:example.org' });
  expect((await world.inject(request)).json()).toEqual(reply.json());
  const unlinked = await world.inject(open({ room: null }));
  expect(unlinked.json().code).toBe('NOT_LINKED');
});

test('a DID that Matrix never saw opens nothing (G8)', async () => {
  await world.store.write((tx) => tx.run(world.store.sql.deleteFrom('links')));
  const reply = await world.inject(open({ room: null }));
  expect([reply.statusCode, reply.json().code]).toEqual([403, 'NOT_LINKED']);
  expect(world.opened).toHaveLength(0);
});

test('what Matrix refuses is the answer, and the same token may try again', async () => {
  await world.close();
  let works = false;
  const openSession: World['deps']['openSession'] = async (session) =>
    works ? { ok: true, value: { sessionId: `$later-${session.tokenId}` as SessionId, roomId: DM } } : err(refusal('STORAGE_UNAVAILABLE'));
  world = createWorld({ openSession });
  await world.prepare();
  const request = open();
  expect((await world.inject(request)).statusCode).toBe(503);
  works = true;
  expect((await world.inject(request)).statusCode).toBe(201);
});

test('more than ten sessions a minute are refused', async () => {
  const codes = [];
  for (let i = 0; i < 12; i++) codes.push((await world.inject(open())).statusCode);
  expect(codes).toEqual([...Array(10).fill(201), 429, 429]);
});

test('a second DID of the same account opens no more sessions a minute (G14)', async () => {
  await world.store.write((tx) => world.links.prove(tx, { did: mallory.did, userId: ALICE, directRoom: DM }, world.clock.now() + 1));
  for (let i = 0; i < 10; i++) expect((await world.inject(open())).statusCode).toBe(201);

  expect((await world.inject(open({ key: mallory, sender: ALICE }))).statusCode).toBe(429);
});

test('the list holds own sessions only, newest first, a page at a time (G13)', async () => {
  for (let i = 0; i < 3; i++) {
    await world.clock.advanceAsync(10);
    await world.inject(open());
  }
  const all = (await world.inject(list())).json();
  expect(all.total).toBe(4);
  expect(all.sessions.map((s: any) => s.sessionId)).not.toContain(MALLORY_SESSION);
  expect(all.sessions.at(-1).sessionId).toBe(SESSION);
  const page = (await world.inject(list('?limit=2&offset=1'))).json();
  expect(page.sessions).toEqual(all.sessions.slice(1, 3));
  for (const query of ['?limit=0', '?limit=1000', '?offset=-1', '?limit=x', '?colour=red']) {
    const reply = await world.inject(list(query));
    expect([query, reply.statusCode, reply.json().code]).toEqual([query, 400, 'BAD_REQUEST']);
  }
});

test('a deleted session leaves the list and is not found again; a repeated delete is fine', async () => {
  const remove = signed({ method: 'DELETE', path: `/sessions/${SESSION}`, session: SESSION });
  expect((await world.inject(remove)).json()).toEqual({ message: 'Session deleted successfully' });
  expect((await world.inject(list())).json()).toEqual({ sessions: [], total: 0 });
  expect((await world.inject(readHistory(SESSION))).statusCode).toBe(404);
  expect((await world.inject(remove)).statusCode).toBe(200);
  const foreign = signed({ method: 'DELETE', path: `/sessions/${MALLORY_SESSION}`, session: MALLORY_SESSION });
  expect((await world.inject(foreign)).statusCode).toBe(404);
  const mine = readHistory(MALLORY_SESSION, { key: mallory, sender: MALLORY, room: MALLORY_DM });
  expect((await world.inject(mine)).statusCode).toBe(200);
});

test('a percent-encoded session id is the same session', async () => {
  const path = `/messages/${encodeURIComponent(SESSION)}`;
  const reply = await world.inject(signed({ method: 'POST', path, session: SESSION, body: { message: 'hi' } }));
  expect(reply.statusCode).toBe(200);
});

test('history folds the output of a tool into its call and pages backwards', async () => {
  world.world.script = async () => ({
    kind: 'completed',
    text: 'It is noon.',
    messages: [
      { role: 'ai', text: '', message: { v: 1, kind: 'ai', toolCalls: [{ id: 'c1', name: 'clock', args: { zone: 'UTC' } }] } },
      { role: 'tool', text: '12:00', message: { v: 1, kind: 'tool', callId: 'c1', name: 'clock', status: 'success' } },
      { role: 'ai', text: 'It is noon.', message: null },
    ],
  });
  const { runId } = (await world.inject(say('time?'))).json();
  const { messages } = (await world.inject(readHistory(SESSION))).json();
  expect(messages.map((m: any) => [m.type, m.content])).toEqual([
    ['human', 'time?'],
    ['ai', ''],
    ['ai', 'It is noon.'],
  ]);
  expect(messages[1].toolCalls).toEqual([{ id: 'c1', name: 'clock', args: { zone: 'UTC' }, status: 'done', output: '12:00' }]);
  expect(messages[2].id).toBe(runId);
  const last = (await world.inject(readHistory(SESSION, { query: '?limit=2' }))).json();
  const before = (await world.inject(readHistory(SESSION, { query: `?limit=2&before=${last.before}` }))).json();
  expect([before.messages.map((m: any) => m.content), before.before === null || typeof before.before === 'number']).toEqual([
    ['time?', ''],
    true,
  ]);
});
