/**
 * A tool is data that the host reads before it runs anything: what it is called, which arguments fit, whether it writes, how far it reaches.
 * Those two words decide marks (G6) and tiers (G8): a tool that says nothing only reads, and one that writes and says nothing more is noticed by others.
 */
import type { z } from 'zod';
import type { MergedConfig, PluginState, RuntimeContext } from '../runtime-context/runtime-context.ts';

/** `write`: marked before it starts, so that it never runs twice (G6). */
export type ToolEffect = 'read' | 'write';
/** `own`: only what is this person's own. `external`: others notice it (a room, another service). Needs a signed message, and a run that read nothing but its principal's words. */
export type ToolReach = 'own' | 'external';
/** `always`: in every request; `on-demand`: only once the agent has loaded the plugin. Default: as its plugin. */
export type ToolVisibility = 'always' | 'on-demand';

/** An ability at a service, as an acting grant of the user names it: both compared as text, no wildcards. */
export interface ToolCapability {
  /** `with` of the grant. */
  readonly resource: string;
  /** `can` of the grant. */
  readonly action: string;
}

/** `Config` and `State` are what the handler sees as `ctx.config` and `ctx.state`: within `defineOraclePlugin` they follow from the plugin's schemas. */
export interface ToolDefinition<Schema extends z.ZodObject = z.ZodObject, Config = MergedConfig, State extends PluginState = PluginState> {
  readonly name: string;
  readonly description: string;
  readonly schema: Schema;
  /** Default `read`. */
  readonly effect?: ToolEffect;
  /** Default: `external` when it writes, else `own`. */
  readonly reach?: ToolReach;
  readonly visibility?: ToolVisibility;
  /** The tool acts in the user's name: it is called only for a signed message whose signer granted the oracle this ability. */
  readonly capability?: ToolCapability;
  /** Its results hold text of strangers (a web page, another server's tool): whatever reads them is tainted (docs/security.md "Taint"). */
  readonly untrusted?: boolean;
  /** What a call that worked costs the person, besides the model's own calls; counts where the oracle's answers cost credits. */
  readonly billing?: { readonly credits: number };
  /** Text, or a value that is shown to the model as JSON. A throw becomes a message to the model. */
  readonly handler: (args: z.output<Schema>, ctx: RuntimeContext<Config, State>) => unknown;
}

/** A tool whose argument type was forgotten, as registries keep it. */
// biome-ignore lint/suspicious/noExplicitAny: the host hands a handler the configuration and state of its own plugin
export interface AnyTool<Config = any, State extends PluginState = any> extends Omit<ToolDefinition, 'handler' | 'schema'> {
  readonly schema: z.ZodObject;
  // biome-ignore lint/suspicious/noExplicitAny: the schema of the same object has checked the arguments
  readonly handler: (args: any, ctx: RuntimeContext<Config, State>) => unknown;
}

const NAME = /^[a-z][a-z0-9_]{0,63}$/u;
const MAX_DESCRIPTION_CHARS = 4_000;
const ABILITY = /^[a-z0-9_-]{1,64}(?:\/[a-z0-9_-]{1,64}){1,4}$/u;
const RESOURCE = /^[a-z][a-z0-9+.-]{0,31}:[A-Za-z0-9._~:/@!$&'()*+,;=%-]{1,255}$/u;
const WORDS = { effect: ['read', 'write'], reach: ['own', 'external'], visibility: ['always', 'on-demand'] } as const;
const FIELDS = new Set(['name', 'description', 'schema', 'capability', 'untrusted', 'billing', 'handler', ...Object.keys(WORDS)]);

/** Checks what can be checked before a turn: a bad tool is a mistake of its author and stops the start. */
export function defineTool<Schema extends z.ZodObject, Config = MergedConfig, State extends PluginState = PluginState>(
  tool: ToolDefinition<Schema, Config, State>,
): ToolDefinition<Schema, Config, State> {
  const fault = readToolFault(tool);
  if (fault !== null) throw new TypeError(fault);
  return Object.freeze({ ...tool, ...defaultReach(tool) });
}

/** The same for a tool of which nothing is known, because its author wrote JavaScript. */
export function readTool(tool: unknown): AnyTool | { readonly fault: string } {
  const fault = readToolFault(tool);
  if (fault !== null) return { fault };
  const known = tool as AnyTool;
  const missing = defaultReach(known);
  return Object.isFrozen(known) && missing.reach === undefined ? known : Object.freeze({ ...known, ...missing });
}

/** What only reads reaches nobody unless it says so; what writes is noticed by others unless it says that it is not. */
const defaultReach = ({ effect, reach }: Pick<AnyTool, 'effect' | 'reach'>): Pick<AnyTool, 'reach'> =>
  reach === undefined && effect === 'write' ? { reach: 'external' } : {};

function readToolFault(tool: unknown): string | null {
  if (typeof tool !== 'object' || tool === null) return 'a tool must be an object';
  const { name, description, schema, capability, untrusted, billing, handler } = tool as Record<string, unknown>;
  if (typeof name !== 'string' || !NAME.test(name)) return `a tool name must fit ${NAME.source}: ${quote(name)}`;
  if (typeof description !== 'string' || description.length === 0 || description.length > MAX_DESCRIPTION_CHARS)
    return `the description of tool ${name} must have 1 to ${MAX_DESCRIPTION_CHARS} characters`;
  if (!isZodObject(schema)) return `the schema of tool ${name} must be a z.object() of zod 4`;
  if (typeof handler !== 'function') return `tool ${name} needs a handler`;
  if (untrusted !== undefined && typeof untrusted !== 'boolean') return `untrusted of tool ${name} must be true or false`;
  if (billing !== undefined && !isPrice(billing)) return `billing of tool ${name} must be { credits: <a whole number above 0> }`;
  for (const [field, words] of Object.entries(WORDS)) {
    const word = (tool as Record<string, unknown>)[field];
    if (word !== undefined && !words.some((known) => known === word)) return `${field} of tool ${name} must be ${words.join(' or ')}`;
  }
  // A mistyped `effect` would be a tool that is said to read.
  const unknown = Object.keys(tool).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `tool ${name} has a field that does not exist: ${quote(unknown)}`;
  return capability === undefined ? null : readCapabilityFault(name, capability);
}

const isPrice = (billing: unknown): boolean => {
  const credits = typeof billing === 'object' && billing !== null && 'credits' in billing ? billing.credits : undefined;
  return Number.isSafeInteger(credits) && Number(credits) > 0;
};

/** One that no grant can name would refuse every call; a wildcard would ask for more than the tool needs. */
function readCapabilityFault(name: string, capability: unknown): string | null {
  const { action, resource } = (capability ?? {}) as Record<string, unknown>;
  if (typeof action !== 'string' || !ABILITY.test(action) || action.startsWith('oracle/'))
    return `tool ${name} needs a concrete ability such as memory/read: ${quote(action)}`;
  if (typeof resource !== 'string' || !RESOURCE.test(resource))
    return `tool ${name} needs a resource such as ixo:memory: ${quote(resource)}`;
  return null;
}

/** By form, not by class: a plugin may bring a zod of its own. Only zod 4 can be made a JSON schema of. */
export const isZodObject = (value: unknown): value is z.ZodObject =>
  typeof value === 'object' && value !== null && '_zod' in value && 'shape' in value && 'safeParse' in value;

const quote = (value: unknown): string => (JSON.stringify(value) ?? typeof value).slice(0, 80);
