/**
 * The oracle's key: which one signs, and how to change it when it may have been seen. Changing it wrongly costs every grant at once, so each way
 * that would is refused with what to do instead; src/ucan/rotate-key.ts does the writing in an order that survives a crash.
 */
import { createPublicKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { relative } from 'node:path';
import { readEnvironment } from '../../config.ts';
import type { Did } from '../../ids.ts';
import { isoTime } from '../../sidecar/wire/iso.ts';
import { systemClock } from '../../system-clock.ts';
import { loadOracleKeys, OLD_KEYS_FILE, readCurrentKey } from '../../ucan/oracle-keys.ts';
import { createKeyFiles, findUnusedKeys, type Rotated, rotateKey } from '../../ucan/rotate-key.ts';
import { generateKey, readKeyFile, type SigningKey } from '../../ucan/signing-key.ts';
import { type KeySettings, loadKeySettings } from '../load-config.ts';
import { CliError, configError } from './cli-error.ts';

interface KeyOptions {
  readonly settings?: string;
}

const say = (lines: readonly string[]): boolean => process.stdout.write(`${lines.join('\n')}\n`);
const day = (wallMs: number): string => isoTime(wallMs).slice(0, 10);
const shown = (path: string): string => relative('.', path) || path;

export async function runKeyShow(options: KeyOptions): Promise<void> {
  const settings = await readSettings(options);
  const now = systemClock.now();
  const did = settings.pinnedDid ?? (await currentKey(settings))?.did;
  if (did === undefined) throw new CliError(NO_KEY);
  const loaded = await loadOracleKeys({ ...settings, did });
  if (!loaded.ok) throw configError([loaded.error]);
  const { keys, warnings } = loaded.value;
  const source = settings.mnemonic === null ? shown(settings.keyFile) : 'SIGNING_MNEMONIC';
  const counting = keys.old.filter(({ until }) => now < until);
  say([
    `The oracle is ${keys.did}`,
    keys.current === null
      ? 'It has no signing key: it answers, but cannot act at other services.'
      : `It signs with ${source} (${keys.current.did})`,
    ...counting.map(({ did: old, until }) => `Grants made out to ${old} count until ${isoTime(until)}`),
    ...(await describeUnused(settings.dir, now)),
    ...warnings.map(({ message, remedy }) => `! ${message} ${remedy}`),
  ]);
}

export async function runKeyRotate(options: KeyOptions & { readonly key?: string }): Promise<void> {
  const settings = await readSettings(options);
  const current = settings.mnemonic === null ? await currentKey(settings) : null;
  const given = options.key === undefined ? null : await readGivenKey(options.key);
  const refused = decideRotation({ settings, current, given });
  if (refused !== null || current === null) throw new CliError(refused ?? NO_KEY);
  const document = settings.pinnedDid;
  if (document !== null && given !== null) await checkDocument(document, given, settings.blocksyncUrl);
  const now = systemClock.now();
  const next = given ?? generateKey();
  const rotated = await rotateKey({
    files: createKeyFiles(),
    dir: settings.dir,
    keyFile: settings.keyFile,
    current,
    next,
    changesDid: document === null,
    date: day(now),
    now,
  }).catch((cause: unknown) => {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error';
    throw new CliError(`the key was not changed: a file could not be written (${code}). Run it again when that is mended.`, { cause });
  });
  if (!rotated.ok) throw new CliError(`${OLD_KEYS_FILE} in ${settings.dir} cannot be read: restore it from a backup. Nothing was changed.`);
  say([...describeRotation({ next, current, document, rotated: rotated.value }), ...(await describeUnused(settings.dir, now))]);
}

const NO_KEY = 'there is no key: make one with `matrix-oracle init`, or name it with ORACLE_KEY_FILE.';

/** Why this key cannot be changed by this command, and what to do instead; null when it can. */
function decideRotation({
  settings,
  current,
  given,
}: {
  readonly settings: Pick<KeySettings, 'mnemonic' | 'pinnedDid' | 'keyFile'>;
  readonly current: SigningKey | null;
  readonly given: SigningKey | null;
}): string | null {
  const { mnemonic, pinnedDid, keyFile } = settings;
  const hasDocument = pinnedDid !== null && !pinnedDid.startsWith('did:key:');
  if (mnemonic !== null) return hasDocument ? WORDS_OF_DOCUMENT : wordsOfKey(keyFile);
  if (current === null) return NO_KEY;
  if (given?.did === current.did) return '--key is the key that the oracle has already.';
  if (pinnedDid !== null && !hasDocument) {
    return 'ORACLE_DID is set to the DID of the key that is to be changed. Take ORACLE_DID out of .env (and the environment): the DID then follows from the key file. Run this again after that.';
  }
  if (hasDocument && given === null) {
    return `${pinnedDid} names its keys in its DID document: make a key with \`matrix-oracle mint key --out <file>\`, add it to the document, then run \`matrix-oracle key rotate --key <file>\`.`;
  }
  return null;
}

const WORDS_OF_DOCUMENT =
  'the key comes from SIGNING_MNEMONIC: add the key of the new words to the DID document, replace the words in SIGNING_MNEMONIC, and restart the oracle.';
const wordsOfKey = (keyFile: string): string =>
  `the key comes from SIGNING_MNEMONIC, and other words would be another DID at once. Put the key of the words into a file first:
  (umask 077; printf %s '<the words>' | openssl dgst -sha256 -binary | base64 > ${shown(keyFile)})
Then take SIGNING_MNEMONIC out of the settings, check with \`matrix-oracle key show\` that the DID is the same, and run this again.`;

/** The document must name the new key before the switch: services would refuse everything that is signed in between. */
async function checkDocument(did: Did, key: SigningKey, blocksyncUrl: string | null): Promise<void> {
  if (blocksyncUrl === null)
    throw new CliError('BLOCKSYNC_GRAPHQL_URL is not set: the DID document cannot be looked up, so nothing was changed.');
  const [{ createResolveKeys }, { createGuardedFetch }] = await Promise.all([
    import('../../ucan/did/resolve-keys.ts'),
    import('../../net/guarded-fetch.ts'),
  ]);
  const fetch = createGuardedFetch({ clock: systemClock });
  try {
    const resolved = await createResolveKeys({ blocksyncUrl, fetch, clock: systemClock })(did);
    if (!resolved.ok) throw new CliError(`the DID document of ${did} cannot be looked up (${resolved.error}), so nothing was changed.`);
    if (resolved.value.keys.some((raw) => Buffer.from(raw).equals(rawPublicKey(key)))) return;
  } finally {
    await fetch.close();
  }
  throw new CliError(
    `the DID document of ${did} does not name the new key, so nothing was changed. Add a verification method of type Ed25519VerificationKey2020 with publicKeyMultibase ${multibaseOf(key)}, then run this again.`,
  );
}
const rawPublicKey = (key: SigningKey): Buffer =>
  Buffer.from(String(createPublicKey(key.privateKey).export({ format: 'jwk' }).x), 'base64url');
const multibaseOf = (key: SigningKey): string => key.did.slice('did:key:'.length);

interface RotationReport {
  readonly next: SigningKey;
  readonly current: SigningKey;
  readonly document: Did | null;
  readonly rotated: Rotated;
}
function describeRotation({ next, current, document, rotated: { file, until } }: RotationReport): string[] {
  if (document !== null || until === null) {
    return [
      `${document} signs with ${next.did} from the next start on.`,
      'Restart the oracle. Clients and grants need nothing: the DID stays.',
      `When it runs, take ${current.did} out of the DID document and remove ${file} from the data folder.`,
    ];
  }
  return [
    `The oracle's DID is ${next.did} from the next start on.`,
    'Restart the oracle.',
    `Clients that sign must then address their messages and new grants to this DID: messages to ${current.did} are refused.`,
    `Grants made out to the old DID count until ${isoTime(until)}; ask people to authorise the oracle again before that (\`!authorise\`).`,
    `The old key is ${file} in the data folder; keep it until then.`,
  ];
}

async function describeUnused(dir: string, now: number): Promise<string[]> {
  const unused = await findUnusedKeys(dir, now);
  return unused.length === 0 ? [] : [`No longer used, may be removed from ${shown(dir)}: ${unused.join(', ')}`];
}

async function readSettings({ settings }: KeyOptions): Promise<KeySettings> {
  const loaded = await loadKeySettings({ environment: readEnvironment(), settings });
  if (!loaded.ok) throw configError(loaded.error);
  return loaded.value;
}

async function currentKey(settings: KeySettings): Promise<SigningKey | null> {
  const key = await readCurrentKey(settings);
  if (!key.ok) throw configError([key.error]);
  return key.value;
}

async function readGivenKey(path: string): Promise<SigningKey> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new CliError(`${path} cannot be read: make a key with \`matrix-oracle mint key --out ${path}\`.`, { cause });
  });
  const key = readKeyFile(text);
  if (!key.ok) throw new CliError(`${path} is no Ed25519 key: make one with \`matrix-oracle mint key --out <file>\`.`);
  return key.value;
}
