import { expect, test } from 'vitest';
import { createRunIds, type SessionId } from '../../../src/ids.ts';
import { createTranscript, type NewTranscriptEntry } from '../../../src/sessions/transcript.ts';
import type { Store } from '../../../src/store/store.ts';
import { ROOM } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const SESSION = '$s' as SessionId;
const newRunId = createRunIds();
const [RUN_1, RUN_2, RUN_3] = [1, 2, 3].map((ms) => newRunId(FAKE_START_MS + ms));

function setUp(store: Store = memoryStore()) {
  const transcript = createTranscript({ store });
  const say = (text: string, change: Partial<NewTranscriptEntry> = {}) =>
    store.write((tx) =>
      transcript.append(tx, {
        ...{ roomId: ROOM, sessionId: SESSION, runId: null, eventId: `$${text}`, role: 'human', speaker: 'p', text, message: null, at: 0 },
        ...change,
      }),
    );
  return { store, transcript, say };
}
const texts = (entries: readonly { text: string }[]): string[] => entries.map(({ text }) => text);

test('a run sees the newest of what was said before it, oldest first, and nothing of itself or of later runs', async () => {
  const { transcript, say } = setUp();
  await say('a', { runId: RUN_1 ?? null });
  await say('aside');
  await say('own', { runId: RUN_2 ?? null });
  await say('later', { runId: RUN_3 ?? null });
  await say('elsewhere', { sessionId: '$other' as SessionId });

  expect(texts(transcript.newest(SESSION, { limit: 10, withoutRun: RUN_2 as never }))).toEqual(['a', 'aside']);
  expect(texts(transcript.newest(SESSION, { limit: 2 }))).toEqual(['own', 'later']);
});

test('a stored message comes back as it was written', async () => {
  const { transcript, say } = setUp();
  await say('x', { role: 'ai', message: { v: 1, tool_calls: [{ id: 'c' }] } });

  expect(transcript.newest(SESSION, { limit: 1 })).toMatchObject([
    { role: 'ai', message: { v: 1, tool_calls: [{ id: 'c' }] }, eventId: '$x' },
  ]);
});

test('tier and taint come back with an entry; what was only overheard has neither', async () => {
  const { transcript, say } = setUp();
  await say('overheard');
  await say('answer', { role: 'ai', tier: 'signed', tainted: true });

  expect(transcript.newest(SESSION, { limit: 2 }).map(({ tier, tainted }) => [tier, tainted])).toEqual([
    [null, false],
    ['signed', true],
  ]);
});

test('pages go back without a gap or a repetition', async () => {
  const { transcript, say } = setUp();
  for (let n = 0; n < 7; n += 1) await say(`m${n}`);
  const seen: string[] = [];
  for (let before: number | undefined; ; ) {
    const page = transcript.page(SESSION, { limit: 3, ...(before === undefined ? {} : { before }) });
    if (page.length === 0) break;
    seen.unshift(...texts(page));
    before = page[0]?.id;
  }

  expect(seen).toEqual(['m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6']);
});

test('what was redacted is in no answer and not in the search index', async () => {
  const { store, transcript, say } = setUp();
  await say('secret');
  await say('noise', { sessionId: null });
  const found = () =>
    store.read.all({
      compile: () => ({ sql: "SELECT rowid FROM transcript_search WHERE transcript_search MATCH 'secret'", parameters: [] }),
    } as never);
  expect(found()).toHaveLength(1);

  await store.write((tx) => tx.run(store.sql.updateTable('transcript').set({ text: '', message: null, redacted: 1 })));

  expect(found()).toEqual([]);
  expect([transcript.newest(SESSION, { limit: 9 }), transcript.page(SESSION, { limit: 9 }), transcript.overheard(ROOM, 9)]).toEqual([
    [],
    [],
    [],
  ]);
});

test('what was overheard in a room is its newest, outside any session only', async () => {
  const { transcript, say } = setUp();
  for (const text of ['a', 'b', 'c']) await say(text, { sessionId: null });
  await say('in session');

  expect(texts(transcript.overheard(ROOM, 2))).toEqual(['b', 'c']);
});
