/**
 * Whether those who should use the oracle can, and whether it can act for them: the indexer that did:ixo keys come from, the key that the oracle
 * signs with, and settings of who may use it that are each valid and together let nobody in.
 */
import Sqlite from 'better-sqlite3';
import type { Config, ConfigProblem } from '../../../config.ts';
import type { Did } from '../../../ids.ts';
import type { GuardedFetch } from '../../../net/guarded-fetch.ts';
import type { Result } from '../../../result.ts';
import { buildIxoQuery, readIxoAnswer } from '../../../ucan/did/ixo.ts';
import { readDidKey } from '../../../ucan/did/key.ts';
import type { ResolveKeys } from '../../../ucan/did/resolve-keys.ts';
import { type LoadedKeys, OLD_KEYS_FILE } from '../../../ucan/oracle-keys.ts';
import type { SigningKey } from '../../../ucan/signing-key.ts';
import { type Check, failed, passed, skipped, warned } from './check.ts';

/** Asks for the oracle's own DID: a DID that it does not know is an answer, too. */
export async function checkBlocksync(
  { blocksyncGraphqlUrl: url, oracleDid }: Pick<Config, 'blocksyncGraphqlUrl' | 'oracleDid'>,
  fetch: Pick<GuardedFetch, 'post'>,
): Promise<Check> {
  const name = 'Blocksync';
  if (url === undefined) return skipped(name, 'BLOCKSYNC_GRAPHQL_URL is not set, so people with a did:ixo cannot sign');
  const remedy = 'Set BLOCKSYNC_GRAPHQL_URL to the GraphQL address of a Blocksync indexer, and let the oracle reach it.';
  const all = await ask(url, oracleDid, { fetch, fields: 'all' });
  if (typeof all === 'string') return failed(name, `${url} does not answer (${all})`, remedy);
  if (all.kind === 'keys' || all.kind === 'no_keys') return passed(name, `${url} answers`);
  const keysOnly = await ask(url, oracleDid, { fetch, fields: 'keys-only' });
  if (typeof keysOnly === 'string' || (keysOnly.kind !== 'keys' && keysOnly.kind !== 'no_keys'))
    return failed(name, `${url} does not know the query for identities`, remedy);
  return passed(name, `${url} answers, without services: a did:ixo counts only on TRUSTED_HOMESERVERS`);
}

async function ask(
  url: string,
  did: Did,
  { fetch, fields }: { readonly fetch: Pick<GuardedFetch, 'post'>; readonly fields: 'all' | 'keys-only' },
) {
  const answer = await fetch.post(url, buildIxoQuery(did, fields), { chosenBy: 'operator' });
  return answer.ok ? readIxoAnswer(answer.value.text, did) : answer.error;
}

export interface SigningKeyOptions {
  readonly did: Did;
  /** Null: there is none. */
  readonly key: Result<SigningKey | null, Omit<ConfigProblem, 'name'>>;
  readonly keysOf: ResolveKeys;
}

/** A key that is not the DID's would sign invocations that every service refuses. */
export async function checkSigningKey({ did, key, keysOf }: SigningKeyOptions): Promise<Check> {
  const name = 'signing key';
  if (!key.ok) return failed(name, withoutStop(key.error.message), key.error.remedy);
  const current = key.value;
  if (current === null) return skipped(name, 'there is none, so the oracle answers but cannot act at other services');
  if (current.did === did) return passed(name, `it is the key of ${did}`);
  if (did.startsWith('did:key:')) {
    const remedy = 'Leave ORACLE_DID out, or set SIGNING_MNEMONIC or ORACLE_KEY_FILE to its key.';
    return failed(name, `it is the key of ${current.did}, not of ORACLE_DID, so the oracle cannot act at other services`, remedy);
  }
  const document = await keysOf(did);
  if (!document.ok) {
    return document.error === 'DID_NOT_RESOLVED'
      ? failed(
          name,
          `the document of ${did} cannot be looked up, so it cannot be seen whether the key is in it`,
          'Set BLOCKSYNC_GRAPHQL_URL to an indexer that knows the DID.',
        )
      : skipped(name, `whose keys ${did} has cannot be looked up`);
  }
  const own = readDidKey(current.did);
  return own !== undefined && document.value.keys.some((key) => Buffer.from(key).equals(own))
    ? passed(name, `it is in the document of ${did}`)
    : failed(
        name,
        `${current.did} is not in the document of ${did}, so services refuse what the oracle signs`,
        'Add it to the DID document as an Ed25519 verification method, or set SIGNING_MNEMONIC or ORACLE_KEY_FILE to the right key.',
      );
}

export type AccessSettings = Pick<
  Config,
  'access' | 'allowedUsers' | 'unsignedUsers' | 'trustedHomeservers' | 'matrixServerName' | 'httpLegacyAuth'
>;

/** Old keys whose grants stop counting before their time, because their file was lost or changed. */
export function planOldKeyChecks(keys: Result<LoadedKeys, ConfigProblem>): Check[] {
  if (!keys.ok) return [failed('old keys', withoutStop(keys.error.message), keys.error.remedy)];
  return keys.value.warnings
    .filter(({ name }) => name === OLD_KEYS_FILE)
    .map(({ message, remedy }) => warned('old keys', withoutStop(message), remedy));
}

/** `granted`: DIDs named with `grant-use`; null before the first start. */
export function decideAccess(config: AccessSettings, granted: number | null): Check[] {
  const name = 'access';
  const checks: Check[] = [];
  if (config.access === 'granted' && (granted ?? 0) === 0) {
    checks.push(
      warned(
        name,
        'ACCESS is granted and no DID was granted the use, so nobody may',
        'Run `matrix-oracle grant-use <did>` for each person.',
      ),
    );
  }
  if (config.access === 'granted' && config.unsignedUsers.length > 0) {
    checks.push(
      warned(
        name,
        'with ACCESS=granted the accounts in UNSIGNED_USERS are let in only once they authorised a DID that was granted the use',
        'Tell them to send `!authorise`, or set ACCESS to own-server.',
      ),
    );
  }
  if (config.access !== 'allowed' && config.allowedUsers.length > 0) {
    checks.push(
      warned(name, `ALLOWED_USERS does nothing while ACCESS is ${config.access}`, 'Set ACCESS to allowed, or leave ALLOWED_USERS out.'),
    );
  }
  if (config.access !== 'open' && config.access !== 'allowed' && !config.trustedHomeservers.includes(config.matrixServerName)) {
    checks.push(
      warned(
        name,
        `TRUSTED_HOMESERVERS leaves out ${config.matrixServerName}, so its own accounts are treated as strangers`,
        `Add ${config.matrixServerName} to TRUSTED_HOMESERVERS.`,
      ),
    );
  }
  if (config.httpLegacyAuth) {
    checks.push(
      warned(
        name,
        'HTTP_LEGACY_AUTH accepts bearer tokens that are not bound to a request: whoever sees one can use it',
        'Leave it out as soon as the portal signs its requests.',
      ),
    );
  }
  return checks.length > 0 ? checks : [passed(name, ACCESS_WORDS[config.access])];
}

const ACCESS_WORDS = {
  'own-server': 'for accounts on TRUSTED_HOMESERVERS',
  allowed: 'for the accounts in ALLOWED_USERS',
  granted: 'for those who were granted the use',
  open: 'for everybody',
} as const satisfies Record<Config['access'], string>;

/** Null when there is no database, or one of before grants. */
export function countUseGrants(path: string): number | null {
  try {
    const database = new Sqlite(path, { fileMustExist: true, readonly: true });
    try {
      return (database.prepare('SELECT count(*) AS granted FROM use_grants').get() as { granted: number }).granted;
    } finally {
      database.close();
    }
  } catch {
    return null;
  }
}

const withoutStop = (message: string): string => message.replace(/\.$/u, '');
