/**
 * A run is tainted once its model's input holds text that its principal did not write: whoever wrote it may be steering the model, so from then
 * on nothing leaves the run that others would notice (DESIGN §5 "Taint"). Judged on what the model is really shown, at each model call, and never
 * taken back. Without this a bystander, or a web page, could have the oracle act with somebody else's rights.
 */
import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import type { RegisteredTool } from '../plugin-host/registered-tool.ts';
import type { Run } from '../runs/run.ts';
import type { TranscriptEntry } from '../sessions/transcript.ts';
import { isBelow } from '../turn/principal.ts';

/** Only ever turns on. */
export interface Taint {
  readonly isOn: boolean;
  turnOn(): void;
}
export function createTaint(): Taint {
  let isOn = false;
  return {
    get isOn() {
      return isOn;
    },
    turnOn() {
      isOn = true;
    },
  };
}

/**
 * Whether an entry of the conversation taints a run that is shown it: another person's words; one's own, when only a homeserver said at a lower tier
 * that they are; what was answered at a lower tier, because the prompt behind it may not be shown any more; and what a tainted run said.
 */
export function isForeignEntry(
  { role, speaker, tier, tainted }: Pick<TranscriptEntry, 'role' | 'speaker' | 'tier' | 'tainted'>,
  run: Pick<Run, 'principalId' | 'tier'>,
): boolean {
  if (tainted) return true;
  if (tier === null || isBelow(tier, run.tier)) return true;
  return role === 'human' && speaker !== run.principalId;
}

/** Put on the result itself, so that it is known after a restart with other plugins: whether strangers may have written it, which calls were made for it. */
export const buildArtifact = ({
  isForeign,
  calls,
}: {
  isForeign: boolean;
  calls: readonly string[];
}): { artifact?: { untrusted?: true; calls?: readonly string[] } } =>
  isForeign || calls.length > 0 ? { artifact: { ...(isForeign ? { untrusted: true } : {}), ...(calls.length > 0 ? { calls } : {}) } } : {};

/** Whether one of the turn's own messages is a tool's result that strangers may have written. */
export const hasForeignResult = (messages: readonly BaseMessage[], tools: ReadonlyMap<string, RegisteredTool>): boolean =>
  messages.some((message) => ToolMessage.isInstance(message) && isForeignResult(message, tools));

export const isForeignResult = (message: ToolMessage, tools: ReadonlyMap<string, RegisteredTool>): boolean =>
  tools.get(message.name ?? '')?.definition.untrusted === true || isMarked(message.artifact);

const isMarked = (artifact: unknown): boolean =>
  typeof artifact === 'object' && artifact !== null && 'untrusted' in artifact && artifact.untrusted === true;

/** Keys of the calls that a sub-agent made for this result. */
export const innerCallsOf = ({ artifact }: ToolMessage): readonly string[] =>
  typeof artifact === 'object' && artifact !== null && 'calls' in artifact && Array.isArray(artifact.calls)
    ? artifact.calls.filter((call: unknown): call is string => typeof call === 'string')
    : [];
