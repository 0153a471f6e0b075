import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createForgetOrder, FORGET_ORDER } from '../../../src/app/forget-order.ts';
import { eraserOf, forgetPerson, readPerson } from '../../../src/app/forget-person.ts';
import { obeyControl } from '../../../src/app/obey-control.ts';
import { type Did, type OwnerId, unsignedPrincipalId } from '../../../src/ids.ts';
import { createCheckpointFiles } from '../../../src/store/checkpoints/checkpoint-files.ts';
import { buildCore } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { fileStore, settle, tempFolder } from '../../fakes/memory-store.ts';
import { answering, held } from '../../fakes/scripted-runner.ts';

const ALICES = 'alicesecret';
const BOBS = 'bobsword';
const ANSWERED = 'answeredtoalice';

const filesWith = (folder: string, text: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && readFileSync(join(file.parentPath, file.name)).includes(text))
    .map((file) => file.name);

/** Alice in her direct room, Alice and Bob in a group, each with an answer and a checkpoint; and what is kept beside. */
async function setUp() {
  const folder = tempFolder();
  const checkpoints = join(folder, 'checkpoints');
  mkdirSync(checkpoints);
  const store = fileStore(folder).open();
  const core = buildCore({ store });
  const files = createCheckpointFiles({ folder: checkpoints, logger: core.logger });
  const checkpoint = (owner: string, thread: string, text: string) =>
    files.use(owner as OwnerId, async (saver) => {
      const id = `1ef${Math.random().toString(16).slice(2, 10)}-0000-6000-8000-000000000000`;
      const state = { v: 4, id, ts: '', channel_values: { messages: [text.repeat(50)] }, channel_versions: {}, versions_seen: {} };
      await saver.put({ configurable: { thread_id: thread, checkpoint_ns: '' } }, state as never, { source: 'loop', step: 1, parents: {} });
    });
  await core.joinDirect();
  core.rooms.room(OTHER_ROOM, { kind: 'group', membership: 'join' });
  core.runner.script((job) => {
    const isAlices = job.run.matrixUserId === ALICE;
    job.output.toolCall({ id: 'c', name: 't', status: 'done', output: isAlices ? ALICES : BOBS });
    return answering(isAlices ? ANSWERED : 'answered bob')(job);
  });
  const say = async (name: string, sender: typeof ALICE, room: typeof ROOM, text: string) => {
    await core.take(incoming(name, { sender, roomId: room, text }));
    await settle();
  };
  await say('a1', ALICE, ROOM, `my ${ALICES}`);
  await say('a2', ALICE, OTHER_ROOM, `Oracle: my ${ALICES}`);
  await say('a3', ALICE, OTHER_ROOM, `overheard ${ALICES}`);
  await say('b1', BOB, OTHER_ROOM, `Oracle: my ${BOBS}`);
  await say('b2', BOB, OTHER_ROOM, `overheard ${BOBS}`);
  await checkpoint(unsignedPrincipalId(ALICE), '$a1', ALICES);
  await checkpoint(OTHER_ROOM, '$a2', ALICES);
  await checkpoint(OTHER_ROOM, '$b1', BOBS);
  await store.write((tx) => {
    const { sql } = store;
    const link = (did: string, user: typeof ALICE) => ({ did: did as Did, userId: user, directRoom: null });
    core.links.prove(tx, link('did:key:zAlice', ALICE), 1);
    core.links.prove(tx, link('did:key:zShared', ALICE), 1);
    core.links.prove(tx, link('did:key:zShared', BOB), 1);
    tx.run(sql.insertInto('state').values({ scope: 'user', scope_id: ALICE, key: 'note', value: ALICES, updated_at: 1 }));
    tx.run(sql.insertInto('state').values({ scope: 'user', scope_id: BOB, key: 'note', value: BOBS, updated_at: 1 }));
    for (const [user, value] of [
      [ALICE, ALICES],
      [BOB, BOBS],
    ] as const) {
      const principal_id = unsignedPrincipalId(user);
      tx.run(sql.insertInto('plugin_storage').values({ plugin: 'notes', principal_id, key: 'k', value, updated_at: 1 }));
      tx.run(
        sql.insertInto('blobs').values({ blob_id: `blob_${user}`, principal_id, plugin: 'p', sealed: Buffer.from(value), expires_at: 1 }),
      );
      tx.run(sql.insertInto('credit_accounts').values({ principal_id, balance: 1 }));
    }
    tx.run(sql.insertInto('notice_stamps').values({ key: `refusal ${ALICE}`, at: 1 }));
    const content = { msgtype: 'm.text', body: ANSWERED };
    const row = { lane: 'x', roomId: ROOM, kind: 'notice', eventType: 'm.room.message', content } as const;
    core.outbox.insert(tx, { ...row, txnId: 'command.$a1' as never }, 1);
  });
  const erase = eraserOf({ checkpoints });
  const close = (): void => {
    files.close();
    store.close();
  };
  return { folder, core, store, files, erase, say, close };
}

test('what is kept of a person is found nowhere in the folder any more; of others everything stays (G13)', async () => {
  const { folder, core, store, erase, close } = await setUp();
  expect([ALICES, ANSWERED, BOBS].map((word) => filesWith(folder, word).length > 0)).toEqual([true, true, true]);
  const bobs = () => store.read.all(store.sql.selectFrom('transcript').select(['speaker', 'text']).orderBy('id'));
  const before = bobs().filter(({ speaker, text }) => speaker !== unsignedPrincipalId(ALICE) && !text.includes(ANSWERED));
  const person = readPerson(store, ALICE);
  expect(person).toEqual({
    accounts: [ALICE],
    principals: [unsignedPrincipalId(ALICE), 'did:key:zAlice'],
    shared: ['did:key:zShared'],
  });

  const known = await forgetPerson(person, { store, eraseCheckpoints: erase });

  expect(known).toEqual({ runs: 2, messages: 3, conversations: 1, grants: 0 });
  expect([filesWith(folder, ALICES), filesWith(folder, ANSWERED)]).toEqual([[], []]);
  expect(filesWith(folder, BOBS)).toHaveLength(2);
  expect(bobs()).toEqual(before);
  expect(core.count('runs')).toBe(1);
  expect(core.count('sessions')).toBe(2);
  expect(store.read.all(store.sql.selectFrom('links').select(['did', 'matrix_user_id']))).toEqual([
    { did: 'did:key:zShared', matrix_user_id: BOB },
  ]);
  expect(['plugin_storage', 'blobs', 'credit_accounts'].map((table) => core.count(table as never))).toEqual([1, 1, 1]);
  // Kept on purpose: who may have done what in whose name, and that their messages were handled.
  expect(core.count('audit')).toBe(3);
  expect(store.read.get(store.sql.selectFrom('seen').select('event_id').where('event_id', '=', eventId('a1')))).toBeDefined();
  close();
});

test('what others are answered in a room that was direct once still goes out (G13)', async () => {
  const { core, store, erase, close } = await setUp();
  const bobs = core.runner.jobs.find(({ run }) => run.matrixUserId === BOB)?.run.id;
  await store.write((tx) => {
    const row = { lane: 'z', roomId: ROOM, kind: 'answer', eventType: 'm.room.message', content: { body: BOBS } } as const;
    core.outbox.insert(tx, { ...row, txnId: `answer.${bobs}.1` as never, ...(bobs === undefined ? {} : { runId: bobs }), part: 1 }, 1);
  });

  await forgetPerson(readPerson(store, ALICE), { store, eraseCheckpoints: erase });

  expect(store.read.all(store.sql.selectFrom('outbox').select('txn_id'))).toEqual([{ txn_id: `answer.${bobs}.1` }]);
  close();
});

test('a forgotten person may come back, as somebody new', async () => {
  const { core, store, erase, say, close } = await setUp();
  await forgetPerson(readPerson(store, ALICE), { store, eraseCheckpoints: erase });

  await say('again', ALICE, ROOM, 'hello');

  expect(core.runner.jobs.at(-1)?.run.prompts.map(({ text }) => text)).toEqual(['hello']);
  expect(core.transcript.newest('$again' as never, { limit: 10 })).toHaveLength(2);
  close();
});

test('a person named by DID takes along the account that speaks under no other', async () => {
  const { store, close } = await setUp();
  await store.write((tx) => {
    tx.run(store.sql.deleteFrom('links').where('did', '=', 'did:key:zShared' as Did));
  });

  expect(readPerson(store, 'did:key:zAlice' as Did)).toEqual({
    accounts: [ALICE],
    principals: ['did:key:zAlice', unsignedPrincipalId(ALICE)],
    shared: [],
  });
  close();
});

test('the running oracle stops their runs first, lets the last words go out, and then forgets; the order names nobody afterwards', async () => {
  const { folder, core, store, erase, close } = await setUp();
  const holding = held(`partial ${ANSWERED}`);
  core.runner.script(holding.script);
  await core.take(incoming('a4', { text: ALICES }), incoming('a5', { text: ALICES }));
  await settle();
  expect(holding.started).toBe(1);
  const order = createForgetOrder({ ...core, eraseCheckpoints: erase });
  const control = obeyControl({ ...core, nudge: () => undefined, orders: { [FORGET_ORDER]: order } });
  await store.write((tx) => {
    tx.run(store.sql.insertInto('control').values({ kind: FORGET_ORDER, argument: ALICE, created_at: 1, done_at: null, outcome: null }));
  });
  const row = () => store.read.get(store.sql.selectFrom('control').select(['argument', 'outcome']));

  await core.clock.advanceAsync(1_000);
  await settle();
  expect(store.read.all(store.sql.selectFrom('runs').select('status').where('status', 'in', ['queued', 'running']))).toEqual([]);
  await core.clock.advanceAsync(1_000);
  await settle();

  expect(row()).toEqual({ argument: '', outcome: 'forgotten: 3 runs, 5 messages, 1 conversations, 0 grants' });
  expect([filesWith(folder, ALICES), filesWith(folder, ANSWERED)]).toEqual([[], []]);
  control.stop();
  close();
});

test('what cannot be sent does not keep a person from being forgotten: half a minute is enough', async () => {
  const { core, store, erase, close } = await setUp();
  const run = core.runner.jobs[0]?.run.id;
  await store.write((tx) => {
    const row = { lane: 'y', roomId: ROOM, kind: 'answer', eventType: 'm.room.message', content: {} } as const;
    core.outbox.insert(tx, { ...row, txnId: `answer.${run}.1` as never, ...(run === undefined ? {} : { runId: run }), part: 1 }, 1);
  });
  const order = createForgetOrder({ ...core, eraseCheckpoints: erase });
  const outcomes: string[] = [];
  const look = () => order(ALICE, (_tx, outcome) => void outcomes.push(outcome));

  await look();
  expect(outcomes).toEqual([]);
  core.clock.advance(31_000);
  await look();

  expect(outcomes).toHaveLength(1);
  expect(core.count('runs')).toBe(1);
  await order('nonsense', (_tx, outcome) => void outcomes.push(outcome));
  expect(outcomes[1]).toBe('neither an account nor a DID');
  close();
});

test('credits that an unfinished run of theirs holds come back to an identity that somebody else speaks for as well (G10)', async () => {
  const { store, erase, close } = await setUp();
  const { sql } = store;
  const principal_id = 'did:key:zShared' as Did;
  await store.write((tx) => {
    const run = tx.get(sql.selectFrom('runs').select('run_id').where('matrix_user_id', '=', ALICE).where('room_id', '=', OTHER_ROOM));
    const run_id = run?.run_id ?? ('' as never);
    tx.run(sql.updateTable('runs').set({ principal_id, status: 'queued', ended_at: null }).where('run_id', '=', run_id));
    tx.run(sql.insertInto('credit_accounts').values({ principal_id, balance: 5 }));
    tx.run(sql.insertInto('credit_holds').values({ run_id, principal_id, amount: 10, spent: 3, created_at: 1 }));
  });

  await forgetPerson(readPerson(store, ALICE), { store, eraseCheckpoints: erase });

  expect(store.read.all(sql.selectFrom('credit_holds').selectAll())).toEqual([]);
  expect(store.read.get(sql.selectFrom('credit_accounts').select('balance').where('principal_id', '=', principal_id))?.balance).toBe(12);
  close();
});
