/**
 * Keys and signed messages for development: what a signing client would make, so that the signed tier can be tried with curl.
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
import { mintRequestInvocation, newNonce, signContent } from '../../ucan/mint.ts';
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
}

export async function runMintMessage(options: SpeakerOptions & { readonly room: string; readonly body: string }): Promise<void> {
  const key = await readKey(options.key);
  const thread = options.thread === undefined ? undefined : parsed('--thread', parseEventId(options.thread), 'an event id ($…)');
  const content: JsonObject = { msgtype: 'm.text', body: options.body, ...(thread === undefined ? {} : threadRelation(thread)) };
  print(
    signContent(
      {
        key,
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

async function audienceOf({ audience, settings }: SpeakerOptions): Promise<Did> {
  if (audience !== undefined) return parsed('--audience', parseDid(audience), 'a DID');
  const did = await loadOracleDid({ environment: readEnvironment(), settings });
  if (did !== undefined) return did;
  throw new CliError("the oracle's DID is not known here: give --audience, or run this where the oracle's .env is.");
}
