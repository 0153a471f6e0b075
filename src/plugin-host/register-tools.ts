/**
 * Names under which the model calls something: two of one name would let a plugin answer in another's place, so the second is never taken. JSON
 * schemas are made here once for each schema, not per turn or model call.
 */
import { z } from 'zod';
import type { JsonObject } from '../json.ts';
import { readSubAgent, type SubAgentDefinition } from '../plugin-api/define-sub-agent.ts';
import { type AnyTool, readTool } from '../plugin-api/define-tool.ts';
import { err, ok, type Result } from '../result.ts';
import type { RegisteredSubAgent } from './plugin-host.ts';
import type { RegisteredTool } from './registered-tool.ts';

/** Who has a name; the runtime has the names of its own tools. */
export type TakenNames = ReadonlyMap<string, string>;
export const RUNTIME = 'the runtime';
export const RESERVED: TakenNames = new Map([
  ['list_capabilities', RUNTIME],
  ['load_capability', RUNTIME],
]);

export interface Fault {
  readonly kind: 'invalid' | 'collision';
  /** The tool's name when it has one. */
  readonly tool: string | null;
  readonly message: string;
}

export function registerTool(plugin: string, tool: unknown, taken: TakenNames): Result<RegisteredTool, Fault> {
  const definition = readSafely(() => readTool(tool));
  if ('fault' in definition) return err(invalid(definition.fault));
  const collision = findCollision(definition.name, plugin, taken);
  if (collision !== null) return err(collision);
  return describe(plugin, definition);
}

export function registerSubAgent(plugin: string, agent: unknown, taken: TakenNames): Result<RegisteredSubAgent, Fault> {
  const definition = readSafely(() => readSubAgent(agent));
  if ('fault' in definition) return err(invalid(definition.fault));
  const toolName = `call_${definition.name}`;
  const collision = findCollision(toolName, plugin, taken);
  if (collision !== null) return err(collision);
  const tools = describeAll(plugin, definition);
  return tools.ok ? ok({ plugin, definition, toolName, tools: tools.value }) : tools;
}

function describeAll(plugin: string, { name, tools }: SubAgentDefinition): Result<ReadonlyMap<string, RegisteredTool>, Fault> {
  const described = new Map<string, RegisteredTool>();
  for (const tool of tools) {
    const one = describe(plugin, tool);
    if (!one.ok) return err({ ...one.error, message: `in sub-agent ${name}, ${one.error.message}` });
    described.set(tool.name, one.value);
  }
  return ok(described);
}

const schemas = new WeakMap<z.ZodObject, JsonObject>();

function describe(plugin: string, definition: AnyTool): Result<RegisteredTool, Fault> {
  const { name, schema } = definition;
  try {
    const parameters = schemas.get(schema) ?? buildParameters(schema);
    schemas.set(schema, parameters);
    return ok({ plugin, definition, parameters });
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 200) : 'it threw';
    return err({ kind: 'invalid', tool: name, message: `no JSON schema can be made of the schema of tool ${name}: ${why}` });
  }
}

/** Of the arguments, as models want it. */
export function buildParameters(schema: z.ZodObject): JsonObject {
  const { $schema: _, ...parameters } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  return parameters as JsonObject;
}

function findCollision(name: string, plugin: string, taken: TakenNames): Fault | null {
  const other = taken.get(name);
  if (other === undefined) return null;
  const whose = other === RUNTIME ? RUNTIME : other === plugin ? 'itself' : `plugin ${other}`;
  return { kind: 'collision', tool: name, message: `plugin ${plugin} defines ${name}, which is defined by ${whose} already` };
}
/** What a plugin brings may run code when it is looked at: a getter, a proxy. What that throws is a fault of this one thing. */
function readSafely<T extends object>(read: () => T | { readonly fault: string }): T | { readonly fault: string } {
  try {
    return read();
  } catch (error) {
    return { fault: `it cannot be read (${error instanceof Error ? error.name : 'it threw'})` };
  }
}
const invalid = (message: string): Fault => ({ kind: 'invalid', tool: null, message });
