/** Sets the topic of the room the conversation is in: the example of a tool with an effect that others see. */
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { z } from 'zod';

export const setRoomTopic = defineTool({
  name: 'set_room_topic',
  description: 'Sets the topic of this room. Only when the user asks for it.',
  schema: z.object({ topic: z.string().trim().min(1).max(500).describe('The new topic.') }),
  effect: 'write',
  reach: 'external',
  handler: async ({ topic }, { matrix, session }) => {
    if (session.roomId === undefined) return 'This conversation has no room.';
    await matrix.postToRoom(session.roomId, { type: 'm.room.topic', state_key: '', content: { topic } });
    return `The topic is now: ${topic}`;
  },
});

export default defineOraclePlugin({
  name: 'room',
  version: '1.0.0',
  manifest: {
    title: 'Room',
    summary: 'Sets the topic of this room.',
    whenToUse: ['The user asks to set or change the topic of this room.'],
    examples: [{ user: 'Set the topic to our holiday plans.', tool: 'set_room_topic', args: { topic: 'Holiday plans' } }],
    tags: ['matrix', 'room'],
    category: 'communication',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: () => [setRoomTopic],
});
