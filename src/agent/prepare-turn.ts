/**
 * What plugins bring to this turn alone, asked once before the first model call and all at the same time: tools and sub-agents of the request, what they
 * know of the person, their sections of the prompt. A hook that throws or takes too long is logged and its part left out; the person is answered
 * without it.
 */

import type { BaseMessage } from '@langchain/core/messages';
import { LIMITS } from '../limits.ts';
import type { AnyOraclePlugin } from '../plugin-api/define-oracle-plugin.ts';
import type { LoadedPlugin } from '../plugin-host/plugin-host.ts';
import { withinTime } from '../plugin-host/within-time.ts';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';
import { buildContext } from './build-context.ts';
import { isHostStop, nameOfError } from './stop-reason.ts';
import { buildSubAgentTool } from './sub-agent.ts';
import { type AgentTool, createToolSet } from './tool-set.ts';
import type { Turn } from './turn.ts';

const MAX_SECTION_CHARS = 4_000;
const MAX_SECTIONS_CHARS = 16_000;
const MAX_USER_CONTEXT_CHARS = 8_000;

export interface PromptSection {
  readonly title: string;
  readonly text: string;
}

/**
 * Sets the turn's tools and user context; returns the sections, in the order of plugins.
 * @param shown the conversation that the model will be shown, and the prompts: a plugin may look for what belongs to them.
 */
export async function prepareTurn(turn: Turn, shown: readonly BaseMessage[]): Promise<readonly PromptSection[]> {
  const { host } = turn;
  const contexts = new Map<string, RuntimeContext>();
  const contextFor = (plugin: string): RuntimeContext => {
    const known = contexts.get(plugin) ?? buildContext(turn, { plugin, shown });
    contexts.set(plugin, known);
    return known;
  };
  const ofRequest = host.plugins.some(({ plugin }) => plugin.getRequestTools !== undefined || plugin.getRequestSubAgents !== undefined);
  const [facts] = await Promise.all([
    askAll(turn, 'getUserContext', contextFor),
    ofRequest ? addRequestTools(turn, contextFor) : undefined,
  ]);
  // Sections may build on what is known of the person.
  turn.userContext = buildUserContext(facts);
  const sections = await askAll(turn, 'getPromptContribution', contextFor);
  let room = MAX_SECTIONS_CHARS;
  return sections.flatMap(({ plugin, answer }) => {
    if (typeof answer !== 'string' || answer.trim() === '') return [];
    const text = answer.trim().slice(0, Math.min(MAX_SECTION_CHARS, room)).toWellFormed();
    room -= text.length;
    return text === '' ? [] : [{ title: plugin.manifest.title, text }];
  });
}

async function addRequestTools(turn: Turn, contextFor: (plugin: string) => RuntimeContext): Promise<void> {
  const { host, parts } = turn;
  const { tools, subAgents } = await unlessStopped(turn, host.forRequest(contextFor));
  if (tools.size === 0 && subAgents.size === 0) return;
  const all = new Map<string, AgentTool>(parts.bootTools.all);
  for (const [name, tool] of tools) if (!all.has(name)) all.set(name, tool);
  for (const agent of subAgents.values()) if (!all.has(agent.toolName)) all.set(agent.toolName, buildSubAgentTool(agent));
  turn.tools = createToolSet(all, host.visibilityOf);
}

interface Answered {
  readonly plugin: LoadedPlugin;
  readonly answer: unknown;
}
type TurnHook = 'getUserContext' | 'getPromptContribution';

async function askAll(turn: Turn, hook: TurnHook, contextFor: (plugin: string) => RuntimeContext): Promise<readonly Answered[]> {
  const asking = turn.host.plugins.filter(({ plugin }) => plugin[hook] !== undefined);
  const answers = await Promise.all(asking.map((plugin) => askOne(turn, { plugin, hook, contextFor })));
  return answers.filter((answered) => answered !== null);
}

async function askOne(
  turn: Turn,
  { plugin, hook, contextFor }: { plugin: LoadedPlugin; hook: TurnHook; contextFor: (plugin: string) => RuntimeContext },
): Promise<Answered | null> {
  const asked = withinTime<unknown>(turn.parts.clock, LIMITS.pluginHookMs, () =>
    (plugin.plugin as AnyOraclePlugin)[hook]?.(contextFor(plugin.name)),
  );
  try {
    const answer = await unlessStopped(turn, asked);
    // Read here, so that what throws when it is read is this hook's failure.
    return { plugin, answer: typeof answer === 'object' && answer !== null ? Object.fromEntries(Object.entries(answer)) : answer };
  } catch (error) {
    if (isHostStop(error, turn.stop.signal)) throw error;
    turn.logger.warn(
      { plugin: plugin.name, reason: `${hook}: ${nameOfError(error)}` },
      'a hook of a plugin failed; its contribution was left out',
    );
    return null;
  }
}

/** A cancel waits for no plugin (G9). */
async function unlessStopped<T>({ stop: { signal } }: Turn, work: Promise<T>): Promise<T> {
  const stopped = Promise.withResolvers<never>();
  const onAbort = (): void => stopped.reject(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, stopped.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Slots of later plugins win; each slot as JSON, so that nobody holds on to another's object. */
function buildUserContext(answered: readonly Answered[]): Turn['userContext'] {
  const merged: Record<string, unknown> = {};
  let chars = 0;
  for (const { answer } of answered) {
    if (typeof answer !== 'object' || answer === null) continue;
    for (const [slot, value] of Object.entries(answer)) {
      const json = toJson(value);
      if (json === undefined || chars + json.length > MAX_USER_CONTEXT_CHARS) continue;
      chars += json.length;
      merged[slot.slice(0, 64)] = JSON.parse(json);
    }
  }
  return Object.freeze(merged);
}

function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}
