/**
 * The same oracle over HTTP: a prompt of a portal runs through the same turn and stands in the same room, and nobody reaches a room that
 * Matrix has not proved to be theirs.
 */
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { generateKey, type SigningKey } from '../../src/ucan/signing-key.ts';
import { textReply } from '../../synapse-dev/model/reply.ts';
import { type Answer, messagesIn, type Talk, type TestOracle, textsAt, useWorld } from './harness.ts';
import { type Call, send, tokenFor } from './portal-client.ts';

const world = useWorld({ oracles: 7 });

interface SseEvent {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: JsonObject;
}
const readSse = async (response: Response): Promise<SseEvent[]> =>
  (await response.text())
    .split('\n\n')
    .filter((block) => block.includes('data: '))
    .map((block) => {
      const field = (name: string) =>
        block
          .split('\n')
          .find((line) => line.startsWith(`${name}: `))
          ?.slice(name.length + 2);
      return { event: field('event') ?? '', id: field('id'), data: JSON.parse(field('data') ?? 'null') as JsonObject };
    });
const textOf = (events: readonly SseEvent[]): string =>
  events
    .filter(({ event }) => event === 'message')
    .map(({ data }) => String(data['content']))
    .join('');

/** A person whom one signed message in Matrix has linked; the session is that message's. */
async function linked(): Promise<{ oracle: TestOracle; talk: Talk; key: SigningKey; first: Answer; session: string; path: string }> {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`, { pace: { tokensPerSecond: 50 } }));
  const person = await world.person();
  const talk = await person.direct(oracle);
  const first = await talk.ask('hello from Matrix');
  if (person.key === null) throw new Error('this person signs');
  return { oracle, talk, key: person.key, first, session: first.prompt, path: `/messages/${encodeURIComponent(first.prompt)}` };
}

test('a prompt over HTTP is streamed as server-sent events, and it and its answer stand in the same room', async () => {
  const { oracle, talk, key, session, path } = await linked();
  const call = { oracle, key, sender: talk.person.userId, room: talk.roomId, path, thread: session };

  const response = await send({ ...call, body: { message: 'hello from the portal', stream: true } });
  const events = await readSse(response);

  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  expect(textOf(events)).toBe('Re: hello from the portal');
  expect(events.at(-1)).toMatchObject({
    event: 'done',
    data: { status: 'completed', sessionId: session, length: 'Re: hello from the portal'.length },
  });
  const mirror = await talk.watch.waitUntil(() => talk.notices().find(({ content }) => 'ixo.oracle.mirror' in content));
  expect(mirror).toMatchObject({ text: 'hello from the portal', content: { 'ixo.oracle.mirror': { did: key.did } } });
  const shown = await talk.watch.waitUntil(() =>
    talk.watch.answers(oracle.userId).find(({ text, live }) => text === 'Re: hello from the portal' && !live),
  );
  expect(shown.content['ixo.oracle.run']).toMatchObject({ session_id: session, run_id: events.at(-1)?.data['runId'], status: 'completed' });
  const order = messagesIn(await talk.history(), oracle.userId).map(({ event_id }) => event_id);
  expect(order.indexOf(mirror.eventId)).toBe(order.indexOf(shown.eventId) - 1);
  // One conversation: the model saw what was said in Matrix, and Matrix goes on from here.
  const next = await talk.ask('and back in Matrix');
  expect(next.text).toBe('Re: and back in Matrix');
  expect(
    oracle.model.requests
      .at(-1)
      ?.chat?.messages.filter(({ role }) => role === 'user')
      .map(({ text }) => text),
  ).toEqual(['hello from Matrix', 'hello from the portal', 'and back in Matrix']);
  const history = await send({ ...call, method: 'GET' });
  expect(((await history.json()) as { messages: { content: string }[] }).messages.map(({ content }) => content)).toEqual([
    'hello from Matrix',
    'Re: hello from Matrix',
    'hello from the portal',
    'Re: hello from the portal',
    'and back in Matrix',
    'Re: and back in Matrix',
  ]);
});

test('the same request twice is one run, joined from its first frame (G2)', async () => {
  const { oracle, talk, key, session, path } = await linked();
  const call: Call = {
    oracle,
    key,
    sender: talk.person.userId,
    room: talk.roomId,
    path,
    thread: session,
    body: { message: 'once', stream: true },
  };
  const token = tokenFor(call);

  const both = await Promise.all([send({ ...call, token }).then(readSse), send({ ...call, token }).then(readSse)]);
  const later = await readSse(await send({ ...call, token }));

  for (const events of [...both, later]) expect(textOf(events)).toBe('Re: once');
  expect(new Set([...both, later].map((events) => events.at(-1)?.data['runId'])).size).toBe(1);
  expect(textsAt(oracle.model)).toEqual(['hello from Matrix', 'once']);
  const other = await send({ ...call, token, body: { message: 'something else', stream: true } });
  expect(other.status).toBe(409);
});

test("an own DID with somebody else's room, session or account is refused with nothing in any room (G13)", async () => {
  const { oracle, talk, session, path } = await linked();
  const thief = await world.person();
  const own = await thief.direct(oracle);
  await own.ask('hello from the thief');
  if (thief.key === null) throw new Error('this person signs');
  const body = { message: 'let me speak here' };
  const mine = { oracle, key: thief.key, sender: thief.userId, room: own.roomId };

  const foreignRoom = await send({ ...mine, room: talk.roomId, path, thread: session, body });
  const foreignAccount = await send({ ...mine, sender: talk.person.userId, room: talk.roomId, path, thread: session, body });
  const foreignSession = await send({ ...mine, path, thread: session, body });
  const stranger = await send({ ...mine, key: generateKey(), path, thread: session, body });
  const read = await send({ ...mine, method: 'GET', path, thread: session });

  expect([foreignRoom.status, foreignAccount.status, stranger.status]).toEqual([403, 403, 403]);
  expect(((await foreignRoom.json()) as JsonObject)['code']).toBe('NOT_LINKED');
  expect([foreignSession.status, read.status]).toEqual([404, 404]);
  expect(textsAt(oracle.model)).toEqual(['hello from Matrix', 'hello from the thief']);
  // What the oracle would still say there comes before these answers.
  await talk.ask('still mine');
  await own.ask('and mine');
  for (const history of [await talk.history(), await own.history()]) {
    const said = history.filter(({ sender }) => sender === oracle.userId);
    expect(JSON.stringify(said)).not.toContain('let me speak here');
    expect(said.filter(({ content }) => 'ixo.oracle.mirror' in content)).toEqual([]);
    expect(messagesIn(said, oracle.userId)).toHaveLength(2);
  }
});

test('what is no good request is named: unauthenticated, unknown field, too large, unknown path', async () => {
  const { oracle, talk, key, session, path } = await linked();
  const call = { oracle, key, sender: talk.person.userId, room: talk.roomId, path, thread: session };

  const nobody = await fetch(`${oracle.sidecarUrl()}${path}`, {
    method: 'POST',
    body: '{}',
    headers: { 'content-type': 'application/json' },
  });
  const unknown = await send({ ...call, body: { message: 'hello', colour: 'blue' } });
  const large = await send({ ...call, body: { message: 'x'.repeat(300_000) } });
  const broken = await send({ ...call, body: '{"message": "hel' });
  const nowhere = await fetch(`${oracle.sidecarUrl()}/nowhere`);

  expect([nobody.status, unknown.status, large.status, broken.status, nowhere.status]).toEqual([401, 400, 413, 400, 404]);
  const problem = (await unknown.json()) as JsonObject;
  expect(problem).toMatchObject({ statusCode: 400, code: 'BAD_REQUEST', requestId: unknown.headers.get('x-request-id') });
  expect(JSON.stringify(problem)).toContain('colour');
  expect(textsAt(oracle.model)).toEqual(['hello from Matrix']);
});

test('a portal opens a conversation of its own: a thread in the direct room', async () => {
  const { oracle, talk, key } = await linked();
  const call = { oracle, key, sender: talk.person.userId, room: talk.roomId };

  const opened = (await (await send({ ...call, path: '/sessions', body: {} })).json()) as { sessionId: string; roomId: string };
  const response = await send({
    ...call,
    path: `/messages/${encodeURIComponent(opened.sessionId)}`,
    thread: opened.sessionId,
    body: { message: 'a new subject' },
  });

  expect(opened.roomId).toBe(talk.roomId);
  expect(await response.json()).toMatchObject({ sessionId: opened.sessionId, message: { type: 'ai', content: 'Re: a new subject' } });
  const shown = await talk.watch.waitUntil(() =>
    talk.watch.answers(oracle.userId).find(({ text, live }) => text === 'Re: a new subject' && !live),
  );
  expect(shown.threadRoot).toBe(opened.sessionId);
  expect(
    oracle.model.requests
      .at(-1)
      ?.chat?.messages.filter(({ role }) => role === 'user')
      .map(({ text }) => text),
  ).toEqual(['a new subject']);
  const health = await oracle.health();
  expect(health).toMatchObject({ status: 'ok', live: true, ready: true });
});

/** Reads until the text is that long, then breaks the connection off. */
async function readPart(response: Response, stop: AbortController, units: number): Promise<SseEvent[]> {
  let body = '';
  const decoder = new TextDecoder();
  const seen = () => body.slice(0, body.lastIndexOf('\n\n') + 2);
  try {
    for await (const bytes of response.body ?? []) {
      body += decoder.decode(bytes, { stream: true });
      if (textOf(await readSse(new Response(seen()))).length >= units) stop.abort();
    }
  } catch (error) {
    if (!stop.signal.aborted) throw error;
  }
  return readSse(new Response(seen()));
}
const LONG = Array.from({ length: 80 }, (_, n) => `word${n}`).join(' ');

test('a portal whose connection breaks finds its run, and a page without headers reads the rest with a ticket (G7)', async () => {
  const { oracle, talk, key, session, path } = await linked();
  oracle.model.respond(() => textReply(LONG, { pace: { tokensPerSecond: 40 } }));
  const call = { oracle, key, sender: talk.person.userId, room: talk.roomId };
  const stop = new AbortController();
  const asked = { ...call, path, thread: session, body: { message: 'tell me much', stream: true } };

  const first = await readPart(await send(asked, stop.signal), stop, 60);
  const found = (await (await send({ ...call, method: 'GET', path: `/sessions/${encodeURIComponent(session)}/run` })).json()) as JsonObject;
  const runPath = `/runs/${String(found['runId'])}`;
  const issued = (await (await send({ ...call, path: `${runPath}/ticket`, body: {} })).json()) as JsonObject;
  const address = `${oracle.sidecarUrl()}${runPath}?ticket=${String(issued['ticket'])}&after=${first.at(-1)?.id}`;
  const rest = await readSse(await fetch(address));

  expect(found).toMatchObject({ sessionId: session, status: 'running', attempt: 1 });
  expect(textOf(first).length).toBeLessThan(LONG.length);
  expect(textOf([...first, ...rest])).toBe(LONG);
  const ids = [...first, ...rest].flatMap(({ id }) => (id === undefined ? [] : [Number(id)]));
  expect(ids).toEqual(ids.map((_, n) => n + 1));
  expect(rest.filter(({ event }) => event === 'done')).toHaveLength(1);
  expect((await fetch(address)).status).toBe(401);
  // What is read when all is over, and its text is kept in one piece, is the same.
  const again = await readSse(await send({ ...call, method: 'GET', path: runPath }));
  expect(textOf(again)).toBe(LONG);
  expect(again.flatMap(({ id }) => id ?? [])).toEqual(ids.map(String));
  const runs = (await (await send({ ...call, method: 'GET', path: '/runs' })).json()) as { runs: JsonObject[] };
  expect(runs.runs.map(({ status }) => status)).toEqual(['completed', 'completed']);
  expect(JSON.stringify(runs)).not.toContain('word1');
});

test('a portal that said so stops its run by leaving: the room keeps what was said by then, and the next message is answered (G9)', async () => {
  const { oracle, talk, key, session, path } = await linked();
  oracle.model.respond(({ lastUserText }) =>
    lastUserText.includes('much') ? textReply(LONG, { pace: { tokensPerSecond: 20 } }) : textReply('still here'),
  );
  const call = { oracle, key, sender: talk.person.userId, room: talk.roomId };
  const stop = new AbortController();
  const body = { message: 'tell me much', stream: true, cancelOnDisconnect: true };

  const first = await readPart(await send({ ...call, path, thread: session, body }, stop.signal), stop, 60);
  const shown = await talk.watch.waitUntil(() =>
    talk.watch.answers(oracle.userId).find(({ content, live }) => {
      return !live && (content['ixo.oracle.run'] as JsonObject | undefined)?.['status'] === 'cancelled';
    }),
  );

  expect(shown.text.startsWith(textOf(first))).toBe(true);
  expect(shown.text).not.toContain('word79');
  const found = (await (await send({ ...call, method: 'GET', path: `/sessions/${encodeURIComponent(session)}/run` })).json()) as JsonObject;
  expect(found).toMatchObject({ status: 'cancelled', errorCode: 'RUN_CANCELLED' });
  expect((await talk.ask('and now?')).text).toBe('still here');
});
