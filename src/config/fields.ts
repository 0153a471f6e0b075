/**
 * Every setting of the oracle, once: name, meaning with unit, type, default, and whether it is secret. docs/configuration.md and
 * .env.example are generated from this table, so that what is documented is what is read.
 * Names of the IXO oracle family keep their meaning (MATRIX_BASE_URL, ORACLE_*, LLM_PROVIDER, PORT, CORS_ORIGIN …).
 */
import { z } from 'zod';
import * as kind from './field-kinds.ts';

export const GROUPS = ['Matrix', 'Encryption', 'Oracle', 'Access', 'Model', 'Plugins', 'Listeners', 'Behaviour', 'Logs'] as const;
export interface FieldMeta {
  readonly group: (typeof GROUPS)[number];
  /** Meaning and unit; one or two sentences. */
  readonly description: string;
  /** Completes "Set NAME to …". */
  readonly expects: string;
  /** As written in the environment. */
  readonly default?: string;
  /** What holds when it is left out and there is no fixed default; completes "Left out: …". */
  readonly leftOut?: string;
  readonly secret?: true;
  /** In .env.example; made up. */
  readonly example?: string;
}

export const fieldMeta = z.registry<FieldMeta>();

/** Gives the schema its default (as text, so that it passes the same checks) and its row of the docs. */
function required<T extends z.ZodType>(schema: T, meta: FieldMeta): T {
  fieldMeta.add(schema, meta);
  return schema;
}
function optional<T extends z.ZodType>(schema: T, meta: FieldMeta & { leftOut: string }) {
  const result = schema.optional();
  fieldMeta.add(result, meta);
  return result;
}
function defaulted<T extends z.ZodType<unknown, string>>(schema: T, meta: FieldMeta & { default: string }) {
  const result = schema.prefault(meta.default as z.input<T>);
  fieldMeta.add(result, meta);
  return result;
}

const DAY_S = 24 * 60 * 60;

export const configSchema = z.object({
  MATRIX_BASE_URL: required(kind.httpUrl(), {
    group: 'Matrix',
    description: 'Where the homeserver offers its client-server API to the oracle.',
    expects: 'the address of the homeserver, such as http://127.0.0.1:8008',
    example: 'http://127.0.0.1:8008',
  }),
  MATRIX_SERVER_NAME: required(kind.serverName(), {
    group: 'Matrix',
    description: 'The `server_name` of the homeserver: what stands after the colon in user ids.',
    expects: 'the server_name of homeserver.yaml',
    leftOut: 'read from MATRIX_REGISTRATION_FILE, when that was written by `matrix-oracle init`',
    example: 'example.org',
  }),
  MATRIX_REGISTRATION_FILE: optional(kind.text(4_096), {
    group: 'Matrix',
    description: 'The registration file that the homeserver has too; gives MATRIX_AS_TOKEN, MATRIX_HS_TOKEN and the accounts.',
    expects: 'the path of the registration file',
    leftOut: 'both tokens must be given as variables',
    example: './data/registration.yaml',
  }),
  MATRIX_AS_TOKEN: required(kind.token(), {
    group: 'Matrix',
    description: '`as_token` of the registration: the oracle proves itself to the homeserver with it.',
    expects: 'the as_token of the registration file (or set MATRIX_REGISTRATION_FILE instead)',
    leftOut: 'read from MATRIX_REGISTRATION_FILE',
    secret: true,
  }),
  MATRIX_HS_TOKEN: required(kind.token(), {
    group: 'Matrix',
    description: '`hs_token` of the registration: the homeserver proves itself to the oracle with it.',
    expects: 'the hs_token of the registration file (or set MATRIX_REGISTRATION_FILE instead)',
    leftOut: 'read from MATRIX_REGISTRATION_FILE',
    secret: true,
  }),
  MATRIX_REGISTRATION_ID: defaulted(kind.matching(/^[A-Za-z0-9._~-]{1,255}$/u, 'is not the id of a registration'), {
    group: 'Matrix',
    description: '`id` of the registration: the name under which the homeserver is asked to ping the oracle.',
    expects: 'the id of the registration file',
    default: 'matrix-oracle',
  }),
  MATRIX_ORACLE_LOCALPART: defaulted(kind.localpart(), {
    group: 'Matrix',
    description: "Local part of the oracle's own account, a user of the registration's namespace.",
    expects: 'a local part, without @ and server',
    default: 'oracle',
  }),
  MATRIX_SENDER_LOCALPART: defaulted(kind.localpart(), {
    group: 'Matrix',
    description:
      '`sender_localpart` of the registration: an account nobody uses. It must not be MATRIX_ORACLE_LOCALPART, because Synapse refuses `/sync` to it.',
    expects: 'the sender_localpart of the registration file',
    default: '_oracle_as',
  }),
  MATRIX_DEVICE_ID: defaulted(kind.deviceId(), {
    group: 'Matrix',
    description:
      "Device of the oracle's account that sends; the one that reconciles is this with an `R` behind it. Keep it: what was sent is deduplicated per device.",
    expects: 'up to 60 letters, digits, _ or -',
    default: 'ORACLE',
  }),
  CRYPTO_TRUST: defaulted(kind.cryptoTrust(), {
    group: 'Encryption',
    description:
      'Whose encrypted messages are obeyed. `any`: everybody whose account may use the oracle; `cross-signed`: only devices that their owner has verified, and nothing that is not encrypted in an encrypted room.',
    expects: 'any or cross-signed',
    default: 'any',
  }),
  CRYPTO_VERIFY: defaulted(kind.onOff(), {
    group: 'Encryption',
    description: 'Whether the oracle answers emoji verification that is started by people who may use it.',
    expects: 'auto or off',
    default: 'auto',
  }),
  CRYPTO_TRANSPORT: defaulted(kind.cryptoTransport(), {
    group: 'Encryption',
    description:
      'How keys reach the oracle. `sync`: by a long poll of its own device, which loses nothing; `appservice`: in transactions, for homeservers that refuse `/sync` to application services. Keys that arrive while the oracle is away are lost there.',
    expects: 'sync or appservice',
    default: 'sync',
  }),
  CRYPTO_KEY_FILE: optional(kind.text(4_096), {
    group: 'Encryption',
    description: 'File with the 32-byte key that encrypts the key store (mode 0600). It is made when it is not there.',
    expects: 'a file that the oracle may read',
    leftOut: 'crypto.key in DATA_DIR',
  }),
  CRYPTO_IDENTITY_FILE: optional(kind.text(4_096), {
    group: 'Encryption',
    description:
      "File with the private keys of the oracle's cross-signing identity (mode 0600): what people verified. Back it up; it is made when the account has no identity yet.",
    expects: 'a file that the oracle may read and write',
    leftOut: 'crypto-identity.json in DATA_DIR',
  }),
  ORACLE_NAME: defaulted(kind.text(100), {
    group: 'Oracle',
    description: 'What the oracle calls itself: display name of its account and name in its prompt.',
    expects: 'a name of up to 100 characters',
    default: 'Oracle',
  }),
  ORACLE_DID: required(kind.did(), {
    group: 'Oracle',
    description: "The oracle's DID: the audience that every invocation must name.",
    expects: 'a DID, or ORACLE_KEY_FILE to the key it is derived from (`matrix-oracle init` makes one)',
    leftOut: 'the did:key of ORACLE_KEY_FILE',
    example: 'did:key:z6Mk…',
  }),
  ORACLE_ENTITY_DID: optional(kind.did(), {
    group: 'Oracle',
    description: 'DID of the on-chain entity of this oracle; only shown to clients.',
    expects: 'a DID',
    leftOut: 'sessions show ORACLE_DID in its place, notices none',
  }),
  ORACLE_KEY_FILE: optional(kind.text(4_096), {
    group: 'Oracle',
    description: "The oracle's Ed25519 key (PKCS #8 PEM, mode 0600).",
    expects: 'the path of the key file',
    leftOut: '`oracle.key` in DATA_DIR',
  }),
  SIGNING_MNEMONIC: optional(kind.mnemonic(), {
    group: 'Oracle',
    description:
      'Words the signing key of the oracle is derived from (seed = SHA-256 of the trimmed text), as other oracles of the IXO family keep it; instead of ORACLE_KEY_FILE.',
    expects: 'the words of the mnemonic',
    leftOut: 'the key of ORACLE_KEY_FILE signs',
    secret: true,
  }),
  DATA_DIR: defaulted(kind.text(4_096), {
    group: 'Oracle',
    description: 'Folder of the database and the checkpoints (mode 0700). One process at a time; disk encryption is yours.',
    expects: 'a folder that the oracle may write',
    default: './data',
  }),
  PUBLIC_URL: optional(kind.httpUrl(), {
    group: 'Oracle',
    description: 'Where people reach the sidecar from outside. Links in notices start with it.',
    expects: 'an address such as https://oracle.example.org',
    leftOut: 'notices hold no links and say "ask the operator"',
    example: 'https://oracle.example.org',
  }),
  ACCESS: defaulted(kind.access(), {
    group: 'Access',
    description:
      'Who may use the oracle at all. `own-server`: accounts on TRUSTED_HOMESERVERS; `allowed`: ALLOWED_USERS; `granted`: DIDs named with `matrix-oracle grant-use`; `open`: everybody.',
    expects: 'own-server, allowed, granted or open',
    default: 'own-server',
  }),
  ALLOWED_USERS: defaulted(kind.userGlobs(), {
    group: 'Access',
    description:
      'With ACCESS=allowed: accounts that may use the oracle, comma-separated. `*` and `?` are wildcards in the name, never in the server part.',
    expects: 'accounts such as @alice:example.org,@team-*:example.org',
    default: '',
  }),
  TRUSTED_HOMESERVERS: optional(kind.serverNames(), {
    group: 'Access',
    description: 'Servers whose word about their own accounts counts, comma-separated. Unsigned users are accepted from these only.',
    expects: 'server names such as example.org,matrix.example.com',
    leftOut: 'the own server, MATRIX_SERVER_NAME',
  }),
  UNSIGNED_USERS: defaulted(kind.userGlobs(), {
    group: 'Access',
    description:
      'Accounts that may chat without signing their messages (tier `listed`), comma-separated; same form as ALLOWED_USERS. Their homeserver can speak for them.',
    expects: 'accounts such as @alice:example.org,@*:example.org',
    default: '',
  }),
  BLOCKSYNC_GRAPHQL_URL: optional(kind.httpUrl(), {
    group: 'Access',
    description: 'GraphQL address of the Blocksync indexer: where the keys of did:ixo identities are looked up.',
    expects: 'an address such as https://blocksync-graphql.ixo.earth/graphql',
    leftOut: 'people with a did:ixo cannot sign, and are told so',
    example: 'https://blocksync-graphql.ixo.earth/graphql',
  }),
  GRANT_ABILITIES: defaulted(kind.abilities(), {
    group: 'Access',
    description:
      'What the authorise page offers people to grant, besides chatting and what the loaded tools declare: `<ability> <resource>`, comma-separated.',
    expects: 'entries such as memory/* ixo:memory,fs/read ixo:filesystem',
    default: '',
  }),
  REUSABLE_SERVICES: defaulted(kind.dids(), {
    group: 'Access',
    description:
      'Services (did:web) that accept one invocation more than once, comma-separated: for these, minted invocations are kept until they end.',
    expects: 'DIDs such as did:web:memory.example.org',
    default: '',
  }),
  HTTP_LEGACY_AUTH: defaulted(kind.flag(), {
    group: 'Access',
    description:
      'Accepts at the sidecar the bearer invocations of older IXO portals (`{can:*, with:ixo:oracle}`, up to 900 s, not bound to a request): tier sender-bound at most.',
    expects: 'true or false',
    default: 'false',
  }),
  RATE_LIMIT: defaulted(kind.integer(1, 100_000), {
    group: 'Access',
    description: 'Turns per RATE_LIMIT_WINDOW_S and person; counted per DID and per Matrix account.',
    expects: 'a number of turns between 1 and 100000',
    default: '10',
  }),
  RATE_LIMIT_WINDOW_S: defaulted(kind.integer(1, DAY_S), {
    group: 'Access',
    description: 'Window of RATE_LIMIT, in seconds.',
    expects: 'seconds between 1 and 86400',
    default: '60',
  }),
  LLM_PROVIDER: defaulted(kind.choice(['openai', 'openai-compatible', 'openrouter', 'ollama']), {
    group: 'Model',
    description:
      'Provider of models that are named without one (`[provider:]model`). Every server with OpenAI chat completions is `openai-compatible`: set OPENAI_BASE_URL to it.',
    expects: 'openai, openai-compatible, openrouter or ollama',
    default: 'openai-compatible',
  }),
  OPENAI_BASE_URL: defaulted(kind.httpUrl(), {
    group: 'Model',
    description: 'Address of the chat completions API, up to and with its version.',
    expects: 'an address such as http://127.0.0.1:11434/v1',
    default: 'https://api.openai.com/v1',
  }),
  OPENAI_API_KEY: optional(kind.apiKey(), {
    group: 'Model',
    description: 'Key for OPENAI_BASE_URL.',
    expects: 'the key that the provider of OPENAI_BASE_URL gave you',
    leftOut: 'none is sent; only right for servers that need none',
    secret: true,
  }),
  OPENROUTER_BASE_URL: defaulted(kind.httpUrl(), {
    group: 'Model',
    description: 'Address of OpenRouter, for models of the provider `openrouter`.',
    expects: 'an address such as https://openrouter.ai/api/v1',
    default: 'https://openrouter.ai/api/v1',
  }),
  OPENROUTER_API_KEY: optional(kind.apiKey(), {
    group: 'Model',
    description: 'Key for OPENROUTER_BASE_URL.',
    expects: 'the key that OpenRouter gave you',
    leftOut: 'models of the provider `openrouter` cannot be used',
    secret: true,
  }),
  OLLAMA_BASE_URL: defaulted(kind.httpUrl(), {
    group: 'Model',
    description: 'Address of Ollama, for models of the provider `ollama`.',
    expects: 'an address such as http://127.0.0.1:11434/v1',
    default: 'http://127.0.0.1:11434/v1',
  }),
  MODEL_MAIN: required(kind.text(200), {
    group: 'Model',
    description: 'Model of the role `main`, the one that answers, under the name OPENAI_BASE_URL knows it by.',
    expects: 'a model name that OPENAI_BASE_URL lists under /models',
    example: 'gpt-5-mini',
  }),
  MODEL_CONTEXT_TOKENS: defaulted(kind.integer(2_000, 10_000_000), {
    group: 'Model',
    description: 'How many tokens the model of the role `main` takes in one request. What does not fit is summarised or left out.',
    expects: 'a number between 2000 and 10000000',
    default: '128000',
  }),
  MODELS_SELECTABLE: defaulted(kind.names(), {
    group: 'Model',
    description: 'Further models that a client may ask for by name, comma-separated; `GET /models` lists them.',
    expects: 'model names that OPENAI_BASE_URL knows, comma-separated',
    default: '',
  }),
  MODEL_IDLE_TIMEOUT_S: defaulted(kind.integer(1, 3_600), {
    group: 'Model',
    description: 'A model that sends nothing for so many seconds is given up.',
    expects: 'seconds between 1 and 3600',
    default: '60',
  }),
  FEATURES: defaulted(kind.names(), {
    group: 'Plugins',
    description:
      'Plugins switched `on` (the start fails when one cannot work) or `off`, as `<plugin>=<on|off|auto>`, comma-separated. The others decide by themselves; `matrix-oracle plugins` shows which are loaded and why.',
    expects: 'entries such as memory=off,mcp=on',
    default: '',
  }),
  PLUGINS: defaulted(kind.names(), {
    group: 'Plugins',
    description:
      'Further plugins, by npm package name or path, comma-separated. They run with the rights of the oracle: only name code you trust.',
    expects: 'names or paths such as matrix-oracle-plugin-weather,./my-plugin.js',
    default: '',
  }),
  SECRETS_KEY_FILE: optional(kind.text(4_096), {
    group: 'Plugins',
    description: 'File with the P-256 private key (JWK or PKCS#8 PEM) to which people encrypt the secrets of a room.',
    expects: 'a file that the oracle may read',
    leftOut: 'plugins see the names of secrets but no values',
  }),
  APPSERVICE_HOST: defaulted(kind.matching(/^[0-9A-Za-z.:-]{1,255}$/u, 'is not an address'), {
    group: 'Listeners',
    description: 'Address on which transactions and pings of the homeserver are taken.',
    expects: 'an address such as 127.0.0.1 or 0.0.0.0',
    default: '127.0.0.1',
  }),
  APPSERVICE_PORT: defaulted(kind.port(), {
    group: 'Listeners',
    description: 'Port of that listener; `url` of the registration must lead to it. 0 takes a free one.',
    expects: 'a port between 0 and 65535',
    default: '9993',
  }),
  HOST: defaulted(kind.matching(/^[0-9A-Za-z.:-]{1,255}$/u, 'is not an address'), {
    group: 'Listeners',
    description: 'Address of the sidecar, the HTTP API for portals.',
    expects: 'an address such as 127.0.0.1 or 0.0.0.0',
    default: '127.0.0.1',
  }),
  PORT: defaulted(kind.port(), {
    group: 'Listeners',
    description: 'Port of the sidecar. 0 takes a free one.',
    expects: 'a port between 0 and 65535',
    default: '3000',
  }),
  METRICS_PORT: defaulted(kind.port(), {
    group: 'Listeners',
    description: 'Port of the Prometheus metrics, always on 127.0.0.1. 0 takes a free one.',
    expects: 'a port between 0 and 65535',
    default: '9464',
  }),
  CORS_ORIGIN: defaulted(kind.origins(), {
    group: 'Listeners',
    description: 'Web origins that may call the sidecar from a browser, comma-separated; `*` is every one.',
    expects: 'origins such as https://portal.example.org, or *',
    default: '',
  }),
  TRUSTED_PROXIES: defaulted(kind.addressRanges(), {
    group: 'Listeners',
    description:
      'Addresses of reverse proxies in front of the sidecar, comma-separated. Limits per address count what these say in `X-Forwarded-For`, which the proxy must set; without it everybody behind the proxy is one address.',
    expects: 'IP addresses or ranges such as 127.0.0.1,10.0.0.0/8',
    default: '127.0.0.0/8,::1',
  }),
  MAX_CONCURRENT_RUNS: defaulted(kind.integer(1, 1_000), {
    group: 'Behaviour',
    description: 'Answers that are made at the same time; further ones wait in order.',
    expects: 'a number between 1 and 1000',
    default: '32',
  }),
  RUN_DEADLINE_S: defaulted(kind.integer(1, DAY_S), {
    group: 'Behaviour',
    description: 'An answer that is not finished after so many seconds is ended with RUN_DEADLINE.',
    expects: 'seconds between 1 and 86400',
    default: '300',
  }),
  MAX_EVENT_LATENESS_S: defaulted(kind.integer(1, 7 * DAY_S), {
    group: 'Behaviour',
    description: 'A message that reaches the oracle later than this many seconds after it was sent gets no answer but TOO_LATE.',
    expects: 'seconds between 1 and 604800',
    default: '900',
  }),
  RECONCILE_INTERVAL_S: defaulted(kind.integer(1, 3_600), {
    group: 'Behaviour',
    description: 'Seconds between two looks for events that the homeserver failed to push.',
    expects: 'seconds between 1 and 3600',
    default: '60',
  }),
  RETENTION_DAYS: defaulted(kind.integer(1, 3_650), {
    group: 'Behaviour',
    description: 'Days for which ids of handled events are remembered; an event older than that is never admitted.',
    expects: 'days between 1 and 3650',
    default: '30',
  }),
  CONTEXT_MESSAGES: defaulted(kind.integer(1, 1_000), {
    group: 'Behaviour',
    description: 'Messages of the conversation that the model is shown, the newest that fit.',
    expects: 'a number between 1 and 1000',
    default: '40',
  }),
  BOT_HOP_BUDGET: defaulted(kind.integer(0, 1_000), {
    group: 'Behaviour',
    description:
      'Turns of one account in one room without a pause of two seconds after which it is taken for a bot and no longer answered, until it pauses. 0 switches the rule off.',
    expects: 'a number of turns between 0 and 1000',
    default: '12',
  }),
  COMMAND_PREFIX: defaulted(kind.matching(/^[!/.][a-z0-9_-]{1,31}$/u, 'is not a sign (! / .) and lower-case letters'), {
    group: 'Behaviour',
    description: 'In a group, a message that starts with this word is for the oracle.',
    expects: 'a word such as !oracle',
    default: '!oracle',
  }),
  DISABLE_CREDITS: defaulted(kind.flag(), {
    group: 'Behaviour',
    description: 'Skips the balance check. Without a credits plugin there is none to skip.',
    expects: 'true or false',
    default: 'false',
  }),
  LOG_LEVEL: defaulted(kind.choice(['debug', 'info', 'warn', 'error', 'silent']), {
    group: 'Logs',
    description: 'The least important kind of line that is written.',
    expects: 'debug, info, warn, error or silent',
    default: 'info',
  }),
  LOG_FORMAT: defaulted(kind.choice(['auto', 'json', 'pretty']), {
    group: 'Logs',
    description: '`json`: one object a line; `pretty`: for people; `auto`: pretty in a terminal, else json.',
    expects: 'auto, json or pretty',
    default: 'auto',
  }),
});
