/**
 * The one door from the environment into the program: everything else takes typed values (STYLE §2 "Config").
 * All faults are named at once, each with a remedy, because an operator who fixes one per restart gives up; a bad value never becomes the
 * default, because a mistyped limit that silently is another one is found in an incident. A value is never quoted back (G12).
 */
import type { z } from 'zod';
import { configSchema, type FieldMeta, fieldMeta, GROUPS } from './config/fields.ts';
import type { Secret } from './config/secret.ts';
import { parseUserId, type UserId } from './ids.ts';
import { err, ok, type Result } from './result.ts';

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Rest}`
  ? `${Lowercase<Head>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;
type Values = z.output<typeof configSchema>;
type Fields = { readonly [Name in keyof Values as CamelCase<Name & string>]: Values[Name] };

/** `MATRIX_BASE_URL` is `matrixBaseUrl` here, and so on; docs/configuration.md says what each means. */
export interface Config extends Omit<Fields, 'trustedHomeservers'> {
  /** Never undefined: the own server when the variable was left out. */
  readonly trustedHomeservers: readonly string[];
  /** `@<MATRIX_ORACLE_LOCALPART>:<MATRIX_SERVER_NAME>`. */
  readonly oracleUserId: UserId;
}
export type Environment = Readonly<Record<string, string | undefined>>;
export interface ConfigProblem {
  readonly name: string;
  /** What is wrong, as a sentence that starts with the name. */
  readonly message: string;
  /** What to do, as a sentence. */
  readonly remedy: string;
}

/** Tokens of the sample registration.yaml: whoever has read this repository knows them. */
export const SAMPLE_TOKENS = { asToken: 'sample_as_token_replace_me_by_init', hsToken: 'sample_hs_token_replace_me_by_init' } as const;

export function readConfig(environment: Environment): Result<Config, readonly ConfigProblem[]> {
  // Field by field instead of the whole object, so that faults between good fields are named in the same go as the bad ones.
  const problems: ConfigProblem[] = [];
  const read: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(configSchema.shape)) {
    const parsed = field.safeParse(environment[name]);
    if (parsed.success) read[name] = parsed.data;
    else problems.push(buildProblem(name, environment[name], parsed.error.issues[0]?.message));
  }
  problems.push(...planCrossProblems(read as Partial<Values>));
  const values = read as Values;
  const oracleUserId = parseUserId(`@${values.MATRIX_ORACLE_LOCALPART}:${values.MATRIX_SERVER_NAME}`);
  if (!oracleUserId.ok) {
    problems.push(problem('MATRIX_ORACLE_LOCALPART', 'and MATRIX_SERVER_NAME make no Matrix user id', 'Choose a shorter local part.'));
  }
  if (problems.length > 0 || !oracleUserId.ok) return err(problems);
  const fields = Object.fromEntries(Object.entries(values).map(([name, value]) => [camelCase(name), value])) as unknown as Fields;
  return ok({
    ...fields,
    trustedHomeservers: values.TRUSTED_HOMESERVERS ?? [values.MATRIX_SERVER_NAME],
    oracleUserId: oracleUserId.value,
  });
}

const camelCase = (name: string): string => name.toLowerCase().replace(/_([a-z])/gu, (_, letter: string) => letter.toUpperCase());
const problem = (name: string, fault: string, remedy: string): ConfigProblem => ({ name, message: `${name} ${fault}.`, remedy });

function buildProblem(name: string, given: string | undefined, fault = 'is not valid'): ConfigProblem {
  const meta = metaOf(name);
  const otherwise = meta.default === undefined ? '' : ` Left out, it is ${meta.default === '' ? 'empty' : meta.default}.`;
  return problem(name, given === undefined ? 'is not set' : fault, `Set ${name} to ${meta.expects}.${otherwise}`);
}

/** Faults that no single value has. What could not be read is undefined here and has its own problem already. */
function planCrossProblems(values: Partial<Values>): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const { MATRIX_AS_TOKEN: asToken, MATRIX_HS_TOKEN: hsToken, MATRIX_BASE_URL: baseUrl } = values;
  if (values.ACCESS === 'allowed' && values.ALLOWED_USERS?.length === 0) {
    problems.push(
      problem(
        'ALLOWED_USERS',
        'is empty while ACCESS is allowed, so that nobody could use the oracle',
        'List accounts, or set ACCESS to own-server.',
      ),
    );
  }
  if (values.MATRIX_ORACLE_LOCALPART !== undefined && values.MATRIX_ORACLE_LOCALPART === values.MATRIX_SENDER_LOCALPART) {
    problems.push(
      problem(
        'MATRIX_SENDER_LOCALPART',
        "is the oracle's own account, to which Synapse refuses /sync",
        'Give the registration another sender_localpart, such as _oracle_as.',
      ),
    );
  }
  if (asToken !== undefined && asToken.reveal() === hsToken?.reveal()) {
    problems.push(
      problem(
        'MATRIX_HS_TOKEN',
        'is the same as MATRIX_AS_TOKEN',
        'Give the registration two different random tokens: `matrix-oracle init` does.',
      ),
    );
  }
  const loopback = baseUrl !== undefined && isLoopbackUrl(baseUrl) && isLoopback(values.APPSERVICE_HOST ?? '');
  if (!loopback && (isSample(asToken) || isSample(hsToken))) {
    problems.push(
      problem(
        isSample(asToken) ? 'MATRIX_AS_TOKEN' : 'MATRIX_HS_TOKEN',
        'is the one of the sample registration.yaml, which everybody knows',
        'Run `matrix-oracle init` for random tokens and give its registration to the homeserver.',
      ),
    );
  }
  if (usesOpenAi(values) && values.OPENAI_API_KEY === undefined && URL.parse(values.OPENAI_BASE_URL ?? '')?.hostname === 'api.openai.com') {
    problems.push(
      problem(
        'OPENAI_API_KEY',
        'is not set, but api.openai.com needs one',
        'Set OPENAI_API_KEY, or OPENAI_BASE_URL to a server that needs none.',
      ),
    );
  }
  return problems;
}

/** Whether the model that answers is reached at OPENAI_BASE_URL. */
const usesOpenAi = ({ LLM_PROVIDER: provider, MODEL_MAIN: main = '' }: Partial<Values>): boolean =>
  /^openai(?:-compatible)?$/u.test(/^(openai|openai-compatible|openrouter|ollama):/u.exec(main)?.[1] ?? provider ?? '');

const SAMPLES: ReadonlySet<string> = new Set(Object.values(SAMPLE_TOKENS));
const isSample = (token: Secret | undefined): boolean => token !== undefined && SAMPLES.has(token.reveal());
const isLoopbackUrl = (url: string): boolean => isLoopback(URL.parse(url)?.hostname ?? '');
/** Names are not resolved: only what can mean nothing else counts. */
const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || host === '[::1]' || /^127(?:\.\d{1,3}){3}$/u.test(host);

/** Names of the older oracles that mean nothing here, with the reason. */
const RETIRED: Readonly<Record<string, string>> = {
  MATRIX_ORACLE_ADMIN_USER_ID: "The oracle's account is MATRIX_ORACLE_LOCALPART in the registration's namespace.",
  MATRIX_ORACLE_ADMIN_PASSWORD: 'An application service has no password: MATRIX_AS_TOKEN is all it needs.',
  MATRIX_ORACLE_ADMIN_ACCESS_TOKEN: 'An application service uses MATRIX_AS_TOKEN.',
  MATRIX_STORE_PATH: 'Everything is stored in DATA_DIR.',
};
const OURS = /^(?:ORACLE|MATRIX)_/u;
/** More changed letters than this and the nearest name is no longer a likely meaning. */
const MAX_TYPING_ERRORS = 4;

/** A mistyped name is a setting that silently does nothing: every unknown `ORACLE_*` and `MATRIX_*` variable is named, with the nearest known one. */
export function planUnknownWarnings(environment: Environment): readonly ConfigProblem[] {
  const names = configNames();
  return Object.keys(environment)
    .filter((name) => OURS.test(name) && !names.includes(name) && environment[name] !== undefined)
    .sort()
    .map((name) => problem(name, 'is not a setting of the oracle and is ignored', RETIRED[name] ?? suggest(name, names)));
}

/** Settings that are valid but do nothing as they stand. */
export function planIdleWarnings(config: Config): readonly ConfigProblem[] {
  const far = config.unsignedUsers.filter((glob) => !config.trustedHomeservers.includes(glob.slice(glob.indexOf(':') + 1)));
  if (far.length === 0) return [];
  return [
    problem(
      'UNSIGNED_USERS',
      'names accounts on servers that are not in TRUSTED_HOMESERVERS, so they stay refused',
      'Add their server to TRUSTED_HOMESERVERS, or have them sign.',
    ),
  ];
}

function suggest(name: string, names: readonly string[]): string {
  const nearest = names.map((known) => ({ known, errors: editDistance(name, known) })).sort((a, b) => a.errors - b.errors)[0];
  return nearest !== undefined && nearest.errors <= MAX_TYPING_ERRORS ? `Did you mean ${nearest.known}?` : 'See docs/configuration.md.';
}

/** Levenshtein's, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [i, left] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, right] of [...b].entries()) {
      next.push(Math.min((row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1, (row[j] ?? 0) + (left === right ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

const configNames = (): string[] => Object.keys(configSchema.shape);
function metaOf(name: string): FieldMeta {
  const field = configSchema.shape[name as keyof typeof configSchema.shape];
  const meta = fieldMeta.get(field);
  if (meta === undefined) throw new Error(`${name} has no description`);
  return meta;
}

export interface ConfigRow extends FieldMeta {
  readonly name: string;
  /** Neither a default nor another way to get it. */
  readonly required: boolean;
}
/** Rows of docs/configuration.md and .env.example, in the order of the groups. */
export function describeConfig(): readonly ConfigRow[] {
  const rows = configNames().map((name) => ({ name, ...metaOf(name) }));
  return GROUPS.flatMap((group) =>
    rows.filter((row) => row.group === group).map((row) => ({ ...row, required: row.default === undefined && row.leftOut === undefined })),
  );
}

/** Tracing variables of the agent library: set by accident, they would send every prompt to a third party (G12). */
const TRACING = /^(?:LANGSMITH|LANGCHAIN)_/u;

/** Takes them out of the environment; before the agent library is loaded, whoever embeds us. */
export function forgetTracing(): void {
  for (const name of Object.keys(process.env).filter((key) => TRACING.test(key))) delete process.env[name];
}

/** The process's environment, without what would send prompts elsewhere. */
export function readEnvironment(): Environment {
  forgetTracing();
  return { ...process.env };
}
