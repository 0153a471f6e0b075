/**
 * The DID of a service that we are about to send an invocation to. Asked of the very host that will receive it, and taken only when the document
 * names exactly that host: a service that could call itself by another's name would get invocations that count there (research/ixo.md §2.6).
 * The host comes from plugins and tools, so it is fetched with the guard. A did:web is never a signer of what people send.
 */
import { z } from 'zod';
import type { ErrorCode } from '../../errors.ts';
import { type Did, parseDid } from '../../ids.ts';
import { LIMITS } from '../../limits.ts';
import type { GuardedFetch } from '../../net/guarded-fetch.ts';
import { err, ok, type Result } from '../../result.ts';
import type { Clock } from '../../time.ts';
import { createLookUp } from './look-up.ts';

export interface ResolveService {
  /** `serviceUrl` is any https address of the service; only its origin counts. @returns SERVICE_NOT_RESOLVED for every failure. */
  didOf(serviceUrl: string): Promise<Result<Did, ErrorCode>>;
}
export interface ResolveServiceOptions {
  readonly fetch: Pick<GuardedFetch, 'get'>;
  readonly clock: Clock;
}

const MAX_URL_CHARS = 2_048;
/** Labels of letters, digits and inner hyphens, at least two, the last not a number: no IP address, no `localhost`, no trailing dot. */
const HOST = /^(?=.{1,180}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+(?=[a-z0-9-]*[a-z])[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/u;
const documentSchema = z.object({ id: z.string() });

export function createResolveService({ fetch, clock }: ResolveServiceOptions): ResolveService {
  const lookUp = createLookUp<{ did: Did }, ErrorCode>({
    clock,
    failure: 'SERVICE_NOT_RESOLVED',
    async ask(origin, timeoutMs) {
      const did = readWebDid(origin);
      if (did === undefined) return err('SERVICE_NOT_RESOLVED');
      const answer = await fetch.get(`${origin}/.well-known/did.json`, { timeoutMs, maxBytes: LIMITS.didDocumentBytes });
      if (!answer.ok || answer.value.status !== 200 || readDocumentId(answer.value.text) !== did) return err('SERVICE_NOT_RESOLVED');
      return ok({ did });
    },
  });
  return {
    async didOf(serviceUrl) {
      if (readWebDid(serviceUrl) === undefined) return err('SERVICE_NOT_RESOLVED');
      const found = await lookUp(new URL(serviceUrl).origin);
      return found.ok ? ok(found.value.did) : found;
    },
  };
}

/** The DID that a service at this address must have (did:web, "Method-specific identifier"); undefined when none can live there. */
export function readWebDid(serviceUrl: string): Did | undefined {
  const url = serviceUrl.length > MAX_URL_CHARS ? null : URL.parse(serviceUrl);
  if (url === null || url.protocol !== 'https:' || url.username !== '' || url.password !== '' || !HOST.test(url.hostname)) return undefined;
  const did = parseDid(`did:web:${url.hostname}${url.port === '' ? '' : `%3A${url.port}`}`);
  return did.ok ? did.value : undefined;
}

function readDocumentId(text: string): string | undefined {
  try {
    return documentSchema.safeParse(JSON.parse(text)).data?.id;
  } catch {
    return undefined;
  }
}
