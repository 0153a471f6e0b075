/** What was said before the window, retold: by whom it is made, who pays, what it taints, and that nobody waits for it. */
import { afterEach, describe, expect, test } from 'vitest';
import { FREE } from '../../../src/agent/spending.ts';
import { isForeignSummary, mergeOrigin, planSummary } from '../../../src/agent/summary.ts';
import type { PrincipalId, RunId, SessionId } from '../../../src/ids.ts';
import { createSummaries, dropSummary, type Summary } from '../../../src/sessions/summaries.ts';
import { createTranscript, type TranscriptEntry } from '../../../src/sessions/transcript.ts';
import type { Store } from '../../../src/store/store.ts';
import { textReply } from '../../../synapse-dev/model/reply.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';
import { type Bench, fakeRun, sentWith, startBench } from './turn-fixture.ts';

let bench: Bench | undefined;
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});

const ALICE = 'did:key:zAlice' as PrincipalId;
const entry = (id: number, more: Partial<TranscriptEntry> = {}): TranscriptEntry => ({
  ...{
    id,
    runId: null,
    eventId: null,
    role: 'human',
    speaker: ALICE,
    text: `text ${id}`,
    message: null,
    at: 0,
    tier: 'signed',
    tainted: false,
  },
  ...more,
});
const summary = (more: Partial<Summary> = {}): Summary => ({
  upTo: 10,
  text: 'Old.',
  tainted: false,
  tier: 'signed',
  speaker: ALICE,
  ...more,
});

describe('planSummary', () => {
  test('retells words that no summary has, and no results of tools', () => {
    const plan = planSummary(summary({ upTo: 2 }), [entry(1), entry(3), entry(4, { role: 'tool' }), entry(5, { role: 'ai' })]);

    expect(plan).toMatchObject({ upTo: 5 });
    expect(plan?.entries.map(({ id }) => id)).toEqual([3, 5]);
  });

  test('is none when nothing is new', () => {
    expect(planSummary(summary({ upTo: 5 }), [entry(4), entry(5), entry(6, { role: 'tool' })])).toBeNull();
  });
});

describe('what a summary taints (G8)', () => {
  const signed = { principalId: ALICE, tier: 'signed' as const };
  test.each<[string, Summary | null, TranscriptEntry[], boolean]>([
    ['one’s own words and their answers taint nothing', null, [entry(1), entry(2, { role: 'ai', speaker: 'oracle' })], false],
    ['an answer of a tainted run', null, [entry(1), entry(2, { role: 'ai', tainted: true })], true],
    ['words of somebody else', null, [entry(1), entry(2, { speaker: 'did:key:zBob' })], true],
    ['words said at a lower tier', null, [entry(1, { tier: 'sender-bound' })], true],
    ['words that were only overheard', null, [entry(1, { tier: null })], true],
    ['an earlier summary that is tainted', summary({ tainted: true }), [entry(11)], true],
    ['an earlier summary of somebody else', summary({ speaker: null }), [entry(11)], true],
    ['an earlier summary of lower tier', summary({ tier: 'listed' }), [entry(11)], true],
  ])('%s', (_name, known, entries, expected) => {
    expect(isForeignSummary({ ...summary(), ...mergeOrigin(known, entries) }, signed)).toBe(expected);
  });
});

async function fill(store: Store, count: number, text = (at: number) => `said ${at}`): Promise<void> {
  const transcript = createTranscript({ store });
  const run = fakeRun();
  await store.write((tx) => {
    for (let at = 1; at <= count; at += 1) {
      const isHuman = at % 2 === 1;
      transcript.append(tx, {
        ...{ roomId: run.roomId, sessionId: run.sessionId, eventId: null, message: null, at, tier: 'signed', tainted: false },
        runId: `00000000000000000000${String(at >> 1).padStart(6, '0')}` as RunId,
        role: isHuman ? 'human' : 'ai',
        speaker: isHuman ? ALICE : 'oracle',
        text: text(at),
      });
    }
  });
}
async function open(count: number) {
  const store = memoryStore();
  await fill(store, count);
  const transcript = createTranscript({ store });
  const summaries = createSummaries({ store, transcript, clock: fakeClock() });
  const spent: string[] = [];
  const spending = { ...FREE, spend: async (_run: unknown, { model }: { model: string }) => void spent.push(model) };
  bench = await startBench({ options: { transcript, contextMessages: 10, summaries, spending } });
  const one = bench;
  one.server.respond((request) => textReply(request.messages[0]?.text.startsWith('Retell') ? 'They talked.' : 'Hello.'));
  return { store, summaries, spent, one, session: fakeRun().sessionId as SessionId };
}

const inputOf = ({ outcome }: Awaited<ReturnType<Bench['execute']>>): number =>
  outcome.kind === 'completed' ? (outcome.usage?.inputTokens ?? 0) : 0;

test('it is made beside the answer, paid for by the run, and first shown to the next turn', async () => {
  const { one, spent, summaries, session } = await open(40);

  const first = await one.execute();
  const requests = one.server.requests.length;
  const second = await one.execute();

  expect(first.outcome).toMatchObject({ kind: 'completed', text: 'Hello.' });
  expect([requests, spent.length]).toEqual([2, 3]);
  expect(inputOf(first)).toBeGreaterThan(1.5 * inputOf(second));
  expect(summaries.read(session)).toMatchObject({ text: 'They talked.', upTo: 30, tainted: false, tier: 'signed', speaker: ALICE });
  expect(sentWith(one, 3).messages.slice(0, 2)).toEqual([expect.stringMatching(/^user: Summary .*\nThey talked\.$/u), 'user: said 31']);
});

test('it is made anew only when enough has left the window since, and takes the earlier one in', async () => {
  const { one, store, summaries, session } = await open(40);
  await one.execute();
  await fill(store, 10, (at) => `later ${at}`);
  await one.execute();
  const soon = one.server.requests.length;
  await fill(store, 10, (at) => `last ${at}`);

  await one.execute();

  expect(soon).toBe(3);
  expect(one.server.requests.length).toBe(5);
  expect(summaries.read(session)?.upTo).toBe(50);
  const asked = one.server.requests.find(({ body }) => JSON.stringify(body).includes('Earlier summary'));
  expect(JSON.stringify(asked?.body)).toContain('They talked.');
});

test('a conversation that fits has none', async () => {
  const { one } = await open(15);

  await one.execute();

  expect(one.server.requests).toHaveLength(1);
});

test('one that cannot be made is left out, and the answer is not', async () => {
  const { one, summaries, session } = await open(40);
  one.server.respond((request) =>
    request.messages[0]?.text.startsWith('Retell') ? { kind: 'status', status: 401, message: 'no' } : textReply('Hello.'),
  );

  expect((await one.execute()).outcome).toMatchObject({ kind: 'completed', text: 'Hello.' });
  expect(summaries.read(session)).toBeNull();
});

test('one of several people taints the run that is shown it (G8)', async () => {
  const { one, summaries, session } = await open(40);
  await summaries.write(session, summary({ upTo: 30, speaker: null }));

  const { output } = await one.execute();

  expect(output.calls).toContain('tainted');
});

test('whoever erases what was said drops it', async () => {
  const { store, summaries, session } = await open(0);
  await summaries.write(session, summary());

  await store.write((tx) => dropSummary(store, tx, session));

  expect(summaries.read(session)).toBeNull();
});
