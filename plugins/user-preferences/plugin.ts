/**
 * How a person wants to be answered: language, tone, names, time zone, instructions of their own. Set by talking about it, or by a portal over
 * `GET` and `PUT /user-preferences`. They are words of the person, so they stand in that person's prompts only and never give a right.
 */
import { defineOraclePlugin, defineTool, type PluginStorage } from 'matrix-oracle';
import { applyChange, buildSection, changeSchema, type Preferences, preferencesSchema, readPreferences } from './preferences.ts';

const KEY = 'preferences';
const read = async (storage: PluginStorage): Promise<Preferences> => readPreferences(await storage.get(KEY));
/** Where nothing is left the row goes as well: whoever had part in it has none any more (DESIGN §5 "Taint"). */
async function write(storage: PluginStorage, preferences: Preferences): Promise<void> {
  if (Object.keys(preferences).length === 0) await storage.delete(KEY);
  else await storage.put(KEY, JSON.stringify(preferences));
}

export const setPreferences = defineTool({
  name: 'set_user_preferences',
  description: 'Sets how the user wants to be answered. Only what the user asks for; null takes a preference away, what is left out stays.',
  schema: changeSchema,
  effect: 'write',
  reach: 'own',
  async handler(change, { storage }) {
    const next = applyChange(await read(storage), change);
    await write(storage, next);
    return next;
  },
});

export default defineOraclePlugin({
  name: 'user-preferences',
  version: '1.0.0',
  manifest: {
    title: 'User preferences',
    summary: 'Keeps how the user wants to be answered: language, tone, names, time zone, own instructions.',
    whenToUse: ['The user says how they want to be addressed or answered from now on.', 'The user says in which time zone they live.'],
    examples: [{ user: 'Please always answer in German.', tool: 'set_user_preferences', args: { language: 'German' } }],
    tags: ['preferences'],
    category: 'core',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: () => [setPreferences],
  getPromptContribution: async ({ storage }) => buildSection(await read(storage)),
  /** The host takes the time zone from here when a message names none. */
  getUserContext: async ({ storage }) => {
    const { timezone } = await read(storage);
    return timezone === undefined ? {} : { timezone };
  },
  getRoutes:
    ({ callerOf }) =>
    async (app) => {
      app.get('/user-preferences', async (request) => read(callerOf(request).storage));
      app.put('/user-preferences', { schema: { body: preferencesSchema } }, async (request) => {
        const preferences = preferencesSchema.parse(request.body);
        await write(callerOf(request).storage, preferences);
        return preferences;
      });
    },
});
