/**
 * The first five minutes of an operator: everything that must match between homeserver and oracle is made here in one go, with random tokens.
 * Nothing that exists is overwritten: a second `init` that silently replaced the key would give the oracle another DID, and every client that
 * names the old one would be refused. With `--force` the old files stay beside the new ones.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { buildRegistration, registrationYaml } from '../../../appservice/registration.ts';
import { describeConfig, type Environment, readConfig } from '../../config.ts';
import { buildKeyFile, generateKey } from '../../ucan/signing-key.ts';
import { dataPaths } from '../data-paths.ts';
import { CliError, configError } from './cli-error.ts';
import { exists, freeName } from './free-name.ts';

export interface InitOptions {
  readonly serverName: string;
  readonly homeserver: string;
  readonly url: string;
  readonly data: string;
  readonly localpart: string;
  readonly model?: string;
  readonly modelUrl?: string;
  /** CRYPTO_TRANSPORT. */
  readonly keys: 'sync' | 'appservice';
  readonly force: boolean;
}
interface NewFile {
  readonly path: string;
  readonly text: string;
}

const TOKEN_BYTES = 32;
const newToken = (): string => randomBytes(TOKEN_BYTES).toString('hex');

export async function runInit(options: InitOptions): Promise<void> {
  const paths = dataPaths(options.data);
  const key = generateKey();
  const asToken = newToken();
  const hsToken = newToken();
  checkOptions(options, { MATRIX_AS_TOKEN: asToken, MATRIX_HS_TOKEN: hsToken, ORACLE_DID: key.did });
  const registration = buildRegistration({
    url: options.url.replace(/\/+$/u, ''),
    asToken,
    hsToken,
    serverName: options.serverName.toLowerCase(),
    localpart: options.localpart,
    keys: options.keys,
  });
  const files: NewFile[] = [
    { path: paths.registration, text: registrationYaml(registration) },
    { path: paths.key, text: buildKeyFile(key) },
    { path: resolve('.env'), text: buildEnvFile(options, paths.registration) },
  ];
  await mkdir(paths.dir, { recursive: true, mode: 0o700 });
  await makeRoom(files, options.force);
  for (const { path, text } of files) await writeFile(path, text, { mode: 0o600, flag: 'wx' });
  process.stdout.write(buildReport({ files, did: key.did, registrationFile: paths.registration, options }));
}

/** The settings must be ones that `start` takes: a typing error is said now, not at the first start. */
function checkOptions(options: InitOptions, secrets: Environment): void {
  const url = URL.parse(options.url);
  if (url === null || !/^https?:$/u.test(url.protocol)) throw new CliError('--url is not an http:// or https:// address.');
  const read = readConfig({
    ...secrets,
    MATRIX_BASE_URL: options.homeserver,
    MATRIX_SERVER_NAME: options.serverName,
    MATRIX_ORACLE_LOCALPART: options.localpart,
    MODEL_MAIN: options.model ?? 'chosen-later',
    OPENAI_BASE_URL: options.modelUrl ?? 'https://example.invalid/v1',
    ...listenerOf(options.url),
  });
  if (!read.ok) throw configError(read.error);
}

/** What the listener must be for the homeserver to reach it at `url`: a name that is not loopback needs an address others can reach. */
function listenerOf(url: string): { APPSERVICE_HOST?: string; APPSERVICE_PORT?: string } {
  const { hostname = '', port = '' } = URL.parse(url) ?? {};
  const loopback = hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
  return { ...(loopback ? {} : { APPSERVICE_HOST: '0.0.0.0' }), ...(port === '' || port === '9993' ? {} : { APPSERVICE_PORT: port }) };
}

function buildEnvFile(options: InitOptions, registrationFile: string): string {
  const path = relative('.', registrationFile);
  const lines = [
    '# Written by `matrix-oracle init`. Every setting: docs/configuration.md',
    `MATRIX_BASE_URL=${options.homeserver}`,
    `MATRIX_SERVER_NAME=${options.serverName.toLowerCase()}`,
    `MATRIX_REGISTRATION_FILE=${quote(path.startsWith('..') ? registrationFile : path)}`,
    ...(options.data === './data' ? [] : [`DATA_DIR=${quote(options.data)}`]),
    ...(options.keys === 'sync' ? [] : [`CRYPTO_TRANSPORT=${options.keys}`]),
    ...Object.entries(listenerOf(options.url)).map(([name, value]) => `${name}=${value}`),
    '',
    '# The model that answers: any server with OpenAI chat completions',
    options.modelUrl === undefined ? '# OPENAI_BASE_URL=https://api.openai.com/v1' : `OPENAI_BASE_URL=${options.modelUrl}`,
    '# OPENAI_API_KEY=',
    options.model === undefined ? '# MODEL_MAIN=' : `MODEL_MAIN=${quote(options.model)}`,
    '',
    '# Where people reach the sidecar: links to authorise the oracle start with it. Others than you need an https:// address that leads to its PORT',
    `PUBLIC_URL=http://127.0.0.1:${defaultPort()}`,
    '',
    '# Accounts that may chat from ordinary clients, without signing',
    `# UNSIGNED_USERS=@*:${options.serverName.toLowerCase()}`,
    '',
  ];
  return lines.join('\n');
}

/** Of the sidecar, as long as PORT is not set. */
const defaultPort = (): string | undefined => describeConfig().find(({ name }) => name === 'PORT')?.default;

const quote = (text: string): string => (/^[\w./:@-]+$/u.test(text) ? text : `'${text}'`);

async function makeRoom(files: readonly NewFile[], force: boolean): Promise<void> {
  const taken: string[] = [];
  for (const { path } of files) if (await exists(path)) taken.push(path);
  if (taken.length === 0) return;
  if (!force) {
    throw new CliError(
      `${taken.map((path) => relative('.', path)).join(', ')} ${taken.length === 1 ? 'is' : 'are'} there already and nothing was changed. ` +
        'Use another --data folder or working directory, or --force to replace them (the old files are kept beside).',
    );
  }
  for (const path of taken) await rename(path, await freeName(path));
}

/** What Synapse needs beside the flags of the registration. */
const KEYS_IN_TRANSACTIONS = `experimental_features:
  msc2409_to_device_messages_enabled: true
  msc3202_transaction_extensions: true
`;

function buildReport({
  files,
  did,
  registrationFile,
  options,
}: {
  files: readonly NewFile[];
  did: string;
  registrationFile: string;
  options: InitOptions;
}): string {
  const account = `@${options.localpart}:${options.serverName.toLowerCase()}`;
  return `Written (mode 0600):
${files.map(({ path }) => `  ${join(relative('.', path))}`).join('\n')}
The oracle's DID is ${did}

1. Add this to homeserver.yaml (where the homeserver can read the file; copy it if it runs elsewhere) and restart the homeserver:

app_service_config_files:
  - ${registrationFile}
${options.keys === 'sync' ? '' : KEYS_IN_TRANSACTIONS}
2. ${options.model === undefined ? 'Set MODEL_MAIN (and OPENAI_BASE_URL, OPENAI_API_KEY) in .env' : 'Set OPENAI_API_KEY in .env if the model needs a key'}, UNSIGNED_USERS for accounts that do not sign,
   and PUBLIC_URL to where people reach the sidecar (as written it is for trying it on this machine).
3. Run \`matrix-oracle start\`, then \`matrix-oracle doctor\` beside it (in a clone: \`npm run oracle -- start\`, \`npm run oracle -- doctor\`).
4. Invite ${account} into a direct chat.
`;
}
