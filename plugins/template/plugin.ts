/**
 * A list that people keep by talking: the smallest plugin that has what most plugins need. It shows the parts; take away what yours does not need.
 * `matrix-oracle plugin new <name>` makes a copy under another name, and docs/plugins.md goes through it line by line.
 */
import { defineOraclePlugin, defineTool, type RuntimeContext } from 'matrix-oracle';
import { z } from 'zod';

/** Environment variables that this plugin reads; it sees no others. A value that does not fit stops the start and is named, so nothing is checked later. */
export const configSchema = z.object({
  TEMPLATE_MAX_ITEMS: z.coerce.number().int().min(1).max(500).default(50).describe('How many items a person may keep.'),
});
/** What the handlers of this file are given. A tool that is written inside `getTools: (_context) => […]` knows it by itself. */
type Context = RuntimeContext<z.output<typeof configSchema>>;

/** The key of an item in the storage: the same item twice is one. */
const keyOf = (item: string): string => `item/${item.toLowerCase()}`;
/** One more than anybody may keep, so that a full list is seen as one. */
const readItems = ({ storage, config }: Context) => storage.list({ prefix: 'item/', limit: config.TEMPLATE_MAX_ITEMS + 1 });

export const addItem = defineTool({
  // A tool's name belongs to all plugins together, so it begins with this one's.
  name: 'template_add',
  // The model decides by these words.
  description: "Puts one item on the user's list. Only when the user asks for it.",
  // What does not fit is shown to the model, which tries again; the handler is given what does.
  schema: z.object({ item: z.string().trim().min(1).max(100).describe('In the words of the user.') }),
  // It changes something: it is marked before it starts and never runs twice for one call, whatever crashes.
  effect: 'write',
  // … but nothing that anybody else could notice. A tool that posts, pays or calls a service is `external`.
  reach: 'own',
  async handler({ item }, context: Context) {
    const { storage, config } = context;
    const items = await readItems(context);
    const isThere = items.some(({ key }) => key === keyOf(item));
    if (!isThere && items.length >= config.TEMPLATE_MAX_ITEMS) return `The list is full: ${config.TEMPLATE_MAX_ITEMS} items at most.`;
    await storage.put(keyOf(item), item);
    return isThere ? 'It was on the list already.' : 'It is on the list.';
  },
});

export const listItems = defineTool({
  name: 'template_list',
  description: "Shows what is on the user's list.",
  schema: z.object({ word: z.string().trim().min(1).max(100).optional().describe('Only items with this word.') }),
  // `effect: 'read'` and `reach: 'own'` are what is meant when nothing is said.
  async handler({ word }, context: Context) {
    const items = word === undefined ? await readItems(context) : await context.storage.search(word);
    // A text, or anything that can be shown as JSON.
    return items.length === 0 ? 'Nothing.' : { items: items.map(({ value }) => value) };
  },
});

export default defineOraclePlugin({
  name: 'template',
  version: '0.1.0',
  // Read before any code of the plugin runs. The model chooses by it, so say when to use it in the words of a user.
  manifest: {
    title: 'Template',
    summary: 'Keeps a list for the user.',
    whenToUse: ['The user wants something on their list, or asks what is on it.'],
    examples: [{ user: 'Put oat milk on my list.', tool: 'template_add', args: { item: 'oat milk' } }],
    tags: ['list'],
    category: 'data',
    // Its tools are in every request. With `on-demand` the model asks for them first, which keeps requests small.
    visibility: 'always',
    stability: 'experimental',
  },
  configSchema,
  getTools: () => [addItem, listItems],
  // A section of this turn's prompt, or null. A number, not the items: these are the user's words, and the model asks for them when it needs them.
  async getPromptContribution(context) {
    // In a group others read the answer.
    if (!context.session.direct) return null;
    const { length } = await readItems(context);
    return length === 0 ? null : `Items on the user's list: ${length}.`;
  },
});
