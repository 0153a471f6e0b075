/**
 * What the oracle knows of a person from one conversation to the next: facts that it was told to keep, and the person's own conversations, found by
 * words. Facts stand in the prompt of direct chats (`userContext`); in a group others read what is answered, so nothing private is put there.
 * Whose facts these are, and that what strangers brought in is marked, is the host's doing, not this plugin's (DESIGN §5 "Taint", G13).
 */
import { createHash } from 'node:crypto';
import { defineOraclePlugin, defineTool, type RuntimeContext, type UserContextData } from 'matrix-oracle';
import { z } from 'zod';

declare module 'matrix-oracle' {
  interface SharedAccessors {
    /** What memory knows of the person, by subject. */
    readonly userProfile?: UserContextData;
  }
}

export const SUBJECTS = ['identity', 'work', 'goals', 'interests', 'relationships', 'recent'] as const;
type Subject = (typeof SUBJECTS)[number];

const MAX_FACT_CHARS = 500;
/** Of all that stands in a prompt, so that a long acquaintance costs no more than a short one (G16). */
const MAX_CONTEXT_CHARS = 4_000;
const MAX_CONTEXT_FACTS = 100;
const HITS = 10;
const MAX_HIT_CHARS = 400;

const day = new Intl.DateTimeFormat('sv-SE', { timeZone: 'UTC', dateStyle: 'short', timeStyle: 'short' });

/** The same fact told twice is one. */
const keyOf = (subject: Subject, fact: string): string => `${subject}/${createHash('sha256').update(fact).digest('hex').slice(0, 12)}`;
const subjectOf = (key: string): Subject => SUBJECTS.find((subject) => key.startsWith(`${subject}/`)) ?? 'recent';

export const remember = defineTool({
  name: 'remember',
  description: 'Keeps one fact about the user for later conversations. Only what the user said about themselves or asked you to keep.',
  schema: z.object({
    fact: z.string().trim().min(1).max(MAX_FACT_CHARS).describe('One sentence, in the third person.'),
    subject: z.enum(SUBJECTS).default('recent'),
  }),
  effect: 'write',
  reach: 'own',
  async handler({ fact, subject }, { storage }) {
    const id = keyOf(subject, fact);
    await storage.put(id, fact);
    return { kept: id };
  },
});

export const recall = defineTool({
  name: 'recall',
  description: 'Looks for what you know of the user: facts that were kept, and what was said in earlier conversations.',
  schema: z.object({ query: z.string().trim().min(1).max(200).describe('A few words that it is about.') }),
  effect: 'read',
  reach: 'own',
  async handler({ query }, { storage, history, session }) {
    const [facts, said] = await Promise.all([
      session.direct ? storage.search(query, { limit: HITS }) : [],
      history.search(query, { limit: HITS }),
    ]);
    if (facts.length + said.length === 0) return 'Nothing was found.';
    return {
      facts: facts.map(({ key, value }) => ({ id: key, fact: value })),
      said: said.map(({ role, text, at }) => ({
        by: role === 'human' ? 'user' : 'you',
        text: text.slice(0, MAX_HIT_CHARS),
        at: day.format(at),
      })),
    };
  },
});

export const forget = defineTool({
  name: 'forget',
  description: 'Forgets one fact that was kept. `recall` shows the ids.',
  schema: z.object({ id: z.string().min(1).max(100) }),
  effect: 'write',
  reach: 'own',
  handler: async ({ id }, { storage }) => ((await storage.delete(id)) ? 'Forgotten.' : 'There is no such fact.'),
});

/** The newest facts that fit, by subject. */
async function buildContext({ storage, session }: RuntimeContext): Promise<UserContextData> {
  if (!session.direct) return {};
  const bySubject: Partial<Record<Subject, string[]>> = {};
  let left = MAX_CONTEXT_CHARS;
  for (const { key, value } of await storage.list({ limit: MAX_CONTEXT_FACTS })) {
    left -= value.length;
    if (left < 0) break;
    const subject = subjectOf(key);
    bySubject[subject] = [...(bySubject[subject] ?? []), value];
  }
  return bySubject;
}

export default defineOraclePlugin({
  name: 'memory',
  version: '1.0.0',
  manifest: {
    title: 'Memory',
    summary: 'Remembers facts about the user and finds what was said before.',
    whenToUse: [
      'The user says something about themselves that will matter later, or asks you to remember it.',
      'The user refers to something from an earlier conversation.',
      'The user asks what you know about them, or wants something forgotten.',
    ],
    whenNotToUse: ['For what other people said about themselves.'],
    examples: [
      { user: 'Please remember that I am vegetarian.', tool: 'remember', args: { fact: 'The user is vegetarian.', subject: 'identity' } },
    ],
    tags: ['memory'],
    category: 'memory',
    visibility: 'always',
    stability: 'stable',
  },
  getTools: () => [remember, recall, forget],
  getUserContext: buildContext,
  getSharedState: () => ({ userProfile: (state) => state.userContext }),
});
