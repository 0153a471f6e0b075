/** The time in the user's zone: models do not know what time it is, and guess. */
import { defineOraclePlugin, defineTool } from 'matrix-oracle';
import { z } from 'zod';

export const currentTime = defineTool({
  name: 'current_time',
  description: "The current date and time, in the user's time zone when it is known.",
  schema: z.object({}),
  effect: 'read',
  reach: 'own',
  handler: (_args, { user }) =>
    user.timezone === undefined
      ? `${user.currentTime} (UTC: the user's time zone is not known, say so)`
      : `${user.currentTime} (time zone ${user.timezone})`,
});

export default defineOraclePlugin({
  name: 'clock',
  version: '1.0.0',
  manifest: {
    title: 'Clock',
    summary: 'Tells the current date and time.',
    whenToUse: ['The user asks what time or what day it is, or how long something is away.'],
    examples: [{ user: 'What time is it?', tool: 'current_time', args: {} }],
    tags: ['time', 'date'],
    category: 'core',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: () => [currentTime],
});
