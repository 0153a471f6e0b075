/**
 * A tool is data that the host reads before it runs anything: what it is called, which arguments fit, whether it writes, how far it reaches.
 * Those two words decide marks (G6) and tiers (G8), so a tool that says nothing is a read tool without reach.
 */
import type { z } from 'zod';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';

/** `write`: marked before it starts, so that it never runs twice (G6). */
export type ToolEffect = 'read' | 'write';
/** `external`: others notice it (a room, another service). Needs a signed message, and a run that read nothing but its principal's words. */
export type ToolReach = 'own' | 'external';
/** `always`: in every request; `on-demand`: only once the agent has loaded the plugin. */
export type ToolVisibility = 'always' | 'on-demand';

/** An ability at a service, as an acting grant of the user names it: both compared as text, no wildcards. */
export interface ToolCapability {
  /** `with` of the grant. */
  readonly resource: string;
  /** `can` of the grant. */
  readonly action: string;
}

export interface ToolDefinition<Schema extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly description: string;
  readonly schema: Schema;
  readonly effect?: ToolEffect;
  readonly reach?: ToolReach;
  readonly visibility?: ToolVisibility;
  /** The tool acts in the user's name: it is called only for a signed message whose signer granted the oracle this ability. */
  readonly capability?: ToolCapability;
  /** Its results hold text of strangers (a web page, another server's tool): whatever reads them is tainted (docs/security.md "Taint"). */
  readonly untrusted?: boolean;
  /** Text, or a value that is shown to the model as JSON. A throw becomes a message to the model. */
  readonly handler: (args: z.output<Schema>, ctx: RuntimeContext) => unknown;
}

/** A tool whose argument type was forgotten, as registries keep it. */
export interface AnyTool extends Omit<ToolDefinition, 'handler' | 'schema'> {
  readonly schema: z.ZodObject;
  // biome-ignore lint/suspicious/noExplicitAny: the schema of the same object has checked the arguments
  readonly handler: (args: any, ctx: RuntimeContext) => unknown;
}

const NAME = /^[a-z][a-z0-9_]{0,63}$/u;
const MAX_DESCRIPTION_CHARS = 4_000;
const ABILITY = /^[a-z0-9_-]{1,64}(?:\/[a-z0-9_-]{1,64}){1,4}$/u;
const RESOURCE = /^[a-z][a-z0-9+.-]{0,31}:[A-Za-z0-9._~:/@!$&'()*+,;=%-]{1,255}$/u;

/** Checks what can be checked before a turn: a bad tool is a mistake of its author and stops the start. */
export function defineTool<Schema extends z.ZodObject>(tool: ToolDefinition<Schema>): ToolDefinition<Schema> {
  if (!NAME.test(tool.name)) throw new TypeError(`a tool name must fit ${NAME.source}: ${JSON.stringify(tool.name).slice(0, 80)}`);
  if (tool.description.length === 0 || tool.description.length > MAX_DESCRIPTION_CHARS)
    throw new TypeError(`the description of tool ${tool.name} must have 1 to ${MAX_DESCRIPTION_CHARS} characters`);
  checkCapability(tool);
  return Object.freeze({ ...tool });
}

/** One that no grant can name would refuse every call; a wildcard would ask for more than the tool needs. */
function checkCapability({ name, capability }: Pick<ToolDefinition, 'name' | 'capability'>): void {
  if (capability === undefined) return;
  if (!ABILITY.test(capability.action) || capability.action.startsWith('oracle/'))
    throw new TypeError(`tool ${name} needs a concrete ability such as memory/read: ${JSON.stringify(capability.action).slice(0, 80)}`);
  if (!RESOURCE.test(capability.resource))
    throw new TypeError(`tool ${name} needs a resource such as ixo:memory: ${JSON.stringify(capability.resource).slice(0, 80)}`);
}
