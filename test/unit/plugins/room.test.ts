import { createTestRuntime } from 'matrix-oracle/testing';
import { expect, test } from 'vitest';
import { setRoomTopic } from '../../../plugins/room/plugin.ts';

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
