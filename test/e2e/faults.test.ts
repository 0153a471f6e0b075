/**
 * Everything that may go wrong between the oracle and a real homeserver, in both directions, through a proxy: whatever it is, each message is
 * answered once, in one event that ends with the whole text, and in its order (research/peers.md §6 B3, B4, C9, D2, F1).
 * FAULT_SECONDS makes the outages as long as in the field; here they are short.
 */
import { afterEach, expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, textReply } from '../../synapse-dev/model/reply.ts';
import { type FaultProxy, openFaultProxy, type Passing } from '../fakes/fault-proxy.ts';
import {
  type Environment,
  errorOf,
  eventually,
  messagesIn,
  newTexts,
  type Person,
  type Talk,
  type TestOracle,
  textsAt,
  useWorld,
} from './harness.ts';

const world = useWorld({ oracles: 12 });
const FAULT_MS = Number(process.env['FAULT_SECONDS'] ?? 8) * 1_000;
const LONG = 120_000;
const MANY = { RATE_LIMIT: '1000', BOT_HOP_BUDGET: '0' };
const BAD_GATEWAY = { kind: 'answer', status: 502, body: '<html>502 Bad Gateway</html>' } as const;
const LIVE = 'org.matrix.msc4357.live';

const proxies: FaultProxy[] = [];
afterEach(async () => {
  for (const proxy of proxies.splice(0)) await proxy.close();
  // A test that failed in the middle of its outage must not fail the next ones.
  await world.homeserver.start();
});

interface Between {
  readonly oracle: TestOracle;
  readonly talk: Talk;
  readonly person: Person;
  /** From the oracle to the homeserver. */
  readonly out: FaultProxy;
  /** From the homeserver to the oracle. */
  readonly into: FaultProxy;
  /** The oracle stopped and started again behind the same proxies. */
  restart(): Promise<void>;
}
/** A direct room that was greeted, with a proxy on both ways. */
async function between(env: Environment = {}): Promise<Between> {
  const oracle = await world.oracle(MANY);
  let url = '';
  const out = await openFaultProxy({ target: () => world.homeserver.baseUrl });
  const into = await openFaultProxy({ port: Number(new URL(oracle.registration.url).port), target: () => url });
  proxies.push(out, into);
  const start = async (): Promise<void> => {
    const from = oracle.log.length;
    const ready = oracle.start({ MATRIX_BASE_URL: out.url, APPSERVICE_PORT: '0', ...env });
    const listening = await oracle.waitForLog((line) => line.msg === 'listening for transactions' && oracle.log.indexOf(line) >= from);
    url = `http://127.0.0.1:${listening['port']}`;
    await ready;
  };
  await start();
  oracle.model.respond((chat) => textReply(`Re: ${newTexts(chat).join(', ')}`));
  const person = await world.person();
  const talk = await person.direct(oracle);
  await talk.ask('first of all');
  const restart = async () => {
    await oracle.stop();
    await start();
  };
  return { oracle, talk, person, out, into, restart };
}

const isSend = ({ method, path }: Passing): boolean => method === 'PUT' && path.includes('/send/m.room.message/');
const isTransaction = ({ path }: Passing): boolean => path.includes('/transactions/');
const contentOf = ({ body }: Passing): JsonObject => JSON.parse(body.toString()) as JsonObject;
const isEdit = (passing: Passing): boolean => Object.hasOwn(contentOf(passing), 'm.new_content');
const isLastWord = (passing: Passing): boolean => isEdit(passing) && !Object.hasOwn(contentOf(passing), LIVE);
const withoutQuery = ({ path }: Passing): string => path.split('?')[0] ?? '';
/** All events of the oracle's messages, edits counted. */
const sentBy = async (talk: Talk, oracle: TestOracle) =>
  (await talk.history()).filter(({ type, sender }) => type === 'm.room.message' && sender === oracle.userId);

/** An answer that stands half in the room: what comes next happens in its middle. */
async function halfway({ oracle, talk }: Pick<Between, 'oracle' | 'talk'>) {
  const middle = createGate();
  oracle.model.enqueue({
    kind: 'text',
    text: ['The first half of a rather long answer, ', 'and the second half of it.'],
    holds: [{ gate: middle, before: 1 }],
  });
  const prompt = await talk.say('go on');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]?.live);
  return { prompt, finish: () => middle.release() };
}
async function expectWhole({ oracle, talk, prompt, asked }: Pick<Between, 'oracle' | 'talk'> & { prompt: string; asked: number }) {
  const answer = await talk.answerTo(prompt, 60_000);
  expect(answer.text).toBe('The first half of a rather long answer, and the second half of it.');
  expect(answer.status).toBe('completed');
  expect(answer.parts).toHaveLength(1);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(asked);
  expect(oracle.model.requests).toHaveLength(asked);
}

test('sends that were taken and whose replies were cut become one event each (G4)', async () => {
  const { oracle, talk, out } = await between();
  const before = (await sentBy(talk, oracle)).length;
  const tries = new Map<string, number>();
  // The client repeats a PUT once by itself, so three lost replies reach the outbox as well.
  out.plan((passing) => {
    if (!isSend(passing)) return undefined;
    const path = withoutQuery(passing);
    tries.set(path, (tries.get(path) ?? 0) + 1);
    return (tries.get(path) ?? 0) <= 3 ? { kind: 'cut_reply' } : undefined;
  });
  const { prompt, finish } = await halfway({ oracle, talk });
  finish();

  await expectWhole({ oracle, talk, prompt, asked: 2 });
  await eventually(() => [...tries.values()].every((count) => count === 4));
  const sent = await sentBy(talk, oracle);
  expect(sent.length - before).toBe(tries.size);
  // The homeserver takes our time for an edit: the last one counts, whatever arrives when.
  const edits = oracle.rows<{ event_id: string; created_at: number }>(
    'SELECT event_id, created_at FROM outbox WHERE edits_txn IS NOT NULL AND event_id IS NOT NULL',
  );
  expect(edits.length).toBeGreaterThan(0);
  for (const { event_id, created_at } of edits)
    expect(sent.find((event) => event.event_id === event_id)?.origin_server_ts).toBe(created_at);
});

test('429 with three seconds, for the first event and for the last edit: delivered later, in order, the final text in the same event (G3, G4)', async () => {
  const { oracle, talk, out } = await between();
  const limited = new Map<string, number>();
  out.plan((passing) => {
    if (!isSend(passing) || (isEdit(passing) && !isLastWord(passing)) || limited.has(withoutQuery(passing))) return undefined;
    limited.set(withoutQuery(passing), performance.now());
    return { kind: 'answer', status: 429, body: { errcode: 'M_LIMIT_EXCEEDED', error: 'Too Many Requests', retry_after_ms: 3_000 } };
  });
  const middle = createGate();
  oracle.model.enqueue({ kind: 'text', text: ['The first half, ', 'and the second.'], holds: [{ gate: middle, before: 1 }] });
  const startedAt = performance.now();
  const one = await talk.say('one');
  await talk.watch.waitUntil(() => talk.watch.answersTo(one)[0]?.live);
  expect(performance.now() - startedAt).toBeGreaterThan(3_000);
  middle.release();
  const two = await talk.say('two');
  const first = await talk.answerTo(one, 30_000);
  const second = await talk.answerTo(two, 30_000);

  expect(first.text).toBe('The first half, and the second.');
  expect(second.text).toBe('Re: two');
  const own = messagesIn(await talk.history(), oracle.userId).map(({ event_id }) => event_id);
  expect(own.slice(1)).toEqual([first.parts[0]?.eventId, second.parts[0]?.eventId]);
});

test(
  '502 for a while in the middle of an answer: it is delivered, once (G4)',
  async () => {
    const { oracle, talk, out } = await between();
    const { prompt, finish } = await halfway({ oracle, talk });
    out.plan(() => BAD_GATEWAY);
    finish();
    await eventually(() => oracle.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === 2);
    await new Promise((resolve) => setTimeout(resolve, FAULT_MS));
    out.heal();

    await expectWhole({ oracle, talk, prompt, asked: 2 });
    expect((await talk.ask('still there?')).text).toBe('Re: still there?');
  },
  LONG + FAULT_MS,
);

test(
  'Synapse killed and started again in the middle of an answer: it goes on in the same event (G4)',
  async () => {
    const { oracle, talk } = await between();
    const { prompt, finish } = await halfway({ oracle, talk });
    await world.homeserver.kill();
    finish();
    await eventually(() => oracle.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === 2);
    await world.homeserver.start();

    await expectWhole({ oracle, talk, prompt, asked: 2 });
  },
  LONG,
);

test(
  'Synapse killed with a message that it had not pushed: its closed connections tell, long before the next look (G1)',
  async () => {
    const { talk, into } = await between({ RECONCILE_INTERVAL_S: '3600', MATRIX_BASE_URL: world.homeserver.baseUrl });
    into.plan(({ body }) => (body.includes('under way') ? { kind: 'delay', ms: 20_000 } : undefined));
    const pushing = await talk.say('under way');
    await eventually(() => into.seen.some(({ body }) => body.includes('under way')));
    const queued = await talk.say('only in the memory of Synapse');
    await world.homeserver.kill();
    into.heal();
    await world.homeserver.start();

    const answers = [await talk.answerTo(pushing), await talk.answerTo(queued)];
    expect(answers.map(({ status }) => status)).toEqual(['completed', 'completed']);
  },
  LONG,
);

test('nobody listens while an answer ends: its last word arrives when somebody does (G4)', async () => {
  const { oracle, talk, out } = await between();
  const { prompt, finish } = await halfway({ oracle, talk });
  await out.down();
  finish();
  await eventually(() => oracle.rows("SELECT 1 FROM runs WHERE status = 'completed'").length === 2);
  expect(talk.watch.answersTo(prompt)[0]?.live).toBe(true);
  await out.up();

  await expectWhole({ oracle, talk, prompt, asked: 2 });
});

test('a homeserver that takes 10 s for everything is waited for, and nothing is sent twice (G4)', async () => {
  const { oracle, talk, out } = await between();
  const before = out.seen.filter(isSend).length;
  out.plan(() => ({ kind: 'delay', ms: 10_000 }));
  const answer = await talk.ask('are you there?');
  out.heal();

  expect(answer.text).toBe('Re: are you there?');
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(2);
  expect(out.seen.filter(isSend).length - before).toBeLessThanOrEqual(2);
});

test('transactions that come again in the wrong order, under other names and after a restart start nothing (G2)', async () => {
  const { oracle, talk, into, restart } = await between({ RECONCILE_INTERVAL_S: '3600' });
  const texts = ['one', 'two', 'three', 'four'];
  for (const text of texts) await talk.ask(text);
  const transactions = into.seen.filter(isTransaction);
  const asked = oracle.model.requests.length;
  const events = (await sentBy(talk, oracle)).length;

  for (const transaction of transactions.toReversed()) expect(await into.resend(transaction)).toBe(200);
  for (const [index, transaction] of transactions.entries())
    expect(await into.resend(transaction, transaction.path.replace(/transactions\/[^?]+/u, `transactions/other-${index}`))).toBe(200);
  await restart();
  for (const transaction of transactions.toReversed()) expect(await into.resend(transaction)).toBe(200);
  await eventually(() => oracle.rows("SELECT 1 FROM inbox WHERE state = 'ready'").length === 0);

  expect(oracle.model.requests).toHaveLength(asked);
  expect((await sentBy(talk, oracle)).length).toBe(events);
});

test('a transaction that comes long after newer ones is still answered, once (G1, G2)', async () => {
  const { oracle, talk, into } = await between({ RECONCILE_INTERVAL_S: '3600' });
  let late: Passing | undefined;
  into.plan((passing) => {
    if (late !== undefined || !isTransaction(passing) || !passing.body.includes('the late one')) return undefined;
    late = passing;
    return { kind: 'swallow' };
  });
  const prompt = await talk.say('the late one');
  await eventually(() => late !== undefined);
  expect((await talk.ask('a newer one')).text).toBe('Re: a newer one');
  if (late === undefined) throw new Error('unreachable');
  await into.resend(late);
  await into.resend(late, late.path.replace(/transactions\/[^?]+/u, 'transactions/later'));

  expect((await talk.answerTo(prompt)).text).toBe('Re: the late one');
  expect(textsAt(oracle.model)).toEqual(['first of all', 'a newer one', 'the late one']);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(3);
});

test(
  'a transaction with 100 events of which 50 are known: exactly the 50 new ones are handled (G1, G2)',
  async () => {
    const { oracle, person, into } = await between({ RECONCILE_INTERVAL_S: '3600' });
    const others = await Promise.all(Array.from({ length: 4 }, () => world.person()));
    const group = await person.group(oracle, { preset: 'public_chat' });
    const talks = [group];
    for (const other of others) {
      await other.client.join(group.roomId);
      talks.push(await other.talk(group.roomId, oracle));
    }
    const mention = { 'm.mentions': { user_ids: [oracle.userId] } };
    /** Ten of each of five people: nobody writes faster than one person may. */
    const sayFifty = async (name: string): Promise<string[]> => {
      const prompts: string[] = [];
      for (let round = 0; round < 10; round += 1)
        prompts.push(...(await Promise.all(talks.map((talk, who) => talk.say(`${name} ${round} of ${who}`, mention)))));
      return prompts;
    };
    const known = await sayFifty('known');
    const answered = (prompts: readonly string[]) => prompts.every((prompt) => group.watch.answersTo(prompt).length > 0);
    await eventually(() => answered(known), 60_000);
    const before = textsAt(oracle.model).length;
    into.plan((passing) => (isTransaction(passing) ? { kind: 'swallow' } : undefined));
    const fresh = await sayFifty('fresh');

    const eventsSeen = (): Map<string, JsonObject> =>
      new Map(
        into.seen
          .filter(isTransaction)
          .flatMap((passing) => (JSON.parse(passing.body.toString()) as { events: JsonObject[] }).events)
          .map((event) => [String(event['event_id']), event]),
      );
    await eventually(() => fresh.every((prompt) => eventsSeen().has(prompt)));
    const mixed = known.flatMap((prompt, index) => [prompt, fresh[index] ?? '']);
    const all = eventsSeen();
    into.heal();
    const pushed = await oracle.push({ events: mixed.map((prompt) => all.get(prompt) ?? {}) });
    expect(pushed.status).toBe(200);
    await eventually(() => answered(fresh), 60_000);
    await eventually(() => oracle.rows("SELECT 1 FROM inbox WHERE state = 'ready'").length === 0);

    const texts = textsAt(oracle.model)
      .slice(before)
      .map((text) => /(known|fresh) \d of \d/u.exec(text)?.[0]);
    expect(texts).toHaveLength(50);
    expect(new Set(texts).size).toBe(50);
    expect(texts.every((text) => text?.startsWith('fresh'))).toBe(true);
    const prompts = oracle.rows<{ prompt_id: string }>('SELECT prompt_id FROM pending_inputs').map(({ prompt_id }) => prompt_id);
    expect([...known, ...fresh].every((prompt) => prompts.filter((one) => one === prompt).length === 1)).toBe(true);
  },
  LONG,
);

test(
  'the device is deleted after its sends were taken and their replies lost: found in the room, not said twice (G4)',
  async () => {
    const { oracle, talk, out } = await between();
    // The one that holds its keys goes with the others.
    oracle.expectedErrors.add('keys of encrypted rooms do not arrive');
    let taken = 0;
    out.plan((passing) => {
      if (!isSend(passing)) return undefined;
      taken += 1;
      return taken === 1 ? { kind: 'cut_reply' } : BAD_GATEWAY;
    });
    const prompt = await talk.say('say it once');
    await eventually(() => taken > 1);
    // Its memory of requests goes with the restart, its table of transactions with the device.
    await world.homeserver.restart();
    const { as_token: token } = oracle.registration;
    const asOracle = `user_id=${encodeURIComponent(oracle.userId)}`;
    const { devices } = (await (
      await fetch(`${world.homeserver.baseUrl}/_matrix/client/v3/devices?${asOracle}`, { headers: { authorization: `Bearer ${token}` } })
    ).json()) as { devices: { device_id: string }[] };
    for (const { device_id } of devices) {
      const response = await fetch(`${world.homeserver.baseUrl}/_matrix/client/v3/devices/${device_id}?${asOracle}`, {
        method: 'DELETE',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: '{}',
      });
      expect(response.status).toBe(200);
    }
    out.heal();

    expect((await talk.answerTo(prompt, 60_000)).text).toBe('Re: say it once');
    await oracle.waitForLog(({ msg }) => msg === 'an event of a lost device was found in its room');
    expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(2);
    expect((await talk.ask('and now?')).text).toBe('Re: and now?');
  },
  LONG,
);

test('an answer that the homeserver refuses for its size is parked, the room is told, and the next one is given (G4)', async () => {
  const { oracle, talk, out } = await between();
  let refused = false;
  out.plan((passing) => {
    if (refused || !isSend(passing)) return undefined;
    refused = true;
    return { kind: 'answer', status: 413, body: { errcode: 'M_TOO_LARGE', error: 'event too large' } };
  });
  await talk.say('too much');
  const notice = await talk.notice('ANSWER_REFUSED');

  expect(errorOf(notice.content)).toMatchObject({ status: 502, retryable: true });
  expect(notice.content['m.mentions']).toEqual({});
  expect((await talk.ask('less')).text).toBe('Re: less');
  expect(oracle.rows("SELECT error FROM outbox WHERE state = 'parked'")).toEqual([{ error: 'M_TOO_LARGE 413' }]);
});
