/**
 * One homeserver.yaml for venv and Docker, for the demo, the tests and the bench. It must reach nobody but us (no key server, no federation,
 * no statistics: checked with an audit hook on sockets, Synapse 1.163.2) and must not throttle a test's users.
 */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { type Registration, registrationYaml } from '../../appservice/registration.ts';

/** The same server as Synapse itself sees it: in a container its folder and port are not the host's. */
export interface Placement {
  readonly dir: string;
  readonly bindAddress: string;
  readonly port: number;
}

export interface HomeserverYamlOptions {
  readonly serverName: string;
  readonly placement: Placement;
  /** File names inside the folder. */
  readonly registrationFiles: readonly string[];
  readonly secrets: HomeserverSecrets;
  /** Lets test users write as fast as they like; the default limits are 10 messages, then one per 5 s. */
  readonly loosenedLimits?: boolean;
  /** Off: it costs CPU and an extra transaction at each first sign of life of a user. */
  readonly presence?: boolean;
  /** Synapse's experimental features that hand an application service its device's keys; off everywhere unless somebody switches them on. */
  readonly keysInTransactions?: boolean;
  /** 4 makes logins fast and hashes weak: for servers on loopback only. */
  readonly bcryptRounds?: number;
}
export interface HomeserverSecrets {
  /** Whoever knows it may register accounts. */
  readonly registrationSharedSecret: string;
  readonly macaroonSecretKey: string;
  readonly formSecret: string;
}

const FAST = { per_second: 10_000, burst_count: 10_000 };
const LOOSENED = {
  rc_message: FAST,
  rc_registration: FAST,
  rc_login: { address: FAST, account: FAST, failed_attempts: FAST },
  rc_joins: { local: FAST, remote: FAST },
  rc_joins_per_room: FAST,
  rc_invites: { per_room: FAST, per_user: FAST, per_issuer: FAST },
  rc_room_creation: FAST,
  rc_profile: FAST,
  rc_user_directory: FAST,
  rc_media_create: FAST,
  rc_presence: { per_user: FAST },
  rc_key_requests: FAST,
  rc_admin_redaction: FAST,
};

export function buildHomeserverYaml(options: HomeserverYamlOptions): string {
  const { placement, secrets } = options;
  const inDir = (name: string) => `${placement.dir}/${name}`;
  const config = {
    server_name: options.serverName,
    pid_file: inDir('homeserver.pid'),
    listeners: [
      {
        port: placement.port,
        bind_addresses: [placement.bindAddress],
        tls: false,
        type: 'http',
        x_forwarded: false,
        resources: [{ names: ['client'], compress: false }],
      },
    ],
    database: { name: 'sqlite3', args: { database: inDir('homeserver.db') } },
    log_config: inDir(LOG_CONFIG_FILE),
    media_store_path: inDir('media'),
    signing_key_path: inDir('signing.key'),
    macaroon_secret_key: secrets.macaroonSecretKey,
    form_secret: secrets.formSecret,
    registration_shared_secret: secrets.registrationSharedSecret,
    report_stats: false,
    trusted_key_servers: [],
    suppress_key_server_warning: true,
    federation_domain_whitelist: [],
    presence: { enabled: options.presence ?? false },
    bcrypt_rounds: options.bcryptRounds ?? 4,
    app_service_config_files: options.registrationFiles.map(inDir),
    ...((options.keysInTransactions ?? false)
      ? { experimental_features: { msc2409_to_device_messages_enabled: true, msc3202_transaction_extensions: true } }
      : {}),
    ...((options.loosenedLimits ?? true) ? LOOSENED : {}),
  };
  return stringify(config, { lineWidth: 0, aliasDuplicateObjects: false });
}

const LOG_CONFIG_FILE = 'log.yaml';
export const LOG_FILE = 'homeserver.log';

export const buildLogYaml = (placement: Placement): string =>
  stringify({
    version: 1,
    formatters: { line: { format: '%(asctime)s %(levelname)s %(name)s: %(message)s' } },
    handlers: { file: { class: 'logging.FileHandler', formatter: 'line', filename: `${placement.dir}/${LOG_FILE}`, encoding: 'utf8' } },
    root: { level: 'WARNING', handlers: ['file'] },
    disable_existing_loggers: false,
  });

export interface WriteConfigOptions extends Omit<HomeserverYamlOptions, 'registrationFiles'> {
  /** The folder on this machine; kept between starts, it holds database and keys. */
  readonly dir: string;
  readonly registrations: readonly Registration[];
}

/** Only the owner may read these files: they hold tokens. */
export async function writeHomeserverConfig(options: WriteConfigOptions): Promise<void> {
  const { dir, registrations, placement } = options;
  await mkdir(dir, { recursive: true });
  const files = registrations.map((registration, index) => ({ name: `registration-${index}.yaml`, text: registrationYaml(registration) }));
  const registrationFiles = files.map(({ name }) => name);
  for (const { name, text } of [
    ...files,
    { name: LOG_CONFIG_FILE, text: buildLogYaml(placement) },
    { name: 'homeserver.yaml', text: buildHomeserverYaml({ ...options, registrationFiles }) },
  ]) {
    await writeFile(join(dir, name), text, { mode: 0o600 });
    await chmod(join(dir, name), 0o600);
  }
}
