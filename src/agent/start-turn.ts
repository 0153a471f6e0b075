/**
 * From a run to the loop that answers it: the part of the conversation in front, the prompt, the model that was asked for. Cost is by the window's size,
 * not by the length of the thread (G16).
 */
import { SystemMessage } from '@langchain/core/messages';
import { unsignedPrincipalId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import type { Run } from '../runs/run.ts';
import { buildLocalTime, decideTimeZone } from '../runtime-context/local-time.ts';
import type { Summary } from '../sessions/summaries.ts';
import type { Transcript, TranscriptEntry } from '../sessions/transcript.ts';
import type { MainRunnerOptions } from './agent-parts.ts';
import { createAnswerWriter } from './answer-writer.ts';
import { createLoop, type Loop } from './loop.ts';
import { OVERHEARD_MAX_MESSAGES, planOverheard, planWindow } from './plan-window.ts';
import { type PromptSection, prepareTurn } from './prepare-turn.ts';
import { buildSystemPrompt } from './prompt.ts';
import { buildPrompts, type NameOf } from './resume.ts';
import { buildSummaryMessage, startSummary } from './summary.ts';
import { isForeignEntry } from './taint.ts';
import { modelFor, type Turn } from './turn.ts';
import { buildMessage, type WindowMessage } from './turn-messages.ts';

const DEFAULT_CONTEXT_CHARS = 100_000;

/** The transcript knows speakers by their principal id; of the run's own one the account is known as well. */
export const nameIn =
  (run: Run, names: MainRunnerOptions['names']): NameOf =>
  (speaker) => {
    const name = names?.speaker(speaker);
    if (name !== undefined && name !== null) return name;
    if (speaker === run.principalId) return run.matrixUserId;
    return speaker.startsWith('matrix:u/') ? `@${speaker.slice('matrix:u/'.length)}` : speaker;
  };

export async function startLoop(turn: Turn): Promise<Loop> {
  const { run, job, parts } = turn;
  const { models } = parts.options;
  const summary = parts.options.summaries?.read(run.sessionId) ?? null;
  const window = readWindow(turn, summary);
  if (run.tainted || window.some(({ isForeign }) => isForeign)) turn.taint.turnOn();
  const before = window.map(buildMessage);
  const sections = await prepareTurn(turn, [...before, ...buildPrompts(run, run.prompts, nameIn(run, parts.options.names))]);
  const asked = run.hints.model;
  const isSelectable = asked !== undefined && models.listModels().some(({ id }) => id === asked);
  const loop = createLoop(turn, {
    parent: null,
    id: run.id,
    tools: turn.tools,
    system: new SystemMessage(buildPrompt(turn, sections)),
    window: before,
    model: modelFor(turn, 'main', isSelectable ? asked : undefined),
    modelName: isSelectable ? asked : models.nameOf('main'),
    writer: createAnswerWriter(job.output, job.shownText),
    signal: turn.stop.signal,
    maxModelCalls: LIMITS.modelCallsPerRun,
  });
  turn.main = loop;
  const from = window.find(({ entry }) => entry !== undefined)?.entry;
  // An attempt that goes on with what another began leaves it to the next turn.
  if (parts.options.summaries !== undefined && from !== undefined && run.attempt === 1)
    turn.summary = startSummary(turn, {
      summaries: parts.options.summaries,
      known: summary,
      from,
      nameOf: nameIn(run, parts.options.names),
    });
  return loop;
}

function readWindow({ run, parts: { options, budget } }: Turn, summary: Summary | null): readonly WindowMessage[] {
  const { transcript, contextMessages, contextChars = DEFAULT_CONTEXT_CHARS } = options;
  const nameOf = nameIn(run, options.names);
  const entries = transcript.newest(run.sessionId, { limit: contextMessages, withoutRun: run.id });
  const promptChars = run.prompts.reduce((sum, prompt) => sum + prompt.text.length, 0);
  const rules = {
    maxChars: Math.max(0, Math.min(contextChars, budget.windowChars) - promptChars),
    onlyDetailsOf: run.direct ? null : run.principalId,
    nameOf: run.direct ? null : nameOf,
    isForeign: (entry: TranscriptEntry) => isForeignEntry(entry, run),
  };
  const overheard = entries.length > 0 ? [] : readOverheard(run, { transcript, nameOf });
  const shown = planWindow(entries, rules);
  const retold = summary === null || shown.length === 0 ? [] : [buildSummaryMessage(summary, run)];
  return [...overheard, ...retold, ...shown];
}

/** A first mention in a group may speak of what was said before it; a first message in a direct room, of a file that its person shared. */
function readOverheard(
  run: Run,
  { transcript, nameOf }: { transcript: Pick<Transcript, 'overheard'>; nameOf: (speaker: string) => string },
): WindowMessage[] {
  const said = transcript.overheard(run.roomId, OVERHEARD_MAX_MESSAGES);
  if (!run.direct) return planOverheard(said, { nameOf, isForeign: () => true });
  const own = said.filter(({ speaker }) => speaker === unsignedPrincipalId(run.matrixUserId));
  // Nobody signed it: to a signed run it is the homeserver's word.
  return planOverheard(own, { nameOf, isForeign: () => run.tier === 'signed' });
}

function buildPrompt({ run, host, thread, userContext, parts }: Turn, sections: readonly PromptSection[]): string {
  const { options, clock } = parts;
  const zone = decideTimeZone(run.hints.timezone, userContext);
  const local = buildLocalTime(clock.now(), zone ?? 'UTC');
  const isThere = ({ name }: { name: string }): boolean => host.visibilityOf(name) === 'always' || thread.loadedPlugins.has(name);
  return buildSystemPrompt({
    oracleName: options.oracleName,
    room: { kind: run.direct ? 'direct' : 'group', name: options.names?.room(run.roomId) ?? null },
    user: nameIn(run, options.names)(run.principalId),
    plugins: host.plugins.filter(isThere).map(({ manifest }) => manifest),
    onDemand: host.plugins
      .filter((plugin) => host.visibilityOf(plugin.name) === 'on-demand' && !isThere(plugin))
      .map(({ name, manifest }) => ({ name, summary: manifest.summary })),
    sections,
    userContext,
    localTime: local.iso,
    weekday: local.weekday,
    timeZone: zone,
  });
}
