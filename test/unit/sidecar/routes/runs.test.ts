import type { Compilable, Updateable } from 'kysely';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { RoomId, RunId, SessionId } from '../../../../src/ids.ts';
import { LIMITS } from '../../../../src/limits.ts';
import { listOwnRuns, newestOwnRun } from '../../../../src/sidecar/own-runs.ts';
import type { RunsTable } from '../../../../src/store/schema.ts';
import type { Store } from '../../../../src/store/store.ts';
import { gateDelegation } from '../../../../src/ucan/gate.ts';
import { mintGrant, mintRequestInvocation, newNonce } from '../../../../src/ucan/mint.ts';
import { generateKey } from '../../../../src/ucan/signing-key.ts';
import { alice, mallory, oracle, TS } from '../../ucan/tokens.ts';
import {
  ALICE,
  type Ask,
  answer,
  createWorld,
  DM,
  MALLORY,
  MALLORY_DM,
  MALLORY_SESSION,
  readHistory,
  readSse,
  SESSION,
  say,
  signed,
  type World,
} from '../world.ts';

let world: World;
beforeEach(async () => {
  world = createWorld();
  await world.prepare();
});
afterEach(() => world.close());

const BY_MALLORY = { key: mallory, sender: MALLORY, room: MALLORY_DM } as const;
const read = (path: string, more: Partial<Ask> = {}) => world.inject(signed({ method: 'GET', path, ...more }));
const runPath = (session: SessionId) => `/sessions/${encodeURIComponent(session)}/run`;
const ask = (runId: string, more: Partial<Ask> = {}) =>
  world.inject(signed({ method: 'POST', path: `/runs/${runId}/ticket`, body: {}, ...more }));
const ticketOf = async (runId: string, more: Partial<Ask> = {}): Promise<string> => (await ask(runId, more)).json().ticket;
const useTicket = (runId: string, ticket: string, more = '') =>
  world.inject({ method: 'GET', url: `/runs/${runId}?ticket=${ticket}${more}` });
const answered = async (message = 'hi', more: Partial<Ask> = {}): Promise<string> => {
  const reply = await world.inject(say(message, more));
  return reply.headers['x-run-id'] as string;
};
const change = (runId: string, set: Updateable<RunsTable>) =>
  world.settle(
    world.store.write((tx) =>
      tx.run(
        world.store.sql
          .updateTable('runs')
          .set(set)
          .where('run_id', '=', runId as RunId),
      ),
    ),
  );

test('the newest run of a session and the own runs say how they went, and nothing that was said', async () => {
  const none = await read(runPath(SESSION));
  expect([none.statusCode, none.json().code]).toEqual([404, 'NOT_FOUND']);
  const first = await answered('the prompt');
  const [asked] = world.jobs;
  expect(asked!.run.prompts[0]!.text).toBe('the prompt');
  world.world.script = async () => {
    throw new Error('broken');
  };
  await world.inject(say('again'));
  const newest = await read(runPath(SESSION));
  expect(newest.statusCode).toBe(200);
  const second = newest.json().runId as string;
  expect(newest.json()).toEqual({
    ...{ runId: second, sessionId: SESSION, status: 'failed', attempt: 1 },
    ...{ createdAt: expect.any(String), startedAt: expect.any(String), endedAt: expect.any(String) },
    ...{ usage: null, errorCode: 'INTERNAL', pruned: false },
  });
  const all = await read('/runs');
  expect(all.json().runs.map((run: any) => [run.runId, run.status, run.errorCode])).toEqual([
    [second, 'failed', 'INTERNAL'],
    [first, 'completed', null],
  ]);
  expect(all.json().runs[1].usage).toEqual({ inputTokens: 3, outputTokens: 4 });
  expect(all.json().before).toBeNull();
  expect(all.body).not.toMatch(/the prompt|hello|broken/u);
});

test('own runs are read a page at a time and by status, however many there are (G16)', async () => {
  const ids: string[] = [];
  for (let i = 0; i < 5; i++) ids.push(await answered(String(i)));
  ids.reverse();
  await change(ids[3]!, { status: 'cancelled' });
  const seen: string[] = [];
  for (let before: string | null = '', pages = 0; before !== null && pages < 9; pages++) {
    const page: any = (await read('/runs', { query: `?limit=2${before === '' ? '' : `&before=${before}`}` })).json();
    seen.push(...page.runs.map((run: any) => run.runId));
    before = page.before;
  }
  expect(seen).toEqual(ids);
  const cancelled = (await read('/runs', { query: '?status=cancelled' })).json();
  expect(cancelled).toMatchObject({ runs: [{ runId: ids[3] }], before: null });
  for (const query of ['?status=odd', '?limit=0', '?limit=101', '?before=x', '?after=1']) {
    expect((await read('/runs', { query })).statusCode).toBe(400);
  }
});

test('a run whose events were pruned is 410 with where to read what was said, and another’s stays 404', async () => {
  const runId = await answered();
  await change(runId, { frames_pruned_at: TS });
  for (const query of ['', '?after=2', '?after=99']) {
    const reply = await read(`/runs/${runId}`, { query });
    expect([reply.statusCode, reply.json().code]).toEqual([410, 'RUN_PRUNED']);
    expect(reply.json().details).toEqual({ runId, read: `/messages/${encodeURIComponent(SESSION)}` });
  }
  expect((await ask(runId)).statusCode).toBe(410);
  expect((await read(runPath(SESSION))).json().pruned).toBe(true);
  expect((await read(`/runs/${runId}`, BY_MALLORY)).statusCode).toBe(404);
  expect((await world.inject(readHistory(SESSION))).json().messages.at(-1).content).toBe('hello world');
});

test('a ticket opens its run once, without a header, and says first how to get the next', async () => {
  const runId = await answered();
  const issued = await ask(runId);
  expect([issued.statusCode, issued.json()]).toEqual([200, { ticket: expect.stringMatching(/^[\w-]{43}$/u), expiresInMs: 60_000 }]);
  const { ticket } = issued.json();
  const reply = await useTicket(runId, ticket);
  expect(reply.headers).toMatchObject({ 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no', 'x-run-id': runId });
  expect(reply.headers['cache-control']).toBe('no-cache, no-transform');
  const [opened, ...events] = readSse(reply.body);
  expect(opened).toEqual({
    event: 'run',
    id: null,
    data: { runId, state: 'opened', status: 'completed', attempt: 1, renew: `/runs/${runId}/ticket` },
  });
  const signedEvents = readSse((await read(`/runs/${runId}`)).body);
  const content = (list: typeof events) => list.map(({ event, id, data: { requestId, ...data } }) => ({ event, id, data }));
  expect(content(events)).toEqual(content(signedEvents));
  const again = await useTicket(runId, ticket);
  expect([again.statusCode, again.json().code]).toEqual([401, 'UNAUTHENTICATED']);
  expect(again.json().message).toContain('ticket');
});

test('a ticket reads on from any event, as EventSource asks after a break', async () => {
  const runId = await answered();
  const after = readSse((await useTicket(runId, await ticketOf(runId), '&after=2')).body);
  expect(after.map((event) => [event.event, event.id])).toEqual([
    ['run', null],
    ['done', '3'],
  ]);
  const bad = await useTicket(runId, await ticketOf(runId), '&after=x');
  expect([bad.statusCode, bad.json().details]).toEqual([400, { field: 'after' }]);
});

test('a ticket for another run, too old, guessed or misspelt opens nothing, and is used up by the try', async () => {
  const runId = await answered();
  const other = await answered('2');
  const ticket = await ticketOf(runId);
  expect((await useTicket(other, ticket)).statusCode).toBe(401);
  expect((await useTicket(runId, ticket)).statusCode).toBe(401);
  const old = await ticketOf(runId);
  await world.clock.advanceAsync(LIMITS.ticketMs);
  expect((await useTicket(runId, old)).statusCode).toBe(401);
  for (const guess of ['', 'x', 'A'.repeat(43), 'A'.repeat(64), `${'A'.repeat(42)}%00`])
    expect((await useTicket(runId, guess)).statusCode).toBe(401);
  expect((await useTicket(runId, 'A'.repeat(65))).statusCode).toBe(400);
  // Beside the header it is not looked at: the header is what counts, and the ticket stays.
  const kept = await ticketOf(runId);
  const withHeader = await read(`/runs/${runId}`, { query: `?ticket=${kept}`, ...BY_MALLORY });
  expect(withHeader.statusCode).toBe(404);
  expect((await useTicket(runId, kept)).statusCode).toBe(200);
  // It is a key for this one route.
  const elsewhere = await ticketOf(runId);
  for (const path of ['/runs', runPath(SESSION), '/delegation', `/messages/${encodeURIComponent(SESSION)}`]) {
    expect((await world.inject({ method: 'GET', url: `${path}?ticket=${elsewhere}` })).statusCode).toBe(401);
  }
});

test('tickets are given to the own runs only, once per request, and a bounded number of them (G13, G14)', async () => {
  const runId = await answered();
  expect((await ask(runId, BY_MALLORY)).statusCode).toBe(404);
  expect((await ask('01ARZ3NDEKTSV4RRFFQ69G5FAV')).statusCode).toBe(404);
  const request = signed({ method: 'POST', path: `/runs/${runId}/ticket`, body: {} });
  expect((await world.inject(request)).statusCode).toBe(200);
  const again = await world.inject(request);
  expect([again.statusCode, again.json().code]).toEqual([401, 'REPLAY']);
  const codes: number[] = [];
  for (let i = 0; i < LIMITS.ticketsPerCaller; i++) codes.push((await ask(runId)).statusCode);
  expect(codes).toEqual([...Array(LIMITS.ticketsPerCaller - 1).fill(200), 429]);
  const theirs = await answered('hi', { ...BY_MALLORY, session: MALLORY_SESSION });
  expect((await ask(theirs, BY_MALLORY)).statusCode).toBe(200);
  await world.clock.advanceAsync(LIMITS.ticketMs);
  expect((await ask(runId, { ts: world.clock.now() })).statusCode).toBe(200);
});

test('a ticket is judged when it is used: what its holder has lost since, it does not open (G8)', async () => {
  const runId = await answered();
  const ticket = await ticketOf(runId);
  await world.settle(world.store.write((tx) => world.links.forget(tx, { did: alice.did, userId: ALICE })));
  const unlinked = await useTicket(runId, ticket);
  expect([unlinked.statusCode, unlinked.json().code]).toEqual([403, 'NOT_LINKED']);
  const link = { did: alice.did, userId: ALICE };
  await world.settle(world.store.write((tx) => world.links.prove(tx, { ...link, directRoom: DM }, TS)));
  const moved = await ticketOf(runId);
  await world.settle(world.store.write((tx) => world.links.prove(tx, { ...link, directRoom: '!later:example.org' as RoomId }, TS)));
  expect((await useTicket(runId, moved)).statusCode).toBe(403);
});

test('a ticket that a session key asked for ends with the grant of that key (G8)', async () => {
  const runId = await answered();
  const key = generateKey();
  const capabilities = ['oracle/message', 'oracle/read'].map((can) => ({ can, with: alice.did }));
  const raw = mintGrant({ key: alice, audience: key.did, capabilities, expiresAt: TS + 30_000, nonce: newNonce() });
  const proof = gateDelegation(raw);
  if (!proof.ok) throw new Error(proof.error);
  const path = `/runs/${runId}/ticket`;
  const byKey = async (): Promise<string> => {
    const token = mintRequestInvocation({
      ...{ key, as: alice.did, proofs: [proof.value], audience: oracle.did, method: 'POST', path, body: '{}' },
      ...{ sender: ALICE, room: DM, ts: TS, nonce: newNonce() },
    });
    const headers = { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan', 'content-type': 'application/json' };
    return (await world.inject({ method: 'POST', url: path, headers, payload: '{}' })).json().ticket;
  };
  const tickets = [await byKey(), await byKey(), await byKey()] as const;
  expect((await useTicket(runId, tickets[0])).statusCode).toBe(200);
  await world.clock.advanceAsync(30_000);
  expect((await useTicket(runId, tickets[1])).json().code).toBe('GRANT_EXPIRED');
  await world.settle(world.store.write((tx) => world.grants.revoke(tx, { by: alice.did, tokenId: proof.value.leaf.tokenId }, TS)));
  expect((await useTicket(runId, tickets[2])).json().code).toBe('REVOKED');
});

test('no log line holds a ticket, whether it opened something or not (G12)', async () => {
  const runId = await answered();
  const tickets = [await ticketOf(runId), await ticketOf(runId), await ticketOf(runId)];
  await useTicket(runId, tickets[0]!);
  await useTicket(runId, tickets[0]!);
  await useTicket('01ARZ3NDEKTSV4RRFFQ69G5FAV', tickets[1]!);
  await useTicket(runId, tickets[2]!, '&after=x');
  await world.inject({ method: 'GET', url: `/no/where?ticket=${tickets[2]}` });
  await world.inject({ method: 'GET', url: `/%zz?ticket=${tickets[2]}` });
  const text = JSON.stringify(world.lines);
  for (const ticket of tickets) expect(text).not.toContain(ticket);
  expect(world.lines.map((line) => line.path)).toContain('/runs/:runId');
});

test('of two people neither sees the other’s runs, tool results or tickets over HTTP, wherever they met (G13)', async () => {
  const GROUP = '!group:example.org' as RoomId;
  const GROUP_SESSION = '$group' as SessionId;
  world.world.script = async (job) => {
    const who = job.run.principalId === alice.did ? 'ALICES' : 'MALLORYS';
    job.output.toolCall({ id: 'c1', name: 'vault', status: 'done', args: { key: `${who}-ARGS` }, output: `${who}-RESULT` });
    return answer('fine')(job);
  };
  const runId = await answered('what is in my vault?');
  // One thread of a group that both speak in, a run of each: nothing of it is anybody's over HTTP.
  const theirs = await answered('hi', { ...BY_MALLORY, session: MALLORY_SESSION });
  await world.settle(
    world.store.write((tx) =>
      world.sessions.create(
        tx,
        { id: GROUP_SESSION, roomId: GROUP, owner: GROUP, kind: 'thread', threadRoot: GROUP_SESSION, title: null },
        TS,
      ),
    ),
  );
  const group = { session_id: GROUP_SESSION, room_id: GROUP, owner: GROUP, direct: 0 };

  async function look(more: Partial<Ask>): Promise<string> {
    const replies = [];
    for (const run of [runId, theirs]) {
      replies.push(await read(`/runs/${run}`, more), await read(`/runs/${run}`, { ...more, query: '?after=1' }), await ask(run, more));
    }
    for (const session of [SESSION, MALLORY_SESSION, GROUP_SESSION]) {
      replies.push(await read(runPath(session), more), await world.inject(readHistory(session, more)));
    }
    replies.push(await read('/runs', more));
    return replies.map((reply) => reply.body).join('\n');
  }
  const byMallory = await look(BY_MALLORY);
  expect(byMallory).not.toMatch(/ALICES|what is in my vault/u);
  expect(byMallory).not.toContain(`"runId":"${runId}"`);
  expect(byMallory).toContain('MALLORYS-RESULT');
  const byAlice = await look({});
  expect(byAlice).toContain('ALICES-RESULT');
  expect(byAlice).not.toMatch(/MALLORYS/u);

  await change(runId, group);
  await change(theirs, group);
  for (const more of [{}, BY_MALLORY] as const) {
    const seen = await look(more);
    expect(seen).not.toMatch(/-RESULT|-ARGS|"runId"/u);
  }
  // A stray run of another principal in one's own direct room is not one's own either.
  await change(runId, { session_id: MALLORY_SESSION, room_id: MALLORY_DM, owner: mallory.did, direct: 1 });
  expect(await look(BY_MALLORY)).not.toMatch(/ALICES|"runId":"0/u);
});

test('what is asked about runs reads an index, however many there are (G16)', () => {
  const plans: string[] = [];
  const { store } = world;
  const explain = (query: Compilable<unknown>) => {
    const { sql, parameters } = query.compile();
    const details = store.read.all<{ detail: string }>({ compile: () => ({ sql: `EXPLAIN QUERY PLAN ${sql}`, parameters }) } as never);
    plans.push(details.map(({ detail }) => detail).join('; '));
    return [];
  };
  const seen = { ...store, read: { ...store.read, all: explain, get: (query: Compilable<unknown>) => void explain(query) } } as Store;
  const reader = { did: alice.did, room: DM };
  listOwnRuns(seen, reader, { limit: 20 });
  listOwnRuns(seen, reader, { limit: 20, status: 'failed', before: '01ARZ3NDEKTSV4RRFFQ69G5FAV' as RunId });
  newestOwnRun(seen, reader, SESSION);
  expect(plans.join('\n')).not.toMatch(/SCAN runs|TEMP B-TREE/u);
  expect(plans).toHaveLength(4);
});
