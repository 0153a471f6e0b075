/** An operator looks at runs, ends one and has a failed one answered after all, beside the oracle that works on them. */
import { expect, test } from 'vitest';
import { createGate, heldReply, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { messagesIn, useWorld } from './harness.ts';

const world = useWorld({ oracles: 3 });

interface Listed {
  readonly total: number;
  readonly rows: readonly { readonly run_id: string; readonly status: string; readonly error: { code: string } | null }[];
}

test('a failed run is seen, retried, and answered in the message that had failed; its person and authority are the same', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const talk = await person.direct(oracle);
  oracle.model.enqueue(
    { kind: 'errorMidStream', text: 'Half of an answer that breaks off.', how: 'sse_error' },
    textReply('The whole of it.'),
  );
  const failed = await talk.ask('Tell me.');
  expect(failed.status).toBe('failed');

  const list = JSON.parse(await oracle.cli('runs', 'list', '--status', 'failed', '--user', person.userId, '--json')) as Listed;
  expect(list).toMatchObject({ total: 1, rows: [{ run_id: failed.runId, status: 'failed', error: { code: 'MODEL_ERROR' } }] });
  const shown = await oracle.cli('runs', 'show', String(failed.runId));
  expect(shown).toContain('MODEL_ERROR');
  expect(shown).not.toContain('Tell me.');
  const said = await oracle.cli('runs', 'retry', String(failed.runId));

  const next = /^answered again by run (\w+)\.\n$/u.exec(said)?.[1];
  const answer = await talk.watch.waitUntil(() => talk.watch.answersTo(failed.prompt).find(({ text }) => text === 'The whole of it.'));
  expect(answer.content['ixo.oracle.run']).toMatchObject({ run_id: next, status: 'completed' });
  expect(answer.eventId).toBe(failed.parts[0]?.eventId);
  expect(messagesIn(await talk.history(), oracle.userId)).toHaveLength(1);
  const record = JSON.parse(await oracle.cli('runs', 'show', String(next), '--json')) as Record<string, unknown>;
  expect(record).toMatchObject({ principal_id: person.did(), replaces: failed.runId, status: 'completed' });
  await expect(oracle.cli('runs', 'retry', String(failed.runId))).rejects.toThrow('another run answers its prompts already');
});

test('a retry does not write twice: what a tool of the failed run did counts as done (G6)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  const talk = await person.group(oracle, { is_direct: true, power_level_content_override: { events: { 'm.room.topic': 0 } } });
  const call = () => toolCallsReply({ name: 'set_room_topic', args: { topic: 'Plans for spring' } });
  const broken = { kind: 'errorMidStream', text: 'The topic is set, and then', how: 'sse_error' } as const;
  oracle.model.enqueue(call(), broken, call(), textReply('The topic is set.'));
  const failed = await talk.ask('Set the topic to "Plans for spring".');
  expect(failed.status).toBe('failed');

  await oracle.cli('runs', 'retry', String(failed.runId));

  await talk.watch.waitUntil(() => talk.watch.answersTo(failed.prompt).find(({ text }) => text.endsWith('The topic is set.')));
  const topics = (await talk.history()).filter(({ type, sender }) => type === 'm.room.topic' && sender === oracle.userId);
  expect(topics).toHaveLength(1);
});

test('a working run is ended by an order; what it said stays with a marker, and the conversation goes on (G9)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const talk = await (await world.person()).direct(oracle);
  oracle.model.enqueue(
    heldReply(createGate(), 'The first half of an answer that takes a while, ', 'and the rest.'),
    textReply('And on we go.'),
  );
  const prompt = await talk.say('Tell me.');
  await talk.watch.waitUntil(() => talk.watch.answersTo(prompt)[0]);
  const [working] = (JSON.parse(await oracle.cli('runs', 'list', '--status', 'unfinished', '--json')) as Listed).rows;

  expect(await oracle.cli('runs', 'cancel', String(working?.run_id))).toBe('cancelled.\n');

  const answer = await talk.answerTo(prompt);
  expect(answer.status).toBe('cancelled');
  expect(answer.text).toMatch(/^The first half of an answer that takes a while,/u);
  expect((await talk.ask('Go on.')).text).toBe('And on we go.');
});
