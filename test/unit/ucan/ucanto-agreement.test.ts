/** What is valid here is valid there and the other way round: IXO's clients and services speak through `@ucanto/*` (DESIGN §5). */
import { Delegation, delegate } from '@ucanto/core';
import { ed25519, Verifier } from '@ucanto/principal';
import { access, capability, Schema } from '@ucanto/validator';
import { describe, expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import type { GatedToken } from '../../../src/ucan/gate.ts';
import { mintUcan } from '../../../src/ucan/mint.ts';
import { codeOf, ixoUser, type Person, phone, rawKeyOf, session, stranger, user, verifierIn } from './chains.ts';
import { carBytes, gatedGrant, NB, NONCE, oracle } from './tokens.ts';

/** Far ahead, because ucanto asks the real clock; our own is told. */
const END_S = 4_000_000_000;
const NOW = (END_S - 3_600) * 1_000;
type Rights = readonly [{ can: 'oracle/message' | 'oracle/*' | 'oracle/read' | '*'; with: Did; nb?: typeof NB }];
interface Step {
  readonly who: Person;
  readonly rights: Rights;
}

const all = (owner: Person, can: Rights[0]['can'] = 'oracle/*'): Rights => [{ can, with: owner.did }];
const message = (owner: Person): Rights => [{ can: 'oracle/message', with: owner.did, nb: NB }];

function mintOurs(steps: readonly Step[]): string {
  let car = '';
  let last: GatedToken | undefined;
  for (const [n, { who, rights }] of steps.entries()) {
    const audience = steps[n + 1]?.who.did ?? oracle.did;
    const proofs = last === undefined ? [] : [last];
    car = mintUcan({ key: who.key, issuer: who.did, audience, capabilities: rights, expiration: END_S, nonce: NONCE, proofs });
    last = gatedGrant(car);
  }
  return car;
}

async function signerOf(who: Person) {
  const { d } = who.key.privateKey.export({ format: 'jwk' });
  const signer = await ed25519.derive(Uint8Array.from(Buffer.from(String(d), 'base64url')));
  return who.did.startsWith('did:key:') ? signer : signer.withDID(who.did as `did:ixo:${string}`);
}

async function mintTheirs(steps: readonly Step[]): Promise<string> {
  let last: Awaited<ReturnType<typeof delegate>> | undefined;
  for (const [n, { who, rights }] of steps.entries()) {
    const audience = { did: () => (steps[n + 1]?.who.did ?? oracle.did) as `did:key:${string}` };
    last = (await delegate({
      ...{ issuer: await signerOf(who), audience, capabilities: rights as never },
      ...{ expiration: END_S, nonce: NONCE, proofs: last === undefined ? [] : [last] },
    })) as Awaited<ReturnType<typeof delegate>>;
  }
  const archived = await last?.archive();
  return Buffer.from(archived?.ok ?? []).toString('base64url');
}

const Message = capability({
  can: 'oracle/message',
  with: Schema.did(),
  derives: (claimed, delegated) => (claimed.with === delegated.with ? { ok: {} } : { error: new Error('other resource') as never }),
});

async function theirsSay(car: string): Promise<string> {
  const extracted = await Delegation.extract(Uint8Array.from(carBytes(car)));
  const result = await access(extracted.ok as never, {
    ...{ capability: Message, authority: Verifier.parse(stranger.did as `did:key:${string}`), principal: Verifier },
    validateAuthorization: () => ({ ok: {} }),
    resolveDIDKey: (async (did: string) =>
      did === ixoUser.did ? { ok: [ixoUser.key.did] } : { error: new Error(`nobody knows ${did}`) }) as never,
  });
  return result.ok === undefined ? 'refused' : 'verified';
}

async function oursSay(car: string): Promise<string> {
  const verifier = verifierIn({ now: NOW, keys: { [ixoUser.did]: [rawKeyOf(ixoUser)] } });
  return String(codeOf(await verifier.invocation(gatedGrant(car))));
}

const chains: [string, readonly Step[]][] = [user, ixoUser].flatMap((owner): [string, readonly Step[]][] => {
  const method = owner.did.split(':')[1];
  const own = { who: owner, rights: all(owner) };
  return [
    [`one link of a did:${method}`, [{ who: owner, rights: message(owner) }]],
    [`two links of a did:${method}`, [own, { who: session, rights: message(owner) }]],
    [
      `three links of a did:${method}`,
      [own, { who: phone, rights: all(owner, 'oracle/message') }, { who: session, rights: message(owner) }],
    ],
    [
      `a grant of everything by a did:${method}`,
      [
        { ...own, rights: all(owner, '*') },
        { who: session, rights: message(owner) },
      ],
    ],
  ];
});
const broken: [string, readonly Step[]][] = [
  [
    'another ability',
    [
      { who: user, rights: all(user, 'oracle/read') },
      { who: session, rights: message(user) },
    ],
  ],
  [
    'a right on somebody else',
    [
      { who: user, rights: all(stranger) },
      { who: session, rights: message(user) },
    ],
  ],
  [
    'a right nobody but the giver has',
    [
      { who: stranger, rights: all(user) },
      { who: session, rights: message(user) },
    ],
  ],
  [
    'a right made wider on the way',
    [
      { who: user, rights: all(user, 'oracle/read') },
      { who: phone, rights: all(user) },
      { who: session, rights: message(user) },
    ],
  ],
  [
    'another key than the one of its DID',
    [
      { who: { did: user.did, key: stranger.key }, rights: all(user) },
      { who: session, rights: message(user) },
    ],
  ],
  ['a did:ixo that signs with another key', [{ who: { did: ixoUser.did, key: stranger.key }, rights: message(ixoUser) }]],
];

describe('chains that hold', () => {
  test.each(chains)('%s', async (_name, steps) => {
    const [ours, theirs] = [mintOurs(steps), await mintTheirs(steps)];

    expect(ours).toBe(theirs);
    expect(await theirsSay(ours)).toBe('verified');
    expect(await oursSay(theirs)).toBe('verified');
  });
});

describe('chains that do not', () => {
  test.each(broken)('%s', async (_name, steps) => {
    const car = mintOurs(steps);

    expect(await theirsSay(car)).toBe('refused');
    expect(await oursSay(car)).toMatch(/^(NOT_DELEGATED|BAD_SIGNATURE)$/u);
  });
});
