/**
 * The homeserver goes away and comes back. Synapse forgets what it had not pushed when it stops, and nobody sends it again, so this is where
 * "nothing is lost" is proved: by reconciliation, in order, and without answering twice.
 */
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { createGate, textReply } from '../../synapse-dev/model/reply.ts';
import { type Environment, eventually, messagesIn, newTexts, type Talk, type TestOracle, textsAt, useWorld } from './harness.ts';

const world = useWorld({ oracles: 5 });
const MANY = { RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' };

/** Stands where the homeserver believes the oracle to be; can let transactions wait. */
interface Door {
  hold(): void;
  /** Those that wait get through. */
  open(): void;
  readonly held: number;
  close(): Promise<void>;
}
const doors: Door[] = [];
afterEach(async () => {
  for (const door of doors.splice(0)) await door.close();
  // A test that failed in the middle of its outage must not fail the next ones.
  await world.homeserver.start();
});

async function createDoor({ port, target }: { port: number; target: () => string }): Promise<Door> {
  let holding = false;
  let waiting: (() => void)[] = [];
  const pass = (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const onward = request(new URL(incoming.url ?? '/', target()), { method: incoming.method, headers: incoming.headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on('error', () => outgoing.destroy());
    incoming.pipe(onward);
  };
  const server: Server = createServer((incoming, outgoing) => {
    if (!holding || !incoming.url?.includes('/transactions/')) return pass(incoming, outgoing);
    waiting.push(() => pass(incoming, outgoing));
    // A homeserver that goes away takes its request with it.
    incoming.on('close', () => {
      if (!incoming.complete) waiting = [];
    });
    outgoing.on('close', () => {
      waiting = [];
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const door: Door = {
    hold: () => {
      holding = true;
    },
    open() {
      holding = false;
      for (const go of waiting.splice(0)) go();
    },
    get held() {
      return waiting.length;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  doors.push(door);
  return door;
}

async function behindDoor(env: Environment = {}): Promise<{ oracle: TestOracle; door: Door; talk: Talk }> {
  const oracle = await world.oracle(MANY);
  let url = '';
  const door = await createDoor({ port: Number(new URL(oracle.registration.url).port), target: () => url });
  const running = oracle.start({ APPSERVICE_PORT: '0', ...env });
  await oracle.waitForLog(({ msg, port }) => {
    if (msg === 'listening for transactions') url = `http://127.0.0.1:${port}`;
    return url !== '';
  });
  await running;
  oracle.model.respond((chat) => textReply(`Re: ${newTexts(chat).join(', ')}`));
  const talk = await (await world.person()).direct(oracle);
  await talk.ask('first of all');
  return { oracle, door, talk };
}

async function expectEachOnce({ oracle, talk, texts, prompts }: { oracle: TestOracle; talk: Talk; texts: string[]; prompts: string[] }) {
  const answers = await Promise.all(prompts.map((prompt) => talk.answerTo(prompt, 60_000)));
  expect(textsAt(oracle.model)).toEqual(texts);
  expect(answers.map(({ prompts: named }, index) => named.includes(prompts[index] ?? ''))).toEqual(prompts.map(() => true));
  // Each run spoke once: as many messages as the model was asked.
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(oracle.model.requests.length);
}

test('Synapse stopped right after it took a message: the message is answered once when it is back (G1, G2)', async () => {
  const { oracle, talk } = await behindDoor();

  const prompt = await talk.say('did you get this?');
  await world.homeserver.stop('SIGTERM');
  await world.homeserver.start();

  await expectEachOnce({ oracle, talk, texts: ['first of all', 'did you get this?'], prompts: [prompt] });
});

test('Synapse stopped with 20 messages queued behind a slow transaction: each reaches the model once, in order (G1, G2, G3)', async () => {
  const { oracle, door, talk } = await behindDoor({ RECONCILE_INTERVAL_S: '8' });
  const texts = Array.from({ length: 20 }, (_, index) => `queued ${index}`);
  door.hold();

  const prompts: string[] = [];
  for (const text of texts) prompts.push(await talk.say(text));
  await eventually(() => door.held === 1);
  await world.homeserver.stop('SIGTERM');
  door.open();
  await world.homeserver.start();

  await expectEachOnce({ oracle, talk, texts: ['first of all', ...texts], prompts });
});

test('the oracle and Synapse both stopped while messages were under way: all are found at the next start (G1)', async () => {
  const { oracle, door, talk } = await behindDoor({ RECONCILE_INTERVAL_S: '3600' });
  // More than one page of the timeline, so a gap that is closed page by page; fewer than the flood bucket of one person holds.
  const texts = Array.from({ length: 28 }, (_, index) => `under way ${index}`);
  door.hold();
  const prompts: string[] = [];
  for (const text of texts) prompts.push(await talk.say(text));
  expect(textsAt(oracle.model)).toEqual(['first of all']);
  await oracle.stop();
  await world.homeserver.kill();

  await door.close();
  await world.homeserver.start();
  await oracle.start();

  await expectEachOnce({ oracle, talk, texts: ['first of all', ...texts], prompts });
});

test('Synapse stopped for 20 s while an answer streams: the final text arrives, once (G4)', async () => {
  const { oracle, talk } = await behindDoor();
  const middle = createGate();
  oracle.model.enqueue({
    kind: 'text',
    text: ['The first half of a rather long answer, ', 'and the second half of it.'],
    holds: [{ gate: middle, before: 1 }],
  });
  const prompt = await talk.say('go on');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]?.live);

  await world.homeserver.stop('SIGTERM');
  middle.release();
  await wait(20_000);
  await world.homeserver.start();

  const answer = await talk.answerTo(prompt, 60_000);
  expect(answer.text).toBe('The first half of a rather long answer, and the second half of it.');
  expect(answer.status).toBe('completed');
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(2);
  expect(oracle.model.requests).toHaveLength(2);
  expect((await talk.ask('still there?')).text).toBe('Re: still there?');
});
