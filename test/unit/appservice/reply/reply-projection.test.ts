import { setImmediate as nextTask } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { markerAfter } from '../../../../appservice/content/mark-answer.ts';
import { splitAnswer } from '../../../../appservice/content/split-answer.ts';
import { WITHDRAWN_TEXT } from '../../../../appservice/reply/plan-final.ts';
import {
  createReplyProjection,
  type ReplyObservation,
  TYPING_AFTER_MS,
  TYPING_REFRESH_MS,
} from '../../../../appservice/reply/reply-projection.ts';
import type { DeviceId, EventId, PrincipalId, RoomId, RunId, SessionId, UserId } from '../../../../src/ids.ts';
import { noticeTxnId } from '../../../../src/ids.ts';
import { LIMITS } from '../../../../src/limits.ts';
import type { Logger } from '../../../../src/observe/logger.ts';
import { createOutbox } from '../../../../src/outbox/outbox.ts';
import { createRuns } from '../../../../src/runs/ledger.ts';
import type { RunView } from '../../../../src/runs/projection.ts';
import { EMPTY_FOLD, type FoldedRun, type Frame, foldFrame, type Run, type RunStatus } from '../../../../src/runs/run.ts';
import { openStore, StorageError } from '../../../../src/store/store.ts';
import { NO_GRANTS } from '../../../../src/turn/principal.ts';
import { fakeClock } from '../../../fakes/fake-clock.ts';
import { fakeSender, fakeTimeline } from '../../../fakes/fake-sender.ts';
import { foldRoom, type ShownInRoom } from '../../../fakes/fold-room.ts';

const RUN = '01JZ0000000000000000000000' as RunId;
const ROOM = '!room:example.org' as RoomId;
const ROOT = '$root' as EventId;
const PROMPT = '$prompt' as EventId;
const IDENTITY = { sender: '@oracle:example.org' as UserId, deviceId: 'ORACLE' as DeviceId };

const aRun = (more: Partial<Run> = {}): Run => ({
  id: RUN,
  sessionId: ROOT as SessionId,
  roomId: ROOM,
  threadRoot: ROOT,
  owner: 'did:key:zOwner' as PrincipalId,
  principalId: 'did:key:zOwner' as PrincipalId,
  did: null,
  trust: null,
  grants: NO_GRANTS,
  tainted: false,
  matrixUserId: '@user:example.org' as UserId,
  tier: 'signed',
  client: 'matrix',
  requestId: 'request',
  hints: {},
  direct: true,
  replaces: null,
  status: 'running',
  attempt: 1,
  createdAt: 0,
  startedAt: 0,
  deadlineAt: null,
  fence: 1,
  prompts: [{ id: PROMPT, text: 'Hello?', receivedAt: 0 }],
  ...more,
});

function quietLogger(): Logger & { readonly warnings: string[] } {
  const warnings: string[] = [];
  const logger: Logger & { readonly warnings: string[] } = {
    warnings,
    debug: () => undefined,
    info: () => undefined,
    warn: (_fields, message) => void warnings.push(message),
    error: (_fields, message) => void warnings.push(message),
    child: () => logger,
  };
  return logger;
}

type Data = { [K in Frame['kind']]: { kind: K; data: Extract<Frame, { kind: K }>['data'] } }[Frame['kind']];

/** A run with everything around it that a crash leaves alone; `restart` is what `kill -9` and a start leave. */
function setUp({ run = aRun(), holds = () => true }: { run?: Run; holds?: () => boolean } = {}) {
  const clock = fakeClock();
  const store = openStore({ path: ':memory:', now: clock.now() });
  const timeline = fakeTimeline();
  const logger = quietLogger();
  const typing: boolean[] = [];
  const observed: ReplyObservation[] = [];
  const start = () => {
    const outbox = createOutbox({ store, identity: IDENTITY });
    const projection = createReplyProjection({
      store,
      outbox,
      clock,
      logger,
      typing: (_room, on) => void typing.push(on),
      isFederated: () => false,
      holds,
      observe: (event) => void observed.push(event),
    });
    return { outbox, projection, sender: fakeSender({ outbox, clock, timeline, onSent: projection.onSent }) };
  };
  let process = start();
  let folded: FoldedRun = EMPTY_FOLD;
  let current = run;
  let view: RunView = process.projection.open(run, EMPTY_FOLD);
  const framesOf = (items: readonly Data[], from: FoldedRun) =>
    items.map((item, index) => ({ seq: from.lastSeq + index + 1, at: clock.now(), ...item }) as Frame);
  const emit = (...items: Data[]) => {
    const frames = framesOf(items, folded);
    folded = frames.reduce(foldFrame, folded);
    view.onFrames(frames, folded);
  };
  return {
    clock,
    store,
    timeline,
    logger,
    typing,
    observed,
    emit,
    say: (delta: string) => emit({ kind: 'text', data: { delta } }),
    truncate: (length: number) => emit({ kind: 'truncate', data: { length } }),
    text: () => folded.text,
    process: () => process,
    view: () => view,
    rows: () => process.outbox.ofRun(store.read, RUN),
    async pass(ms: number) {
      await clock.advanceAsync(ms);
      await process.sender.drain();
      await nextTask();
    },
    async end(status: RunStatus = 'completed', error?: { code: string; message: string; retryable: boolean; status: number }) {
      const items: Data[] = [
        ...(error === undefined ? [] : [{ kind: 'error', data: error } as const]),
        { kind: 'end', data: { status, usage: { inputTokens: 5, outputTokens: 7 } } },
      ];
      const frames = framesOf(items, folded);
      const ended = frames.reduce(foldFrame, folded);
      await store.write((tx) => view.onEnd(tx, ended));
      folded = ended;
      view.onFrames(frames, folded);
      view.close();
      await process.sender.drain();
    },
    /** The old process is dead: its view hears and writes nothing any more. */
    restart() {
      view.close();
      process = start();
      view = process.projection.open({ ...current, attempt: run.attempt + 1 }, folded);
      emit({ kind: 'run', data: { state: 'resumed', attempt: folded.attempt + 1 } });
    },
    /** The prompt was edited: another run answers into the same message. */
    async again(id: string) {
      const { id: replaced, sessionId, roomId, owner } = current;
      const before = current.replaces;
      await store.write((tx) => {
        const session = { session_id: sessionId, room_id: roomId, owner, kind: 'rolling', created_at: 0, last_at: 0 } as const;
        const more = { thread_root: null, title: null, retired_at: null };
        tx.run(
          store.sql
            .insertInto('sessions')
            .values({ ...session, ...more })
            .onConflict((oc) => oc.doNothing()),
        );
        createRuns({ store, fence: 1 }).insert(
          tx,
          {
            ...omitReplaces(current),
            id: replaced,
            principal: {
              id: current.principalId,
              did: null,
              matrixUserId: current.matrixUserId,
              tier: 'signed',
              grants: NO_GRANTS,
              trust: null,
            },
            ...(before === null ? {} : { replaces: before }),
          },
          0,
        );
      });
      current = { ...current, id: `${RUN.slice(0, -id.length)}${id}` as RunId, replaces: current.id };
      folded = EMPTY_FOLD;
      view = process.projection.open(current, EMPTY_FOLD);
      emit({ kind: 'run', data: { state: 'started', attempt: 1 } });
    },
    room: (): ShownInRoom[] => foldRoom(timeline.events),
  };
}

const omitReplaces = ({ replaces: _, ...run }: Run) => run;
const expected = (text: string) =>
  splitAnswer(text)
    .map((part) => part.text)
    .filter((part) => part !== '');
const bodies = (room: readonly ShownInRoom[]) => room.map(({ body }) => body);
const LONG = 'This is more than enough text for a first version. ';
const paragraphs = (bytes: number) =>
  Array.from({ length: Math.ceil(bytes / 62) }, (_, at) => `Paragraph ${at} ${'lorem ipsum '.repeat(4)}`.trim()).join('\n\n');
const FAILED = { code: 'MODEL_ERROR', message: 'The language model failed.', retryable: true, status: 502 };

describe('an answer that grows', () => {
  test('one that is finished early is exactly one event without the live marker', async () => {
    const it = setUp();
    it.say('Hi ');
    it.say('there.');
    await it.clock.advanceAsync(50);

    await it.end();

    expect(it.timeline.events).toHaveLength(1);
    expect(it.room()).toMatchObject([
      { body: 'Hi there.', live: false, msgtype: 'm.text', run: { part: 1, status: 'completed', prompts: [PROMPT] } },
    ]);
  });

  test('thirty seconds of tokens are a handful of events, and the last one has exactly the text of the model', async () => {
    const it = setUp();
    for (let at = 0; at < 750; at += 1) {
      it.say(`word ${at} `);
      await it.pass(40);
    }
    const shown = it.room()[0];
    await it.end();

    expect(shown).toMatchObject({ live: true, run: { status: 'running' } });
    expect(it.timeline.events.length).toBeGreaterThan(5);
    expect(it.timeline.events.length).toBeLessThan(16);
    expect(it.room()).toMatchObject([{ body: it.text().trimEnd(), live: false, run: { status: 'completed', usage: { outputTokens: 7 } } }]);
  });

  test('tokens write nothing between two versions', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    const before = it.rows().length;
    for (let at = 0; at < 100; at += 1) it.say('x');
    await nextTask();

    expect(before).toBe(1);
    expect(it.rows()).toHaveLength(1);
  });

  test('no edit is written while one is in flight, and the end takes its place', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    it.say('More. ');
    await it.clock.advanceAsync(2_000);
    it.say('And more.');
    await it.clock.advanceAsync(20_000);
    expect(it.rows().map(({ state }) => state)).toEqual(['sent', 'ready']);

    await it.end();

    expect(it.rows().map(({ state }) => state)).toEqual(['sent', 'dropped', 'sent']);
    expect(it.room()).toMatchObject([{ body: `${LONG}More. And more.`, live: false, edits: 1 }]);
  });

  test('unchanged text still gets one last edit that takes the live marker away', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    await it.end();

    expect(it.room()).toMatchObject([{ body: LONG.trim(), live: false, edits: 1 }]);
  });

  test('edits have no relation but the replacement, and the original stands in its thread', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    await it.end();

    expect(it.timeline.events[1]?.content['m.relates_to']).toEqual({ rel_type: 'm.replace', event_id: it.timeline.events[0]?.event_id });
    expect(it.room()[0]?.relation).toEqual({
      rel_type: 'm.thread',
      event_id: ROOT,
      is_falling_back: true,
      'm.in_reply_to': { event_id: PROMPT },
    });
  });

  test('without a thread the answer has no relation', async () => {
    const it = setUp({ run: aRun({ threadRoot: null }) });
    it.say('Hi');
    await it.end();

    expect(it.room()[0]?.relation).toBeUndefined();
  });

  test('the prompt of a portal is named by its mirror, and left out while that is not sent', async () => {
    const it = setUp({
      run: aRun({
        prompts: [
          { id: 'http:a', text: '', receivedAt: 0 },
          { id: 'http:b', text: '', receivedAt: 0 },
        ],
      }),
    });
    await it.store.write((tx) =>
      it.process().outbox.insert(
        tx,
        {
          txnId: noticeTxnId('mirror', 'http:a'),
          lane: 'm',
          roomId: ROOM,
          kind: 'mirror',
          eventType: 'm.room.message',
          content: { body: 'q' },
        },
        it.clock.now(),
      ),
    );
    await it.process().sender.drain();
    it.say('Hi');
    await it.end();

    expect(it.room()[1]?.run?.prompts).toEqual([it.timeline.events[0]?.event_id]);
  });

  test('tools alone show typing, no message', async () => {
    const it = setUp();
    it.emit({ kind: 'tool_call', data: { id: '1', name: 'search', status: 'isRunning' } });
    await it.pass(60_000);
    expect(it.timeline.events).toEqual([]);
    it.say('Found.');
    await it.end();

    expect(it.room()).toMatchObject([{ body: 'Found.', run: { tools: ['search'] } }]);
  });

  test('what the homeserver confirmed is observed, originals and edits apart', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    await it.end();

    expect(it.observed).toEqual([
      { kind: 'event_sent', edit: false, durationMs: 10 },
      { kind: 'event_sent', edit: true, durationMs: 10 },
    ]);
  });

  test('an hour of text needs at most the edits that a message may have', async () => {
    const it = setUp();
    for (let at = 0; at < 3_600; at += 2) {
      it.say('x');
      await it.pass(2_000);
    }
    expect(it.room()[0]?.edits).toBe(LIMITS.editsPerMessage - 1);
    await it.end();

    expect(it.room()).toMatchObject([{ body: it.text(), live: false, edits: LIMITS.editsPerMessage }]);
  });
});

describe('typing', () => {
  test('is shown when the answer is not there at once, refreshed while the run goes on, and ends with it', async () => {
    const it = setUp();
    await it.clock.advanceAsync(TYPING_AFTER_MS + 2 * TYPING_REFRESH_MS);
    it.view().close();
    await it.clock.advanceAsync(2 * TYPING_REFRESH_MS);

    expect(it.typing).toEqual([true, true, true, false]);
    expect(it.clock.pending()).toBe(0);
  });

  test('is not shown for an answer that is there at once', async () => {
    const it = setUp();
    await it.clock.advanceAsync(TYPING_AFTER_MS - 1);
    it.view().close();
    await it.clock.advanceAsync(2 * TYPING_REFRESH_MS);

    expect(it.typing).toEqual([]);
    expect(it.clock.pending()).toBe(0);
  });

  test('stays while another run of the room goes on', async () => {
    const it = setUp();
    await it.clock.advanceAsync(TYPING_AFTER_MS);
    const other = it.process().projection.open(aRun({ id: '01JZ0000000000000000000001' as RunId }), EMPTY_FOLD);
    it.view().close();
    expect(it.typing).toEqual([true]);

    other.close();

    expect(it.typing).toEqual([true, false]);
  });
});

describe('an answer in parts', () => {
  test('100 kB go out as messages of the thread, each final once the next one begins', async () => {
    const it = setUp();
    const text = paragraphs(100_000);
    for (let at = 0; at < text.length; at += 500) {
      it.say(text.slice(at, at + 500));
      await it.pass(40);
      const shown = it.room();
      expect(shown.slice(0, -1).filter(({ live }) => live)).toEqual([]);
    }
    await it.end();

    const room = it.room();
    expect(bodies(room)).toEqual(expected(text));
    expect(room.length).toBeGreaterThan(8);
    expect(room.map(({ run }) => run?.part)).toEqual(room.map((_, at) => at + 1));
    expect(room.every(({ live, relation }) => !live && relation?.['event_id'] === ROOT)).toBe(true);
    expect(room.at(-1)?.run?.status).toBe('completed');
  });

  test('an early end of a long answer is one event per part', async () => {
    const it = setUp();
    const text = paragraphs(40_000);
    it.say(text);
    await it.end();

    expect(bodies(it.room())).toEqual(expected(text));
    expect(it.timeline.events).toHaveLength(expected(text).length);
    // Whoever has seen only the first of them must not take the answer for complete.
    const statuses = it.room().map(({ run }) => run?.status);
    expect(statuses.slice(0, -1)).toEqual(statuses.slice(1).map(() => 'running'));
    expect(statuses.at(-1)).toBe('completed');
  });

  test('a part that used up its edits keeps one for the end, also when the next part has begun', async () => {
    const it = setUp();
    for (let at = 0; at < 800; at += 1) {
      it.say('x ');
      await it.pass(1_000);
    }
    it.say(paragraphs(20_000));
    await it.pass(1_000);
    expect(it.room()[0]).toMatchObject({ live: true, edits: LIMITS.editsPerMessage - 1 });
    await it.end();

    expect(it.room()[0]).toMatchObject({ live: false, edits: LIMITS.editsPerMessage });
    expect(bodies(it.room())).toEqual(expected(it.text()));
  });

  test('a final part that a resume opens again gets no live marker back, and ends with the status of the run', async () => {
    const it = setUp();
    const text = paragraphs(20_000);
    const first = splitAnswer(text)[0]?.raw.length ?? 0;
    it.say(text);
    await it.pass(1_000);
    it.restart();
    it.truncate(first - 1_000);
    await it.pass(10_000);
    it.say(' And so on.');
    await it.pass(10_000);
    expect(it.room()[0]).toMatchObject({ live: false, edits: 0 });
    it.truncate(first - 1_000);
    it.say(text.slice(first - 1_000, first).trimEnd());
    await it.end();

    expect(it.room()[0]).toMatchObject({ body: splitAnswer(text)[0]?.text, live: false, edits: 1, run: { status: 'completed' } });
  });

  test('a resumed model that says less leaves no old text standing (G5)', async () => {
    const it = setUp();
    it.say(paragraphs(30_000));
    await it.pass(1_000);
    expect(it.room().length).toBeGreaterThan(2);
    it.restart();
    it.truncate(0);
    it.say('Only this.');
    await it.pass(10_000);
    await it.end();

    const room = it.room();
    expect(bodies(room)).toEqual(['Only this.', ...room.slice(1).map(() => WITHDRAWN_TEXT)]);
    expect(room.some(({ live }) => live)).toBe(false);
  });
});

describe('failure', () => {
  test('partial text stays, with a marker and the status', async () => {
    const it = setUp();
    it.say(`${LONG}\n\`\`\`\ncode`);
    await it.pass(100);
    await it.end('failed', FAILED);

    expect(it.room()).toMatchObject([{ body: it.text() + markerAfter(it.text(), 'failed'), live: false, run: { status: 'failed' } }]);
  });

  test.each(['REVOKED', 'GRANT_EXPIRED'])('%s: the marker says that the authorisation is gone, not to try again (G8)', async (code) => {
    const it = setUp();
    it.say('Half an ans');
    await it.end('failed', { ...FAILED, code });

    expect(it.room()).toMatchObject([{ body: `Half an ans${markerAfter('Half an ans', 'unauthorised')}`, run: { status: 'failed' } }]);
  });

  test.each([
    ['cancelled', 'cancelled'],
    ['interrupted', 'interrupted'],
    ['expired', 'failed'],
  ] as const)('%s: the marker says %s', async (status, marker) => {
    const it = setUp();
    it.say('Half an ans');
    await it.end(status, FAILED);

    expect(it.room()).toMatchObject([{ body: `Half an ans${markerAfter('Half an ans', marker)}`, run: { status } }]);
    expect(it.timeline.events).toHaveLength(1);
  });

  test.each([
    ['failed', 'refusal'],
    ['cancelled', 'refusal'],
    ['interrupted', 'interrupted'],
  ] as const)('%s without a word is a notice in the thread', async (status, kind) => {
    const it = setUp();
    it.emit({ kind: 'tool_call', data: { id: '1', name: 'search', status: 'done' } });
    await it.pass(1_000);
    await it.end(status, FAILED);

    expect(it.room()).toMatchObject([
      {
        msgtype: 'm.notice',
        body: FAILED.message,
        error: { code: FAILED.code, run_id: RUN },
        relation: { rel_type: 'm.thread', event_id: ROOT },
      },
    ]);
    expect(it.rows().map((row) => row.txn_id)).toEqual([noticeTxnId(kind, RUN)]);
  });

  test('a message that lost its text to a resume ends with the marker alone', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    it.restart();
    it.truncate(0);
    await it.end('failed', FAILED);

    expect(it.room()).toMatchObject([{ body: markerAfter('', 'failed'), live: false }]);
  });

  test('a disk that refuses versions in between does not stop the run, and the end is right', async () => {
    let broken = false;
    const it = setUp();
    const write = it.store.write.bind(it.store);
    it.store.write = (change) => (broken ? Promise.reject(new StorageError('full')) : write(change));
    it.say(LONG);
    await it.pass(100);
    broken = true;
    it.say('More.');
    await it.pass(5_000);
    broken = false;
    it.say(' The end.');
    await it.pass(5_000);
    await it.end();

    expect(it.logger.warnings).toHaveLength(1);
    expect(it.room()).toMatchObject([{ body: `${LONG}More. The end.`, live: false, edits: 1 }]);
  });

  test('a version that falls due in the tick of the end does not follow it (G10)', async () => {
    const it = setUp();
    it.say(LONG);
    const ended = it.end();
    it.clock.advance(100);
    await ended;

    expect(it.room()).toMatchObject([{ body: LONG.trim(), live: false, edits: 0 }]);
  });

  test('a run that was taken over writes no version (G18)', async () => {
    const it = setUp({ holds: () => false });
    it.say(LONG);
    await it.pass(5_000);

    expect(it.rows()).toEqual([]);
  });

  test('an end that did not commit leaves nothing, and the next attempt ends in the same message (G10)', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    const lost = it.store.write((tx) => {
      it.view().onEnd(tx, { ...EMPTY_FOLD, text: 'never committed', end: { status: 'completed' } });
      throw new Error('rolled back');
    });
    await expect(lost).rejects.toThrow('rolled back');
    it.restart();
    await it.end();

    expect(it.room()).toMatchObject([{ body: LONG.trim(), live: false, edits: 1 }]);
  });

  test('a frame that comes while a version is being stored is shown by the next one', async () => {
    const it = setUp();
    it.say(LONG);
    it.clock.advance(100);
    it.say('More.');
    await it.pass(0);
    await it.pass(3_000);

    expect(it.room()).toMatchObject([{ body: `${LONG}More.`, live: true, edits: 1 }]);
  });

  test('an edit that the homeserver refused is said again at the end', async () => {
    const it = setUp();
    const [first = '', second = ''] = [paragraphs(9_000), paragraphs(9_000)];
    it.say(first);
    await it.pass(100);
    it.say(`\n\n${second}`);
    await it.clock.advanceAsync(1);
    await it.process().sender.refuseOne();
    await it.pass(100);
    expect(it.room()[0]?.live).toBe(true);
    await it.end();

    expect(bodies(it.room())).toEqual(expected(it.text()));
    expect(it.room().some(({ live }) => live)).toBe(false);
  });

  test('a message that the homeserver refused is left alone', async () => {
    const it = setUp();
    it.say(LONG);
    await it.clock.advanceAsync(100);
    await it.process().sender.refuseOne();
    it.say('More.');
    await it.pass(5_000);
    await it.end();

    expect(it.rows()).toHaveLength(1);
  });
});

describe('after a crash', () => {
  test.each([
    ['before anything was written', async (it: ReturnType<typeof setUp>) => void (await it.clock.advanceAsync(10))],
    ['the original waits', async (it: ReturnType<typeof setUp>) => void (await it.clock.advanceAsync(100))],
    [
      'the original was sent, but not confirmed',
      async (it: ReturnType<typeof setUp>) => {
        await it.clock.advanceAsync(100);
        it.process().sender.sendUnconfirmed();
      },
    ],
    ['the original was sent', async (it: ReturnType<typeof setUp>) => void (await it.pass(100))],
    [
      'an edit waits',
      async (it: ReturnType<typeof setUp>) => {
        await it.pass(100);
        it.say('More. ');
        await it.clock.advanceAsync(2_000);
      },
    ],
    [
      'an edit was sent, but not confirmed',
      async (it: ReturnType<typeof setUp>) => {
        await it.pass(100);
        it.say('More. ');
        await it.clock.advanceAsync(2_000);
        it.process().sender.sendUnconfirmed();
      },
    ],
  ])('%s: the same message goes on and ends right (G5)', async (_state, reach) => {
    const it = setUp();
    it.say(LONG);
    await reach(it);

    it.restart();
    it.truncate(5);
    it.say('was said differently this time, and at some length.');
    await it.pass(500);
    await it.pass(3_000);
    expect(it.room()).toMatchObject([{ body: it.text(), live: true }]);
    it.say(' The end.');
    await it.end();

    expect(it.room()).toMatchObject([{ body: it.text(), live: false, run: { status: 'completed' } }]);
  });

  test('what is shown does not shrink while the model says it again', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    it.restart();
    it.truncate(0);
    it.say(LONG.slice(0, 30));
    await it.pass(10_000);

    expect(it.timeline.events).toHaveLength(1);
  });

  test('an end without another attempt finishes the message', async () => {
    const it = setUp();
    it.say(LONG);
    await it.pass(100);
    it.restart();
    await it.end('interrupted', { ...FAILED, code: 'INTERRUPTED' });

    expect(it.room()).toMatchObject([{ body: LONG + markerAfter(LONG, 'interrupted'), live: false, run: { status: 'interrupted' } }]);
  });
});

type Step =
  | { readonly kind: 'say'; readonly text: string }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'send' }
  | { readonly kind: 'crash'; readonly unconfirmed: boolean; readonly keep: number };

const words = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  fc.constantFrom(
    '\n\n',
    '```ts\n',
    '```\n',
    '# Title\n',
    '- item\n',
    LONG,
    'lorem ipsum '.repeat(100),
    `${'x'.repeat(700)}\n`,
    '\r\n',
    '\ud83d',
    '\ude00',
  ),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: words.map((text): Step => ({ kind: 'say', text })) },
  { weight: 4, arbitrary: fc.constantFrom(10, 90, 500, 2_000, 6_000).map((ms): Step => ({ kind: 'pass', ms })) },
  { weight: 3, arbitrary: fc.constant<Step>({ kind: 'send' }) },
  {
    weight: 1,
    arbitrary: fc
      .record({ unconfirmed: fc.boolean(), keep: fc.double({ min: 0, max: 1, noNaN: true }) })
      .map((crash): Step => ({ kind: 'crash', ...crash })),
  },
);

test('whatever is said, sent and killed when: the room ends with the text of the model, one message per part (G4, G5)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.constantFrom<RunStatus>('completed', 'failed'), async (steps, status) => {
      const it = setUp();
      for (const now of steps) {
        if (now.kind === 'say') it.say(now.text);
        else if (now.kind === 'pass') await it.clock.advanceAsync(now.ms);
        else if (now.kind === 'send') await it.process().sender.sendOne();
        else {
          if (now.unconfirmed) it.process().sender.sendUnconfirmed();
          it.restart();
          it.truncate(Math.floor(it.text().length * now.keep));
        }
      }
      const text = it.text();
      await it.end(status, status === 'failed' ? FAILED : undefined);

      const room = it.room().filter(({ msgtype }) => msgtype === 'm.text');
      const spoken = room.length === 0 || status === 'completed' ? text : text + markerAfter(text, 'failed');
      const parts = expected(spoken);
      expect(bodies(room)).toEqual([...parts, ...room.slice(parts.length).map(() => WITHDRAWN_TEXT)]);
      expect(room.some(({ live }) => live)).toBe(false);
      expect(room.every(({ edits }) => edits <= LIMITS.editsPerMessage)).toBe(true);
      expect(room[Math.max(0, parts.length - 1)]?.run?.status).toBe(room.length === 0 ? undefined : status);
      expect(room.map(({ run }) => run?.part)).toEqual(room.map((_, at) => at + 1));
      expect(it.rows().filter(({ state }) => state === 'ready' || state === 'parked')).toEqual([]);
      expect(it.clock.pending()).toBe(0);
      expect(it.logger.warnings).toEqual([]);
      it.store.close();
    }),
    { numRuns: 150 },
  );
}, 60_000);

describe('a prompt that was edited', () => {
  test('is answered in the message of its old answer, which grows anew (DESIGN §7)', async () => {
    const it = setUp();
    it.say(`${LONG}Old.`);
    await it.end();
    await it.again('A');
    await it.pass(2_000);
    // What was said stays until something else is.
    expect(it.room()).toMatchObject([{ body: `${LONG}Old.`, live: false }]);

    it.say(`${LONG}New.`);
    await it.pass(2_000);
    expect(it.room()).toMatchObject([{ body: `${LONG}New.`, live: true, run: { status: 'running', runId: `${RUN.slice(0, -1)}A` } }]);
    await it.end();

    expect(it.room()).toMatchObject([{ body: `${LONG}New.`, live: false, run: { status: 'completed', runId: `${RUN.slice(0, -1)}A` } }]);
    expect(it.timeline.events.filter(({ content }) => !('m.new_content' in content))).toHaveLength(1);
  });

  test('says so also when the new answer is the old one, word for word', async () => {
    const it = setUp();
    it.say('Same.');
    await it.end();
    await it.again('A');
    it.say('Same.');
    await it.end();

    expect(it.room()).toMatchObject([{ body: 'Same.', live: false, run: { runId: `${RUN.slice(0, -1)}A` } }]);
  });

  test('with a shorter answer leaves no part of the old one; with a longer one it goes on in further messages', async () => {
    const it = setUp();
    const long = paragraphs(LIMITS.partTextBytes * 2.5);
    it.say(long);
    await it.pass(5_000);
    await it.end();
    const parts = it.room().length;
    expect(parts).toBeGreaterThan(2);

    await it.again('A');
    it.say('Short.');
    await it.end();
    expect(bodies(it.room())).toEqual(['Short.', ...Array.from({ length: parts - 1 }, () => WITHDRAWN_TEXT)]);

    await it.again('B');
    const longer = paragraphs(LIMITS.partTextBytes * 3.5);
    it.say(longer);
    await it.pass(5_000);
    await it.end();
    expect(bodies(it.room())).toEqual(expected(longer));
    expect(it.room().every(({ live, run }) => !live && run?.runId === `${RUN.slice(0, -1)}B`)).toBe(true);
  });

  test('before anything of the old answer was sent: first the old message, then its edit, in this order (G4)', async () => {
    const it = setUp();
    it.say('Old.');
    await it.clock.advanceAsync(500);
    expect(it.timeline.events).toEqual([]);
    await it.again('A');
    it.say('New.');
    await it.end();

    expect(it.room()).toMatchObject([{ body: 'New.', live: false }]);
    expect(new Set(it.store.read.all(it.store.sql.selectFrom('outbox').select('lane')).map(({ lane }) => lane))).toEqual(
      new Set([`run.${RUN}`]),
    );
  });

  test('whose old message never came to be gets one of its own', async () => {
    const it = setUp();
    it.say('Old.');
    await it.clock.advanceAsync(500);
    const [row] = it.rows();
    if (row === undefined) throw new Error('no row');
    await it.process().outbox.park(row, '413');
    await it.again('A');
    it.say('New.');
    await it.end();

    expect(bodies(it.room())).toEqual(['New.']);
  });

  test('is finished in the same message after a crash (G5)', async () => {
    const it = setUp();
    it.say('Old.');
    await it.end();
    await it.again('A');
    it.say(LONG);
    await it.pass(2_000);
    it.restart();
    it.say('More.');
    await it.end();

    expect(it.room()).toMatchObject([{ body: `${LONG}More.`, live: false, run: { status: 'completed' } }]);
  });
});
