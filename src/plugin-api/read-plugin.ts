/**
 * Whether a value from somebody else's package is a plugin: its author may have written JavaScript, or for another runtime of this family, and a hook
 * under a name that nobody calls would silently do nothing. Only the form is read here; manifest and configuration are the host's to judge.
 */
import { z } from 'zod';
import type { AnyOraclePlugin } from './define-oracle-plugin.ts';
import { isZodObject } from './define-tool.ts';

export const PLUGIN_NAME = /^[a-z][a-z0-9-]{0,63}$/u;

const name = z.string().regex(PLUGIN_NAME, `must fit ${PLUGIN_NAME.source}`);
const hook = z.custom<(...args: never[]) => unknown>((value) => typeof value === 'function', 'must be a function').optional();
const schema = z.custom<z.ZodObject>(isZodObject, 'must be a z.object() of zod 4').optional();
/** Every field of the type and no other: what stands only there would be refused here as a mistake. */
const FIELDS = {
  name,
  version: z.string().min(1, 'is empty').max(64, 'is too long'),
  manifest: z.record(z.string(), z.unknown(), 'must be an object'),
  dependsOn: z.array(name).max(100).optional(),
  softDependsOn: z.array(name).max(100).optional(),
  configSchema: schema,
  stateSchema: schema,
  autoDetect: hook,
  autoDetectHint: z.string().max(500).optional(),
  getTools: hook,
  getRequestTools: hook,
  getSubAgents: hook,
  getRequestSubAgents: hook,
  getMiddlewares: hook,
  getSharedState: hook,
  getRoutes: hook,
  getAuthExcludedRoutes: hook,
  getPromptContribution: hook,
  getUserContext: hook,
  getCreditPolicy: hook,
  close: hook,
} satisfies Record<keyof AnyOraclePlugin, z.ZodType>;
const pluginForm = z.object(FIELDS);

/** Hooks of this family that have another place here. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  getNestModules: 'use getRoutes, which takes a Fastify plugin',
  getRequestMiddlewares: 'use getMiddlewares',
  getRequestAdmission: 'there is none',
};
const MAX_FAULTS = 10;

/** The very object that was given, not a copy: hooks of a class need their `this`. */
export function readPlugin(value: unknown): AnyOraclePlugin | { readonly faults: readonly string[] } {
  try {
    return readForm(value);
  } catch (error) {
    return { faults: [`it cannot be read (${error instanceof Error ? error.name : 'it threw'})`] };
  }
}

function readForm(value: unknown): AnyOraclePlugin | { readonly faults: readonly string[] } {
  if (typeof value !== 'object' || value === null) return { faults: ['it is no object made with defineOraclePlugin'] };
  const parsed = pluginForm.safeParse(value);
  const faults = parsed.success ? [] : parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'it'}: ${message}`);
  for (const field of Object.keys(value)) {
    if (!field.startsWith('get') || Object.hasOwn(FIELDS, field)) continue;
    faults.push(`${field.slice(0, 60)}: there is no such hook${field in ELSEWHERE ? ` (${ELSEWHERE[field]})` : ''}`);
  }
  return faults.length === 0 ? (value as AnyOraclePlugin) : { faults: faults.slice(0, MAX_FAULTS) };
}
