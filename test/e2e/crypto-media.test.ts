/** Files of encrypted rooms, both ways: encrypted before they are uploaded, readable for whoever has the event, and for the homeserver bytes without meaning. */
import { createHash, randomBytes } from 'node:crypto';
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { JsonObject } from '../../src/json.ts';
import { textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { tellToolResult } from './authority-tools.ts';
import { download, downloadEncrypted, uploadEncrypted } from './crypto-attachment.ts';
import { useCryptoWorld } from './crypto-world.ts';
import { newTexts } from './harness.ts';

const world = useCryptoWorld({ oracles: 4 });
const REPORT = 'date,amount\n2026-11-30,12\n'.repeat(200);
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

const fileTools = defineOraclePlugin({
  name: 'file-tools',
  version: '1.0.0',
  manifest: {
    title: 'Files',
    summary: 'Looks at files and sends reports.',
    whenToUse: ['The user shares a file or wants a report.'],
    visibility: 'always',
  },
  getTools: () => [
    defineTool({
      name: 'look_at_file',
      description: 'Says what a file of the room is.',
      schema: z.object({ event_id: z.string() }),
      untrusted: true,
      async handler({ event_id }, ctx) {
        const { name, mimeType, size, bytes } = await ctx.files.read(event_id);
        return `${name} ${mimeType} ${size} ${hashOf(bytes)}`;
      },
    }),
    defineTool({
      name: 'send_report',
      description: 'Sends the report as a file.',
      schema: z.object({}),
      effect: 'write',
      handler: (_, ctx) => ctx.files.send({ name: 'report.csv', mimeType: 'text/csv', text: REPORT }),
    }),
  ],
});

test('an encrypted image that a person shares is read as it was sent', async () => {
  const oracle = await world.oracle({}, [fileTools]);
  await oracle.start();
  oracle.model.enqueue(textReply('Good day.'));
  const person = await world.person();
  const talk = await person.direct(oracle);
  const image = randomBytes(60_000);
  await talk.ask('Hello.');
  const file = await uploadEncrypted(person.client, image);
  const info = { mimetype: 'image/png', size: image.length };

  const shared = await person.client.send(talk.roomId, talk.content('cat.png', { msgtype: 'm.image', file, info }));
  oracle.model.enqueue(toolCallsReply({ name: 'look_at_file', args: { event_id: shared } }), tellToolResult);
  const answer = await talk.ask('What did I send?');

  expect(answer.text).toContain(`cat.png image/png ${image.length} ${hashOf(image)}`);
  const seen = oracle.model.requests[1]?.chat?.messages.map(({ text }) => text).join('\n');
  expect(seen).toContain('cat.png');
  expect(seen).toContain(shared);
});

test('a file that the oracle sends is encrypted at the homeserver and whole in the client', async () => {
  const oracle = await world.oracle({}, [fileTools]);
  await oracle.start();
  oracle.model.enqueue(toolCallsReply({ name: 'send_report', args: {} }), textReply('There it is.'));
  const person = await world.person();
  const talk = await person.direct(oracle);

  const answer = await talk.ask('Send me the report.');
  const sent = await talk.watch.waitUntil(() => talk.watch.messages(oracle.userId).find(({ content }) => content['msgtype'] === 'm.file'));

  expect(answer.text).toContain('There it is.');
  const file = sent.content['file'] as JsonObject;
  expect(sent.content['url']).toBeUndefined();
  expect(sent.content).toMatchObject({ filename: 'report.csv', info: { mimetype: 'text/csv', size: REPORT.length } });
  expect((await downloadEncrypted(person.client, file)).toString()).toBe(REPORT);
  expect((await download(person.client, String(file['url']))).toString('latin1')).not.toContain('2026-11-30');
  expect(person.client.sawEncrypted(sent.eventId)).toBe(true);
});

test('a file that was changed at the homeserver is not read, and the conversation goes on', async () => {
  const oracle = await world.oracle({}, [fileTools]);
  await oracle.start();
  const person = await world.person();
  const talk = await person.direct(oracle);
  const [original, other] = [
    await uploadEncrypted(person.client, randomBytes(1_000)),
    await uploadEncrypted(person.client, randomBytes(1_000)),
  ];

  const swapped = { ...original, url: other['url'] ?? '' };
  const shared = await person.client.send(talk.roomId, talk.content('a.bin', { msgtype: 'm.file', file: swapped }));
  oracle.model.enqueue(toolCallsReply({ name: 'look_at_file', args: { event_id: shared } }), tellToolResult, textReply('Fine.'));
  const answer = await talk.ask('What is it?');

  expect(answer.status).toBe('completed');
  expect(answer.text).not.toMatch(/[0-9a-f]{64}/u);
  expect((await talk.ask('Never mind.')).text).toBe('Fine.');
});

test('a file with a caption is a prompt of that caption', async () => {
  const oracle = await world.oracle({}, [fileTools]);
  await oracle.start();
  oracle.model.respond((request) => textReply(`Re: ${newTexts(request).at(-1)}`));
  const person = await world.person();
  const talk = await person.direct(oracle);
  const file = await uploadEncrypted(person.client, randomBytes(1_000));

  const answer = await talk.ask('What is this?', { msgtype: 'm.image', filename: 'cat.png', file, info: { mimetype: 'image/png' } });

  expect(answer.status).toBe('completed');
  expect(answer.text).toContain('What is this?');
  expect(answer.text).toContain('cat.png');
});
