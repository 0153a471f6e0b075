/**
 * Starts homeserver, model and oracle and brings a person into a room with it; what was started is stopped again also when a later step fails,
 * because a newcomer's first failure must not leave a homeserver running on their machine. The second start must be quick, so what does not
 * depend on another part starts beside it, and the oracle's modules load while Synapse does.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import { buildRegistration } from '../../../../appservice/registration.ts';
import { getSynapse } from '../../../../synapse-dev/homeserver/get-synapse.ts';
import { SetupError } from '../../../../synapse-dev/homeserver/setup-problem.ts';
import { type Homeserver, startSynapse } from '../../../../synapse-dev/homeserver/start-synapse.ts';
import { startModelServerProcess } from '../../../../synapse-dev/model/process.ts';
import { describeConfig, type Environment, readConfig, readEnvironment } from '../../../config.ts';
import { createLogger } from '../../../observe/logger.ts';
import { systemClock } from '../../../system-clock.ts';
import type { Oracle } from '../../main.ts';
import { type CliError, configError } from '../cli-error.ts';
import { chooseModel, type ModelChoice } from './choose-model.ts';
import { choosePorts } from './choose-ports.ts';
import type { DemoFolder, DemoPorts } from './demo-folder.ts';
import { orAborted } from './or-aborted.ts';
import { enterRoom, PERSON, type Person, signIn } from './person.ts';

export interface Demo {
  readonly homeserver: Homeserver;
  readonly oracle: Oracle;
  readonly sidecarUrl: string;
  readonly model: { readonly name: string; readonly baseUrl: string; readonly own: boolean };
  readonly person: Person;
  /** Since `startDemo` was called. */
  readonly readyMs: number;
}
export interface StartDemoOptions {
  readonly folder: DemoFolder;
  readonly port: number | undefined;
  readonly encrypted: boolean;
  readonly progress: (line: string) => void;
  readonly signal: AbortSignal;
  /** What happened in the background makes going on impossible. */
  readonly onFatal: (error: CliError) => void;
  /** Takes what must be undone, in the order in which it came to be. */
  readonly cleanup: AsyncDisposableStack;
}

const SERVER_NAME = 'oracle.local';
/** Name under which the demo model lists itself. */
const DEMO_MODEL = 'demo';
/** A person who tries things out, or a script with many --say, is not a flood. */
const RATE_LIMIT = '1000';

export async function startDemo(options: StartDemoOptions): Promise<Demo> {
  const { folder, encrypted, signal, cleanup, progress, onFatal } = options;
  const began = systemClock.monotonic();
  const environment = readEnvironment();
  const choice = await chooseModel(environment, signal);
  const ports = await keepPorts(options);
  const install = await getSynapse({ onProgress: progress, signal });
  if (!install.ok) throw new SetupError(install.error);
  signal.throwIfAborted();

  progress(`starting Synapse on port ${ports.homeserver}`);
  const registration = buildRegistration({
    url: `http://127.0.0.1:${ports.appservice}`,
    asToken: folder.state.asToken,
    hsToken: folder.state.hsToken,
    serverName: SERVER_NAME,
  });
  const [homeserver, model, openPersonClient] = await allOrThrow([
    startSynapse({
      install: install.value,
      dir: folder.synapseDir,
      port: ports.homeserver,
      serverName: SERVER_NAME,
      registrations: [registration],
    }).then((started) => {
      cleanup.defer(() => started.close());
      return started;
    }),
    startModel(choice, cleanup),
    import('./person-client.ts').then(async (loaded) => {
      await loaded.loadEngine();
      return loaded.openPersonClient;
    }),
    // Only so that they are loaded when the homeserver is there.
    import('../../main.ts'),
    import('../../work.ts'),
    import('../../../../appservice/crypto/open-crypto.ts'),
  ]);
  signal.throwIfAborted();

  progress(`starting the oracle, its log is ${folder.oracleLog}`);
  const settings = { ...choosePluginSettings(environment), ...buildSettings({ folder, homeserver, ports, model }) };
  const oracle = await startOracleWithLog({ settings, folder, cleanup });
  const up = Promise.all([oracle.sidecarUrl, oracle.ready]);
  // Looked at below; a failure that comes while the person signs in must not end the process before everything is stopped.
  up.catch(() => undefined);
  const session = await signIn(homeserver, folder);
  const client = await openPersonClient(
    { baseUrl: homeserver.baseUrl, ...session },
    { file: folder.personStore(session.deviceId), onFatal, cleanup },
  );
  const [sidecarUrl] = await orAborted(up, signal);

  if (!folder.known) progress(`inviting ${oracle.userId} into ${encrypted ? 'an encrypted' : 'a'} direct room`);
  const person = await orAborted(enterRoom({ client, encrypted, folder, oracle: oracle.userId, oracleDid: folder.oracleKey.did }), signal);
  return { homeserver, oracle, sidecarUrl, model, person, readyMs: Math.round(systemClock.monotonic() - began) };
}

async function keepPorts({ folder, port, progress }: StartDemoOptions): Promise<DemoPorts> {
  const kept = folder.state.ports;
  const ports = await choosePorts(kept, port);
  if (kept !== undefined && port === undefined && kept.homeserver !== ports.homeserver) {
    progress(
      `port ${kept.homeserver}, where the homeserver was, is taken by another program; it is on ${ports.homeserver} now (in Element, sign in there anew)`,
    );
  }
  await folder.keep({ ports });
  return ports;
}

/** Waits for all, so that none comes to be unseen after another has failed; then throws the first failure. */
async function allOrThrow<T extends readonly unknown[]>(started: readonly [...{ [K in keyof T]: Promise<T[K]> }]): Promise<T> {
  await Promise.allSettled(started);
  return (await Promise.all(started)) as unknown as T;
}

async function startModel(choice: ModelChoice, cleanup: AsyncDisposableStack): Promise<Demo['model'] & { apiKey?: string }> {
  if (choice.kind === 'given') {
    const { name, baseUrl, apiKey } = choice;
    return { name, baseUrl, own: false, ...(apiKey === undefined ? {} : { apiKey }) };
  }
  const server = await startModelServerProcess();
  cleanup.defer(() => server.stop());
  return { name: DEMO_MODEL, baseUrl: server.baseUrl, own: true };
}

interface SettingParts {
  readonly folder: DemoFolder;
  readonly homeserver: Homeserver;
  readonly ports: DemoPorts;
  readonly model: Demo['model'] & { readonly apiKey?: string };
}

/**
 * Whoever names plugins wants to try them here, with the plugins' own settings: what is an oracle's stays out, and nothing costs credits. Nobody else's
 * environment is looked at.
 */
function choosePluginSettings(environment: Environment): Environment {
  const { PLUGINS = '', FEATURES } = environment;
  if (PLUGINS === '') return {};
  const ofOracles = new Set(describeConfig().map(({ name }) => name));
  const own = Object.entries(environment).filter(([name]) => !ofOracles.has(name) && !/^MODEL_/u.test(name));
  return { ...Object.fromEntries(own), PLUGINS, DISABLE_CREDITS: 'true', ...(FEATURES === undefined ? {} : { FEATURES }) };
}

/** Nothing but what stands here: settings of the person's own oracle in the environment are not meant for the demo. */
function buildSettings({ folder, homeserver, ports, model }: SettingParts): Environment {
  return {
    MATRIX_BASE_URL: homeserver.baseUrl,
    MATRIX_SERVER_NAME: homeserver.serverName,
    MATRIX_AS_TOKEN: folder.state.asToken,
    MATRIX_HS_TOKEN: folder.state.hsToken,
    ORACLE_DID: folder.oracleKey.did,
    ORACLE_KEY_FILE: folder.oracleKeyFile,
    DATA_DIR: folder.oracleDir,
    UNSIGNED_USERS: `@${PERSON}:${homeserver.serverName}`,
    RATE_LIMIT,
    OPENAI_BASE_URL: model.baseUrl,
    OPENAI_API_KEY: model.apiKey,
    MODEL_MAIN: model.name,
    APPSERVICE_PORT: String(ports.appservice),
    PORT: String(ports.sidecar),
    PUBLIC_URL: `http://127.0.0.1:${ports.sidecar}`,
    METRICS_PORT: String(ports.metrics),
  };
}

interface LoggedOracle {
  readonly settings: Environment;
  readonly folder: DemoFolder;
  readonly cleanup: AsyncDisposableStack;
}
async function startOracleWithLog({ settings, folder, cleanup }: LoggedOracle): Promise<Oracle> {
  const config = readConfig(settings);
  if (!config.ok) throw configError(config.error);
  const log = openSync(folder.oracleLog, 'w', 0o600);
  cleanup.defer(() => closeSync(log));
  const logger = createLogger({ level: 'info', format: 'json', destination: { write: (line) => void writeSync(log, line) } });
  const { startOracle } = await import('../../main.ts');
  const oracle = await startOracle({ config: config.value, environment: settings, logger, clock: systemClock });
  cleanup.defer(() => oracle.stop());
  return oracle;
}
