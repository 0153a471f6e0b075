import { describe, expect, test } from 'vitest';
import { createRunIds, type EventId, type OwnerId, type PrincipalId, type RoomId, type RunId, type SessionId } from '../../../src/ids.ts';
import { createTranscriptSearch, MAX_HITS, type SearchAsker } from '../../../src/sessions/search-transcript.ts';
import { createTranscript, type NewTranscriptEntry } from '../../../src/sessions/transcript.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { memoryStore } from '../../fakes/memory-store.ts';

const ALICE = 'did:key:zAlice' as PrincipalId;
const BOB = 'did:key:zBob' as PrincipalId;
const DM = '!dm:test' as RoomId;
const BOBS_DM = '!bob:test' as RoomId;
const GROUP = '!group:test' as RoomId;
const newRunId = createRunIds();
const OWN_RUN = newRunId(FAKE_START_MS + 1_000_000);

async function setUp() {
  const store = memoryStore();
  const transcript = createTranscript({ store });
  const sessions: Record<string, { room: RoomId; owner: OwnerId }> = {
    $dm1: { room: DM, owner: ALICE },
    $dm2: { room: DM, owner: ALICE },
    $bob: { room: BOBS_DM, owner: BOB },
    $group: { room: GROUP, owner: GROUP as unknown as OwnerId },
  };
  await store.write((tx) => {
    for (const [id, { room, owner }] of Object.entries(sessions)) {
      const row = { session_id: id as SessionId, room_id: room, owner, kind: 'thread', thread_root: id as EventId, title: null } as const;
      tx.run(store.sql.insertInto('sessions').values({ ...row, created_at: 0, last_at: 0, retired_at: null }));
    }
  });
  let at = 0;
  /** A prompt and its answer, by a run of `by`. */
  async function turn(
    session: string,
    by: PrincipalId,
    prompt: string,
    answer: string,
    more: Partial<NewTranscriptEntry> = {},
  ): Promise<RunId> {
    const room = sessions[session]?.room ?? DM;
    at += 1;
    const runId = newRunId(FAKE_START_MS + at);
    const base = {
      roomId: room,
      sessionId: session as SessionId,
      runId,
      eventId: `$${at}`,
      message: null,
      at,
      tier: 'signed',
      ...more,
    } as const;
    await store.write((tx) => {
      const run = {
        run_id: runId,
        session_id: session,
        room_id: room,
        owner: sessions[session]?.owner,
        principal_id: by,
        matrix_user_id: '@x:test',
      };
      tx.run(
        store.sql.insertInto('runs').values({
          ...run,
          tier: 'signed',
          client: 'matrix',
          request_id: 'r',
          hints: '{}',
          direct: 1,
          status: 'completed',
          created_at: at,
        } as never),
      );
      transcript.append(tx, { ...base, role: 'human', speaker: by, text: prompt });
      transcript.append(tx, { ...base, role: 'tool', speaker: 'oracle', text: `tool of ${prompt}` });
      transcript.append(tx, { ...base, role: 'ai', speaker: 'oracle', text: answer });
    });
    return runId;
  }
  const search = createTranscriptSearch({ store });
  const inDm: SearchAsker = { principalId: ALICE, roomId: DM, direct: true, runId: OWN_RUN };
  const inGroup: SearchAsker = { ...inDm, roomId: GROUP, direct: false };
  const find = (query: string, asker = inDm, limit = 10) => search.find(asker, query, limit).map(({ text }) => text);
  return { store, transcript, turn, find, search, inDm, inGroup };
}

test('a person finds what was said in all of their own conversations, prompts and answers, never tool results', async () => {
  const { turn, find } = await setUp();
  await turn('$dm1', ALICE, 'my dog is Rex', 'a fine dog');
  await turn('$dm2', ALICE, 'and the cat', 'no dog then');

  expect(find('dog')).toEqual(['no dog then', 'a fine dog', 'my dog is Rex']);
  expect(find('tool')).toEqual([]);
});

test("somebody else's conversation is found by nobody (G13)", async () => {
  const { turn, find, inDm } = await setUp();
  await turn('$bob', BOB, 'my dog is Bello', 'noted: dog Bello');

  expect(find('dog')).toEqual([]);
  expect(find('dog', { ...inDm, principalId: BOB })).toHaveLength(2);
});

describe('in a group (G13)', () => {
  test('only what this person asked there and was answered', async () => {
    const { turn, find, inGroup, store, transcript } = await setUp();
    await turn('$group', ALICE, 'group dog of alice', 'answer dog to alice');
    await turn('$group', BOB, 'group dog of bob', 'answer dog to bob');
    await store.write((tx) =>
      transcript.append(tx, {
        roomId: GROUP,
        sessionId: null,
        runId: null,
        eventId: '$o',
        role: 'human',
        speaker: ALICE,
        text: 'overheard dog',
        message: null,
        at: 9,
      }),
    );

    expect(find('dog', inGroup)).toEqual(['answer dog to alice', 'group dog of alice']);
  });

  test('nothing of a direct conversation: everybody reads the answer there', async () => {
    const { turn, find, inGroup } = await setUp();
    await turn('$dm1', ALICE, 'my secret dog', 'a secret dog');

    expect(find('dog', inGroup)).toEqual([]);
  });

  test('control: and from a direct room nothing of a group', async () => {
    const { turn, find } = await setUp();
    await turn('$group', ALICE, 'group dog', 'group dog answer');

    expect(find('dog')).toEqual([]);
  });
});

test('a run finds nothing of itself', async () => {
  const { turn, find, inDm } = await setUp();
  const runId = await turn('$dm1', ALICE, 'dog', 'dog');

  expect(find('dog', { ...inDm, runId })).toEqual([]);
});

test('what was taken back is not found', async () => {
  const { turn, find, store } = await setUp();
  await turn('$dm1', ALICE, 'my dog', 'your dog');
  await store.write((tx) => tx.run(store.sql.updateTable('transcript').set({ redacted: 1 }).where('role', '=', 'human')));

  expect(find('dog')).toEqual(['your dog']);
});

test('tier and taint come with a hit', async () => {
  const { turn, search, inDm } = await setUp();
  await turn('$dm1', ALICE, 'dog', 'x', { tainted: true, tier: 'sender-bound' });

  expect(search.find(inDm, 'dog', 5)).toEqual([
    { sessionId: '$dm1', role: 'human', text: 'dog', at: 1, tier: 'sender-bound', tainted: true },
  ]);
});

test('hits are bounded, and a query is text (G14)', async () => {
  const { turn, find, inDm } = await setUp();
  for (let at = 0; at < 40; at += 1) await turn('$dm1', ALICE, `dog ${at}`, 'dog');

  expect(find('dog', inDm, 1_000)).toHaveLength(MAX_HITS);
  expect(find('dog', inDm, 0)).toEqual([]);
  for (const query of ['"', 'a" OR "b', 'NEAR(', '*', 'text:dog', '']) expect(() => find(query)).not.toThrow();
});

test('a rare word is found however old it is and however much others say (G16)', async () => {
  const { turn, find, store } = await setUp();
  await turn('$dm1', ALICE, 'the axolotl', 'ok');
  await store.write((tx) => {
    const rows = Array.from({ length: 500 }, (_, at) => ({
      room_id: BOBS_DM,
      session_id: '$bob' as SessionId,
      run_id: null,
      event_id: `$b${at}`,
      role: 'human' as const,
      speaker: BOB,
      text: 'the and what of the',
      message: null,
      attachments: null,
      at,
      tier: null,
    }));
    for (let from = 0; from < 20; from += 1) tx.run(store.sql.insertInto('transcript').values(rows));
  });

  expect(find('what of the axolotl')).toEqual(['the axolotl']);
});
