/**
 * The settings of a process come from four places: environment, `.env`, registration file, key (a file or words). They are laid over each other
 * here, and two places that contradict each other are an error, because an operator who changes one and sees no effect cannot know why.
 * Reading files is kept out of src/config.ts, which stays a pure function of its input.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { type Registration, readRegistration } from '../../appservice/registration.ts';
import { configSchema } from '../config/fields.ts';
import { type Config, type ConfigProblem, type Environment, planIdleWarnings, planUnknownWarnings, readConfig } from '../config.ts';
import { type Did, parseDid } from '../ids.ts';
import { readModelSettings } from '../models/read-model-settings.ts';
import { err, ok, type Result } from '../result.ts';
import { keyFromMnemonic, type LoadedKeys, loadOracleKeys } from '../ucan/oracle-keys.ts';
import { readKeyFile, type SigningKey } from '../ucan/signing-key.ts';
import { dataPaths } from './data-paths.ts';

export interface LoadedConfig {
  readonly config: Config;
  readonly warnings: readonly ConfigProblem[];
  /** With what `.env` adds: plugins read their own settings from it. */
  readonly environment: Environment;
}
export interface LoadConfigOptions {
  readonly environment: Environment;
  /** Must exist; left out, `.env` in the working directory is read when it is there. */
  readonly settings?: string | undefined;
}

export async function loadConfig(options: LoadConfigOptions): Promise<Result<LoadedConfig, readonly ConfigProblem[]>> {
  const problems: ConfigProblem[] = [];
  const environment = await readWithEnvFile(options, problems);
  const fromFiles: Record<string, string> = {
    ...(await readRegistrationValues(environment, problems)),
    ...(await readKeyValues(environment, problems)),
  };
  problems.push(...planContradictions(environment, fromFiles));
  const read = readConfig({ ...fromFiles, ...environment });
  if (!read.ok) {
    // What a broken file would have given is missing now: the file's own problem says it better.
    const explained = new Set([...problems, ...read.error].flatMap(({ name }) => FILLED_BY[name] ?? []));
    return err([...problems, ...read.error.filter(({ name }) => !explained.has(name))]);
  }
  const models = readModelSettings(environment);
  if (!models.ok) problems.push(...models.error);
  if (problems.length > 0) return err(problems);
  return ok({ config: read.value, warnings: [...planUnknownWarnings(environment), ...planIdleWarnings(read.value)], environment });
}

/** Of the settings only those about plugins, and the environment that plugins read theirs from: which are loaded must be seen before all else is right. */
export async function loadPluginSettings(
  options: LoadConfigOptions,
): Promise<Result<Pick<Config, 'features' | 'plugins'> & { readonly environment: Environment }, readonly ConfigProblem[]>> {
  const problems: ConfigProblem[] = [];
  const environment = await readWithEnvFile(options, problems);
  const features = configSchema.shape.FEATURES.safeParse(environment['FEATURES']);
  const plugins = configSchema.shape.PLUGINS.safeParse(environment['PLUGINS']);
  if (!features.success || !plugins.success) {
    const name = features.success ? 'PLUGINS' : 'FEATURES';
    problems.push({ name, message: `${name} is not valid.`, remedy: 'It is a comma-separated list; see docs/configuration.md.' });
  }
  if (problems.length > 0 || !features.success || !plugins.success) return err(problems);
  return ok({ features: features.data, plugins: plugins.data, environment });
}

/** Of the settings only the oracle's DID, for those who address it; undefined when neither variable nor key file says it. */
export async function loadOracleDid(options: LoadConfigOptions): Promise<Did | undefined> {
  const environment = await readWithEnvFile(options, []);
  const fromKey = await readKeyValues(environment, []);
  const did = parseDid(environment['ORACLE_DID'] ?? fromKey['ORACLE_DID']);
  return did.ok ? did.value : undefined;
}

/** The oracle's keys, current and old, where the settings say they are. */
export function loadKeys(
  config: Pick<Config, 'oracleDid' | 'oracleKeyFile' | 'signingMnemonic' | 'dataDir'>,
): Promise<Result<LoadedKeys, ConfigProblem>> {
  const paths = dataPaths(config.dataDir);
  return loadOracleKeys({
    did: config.oracleDid,
    keyFile: config.oracleKeyFile ?? paths.key,
    mnemonic: config.signingMnemonic?.reveal() ?? null,
    dir: paths.dir,
  });
}

export interface KeySettings {
  /** Absolute. */
  readonly dir: string;
  readonly keyFile: string;
  /** SIGNING_MNEMONIC, when it is set. */
  readonly mnemonic: string | null;
  /** ORACLE_DID as it was set by hand; null when it follows from the key. */
  readonly pinnedDid: Did | null;
  readonly blocksyncUrl: string | null;
}
/** Of the settings only those about the oracle's key: changing it must work when the model's key is missing. */
export async function loadKeySettings(options: LoadConfigOptions): Promise<Result<KeySettings, readonly ConfigProblem[]>> {
  const problems: ConfigProblem[] = [];
  const environment = await readWithEnvFile(options, problems);
  if (problems.length > 0) return err(problems);
  const paths = dataPaths(environment['DATA_DIR'] || './data');
  const pinned = parseDid(environment['ORACLE_DID']);
  return ok({
    dir: paths.dir,
    keyFile: environment['ORACLE_KEY_FILE'] || paths.key,
    mnemonic: environment['SIGNING_MNEMONIC'] || null,
    pinnedDid: pinned.ok ? pinned.value : null,
    blocksyncUrl: environment['BLOCKSYNC_GRAPHQL_URL'] || null,
  });
}

/** Of the settings only where the data lies: looking into the inbox must work when the model's key is missing. */
export async function loadDataDir(options: LoadConfigOptions): Promise<string> {
  return (await readWithEnvFile(options, []))['DATA_DIR'] || './data';
}

/** As the homeserver has it, if it has the same file; null where the settings name none that can be read. */
export async function readRegistrationFile(environment: Environment): Promise<Registration | null> {
  const path = environment['MATRIX_REGISTRATION_FILE'];
  const text = path === undefined || path === '' ? null : await readText(path);
  const registration = text?.ok === true ? readRegistration(text.value) : null;
  return registration?.ok === true ? registration.value : null;
}

/** Of the settings only who may use the oracle; undefined when ACCESS is none of its words. */
export async function loadAccess(options: LoadConfigOptions): Promise<Config['access'] | undefined> {
  const given = configSchema.shape.ACCESS.safeParse((await readWithEnvFile(options, []))['ACCESS']);
  return given.success ? given.data : undefined;
}

const FILLED_BY: Readonly<Record<string, readonly string[]>> = {
  MATRIX_REGISTRATION_FILE: ['MATRIX_AS_TOKEN', 'MATRIX_HS_TOKEN', 'MATRIX_SERVER_NAME'],
  ORACLE_KEY_FILE: ['ORACLE_DID'],
  SIGNING_MNEMONIC: ['ORACLE_DID'],
};

async function readWithEnvFile({ environment, settings }: LoadConfigOptions, problems: ConfigProblem[]): Promise<Environment> {
  const path = settings ?? join(process.cwd(), '.env');
  const text = await readText(path);
  if (text.ok) return { ...parseEnv(text.value), ...environment };
  if (settings !== undefined || text.error !== 'ENOENT') {
    problems.push({
      name: '--settings',
      message: `${path} cannot be read (${text.error}).`,
      remedy: 'Give the path of a readable file.',
    });
  }
  return environment;
}

async function readRegistrationValues(environment: Environment, problems: ConfigProblem[]): Promise<Record<string, string>> {
  const path = environment['MATRIX_REGISTRATION_FILE'];
  if (path === undefined || path === '') return {};
  const fail = (fault: string, remedy: string) => {
    problems.push({ name: 'MATRIX_REGISTRATION_FILE', message: `MATRIX_REGISTRATION_FILE ${fault}.`, remedy });
    return {};
  };
  const text = await readText(path);
  if (!text.ok)
    return fail(`names ${path}, which cannot be read (${text.error})`, 'Correct the path, or make one with `matrix-oracle init`.');
  const registration = readRegistration(text.value);
  if (!registration.ok) {
    return fail(`names ${path}, which is no registration: ${registration.error.faults.join('; ')}`, 'Make one with `matrix-oracle init`.');
  }
  const { as_token, hs_token, id, sender_localpart } = registration.value;
  const account = readAccount(registration.value);
  return {
    MATRIX_AS_TOKEN: as_token,
    MATRIX_HS_TOKEN: hs_token,
    MATRIX_REGISTRATION_ID: id,
    MATRIX_SENDER_LOCALPART: sender_localpart,
    ...(account === undefined ? {} : { MATRIX_SERVER_NAME: account.serverName, MATRIX_ORACLE_LOCALPART: account.localpart }),
  };
}

/** Of the form that buildRegistration writes; an operator's own pattern says nothing, and MATRIX_SERVER_NAME must be set. */
const OWN_NAMESPACE = /^\^@(?<localpart>.+)\(_\.\*\)\?:(?<serverName>.+)\$$/u;
function readAccount({ namespaces }: Registration): { localpart: string; serverName: string } | undefined {
  const groups = namespaces.users.length === 1 ? OWN_NAMESPACE.exec(namespaces.users[0]?.regex ?? '')?.groups : undefined;
  if (groups === undefined) return undefined;
  const unescaped = (text = '') => text.replace(/\\(?<sign>.)/gu, '$<sign>');
  return { localpart: unescaped(groups['localpart']), serverName: unescaped(groups['serverName']) };
}

async function readKeyValues(environment: Environment, problems: ConfigProblem[]): Promise<Record<string, string>> {
  const fromFile = await readFileKey(environment, problems);
  const words = environment['SIGNING_MNEMONIC'];
  // Words that are none have a problem of their own in src/config.ts.
  const fromWords = words === undefined || words.trim() === '' ? undefined : keyFromMnemonic(words);
  if (fromFile !== undefined && fromWords !== undefined && fromFile.did !== fromWords.did) {
    problems.push({
      name: 'SIGNING_MNEMONIC',
      message: 'SIGNING_MNEMONIC gives another key than ORACLE_KEY_FILE (by default `oracle.key` in DATA_DIR).',
      remedy: 'Leave SIGNING_MNEMONIC out, or move the key file away.',
    });
    return {};
  }
  const key = fromWords ?? fromFile;
  const asked = environment['ORACLE_DID'];
  // A did:ixo names its keys in its document, so only a did:key can contradict the key.
  if (key === undefined || (asked !== undefined && !asked.startsWith('did:key:'))) return {};
  return { ORACLE_DID: key.did };
}

async function readFileKey(environment: Environment, problems: ConfigProblem[]): Promise<SigningKey | undefined> {
  const given = environment['ORACLE_KEY_FILE'];
  const path = given ?? dataPaths(environment['DATA_DIR'] ?? './data').key;
  if (path === '') return undefined;
  const text = await readText(path);
  const fail = (fault: string) => {
    problems.push({
      name: 'ORACLE_KEY_FILE',
      message: `ORACLE_KEY_FILE ${given === undefined ? '(by default)' : 'names'} ${path}, which ${fault}.`,
      remedy: 'Correct the path, or make a key with `matrix-oracle init` or `matrix-oracle mint key --out <file>`.',
    });
    return undefined;
  };
  if (!text.ok) return given === undefined && text.error === 'ENOENT' ? undefined : fail(`cannot be read (${text.error})`);
  const key = readKeyFile(text.value);
  return key.ok ? key.value : fail('is no Ed25519 key');
}

function planContradictions(environment: Environment, fromFiles: Readonly<Record<string, string>>): ConfigProblem[] {
  return Object.entries(fromFiles)
    .filter(([name, value]) => environment[name] !== undefined && environment[name] !== value)
    .map(([name]) => {
      const source =
        name !== 'ORACLE_DID' ? 'MATRIX_REGISTRATION_FILE' : environment['SIGNING_MNEMONIC'] ? 'SIGNING_MNEMONIC' : 'the key file';
      return { name, message: `${name} differs from what ${source} says.`, remedy: `Leave ${name} out, or correct ${source}.` };
    });
}

async function readText(path: string): Promise<Result<string, string>> {
  try {
    return ok(await readFile(path, 'utf8'));
  } catch (error) {
    return err(error instanceof Error && 'code' in error ? String(error.code) : 'unreadable');
  }
}
