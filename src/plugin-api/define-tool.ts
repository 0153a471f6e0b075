/**
 * A tool is data that the host reads before it runs anything: what it is called, which arguments fit, whether it writes, how far it reaches.
 * Those two words decide marks (G6) and tiers (G8), so a tool that says nothing is a read tool without reach.
 */
import type { z } from 'zod';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';

/** `write`: marked before it starts, so that it never runs twice (G6). */
export type ToolEffect = 'read' | 'write';
/** `external`: others notice it (a room, another service). Needs a signed message in a direct chat. */
export type ToolReach = 'own' | 'external';
/** `always`: in every request; `on-demand`: only once the agent has loaded the plugin. */
export type ToolVisibility = 'always' | 'on-demand';

export interface ToolDefinition<Schema extends z.ZodObject = z.ZodObject> {
  readonly name: string;
  readonly description: string;
  readonly schema: Schema;
  readonly effect?: ToolEffect;
  readonly reach?: ToolReach;
  readonly visibility?: ToolVisibility;
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

/** Checks what can be checked before a turn: a bad tool is a mistake of its author and stops the start. */
export function defineTool<Schema extends z.ZodObject>(tool: ToolDefinition<Schema>): ToolDefinition<Schema> {
  if (!NAME.test(tool.name)) throw new TypeError(`a tool name must fit ${NAME.source}: ${JSON.stringify(tool.name).slice(0, 80)}`);
  if (tool.description.length === 0 || tool.description.length > MAX_DESCRIPTION_CHARS)
    throw new TypeError(`the description of tool ${tool.name} must have 1 to ${MAX_DESCRIPTION_CHARS} characters`);
  return Object.freeze({ ...tool });
}
