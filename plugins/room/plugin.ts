/** What people do in a room beside talking: its topic, and files. The example of tools with an effect that others see, and of one that reads strangers. */
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

/** Below what the host shows a model of one result, so that what was left out is said and not cut off with the rest. */
const SHOWN_CHARS = 18_000;

export const readFile = defineTool({
  name: 'read_file',
  description: 'Reads a text file that somebody shared in this room. The conversation names it as [file NAME (type, size), event $id].',
  schema: z.object({
    event: z.string().max(255).describe('The event id of the file, beginning with $.'),
    from: z.number().int().min(0).default(0).describe('Where to go on reading a long file: a number of characters.'),
  }),
  // Whoever is in the room may have written it.
  untrusted: true,
  handler: async ({ event, from }, { files }) => {
    const { name, mimeType, size, text } = await files.read(event);
    if (text === undefined) return `${name} (${mimeType}, ${size} bytes) is no text, so it cannot be shown here.`;
    const shown = text.slice(from, from + SHOWN_CHARS);
    const rest = text.length - from - shown.length;
    const title = `${name} (${mimeType}, ${text.length} characters)`;
    return `${title}${from === 0 ? '' : ` from character ${from}`}:\n${shown}${rest > 0 ? `\n… ${rest} more characters; go on with from: ${from + shown.length}` : ''}`;
  },
});

export const sendFile = defineTool({
  name: 'send_file',
  description: 'Sends a text file into this room, for example a table or a longer text. Only when the user asks for a file.',
  schema: z.object({
    name: z.string().trim().min(1).max(255).describe('With its extension, such as report.csv.'),
    text: z.string().min(1).describe('The whole content.'),
    type: z
      .string()
      .regex(/^[a-z]+\/[a-z0-9.+-]+$/u)
      .default('text/plain')
      .describe('Its media type, such as text/csv.'),
  }),
  effect: 'write',
  reach: 'external',
  handler: async ({ name, text, type }, { files }) => `The file ${name} was sent: ${await files.send({ name, mimeType: type, text })}`,
});

export default defineOraclePlugin({
  name: 'room',
  version: '1.1.0',
  manifest: {
    title: 'Room',
    summary: 'Sets the topic of this room, reads files that were shared in it and sends files.',
    whenToUse: [
      'The user asks to set or change the topic of this room.',
      'The user asks about a file that was shared in this room.',
      'The user asks for a file.',
    ],
    examples: [{ user: 'Set the topic to our holiday plans.', tool: 'set_room_topic', args: { topic: 'Holiday plans' } }],
    tags: ['matrix', 'room', 'files'],
    category: 'communication',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: () => [setRoomTopic, readFile, sendFile],
});
