/**
 * The keys a DID signs with now. Asked once per issuer and chain; the answer is never a verdict that outlives its minute, and no answer is no
 * authority: whoever cannot be looked up is refused, never waved through (G8). Blocksync is the one party whose word about did:ixo counts.
 */
import type { ErrorCode } from '../../errors.ts';
import type { Did } from '../../ids.ts';
import type { GuardedFetch } from '../../net/guarded-fetch.ts';
import { err, ok, type Result } from '../../result.ts';
import type { Clock } from '../../time.ts';
import { buildIxoQuery, readIxoAnswer } from './ixo.ts';
import { readDidKey } from './key.ts';
import { createLookUp } from './look-up.ts';

export interface DidKeys {
  /** Raw 32-byte Ed25519 keys, small-order points removed; never empty. */
  readonly keys: readonly Uint8Array[];
  /** Server name of the `MatrixHomeServer` service of a did:ixo document, lower case; null when it names none. */
  readonly homeserver: string | null;
}
/** @returns BAD_ISSUER for a method that may not sign (did:web, others); DID_NOT_RESOLVED when nobody can say. */
export type ResolveKeys = (did: Did) => Promise<Result<DidKeys, ErrorCode>>;

export interface ResolveKeysOptions {
  /** Null: nobody knows a did:ixo. */
  readonly blocksyncUrl: string | null;
  readonly fetch: Pick<GuardedFetch, 'post'>;
  readonly clock: Clock;
}

const DID_IXO = /^did:ixo:[a-z0-9]+(?::[a-z0-9]+)*$/u;

export function createResolveKeys({ blocksyncUrl, fetch, clock }: ResolveKeysOptions): ResolveKeys {
  /** Until the indexer says that it has none. */
  let fields: 'all' | 'keys-only' = 'all';

  async function askBlocksync(url: string, did: string, timeoutMs: number): Promise<Result<DidKeys, ErrorCode>> {
    const deadline = clock.monotonic() + timeoutMs;
    const ask = async (asked: typeof fields) => {
      const leftMs = deadline - clock.monotonic();
      const answer = await fetch.post(url, buildIxoQuery(did, asked), { chosenBy: 'operator', timeoutMs: leftMs });
      // A GraphQL server says 400 or 200 with `errors`; other statuses hold nothing of it.
      return answer.ok && (answer.value.status === 200 || answer.value.status === 400)
        ? readIxoAnswer(answer.value.text, did)
        : ({ kind: 'nothing' } as const);
    };
    let answer = await ask(fields);
    if (answer.kind === 'errors' && fields === 'all') {
      if (answer.unknownService) fields = 'keys-only';
      answer = await ask('keys-only');
    }
    return answer.kind === 'keys' ? ok(answer.value) : err('DID_NOT_RESOLVED');
  }

  const lookUp =
    blocksyncUrl === null
      ? async () => err('DID_NOT_RESOLVED' as const)
      : createLookUp<DidKeys, ErrorCode>({
          clock,
          ask: (did, timeoutMs) => askBlocksync(blocksyncUrl, did, timeoutMs),
          failure: 'DID_NOT_RESOLVED',
        });

  return async (did) => {
    const key = readDidKey(did);
    if (key !== undefined) return ok({ keys: [key], homeserver: null });
    return DID_IXO.test(did) ? lookUp(did) : err('BAD_ISSUER');
  };
}
