/**
 * Keys, grants and signed messages for development: what a signing client would make, so that the signed tier can be tried with curl.
 * The same code as the demo's user and the tests (src/ucan/mint.ts). A key is written with mode 0600 and never over another one.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { readEnvironment } from '../../config.ts';
import {
  type Did,
  type EventId,
  parseDid,
  parseEventId,
  parseRoomId,
  parseSessionId,
  parseUserId,
  type RoomId,
  type SessionId,
} from '../../ids.ts';
import type { JsonObject } from '../../json.ts';
import type { Result } from '../../result.ts';
import { systemClock } from '../../system-clock.ts';
import { type GatedToken, gateDelegation } from '../../ucan/gate.ts';
import { mintGrant, mintRequestInvocation, newNonce, type Signer, signContent } from '../../ucan/mint.ts';
import { buildKeyFile, generateKey, readKeyFile, type SigningKey } from '../../ucan/signing-key.ts';
import { loadOracleDid } from '../load-config.ts';
import { CliError } from './cli-error.ts';

const print = (value: unknown): boolean => process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);

export async function runMintKey({ out }: { readonly out?: string }): Promise<void> {
  const key = generateKey();
  if (out === undefined) {
    print({ did: key.did, key: buildKeyFile(key) });
    return;
  }
  try {
    await writeFile(out, buildKeyFile(key), { mode: 0o600, flag: 'wx' });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : '';
    throw new CliError(
      code === 'EEXIST'
        ? `${out} is there already and was not changed: choose another file.`
        : `${out} cannot be written (${String(code)}).`,
      { cause: error },
    );
  }
  process.stdout.write(`${key.did}\n`);
}

interface SpeakerOptions {
  readonly key: string;
  readonly sender: string;
  readonly thread?: string;
  readonly audience?: string;
  readonly settings?: string;
  /** The key is a session key: whose, and the file with the grant that says so. */
  readonly sessionOf?: string;
  readonly proof?: string;
}

export async function runMintMessage(options: SpeakerOptions & { readonly room: string; readonly body: string }): Promise<void> {
  const key = await readKey(options.key);
  const thread = options.thread === undefined ? undefined : parsed('--thread', parseEventId(options.thread), 'an event id ($…)');
  const content: JsonObject = { msgtype: 'm.text', body: options.body, ...(thread === undefined ? {} : threadRelation(thread)) };
  print(
    signContent(
      {
        key,
        ...(await readSession(options)),
        audience: await audienceOf(options),
        room: readRoom(options.room),
        sender: parsed('--sender', parseUserId(options.sender), 'a Matrix user id (@name:server)'),
        type: 'm.room.message',
        ts: systemClock.now(),
        thread,
        nonce: newNonce(),
      },
      content,
    ),
  );
}

/** A client without thread support shows it as a reply to the root (spec v1.19, "Threading", fallback). */
const threadRelation = (root: EventId): JsonObject => ({
  'm.relates_to': { rel_type: 'm.thread', event_id: root, is_falling_back: true, 'm.in_reply_to': { event_id: root } },
});

export interface MintRequestOptions extends SpeakerOptions {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
  readonly room?: string;
}

export async function runMintRequest(options: MintRequestOptions): Promise<void> {
  const key = await readKey(options.key);
  if (!/^\/[^\s?#]*$/u.test(options.path)) throw new CliError('--path must start with / and have no query.');
  const thread: SessionId | undefined =
    options.thread === undefined ? undefined : parsed('--thread', parseSessionId(options.thread), 'a session id ($…)');
  const token = mintRequestInvocation({
    key,
    ...(await readSession(options)),
    audience: await audienceOf(options),
    method: options.method.toUpperCase(),
    path: options.path,
    body: options.body,
    sender: parsed('--sender', parseUserId(options.sender), 'a Matrix user id (@name:server)'),
    room: options.room === undefined ? undefined : readRoom(options.room),
    thread,
    ts: systemClock.now(),
    nonce: newNonce(),
  });
  process.stdout.write(`${token}\n`);
}

export interface MintGrantOptions {
  readonly key: string;
  readonly can: readonly string[];
  readonly with?: string;
  readonly days: string;
  readonly sender?: string;
  readonly audience?: string;
  readonly settings?: string;
}

const DAY_MS = 24 * 60 * 60_000;

/** Made out to the oracle it is an acting grant, to a key of a client a session grant. What no gate would take is refused here. */
export async function runMintGrant(options: MintGrantOptions): Promise<void> {
  const key = await readKey(options.key);
  const days = Number(options.days);
  if (!(days > 0)) throw new CliError('--days is not a number of days above 0.');
  const sender =
    options.sender === undefined ? undefined : parsed('--sender', parseUserId(options.sender), 'a Matrix user id (@name:server)');
  const resource = options.with ?? key.did;
  const grant = mintGrant({
    key,
    audience: await audienceOf(options),
    capabilities: options.can.map((can) => ({ can, with: resource, ...(sender === undefined ? {} : { nb: { sender } }) })),
    expiresAt: systemClock.now() + days * DAY_MS,
    nonce: newNonce(),
  });
  const gated = gateDelegation(grant);
  if (!gated.ok) throw new CliError(`nobody would take this grant (${gated.error}): look at --can, --with and --days.`);
  process.stdout.write(`${grant}\n`);
}

/** Nothing when the speaker signs with his own key. */
async function readSession({ sessionOf, proof }: SpeakerOptions): Promise<Pick<Signer, 'as' | 'proofs'>> {
  if (proof === undefined) {
    if (sessionOf === undefined) return {};
    throw new CliError('--session-of needs --proof <file>: the grant of `matrix-oracle mint grant` to this key.');
  }
  const token = await readProof(proof);
  return { as: sessionOf === undefined ? token.leaf.issuer : parsed('--session-of', parseDid(sessionOf), 'a DID'), proofs: [token] };
}

async function readProof(path: string): Promise<GatedToken> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new CliError(`${path} cannot be read: make a grant with \`matrix-oracle mint grant … > ${path}\`.`, { cause });
  });
  const token = gateDelegation(text.trim());
  if (!token.ok) throw new CliError(`${path} holds no grant (${token.error}): make one with \`matrix-oracle mint grant\`.`);
  return token.value;
}

const readRoom = (text: string): RoomId => parsed('--room', parseRoomId(text), 'a room id (!…)');

function parsed<T>(option: string, result: Result<T, unknown>, expected: string): T {
  if (result.ok) return result.value;
  throw new CliError(`${option} is not ${expected}.`);
}

async function readKey(path: string): Promise<SigningKey> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new CliError(`${path} cannot be read: make a key with \`matrix-oracle mint key --out ${path}\`.`, { cause });
  });
  const key = readKeyFile(text);
  if (!key.ok) throw new CliError(`${path} is no Ed25519 key: make one with \`matrix-oracle mint key --out <file>\`.`);
  return key.value;
}

async function audienceOf({ audience, settings }: Pick<SpeakerOptions, 'audience' | 'settings'>): Promise<Did> {
  if (audience !== undefined) return parsed('--audience', parseDid(audience), 'a DID');
  const did = await loadOracleDid({ environment: readEnvironment(), settings });
  if (did !== undefined) return did;
  throw new CliError("the oracle's DID is not known here: give --audience, or run this where the oracle's .env is.");
}
