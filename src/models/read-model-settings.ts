/**
 * Which model answers for which role, from the environment: roles are open (a plugin may ask for any), so they are no fixed list of settings. A provider
 * is asked for its key only when a model of it is named. All faults at once, each with a remedy; a value is never quoted back (G12).
 */
import { Secret } from '../config/secret.ts';
import type { ConfigProblem, Environment } from '../config.ts';
import { err, ok, type Result } from '../result.ts';
import type { ModelProvider, ModelSettings } from './models.ts';
import { readModelName } from './read-model-name.ts';

const PROVIDER_NAMES = ['openai', 'openai-compatible', 'openrouter', 'ollama'] as const;
type ProviderName = (typeof PROVIDER_NAMES)[number];

interface ProviderSpec {
  readonly urlVariable: string;
  readonly defaultUrl: string;
  /** Null: it needs none. */
  readonly keyVariable: string | null;
  /** Where even the default address needs a key. */
  readonly insists: (baseUrl: string) => boolean;
}
const isHost = (baseUrl: string, host: string): boolean => URL.parse(baseUrl)?.hostname === host;
const OPENAI: ProviderSpec = {
  urlVariable: 'OPENAI_BASE_URL',
  defaultUrl: 'https://api.openai.com/v1',
  keyVariable: 'OPENAI_API_KEY',
  insists: (baseUrl) => isHost(baseUrl, 'api.openai.com'),
};
const SPECS: Readonly<Record<ProviderName, ProviderSpec>> = {
  openai: OPENAI,
  'openai-compatible': OPENAI,
  openrouter: {
    urlVariable: 'OPENROUTER_BASE_URL',
    defaultUrl: 'https://openrouter.ai/api/v1',
    keyVariable: 'OPENROUTER_API_KEY',
    insists: (baseUrl) => isHost(baseUrl, 'openrouter.ai'),
  },
  ollama: { urlVariable: 'OLLAMA_BASE_URL', defaultUrl: 'http://127.0.0.1:11434/v1', keyVariable: null, insists: () => false },
};

/** Settings of the model that are no role. */
const NO_ROLE: ReadonlySet<string> = new Set(['MODEL_CONTEXT_TOKENS', 'MODEL_IDLE_TIMEOUT_S']);
const ROLE = /^MODEL_([A-Z][A-Z0-9_]{0,63}?)(_FALLBACK|_MAX_TOKENS)?$/u;
const NAME = /^[^\s,\u0000-\u001f\u007f]{1,200}$/u;
const MAX_FALLBACKS = 5;
const MAX_SELECTABLE = 100;
const MAX_ANSWER_TOKENS = 1_000_000;

export function readModelSettings(environment: Environment): Result<ModelSettings, readonly ConfigProblem[]> {
  const problems: ConfigProblem[] = [];
  const fault = (name: string, what: string, remedy: string): void => {
    problems.push({ name, message: `${name} ${what}.`, remedy });
  };
  const roles: Record<string, string> = {};
  const fallbacks: Record<string, readonly string[]> = {};
  const maxTokens: Record<string, number> = {};
  for (const [variable, value] of Object.entries(environment)) {
    const [, name, suffix] = ROLE.exec(variable) ?? [];
    if (name === undefined || value === undefined || NO_ROLE.has(variable)) continue;
    const role = name.toLowerCase();
    if (suffix === '_FALLBACK') {
      const names = listOf(value);
      if (names.length <= MAX_FALLBACKS && names.every((one) => NAME.test(one))) fallbacks[role] = names;
      else fault(variable, 'is no list of models', `Name up to ${MAX_FALLBACKS} models, comma-separated.`);
    } else if (suffix === '_MAX_TOKENS') {
      const tokens = /^[1-9]\d{0,6}$/u.test(value) ? Number(value) : Number.NaN;
      if (tokens <= MAX_ANSWER_TOKENS) maxTokens[role] = tokens;
      else fault(variable, 'is no number of tokens', `Set it to a number between 1 and ${MAX_ANSWER_TOKENS}.`);
    } else if (NAME.test(value.trim())) roles[role] = value.trim();
    else fault(variable, 'is no name of a model', 'Set it to a name under which the provider knows a model.');
  }
  const main = roles['main'];
  if (main === undefined && !problems.some(({ name }) => name === 'MODEL_MAIN'))
    fault('MODEL_MAIN', 'is not set', 'Set MODEL_MAIN to the model that answers.');
  const selectable = listOf(environment['MODELS_SELECTABLE'] ?? '');
  if (selectable.length > MAX_SELECTABLE || !selectable.every((one) => NAME.test(one)))
    fault('MODELS_SELECTABLE', 'is no list of models', `Name up to ${MAX_SELECTABLE} models, comma-separated.`);

  const preferred = environment['LLM_PROVIDER'] ?? 'openai-compatible';
  if (!isProvider(preferred)) fault('LLM_PROVIDER', 'is no provider', `Set LLM_PROVIDER to ${PROVIDER_NAMES.join(', ')}.`);
  const providers = Object.fromEntries(PROVIDER_NAMES.map((name) => [name, readProvider(SPECS[name], environment)]));
  const named = [...Object.values(roles), ...Object.values(fallbacks).flat(), ...selectable];
  const used = new Set(named.map((name) => readModelName(name, providers).provider ?? preferred).filter(isProvider));
  for (const name of used) {
    const { keyVariable, urlVariable, defaultUrl, insists } = SPECS[name];
    const { baseUrl = defaultUrl, apiKey } = providers[name] ?? {};
    if (!/^https?:\/\//u.test(baseUrl) || URL.parse(baseUrl) === null)
      fault(urlVariable, 'is no address', `Set it to an address such as ${defaultUrl}.`);
    else if (keyVariable !== null && apiKey === undefined && insists(baseUrl) && !problems.some((one) => one.name === keyVariable))
      fault(
        keyVariable,
        `is not set, but ${new URL(baseUrl).hostname} needs one`,
        `Set ${keyVariable}, or name models of another provider.`,
      );
  }
  if (problems.length > 0 || main === undefined || !isProvider(preferred)) return err(problems);
  return ok({ ...providers[preferred], providers, roles: { ...roles, main }, fallbacks, maxTokens, selectable });
}

const isProvider = (name: string): name is ProviderName => (PROVIDER_NAMES as readonly string[]).includes(name);
const listOf = (value: string): string[] =>
  value
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');

function readProvider({ urlVariable, defaultUrl, keyVariable }: ProviderSpec, environment: Environment): ModelProvider {
  const baseUrl = (environment[urlVariable] ?? defaultUrl).replace(/\/+$/u, '');
  const apiKey = keyVariable === null ? undefined : environment[keyVariable];
  return { baseUrl, ...(apiKey === undefined || apiKey.trim() === '' ? {} : { apiKey: new Secret(apiKey.trim()) }) };
}
