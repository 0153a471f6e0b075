import { createTestRuntime } from 'matrix-oracle/testing';
import { describe, expect, test } from 'vitest';
import { readFile, sendFile, setRoomTopic } from '../../../plugins/room/plugin.ts';

test('the topic goes to the room of the conversation, with a txn id of the call (G4)', async () => {
  const runtime = createTestRuntime({ now: 0 });

  await runtime.call(setRoomTopic, { topic: ' Plans ' });

  expect(runtime.sent).toEqual([
    {
      roomId: '!room:example.org',
      txnId: 'tool.01J00000000000000000000000.call1.1',
      type: 'm.room.topic',
      stateKey: '',
      content: { topic: 'Plans' },
    },
  ]);
});

test("what the user's own power level does not allow is not sent", async () => {
  const runtime = createTestRuntime({ now: 0, mayUserSend: false });

  await expect(runtime.call(setRoomTopic, { topic: 'Plans' })).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  expect(runtime.sent).toEqual([]);
});

test.each(['listed', 'sender-bound'] as const)('it is refused for a message of tier %s, which nobody signed', async (tier) => {
  const runtime = createTestRuntime({ now: 0, tier });

  await expect(runtime.call(setRoomTopic, { topic: 'Plans' })).rejects.toMatchObject({ refusal: { code: 'TIER_TOO_LOW' } });
});

test('a signed message may have it set in a group as well', async () => {
  const runtime = createTestRuntime({ now: 0, direct: false });

  expect(await runtime.call(setRoomTopic, { topic: 'Plans' })).toBe('The topic is now: Plans');
});

describe('a file that was shared', () => {
  const read = (text: string | Buffer, more: { mimeType?: string; from?: number } = {}) => {
    const file = { name: 'notes.txt', mimeType: more.mimeType ?? 'text/plain', bytes: Buffer.from(text) };
    return createTestRuntime({ now: 0, tier: 'listed', files: { $file: file } }).call(readFile, { event: '$file', from: more.from ?? 0 });
  };

  test('is shown with its name and type, also for a message that nobody signed', async () => {
    expect(await read('buy milk')).toBe('notes.txt (text/plain, 8 characters):\nbuy milk');
  });

  test('is shown piece by piece when it is long, and says so', async () => {
    const text = 'a'.repeat(18_000) + 'b'.repeat(500);

    expect(await read(text)).toMatch(
      /^notes\.txt \(text\/plain, 18500 characters\):\na{18000}\n… 500 more characters; go on with from: 18000$/u,
    );
    expect(await read(text, { from: 18_000 })).toBe(`notes.txt (text/plain, 18500 characters) from character 18000:\n${'b'.repeat(500)}`);
  });

  test.each([
    ['a picture', Buffer.from([0x89, 0x50]), 'image/png'],
    ['a text that is none', Buffer.from([0xff, 0xfe, 0x00]), 'text/plain'],
  ])('is only named when it is %s', async (_name, bytes, mimeType) => {
    expect(await read(bytes, { mimeType })).toMatch(/is no text/u);
  });

  test('is text of strangers: the tool says so', () => {
    expect(readFile.untrusted).toBe(true);
  });

  test('that is none is refused with a sentence', async () => {
    await expect(createTestRuntime({ now: 0 }).call(readFile, { event: '$other' })).rejects.toMatchObject({
      refusal: { code: 'BAD_REQUEST' },
    });
    await expect(createTestRuntime({ now: 0 }).call(readFile, { event: 'no id' })).rejects.toMatchObject({
      refusal: { code: 'BAD_REQUEST' },
    });
  });
});

describe('a file that is sent', () => {
  test('is uploaded and shown in the room, with a txn id of the call (G4)', async () => {
    const runtime = createTestRuntime({ now: 0 });

    const said = await runtime.call(sendFile, { name: 'report.csv', text: 'a,b', type: 'text/csv' });

    expect(runtime.sentFiles).toEqual([{ name: 'report.csv', mimeType: 'text/csv', bytes: Buffer.from('a,b') }]);
    expect(runtime.sent).toMatchObject([
      { txnId: 'tool.01J00000000000000000000000.call1.1', type: 'm.room.message', content: { body: 'report.csv' } },
    ]);
    expect(said).toBe('The file report.csv was sent: $sent1');
  });

  test.each([
    ['nobody signed the message', { tier: 'listed' }, 'TIER_TOO_LOW'],
    ["the user's own power level does not allow messages", { mayUserSend: false }, 'NOT_ALLOWED'],
  ] as const)('is not even uploaded when %s', async (_name, options, code) => {
    const runtime = createTestRuntime({ now: 0, ...options });

    await expect(runtime.call(sendFile, { name: 'x.txt', text: 'x' })).rejects.toMatchObject({ refusal: { code } });
    expect(runtime.sentFiles).toEqual([]);
    expect(runtime.sent).toEqual([]);
  });
});
