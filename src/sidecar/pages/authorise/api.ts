/**
 * The five requests of this page, all to where it came from. The nonce travels in two bodies and nowhere else; an answer that is not what we know
 * is a failure with a code, never a half-read page.
 */
import type { PageClock } from './clock.ts';

export interface Oracle {
  readonly did: string;
  readonly name: string;
}
export interface Ability {
  readonly can: string;
  readonly with: string;
  readonly title: string;
}
/** What the link was sent for. */
export interface LinkContext {
  readonly oracle: Oracle;
  readonly matrixUserId: string;
  readonly roomId: string;
  readonly abilities: readonly Ability[];
  readonly expiresInMs: number;
  readonly maxDays: number;
}
export interface ListedGrant {
  readonly token_id: string;
  readonly kind: 'acting' | 'session';
  readonly capabilities: readonly { readonly can: string; readonly with: string }[];
  readonly expires_at: number;
  readonly source: string;
  readonly pending: boolean;
  readonly revoked?: boolean;
}
/** `matrix_user_id` and `room_id`: the account and direct room that Matrix proved for this DID, which a change must name. */
export interface GrantList {
  readonly grants: readonly ListedGrant[];
  readonly matrix_user_id?: string | null;
  readonly room_id?: string | null;
}

export interface Failure {
  readonly code: string;
  /** The oracle's own sentence; empty when it could not be reached. */
  readonly message: string;
  readonly requestId: string;
}
export type Answer<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: Failure };

export interface Api {
  oracle(): Promise<Answer<Oracle>>;
  context(nonce: string): Promise<Answer<LinkContext>>;
  handIn(raw: string): Promise<Answer<unknown>>;
  list(token: string): Promise<Answer<GrantList>>;
  /** `body` is sent as it is: the token is bound to its bytes. */
  revoke(token: string, body: string): Promise<Answer<unknown>>;
}

/** No answer at all. */
export const UNREACHABLE = 'UNREACHABLE';

export function createApi(request: typeof fetch, clock: PageClock): Api {
  async function ask<T>(path: string, init: { method?: string; body?: string; token?: string } = {}): Promise<Answer<T>> {
    const { method = 'GET', body, token } = init;
    let response: Response;
    try {
      response = await request(path, {
        method,
        headers: {
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' }),
        },
        ...(body === undefined ? {} : { body }),
        cache: 'no-store',
        credentials: 'omit',
        redirect: 'error',
        referrerPolicy: 'no-referrer',
      });
    } catch {
      return { ok: false, error: { code: UNREACHABLE, message: '', requestId: '' } };
    }
    clock.learn(response.headers.get('date'));
    const answer: unknown = await response.json().catch(() => null);
    if (response.ok && isRecord(answer)) return { ok: true, value: answer as T };
    return { ok: false, error: readFailure(answer) };
  }
  return {
    oracle: () => ask('authorise/oracle'),
    context: (nonce) => ask('authorise/context', { method: 'POST', body: JSON.stringify({ nonce }) }),
    handIn: (raw) => ask('delegation', { method: 'POST', body: JSON.stringify({ raw }) }),
    list: (token) => ask('delegation', { token }),
    revoke: (token, body) => ask('delegation', { method: 'DELETE', body, token }),
  };
}

export function readFailure(answer: unknown): Failure {
  const { code, message, requestId } = isRecord(answer) ? answer : {};
  return {
    code: typeof code === 'string' ? code : 'INTERNAL',
    message: typeof message === 'string' ? message : '',
    requestId: typeof requestId === 'string' ? requestId : '',
  };
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
