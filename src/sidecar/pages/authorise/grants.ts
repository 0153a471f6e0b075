/**
 * The tokens this page signs. By the account: what the oracle may do, tied to one link and one Matrix account so that nobody can be talked into
 * somebody else's (DESIGN §5 "Grants from ordinary clients"), and what this browser may do for a day. By this browser: one short-lived
 * token per request. Pure but for signing; time and chance are arguments.
 */
import type { Did } from '../../../ids.ts';
import { CHAT_ABILITY, MESSAGE_ABILITY, READ_ABILITY } from '../../../ucan/abilities.ts';
import { signUcan, toBase64Url } from '../../../ucan/build-ucan.ts';
import { type Signer, sha256, sign } from './account.ts';

type Proof = NonNullable<Parameters<typeof signUcan>[0]['proof']>;

export interface SessionGrant {
  /** Blocks that every request of this browser carries as its proof. */
  readonly proof: Proof;
  /** Milliseconds since the epoch. */
  readonly endsAt: number;
}

const DAY_MS = 24 * 60 * 60_000;
/** As LIMITS.invocationLifetimeS allows, with room for a clock that is a little fast. */
const REQUEST_LIFETIME_S = 240;

export interface ActingGrant {
  readonly account: Signer;
  readonly oracle: Did;
  readonly matrixUserId: string;
  /** The link's nonce: what ties this grant to the account that the link was sent to. */
  readonly link: string;
  readonly abilities: readonly { readonly can: string; readonly with: string }[];
  readonly days: number;
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly nonce: string;
}

export const actingGrantEnd = (now: number, days: number): number => Math.floor((now + days * DAY_MS) / 1_000) * 1_000;

/** What is posted: the oracle may chat as the account, and use the named abilities. */
export async function signActingGrant({ account, oracle, matrixUserId, link, abilities, days, now, nonce }: ActingGrant): Promise<string> {
  const { car } = await signUcan(
    {
      issuer: account.did,
      audience: oracle,
      capabilities: [
        { can: CHAT_ABILITY, with: account.did, nb: { link, sender: matrixUserId } },
        ...abilities.map(({ can, with: resource }) => ({ can, with: resource })),
      ],
      expiration: actingGrantEnd(now, days) / 1_000,
      nonce,
    },
    signer(account),
  );
  return car;
}

/** What this browser may do for a day without the words: read, and take back. */
export async function signSessionGrant({
  account,
  session,
  now,
  nonce,
}: {
  account: Signer;
  session: Did;
  now: number;
  nonce: string;
}): Promise<SessionGrant> {
  const endsAt = actingGrantEnd(now, 1);
  const { sections } = await signUcan(
    {
      issuer: account.did,
      audience: session,
      capabilities: [MESSAGE_ABILITY, READ_ABILITY].map((can) => ({ can, with: account.did })),
      expiration: endsAt / 1_000,
      nonce,
    },
    signer(account),
  );
  return { proof: sections, endsAt };
}

/** Who asks: a key of this browser, for an account, at an oracle. */
export interface Asking {
  readonly session: Signer;
  readonly account: Did;
  readonly grant: SessionGrant;
  readonly oracle: Did;
  readonly now: number;
  readonly nonce: string;
}

export const signRead = (asking: Asking): Promise<string> => signRequest(asking, { can: READ_ABILITY, with: asking.account });

export interface Change {
  readonly method: 'DELETE';
  /** As the oracle sees it in the request line. */
  readonly path: string;
  readonly body: string;
  readonly sender: string;
  /** The direct room; left out as long as none is known. */
  readonly room: string | null;
}

export async function signChange(asking: Asking, { method, path, body, sender, room }: Change): Promise<string> {
  const hash = toBase64Url(await sha256(new TextEncoder().encode(body)));
  const nb = { sender, type: `${method} ${path}`, hash, ts: asking.now, ...(room === null ? {} : { room }) };
  return signRequest(asking, { can: MESSAGE_ABILITY, with: asking.account, nb });
}

async function signRequest(
  { session, grant, oracle, now, nonce }: Asking,
  capability: Parameters<typeof signUcan>[0]['capabilities'][number],
): Promise<string> {
  const { car } = await signUcan(
    {
      issuer: session.did,
      audience: oracle,
      capabilities: [capability],
      expiration: Math.floor(now / 1_000) + REQUEST_LIFETIME_S,
      nonce,
      proof: grant.proof,
    },
    signer(session),
  );
  return car;
}

const signer = (who: Signer) => ({ sign: (payload: Uint8Array<ArrayBuffer>) => sign(who, payload), sha256 });

/** 128 bits from the browser's randomness. */
export const newNonce = (): string => toBase64Url(crypto.getRandomValues(new Uint8Array(16)));
