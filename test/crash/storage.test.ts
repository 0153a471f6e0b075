/**
 * A disk that is full and a database that somebody else holds: the homeserver must get no 200 for what is not stored, `/health` must say so,
 * and when there is room again everything goes on by itself. The disk of the process is made full by its file size limit, which needs neither
 * a mount nor root; SQLite meets a failed write, as on a full disk.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { eventually, messagesIn, type OracleProcess, type Talk, type TestOracle, textsAt, useWorld } from '../e2e/harness.ts';

const world = useWorld({ oracles: 3 });

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

test('a database that another process holds: no 200 while it does, and the next try is stored (G1)', async () => {
  const oracle = await world.oracle();
  oracle.expectedErrors.add('a transaction could not be stored');
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
