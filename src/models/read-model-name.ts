/** Beside the models themselves, because settings are read before the agent library may be loaded. */

/** `<provider>:<model>`; a name with a colon of its own (`llama3.2:3b`) has no provider unless what stands before it is one. Pure. */
export function readModelName(name: string, providers: Readonly<Record<string, unknown>>): { provider: string | null; model: string } {
  const colon = name.indexOf(':');
  const prefix = name.slice(0, Math.max(0, colon));
  return Object.hasOwn(providers, prefix) ? { provider: prefix, model: name.slice(colon + 1) } : { provider: null, model: name };
}
