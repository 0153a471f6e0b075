/**
 * May this run use this tool now (G8)? One pure function, asked before each call: a lost authority ends the run; a tool that acts in the person's
 * name needs a signed message and a grant of exactly that; a tool whose effect others notice needs a signed message and a model that read
 * nothing but what its principal wrote (DESIGN §5 "Tiers", "Taint"). A refusal is a sentence that the model passes on.
 */
import { ERRORS, type ErrorCode } from '../errors.ts';
import type { AnyTool } from '../plugin-api/define-tool.ts';
import type { Tier } from '../turn/principal.ts';

export interface ToolQuestion {
  readonly tool: Pick<AnyTool, 'effect' | 'reach' | 'capability'>;
  readonly tier: Tier;
  readonly tainted: boolean;
  /** An acting grant that counts now covers the tool's capability. */
  readonly holdsCapability: boolean;
  /** Why the run may not go on at all; null while it may. */
  readonly authority: ErrorCode | null;
}
export type ToolDecision =
  | { readonly kind: 'run' }
  | { readonly kind: 'refuse'; readonly code: ErrorCode; readonly text: string }
  /** The run ends. */
  | { readonly kind: 'stop'; readonly code: ErrorCode };

export function decideTool({ tool, tier, tainted, holdsCapability, authority }: ToolQuestion): ToolDecision {
  if (authority !== null) return { kind: 'stop', code: authority };
  const { capability } = tool;
  if ((capability !== undefined || isExternal(tool)) && tier !== 'signed') return refuse('TIER_TOO_LOW');
  if (capability !== undefined && !holdsCapability)
    return refuse('NEEDS_GRANT', `Missing is the ability ${capability.action} on ${capability.resource}.`);
  return tainted && isExternal(tool) ? refuse('NEEDS_CONFIRMATION') : { kind: 'run' };
}

/** Others notice it: a room, or a service where it writes in the person's name. */
const isExternal = ({ effect, reach, capability }: ToolQuestion['tool']): boolean =>
  reach === 'external' || (effect === 'write' && capability !== undefined);

/** Whether the audit log must know, whatever was decided. */
export const isAudited = (tool: ToolQuestion['tool'], decision: ToolDecision): boolean =>
  decision.kind !== 'run' || tool.capability !== undefined || isExternal(tool);

const refuse = (code: ErrorCode, more = ''): ToolDecision => ({
  kind: 'refuse',
  code,
  text: [ERRORS[code].message, more, 'Tell the user so; it was not done.'].filter((part) => part !== '').join(' '),
});
