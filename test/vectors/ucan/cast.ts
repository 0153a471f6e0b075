/**
 * Who and what the vectors are about, and the shape of a vector. Everything is fixed: keys are SHA-256 of a name, time is one moment, nonces are counted,
 * so that the maker writes the same files on every machine.
 */
import { type Capability, didSigner, encode, keySigner, type Model, type Signer, sha256, type Ucan, type UcanSpec, ucan } from './wire.ts';

export type SectionName = 'A' | 'B' | 'C' | 'D' | 'E' | 'F' | 'G' | 'H' | 'I' | 'J' | 'K' | 'L' | 'M' | 'N' | 'O' | 'replay' | 'valid';

/** What the oracle knows besides the token. */
export interface Context {
  /** Wall clock ms. */
  readonly now: number;
  readonly oracle: string;
  readonly event?: {
    readonly room: string;
    readonly sender: string;
    readonly type: string;
    readonly content: Record<string, unknown>;
    readonly originServerTs: number;
    readonly thread?: string;
    readonly edits?: string;
  };
  readonly request?: { readonly method: string; readonly path: string; readonly body: string; readonly session?: string };
  /** Ed25519 keys (hex) and homeserver of a did:ixo; a code when the look-up fails. */
  readonly didDocuments?: Readonly<Record<string, { readonly keys: readonly string[]; readonly homeserver: string | null } | string>>;
  /** Token id or CID (hex), and who took it back. */
  readonly revoked?: readonly { readonly id: string; readonly by: string }[];
  /** Stored grants: base64url CARs under the CID (hex) the store says they have; the own one unless it lies. */
  readonly stored?: readonly { readonly token: string; readonly cid?: string }[];
  /** Token ids spent already, and on which prompt. */
  readonly spent?: readonly { readonly tokenId: string; readonly on: string }[];
  readonly eventId?: string;
}

export interface Vector {
  readonly name: string;
  readonly section: SectionName;
  /** What is tried, for people. */
  readonly what: string;
  /** `event`: as `inv` of an event; `request`: as bearer; `grant`: as a delegation. */
  readonly as: 'event' | 'request' | 'grant';
  /** base64url, or text that only pretends to be. */
  readonly token: string;
  /** The `dlg` of the event. */
  readonly beside?: readonly string[];
  readonly context: Context;
  /** `ok` or the code of the refusal. */
  readonly expect: string;
  /** With `ok`: what comes out. */
  readonly gives?: {
    readonly principal?: string;
    readonly grantsUntil?: number | null;
    readonly expiresAt?: number;
    readonly path?: number;
  };
}

export const TS = 1_800_000_000_000;
export const S = TS / 1_000;
export const DAY = 86_400;

export const alice = keySigner('alice');
export const mallory = keySigner('mallory');
export const bob = keySigner('bob');
export const oracle = keySigner('oracle');
export const other = keySigner('another oracle');
/** The key of Alice's client. */
export const session = keySigner('session');
export const service = keySigner('service');
export const ixoAlice = didSigner('did:ixo:ixo1alice', 'ixo alice');

export const ROOM = '!dm:example.org';
export const SENDER = '@alice:example.org';
export const CONTENT = { msgtype: 'm.text', body: 'hello' };
/** Canonical JSON of CONTENT, written by hand. */
export const HASH = sha256('{"body":"hello","msgtype":"m.text"}').toString('base64url');
export const EVENT = { room: ROOM, sender: SENDER, type: 'm.room.message', content: CONTENT, originServerTs: TS + 200 };
export const CONTEXT: Context = { now: TS + 500, oracle: oracle.did, event: EVENT };
export const NB = { room: ROOM, sender: SENDER, type: 'm.room.message', hash: HASH, ts: TS };

let nonces = 0;
/** 128 bits that look random and are the same in every run of the maker. */
export const nonce = (): string => sha256(`nonce ${nonces++}`).subarray(0, 16).toString('base64url');
export const restart = (): void => {
  nonces = 0;
};

type Change = Partial<UcanSpec> & { readonly can?: string; readonly nb?: Model; readonly with?: string };
const spec = (base: UcanSpec & { can: string; with: string; nb?: Model }, change: Change): UcanSpec => {
  const { can, with: resource, nb, ...rest } = { ...base, ...change };
  // A copy: rows change what is in the block.
  const capability: Capability = nb === undefined ? { can, with: resource } : { can, with: resource, nb: { ...nb } };
  return { ...rest, att: change.att ?? [capability] };
};

/** What an honest client makes for one message. */
export const message = (change: Change = {}): Ucan => {
  const issuer = change.issuer ?? alice;
  return ucan(
    spec({ issuer, audience: oracle, att: [], exp: S + 300, nnc: nonce(), can: 'oracle/message', with: issuer.did, nb: NB }, change),
  );
};
/** Alice's session key may speak for her for a day. */
export const sessionGrant = (change: Change = {}): Ucan => {
  const issuer = change.issuer ?? alice;
  return ucan(spec({ issuer, audience: session, att: [], exp: S + DAY, nnc: nonce(), can: 'oracle/message', with: issuer.did }, change));
};
/** Alice allows the oracle one thing at a service. */
export const actingGrant = (change: Change = {}): Ucan => {
  const issuer = change.issuer ?? alice;
  return ucan(spec({ issuer, audience: oracle, att: [], exp: S + 30 * DAY, nnc: nonce(), can: 'memory/read', with: issuer.did }, change));
};
/** A message by Alice's session key, with `grant` in the file. */
export const spoken = (grant: Ucan, change: Change = {}): Ucan => message({ issuer: session, with: alice.did, prf: [grant], ...change });

/** The token with its signature or anything else of the block changed afterwards. */
export const altered = (make: (change: Change) => Ucan, after: (model: Model) => void, change: Change = {}): Ucan =>
  make({ ...change, after });
export const capabilityOf = (model: Model): Model => (model['att'] as unknown as Model[])[0] as Model;

type Row = Omit<Vector, 'section' | 'context' | 'as' | 'token'> & {
  readonly as?: Vector['as'];
  readonly token: string | Ucan | Uint8Array;
  readonly context?: Partial<Context>;
};
/** Collects the rows of one section. */
export function rows(section: SectionName, ...list: readonly Row[]): Vector[] {
  return list.map(({ name, what, as = 'event', token, beside, context, expect, gives }) => ({
    ...{ name, section, what, as },
    token: typeof token === 'string' ? token : token instanceof Uint8Array ? Buffer.from(token).toString('base64url') : encode(token),
    ...(beside === undefined ? {} : { beside }),
    context: { ...CONTEXT, ...context },
    expect,
    ...(gives === undefined ? {} : { gives }),
  }));
}
export const hex = (cid: Uint8Array): string => Buffer.from(cid).toString('hex');
export const stored = (...tokens: readonly Ucan[]): Pick<Context, 'stored'> => ({
  stored: tokens.map((token) => ({ token: encode(token) })),
});
export const ixoDocument = (signer: Signer = ixoAlice, did: string = signer.did): Pick<Context, 'didDocuments'> => ({
  didDocuments: { [did]: { keys: [hex(signer.publicKey)], homeserver: 'example.org' } },
});
