/**
 * The agent library sends every prompt to a tracing service when a variable of the environment says so, perhaps one that was set for another
 * program (research: `LANGSMITH_TRACING=true` suffices). Prompts leave this machine only for the model (G12), so these variables are removed before it is loaded.
 */
const PREFIXES = ['LANGSMITH_', 'LANGCHAIN_'];

/**
 * Deletes them from `env` (the process's environment, handed in by the composition root).
 * @returns the names that were there, for a log line.
 */
export function removeTracingVariables(env: Record<string, string | undefined>): readonly string[] {
  const names = Object.keys(env).filter((name) => PREFIXES.some((prefix) => name.toUpperCase().startsWith(prefix)));
  for (const name of names) delete env[name];
  return names;
}
