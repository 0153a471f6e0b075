/**
 * A disk that is full and a database that somebody else holds: the homeserver must get no 200 for what is not stored, `/health` must say so,
 * and when there is room again everything goes on by itself. The disk of the process is made full by its file size limit, which needs neither
 * a mount nor root; SQLite meets a failed write, as on a full disk. Where a small file system can be mounted, one that is really full as well.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { eventually, messagesIn, newTexts, type OracleProcess, type Talk, type TestOracle, textsAt, useWorld } from '../e2e/harness.ts';

const world = useWorld({ oracles: 4 });

/** `fileBytes` null: as before. */
function limitFiles({ pid }: OracleProcess, fileBytes: number | null): void {
  const soft = fileBytes === null ? 'unlimited' : String(fileBytes);
  execFileSync('prlimit', ['--pid', String(pid), `--fsize=${soft}:unlimited`]);
}
const messageIn = (talk: Talk, body: string): JsonObject => ({
  event_id: `$${randomBytes(32).toString('base64url')}`,
  room_id: talk.roomId,
  sender: talk.person.userId,
  type: 'm.room.message',
  origin_server_ts: Date.now(),
  content: { msgtype: 'm.text', body },
});
const isReady = async (oracle: TestOracle): Promise<boolean> => (await oracle.health())['ready'] === true;
const databasePart = async (oracle: TestOracle): Promise<unknown> => {
  const parts = (await oracle.health())['parts'] as JsonObject[];
  return parts.find(({ name }) => name === 'database')?.['ok'];
};

// A file size limit of another process is set by prlimit, which only Linux has.
test.runIf(process.platform === 'linux')(
  'a full disk: no 200, not ready, and all is answered once when there is room again (G1)',
  async () => {
    const oracle = await world.oracle();
    oracle.expectedErrors.add('a transaction could not be stored');
    const running = await oracle.startProcess();
    oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
    const talk = await (await world.person({ listed: true })).direct(oracle);
    await talk.ask('before');
    expect(await isReady(oracle)).toBe(true);
    const event = messageIn(talk, 'by hand');

    limitFiles(running, 4_096);
    const refused = await oracle.push({ events: [event] });
    // From the homeserver itself, which will try again.
    const prompt = await talk.say('by the homeserver');

    expect(refused).toEqual({ status: 503, body: { errcode: 'M_UNKNOWN', error: expect.any(String) } });
    await eventually(async () => (await databasePart(oracle)) === false);
    expect(await isReady(oracle)).toBe(false);
    expect(textsAt(oracle.model)).toEqual(['before']);
    limitFiles(running, null);
    await eventually(() => isReady(oracle), 60_000);
    expect((await oracle.push({ events: [event] })).status).toBe(200);
    const answers = [await talk.answerTo(String(event['event_id'])), await talk.answerTo(prompt, 60_000)];
    expect(answers.map(({ status }) => status)).toEqual(['completed', 'completed']);
    expect(textsAt(oracle.model).toSorted()).toEqual(['before', 'by hand', 'by the homeserver']);
    expect(oracle.log.find(({ msg }) => msg === 'a transaction could not be stored')).toBeDefined();
  },
);

test.runIf(process.platform === 'linux')(
  'a disk that fills while an answer streams: the answer is finished when there is room again (G5)',
  async () => {
    const oracle = await world.oracle();
    oracle.expectedErrors.add('a run waits: its frames cannot be written');
    const running = await oracle.startProcess();
    const talk = await (await world.person()).direct(oracle);
    const middle = createGate();
    oracle.model.enqueue(heldReply(middle, 'The first half of the answer, ', 'and the second.'));
    oracle.model.respond(() => textReply('The whole answer.'));
    const prompt = await talk.say('Tell me.');
    const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

    limitFiles(running, 4_096);
    middle.release();
    await eventually(async () => (await databasePart(oracle)) === false);
    limitFiles(running, null);

    const answer = await talk.answerTo(prompt, 60_000);
    expect(answer.status).toBe('completed');
    expect(['The whole answer.', 'The first half of the answer, and the second.']).toContain(answer.text);
    expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
    expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
  },
);

/** @returns why it cannot be done here; null when it is. */
function mountSmall(path: string, size: string): string | null {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'mounting a small file system needs root on Linux';
  try {
    mkdirSync(path, { recursive: true });
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=0700`, 'tmpfs', path], { stdio: 'pipe' });
    return null;
  } catch {
    return 'mount is not allowed here, as in most containers';
  }
}
function fill(path: string): void {
  const file = openSync(join(path, 'filler'), 'w');
  const block = Buffer.alloc(64 * 1024, 1);
  try {
    for (;;) writeSync(file, block);
  } catch {
    expect(statfsSync(path).bavail).toBe(0);
  } finally {
    closeSync(file);
  }
}

test('a file system that fills in mid-run: not ready, nothing lost, and it goes on when there is room (G1, G5, G6)', async ({ skip }) => {
  const oracle = await world.oracle();
  const reason = mountSmall(oracle.dataDir, '12m');
  if (reason !== null) skip(reason);
  try {
    oracle.expectedErrors.add('a transaction could not be stored').add('a run waits: its frames cannot be written');
    await oracle.startProcess();
    const talk = await (await world.person({ listed: true })).direct(oracle);
    const middle = createGate();
    const tail = Array.from({ length: 3_000 }, (_, word) => `word${word} `);
    oracle.model.enqueue({
      kind: 'text',
      text: ['It begins, ', ...tail],
      pace: { tokensPerSecond: 600 },
      holds: [{ gate: middle, before: 1 }],
    });
    oracle.model.respond((request) => textReply(`Re: ${newTexts(request).join(', ')}`));
    const prompt = await talk.say('Tell me.');
    const begun = await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);

    fill(oracle.dataDir);
    middle.release();
    await eventually(async () => (await databasePart(oracle)) === false);
    expect(await isReady(oracle)).toBe(false);
    const event = messageIn(talk, 'by hand');
    expect((await oracle.push({ events: [event] })).status).toBe(503);
    const meanwhile = await talk.say('while it is full');
    rmSync(join(oracle.dataDir, 'filler'));
    await eventually(() => isReady(oracle), 60_000);
    expect((await oracle.push({ events: [event] })).status).toBe(200);

    const answer = await talk.answerTo(prompt, 60_000);
    expect([answer.status, answer.text]).toEqual(['completed', expect.stringMatching(/^Re: Tell me\./u)]);
    expect(answer.parts.map(({ eventId }) => eventId)).toEqual([begun.eventId]);
    // Together with the first or by themselves.
    expect((await talk.answerTo(meanwhile, 60_000)).text).toContain('while it is full');
    expect((await talk.answerTo(String(event['event_id']), 60_000)).text).toContain('by hand');
    expect(oracle.rows('PRAGMA integrity_check')).toEqual([{ integrity_check: 'ok' }]);
  } finally {
    // The process has files open in it still.
    execFileSync('umount', ['--lazy', oracle.dataDir]);
  }
});

test('a database that another process holds: no 200 while it does, and the next try is stored (G1)', async () => {
  const oracle = await world.oracle();
  // Whatever is written meanwhile is written again; what the answer before still had to write as well.
  oracle.expectedErrors.add('a transaction could not be stored').add('an outbox row could not be finished');
  await oracle.startProcess();
  oracle.model.respond(({ lastUserText }) => textReply(`Re: ${lastUserText}`));
  const talk = await (await world.person({ listed: true })).direct(oracle);
  await talk.ask('before');
  const event = messageIn(talk, 'while it is held');
  const holder = new Sqlite(join(oracle.dataDir, 'oracle.db'));
  holder.exec('BEGIN IMMEDIATE');

  const refused = await oracle.push({ events: [event] });
  holder.exec('ROLLBACK');
  holder.close();

  expect(refused.status).toBe(503);
  await eventually(() => isReady(oracle));
  expect((await oracle.push({ events: [event] })).status).toBe(200);
  expect((await talk.answerTo(String(event['event_id']))).text).toBe('Re: while it is held');
});
