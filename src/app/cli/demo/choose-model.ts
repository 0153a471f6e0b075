/**
 * Which model the demo talks to. A key in the environment means that the person wants to hear their own model; everything that is wrong with it
 * (key refused, server not there) is said here, before anything was started, and not as an error in the first answer.
 */
import { z } from 'zod';
import type { Environment } from '../../../config.ts';
import { systemClock } from '../../../system-clock.ts';
import { CliError } from '../cli-error.ts';

export type ModelChoice =
  | { readonly kind: 'demo' }
  | { readonly kind: 'given'; readonly baseUrl: string; readonly name: string; readonly apiKey: string | undefined };

const OPENAI = 'https://api.openai.com/v1';
/** Taken when MODEL_MAIN is not set and the server lists it. */
const USUAL = 'gpt-5-mini';
const ANSWERS_WITHIN_MS = 10_000;

/** @throws CliError when the model that the environment names cannot be used. */
export async function chooseModel(environment: Environment, signal: AbortSignal): Promise<ModelChoice> {
  const valueIn = (name: string) => environment[name]?.trim() || undefined;
  const apiKey = valueIn('OPENAI_API_KEY');
  const givenUrl = valueIn('OPENAI_BASE_URL');
  if (apiKey === undefined && givenUrl === undefined) return { kind: 'demo' };
  const baseUrl = (givenUrl ?? OPENAI).replace(/\/+$/u, '');
  // Asked also when the name is given: this is how a wrong key or address is found.
  const listed = await listModels(baseUrl, { apiKey, signal });
  const name = valueIn('MODEL_MAIN') ?? pickModel(listed);
  if (name === undefined) throw new CliError(`${baseUrl} lists no model: set MODEL_MAIN to the name of one. ${OR_WITHOUT}`);
  return { kind: 'given', baseUrl, name, apiKey };
}

const OR_WITHOUT = 'Without OPENAI_API_KEY and OPENAI_BASE_URL the demo brings its own model.';

const pickModel = (names: readonly string[]): string | undefined => (names.includes(USUAL) ? USUAL : names[0]);

const ModelList = z.object({ data: z.array(z.object({ id: z.string() })) });

async function listModels(baseUrl: string, { apiKey, signal }: { apiKey: string | undefined; signal: AbortSignal }): Promise<string[]> {
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  const limit = new AbortController();
  const timer = systemClock.after(ANSWERS_WITHIN_MS, () => limit.abort());
  try {
    const response = await fetch(`${baseUrl}/models`, { headers, signal: AbortSignal.any([signal, limit.signal]) });
    if (response.status === 401 || response.status === 403) {
      throw new CliError(`${baseUrl} refuses OPENAI_API_KEY (${response.status}): correct the key. ${OR_WITHOUT}`);
    }
    const list = ModelList.safeParse(await response.json().catch(() => undefined));
    return list.success ? list.data.data.map(({ id }) => id) : [];
  } catch (cause) {
    if (cause instanceof CliError || signal.aborted) throw cause;
    throw new CliError(`${baseUrl} does not answer: correct OPENAI_BASE_URL or start that server. ${OR_WITHOUT}`, { cause });
  } finally {
    timer.cancel();
  }
}
