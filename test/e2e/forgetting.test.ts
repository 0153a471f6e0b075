/** What was taken back, and what is kept of a person who wants to be forgotten, is found nowhere in the data folder any more (DESIGN §7). */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createGate, heldReply, textReply } from '../../synapse-dev/model/reply.ts';
import { createCliFolder } from '../cli-folder.ts';
import { eventually, useWorld } from './harness.ts';

const world = useWorld({ oracles: 2 });

const filesWith = (folder: string, text: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && readFileSync(join(file.parentPath, file.name)).includes(text))
    .map((file) => file.name);

test('a prompt taken back in mid-answer, and one long answered, leave nothing in the folder; the answers stay in the room', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(() => textReply('Answered.'));
  const talk = await (await world.person()).direct(oracle);
  const old = await talk.say('the old hippopotamus');
  await talk.answerTo(old);
  const middle = createGate();
  oracle.model.enqueue(heldReply(middle, 'The first half of a longer answer, ', 'and the rest.'));
  const prompt = await talk.say('the new rhinoceros');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
  expect(filesWith(oracle.dataDir, 'hippopotamus').length).toBeGreaterThan(0);
  expect(filesWith(oracle.dataDir, 'rhinoceros').length).toBeGreaterThan(1);

  await talk.person.client.redact(talk.roomId, prompt);
  await talk.person.client.redact(talk.roomId, old);

  expect((await talk.answerTo(prompt)).status).toBe('cancelled');
  await eventually(() => filesWith(oracle.dataDir, 'rhinoceros').length === 0 && filesWith(oracle.dataDir, 'hippopotamus').length === 0);
  expect((await talk.answerTo(old)).text).toBe('Answered.');
  expect((await talk.ask('goes on')).text).toBe('Answered.');
});

test('somebody who is forgotten in mid-answer is told so far, and then nothing is kept; they may come back', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  oracle.model.respond(() => textReply('An answer about zebras.'));
  const talk = await (await world.person()).direct(oracle);
  await talk.ask('what about the zebra?');
  const middle = createGate();
  oracle.model.enqueue(heldReply(middle, 'The first half about a zebra, ', 'and the rest.'));
  const prompt = await talk.say('and another zebra?');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
  const cli = createCliFolder();

  const result = await cli.run(['forget', '--user', talk.person.userId, '--yes'], { DATA_DIR: oracle.dataDir });

  cli.remove();
  expect(result).toMatchObject({ status: 0, stderr: '' });
  expect(result.stdout).toContain('forgotten: 2 runs');
  expect((await talk.answerTo(prompt)).status).toBe('cancelled');
  expect(filesWith(oracle.dataDir, 'zebra')).toEqual([]);
  oracle.model.respond(() => textReply('Hello, whoever you are.'));
  expect((await talk.ask('hello')).text).toBe('Hello, whoever you are.');
});
