/** Two verifiers, one set of rules: chains of one to four links with chance defects (research/ucan.md §4, "differential test"). */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { type GatedToken, gateDelegation } from '../../../src/ucan/gate.ts';
import { mintUcan } from '../../../src/ucan/mint.ts';
import type { UcanCapability } from '../../../src/ucan/read-ucan.ts';
import { ixoPerson, type Person, person, rawKeyOf, verifierIn } from './chains.ts';
import { type Answer, verifyInvocationAgain } from './second-verifier.ts';
import { NB, oracle, TS } from './tokens.ts';

const NOW_S = TS / 1000;
const people = Array.from({ length: 4 }, (_, n) => ({ key: person(`someone ${n}`), ixo: ixoPerson(`someone${n}`) }));
const stranger = person('a stranger');
const NONCES = 'AAECAwQFBgcICQoLDA0OD';

const DAY_S = 86_400;
interface Link {
  readonly ixo: boolean;
  readonly can: string;
  readonly nb: UcanCapability['nb'];
  readonly more: boolean;
  readonly expiresIn: number;
  readonly startsIn: number | undefined;
  readonly place: string;
  readonly wrongAudience: boolean;
  readonly wrongResource: boolean;
  readonly forged: boolean;
  readonly revokedBy: number | null;
  readonly decoy: string;
}
/** As an honest person makes it, or nearly. */
const link: fc.Arbitrary<Link> = fc.record({
  ixo: fc.boolean(),
  can: fc.constantFrom('*', 'oracle/*', 'oracle/*', 'oracle/message'),
  nb: fc.constantFrom<UcanCapability['nb']>(undefined, undefined, undefined, { room: NB.room }, { sender: NB.sender, ts: NB.ts }),
  more: fc.boolean(),
  expiresIn: fc.constantFrom(3_600, 7_200, DAY_S, DAY_S + 60, -59),
  startsIn: fc.constantFrom<number | undefined>(undefined, 0, 60),
  /** Where its proof is found. */
  place: fc.constantFrom('file', 'beside', 'stored'),
  wrongAudience: fc.constant<boolean>(false),
  wrongResource: fc.constant<boolean>(false),
  forged: fc.constant<boolean>(false),
  revokedBy: fc.constant<number | null>(null),
  /** A second proof beside the real one, on its own, that covers or does not. */
  decoy: fc.constantFrom<'none' | 'good' | 'narrow' | 'missing'>('none', 'none', 'none', 'good', 'narrow', 'missing'),
});
const defect: fc.Arbitrary<Partial<Link>> = fc.oneof(
  fc.constantFrom('oracle/read', 'orac/*', 'oracle/message/*', 'oracle/messages').map((can) => ({ can })),
  fc
    .constantFrom<UcanCapability['nb']>({ room: '!other:example.org' }, { ts: String(NB.ts) }, { foo: 1 }, { thread: null })
    .map((nb) => ({ nb })),
  fc.constantFrom(DAY_S + 61, 20 * DAY_S, 30 * DAY_S + 61, -60, -61).map((expiresIn) => ({ expiresIn })),
  fc.constant({ startsIn: 61 }),
  fc.constant({ place: 'nowhere' }),
  fc.constant({ wrongAudience: true }),
  fc.constant({ wrongResource: true }),
  fc.constant({ forged: true }),
  fc.integer({ min: 0, max: 3 }).map((revokedBy) => ({ revokedBy })),
);
const scenario = fc
  .record({
    links: fc.array(link, { minLength: 1, maxLength: 4 }),
    defects: fc.array(fc.tuple(fc.nat(3), defect), { maxLength: 2 }),
    /** Per person: key of the document. */
    documents: fc.constantFrom(
      ['one', 'two', 'one', 'one'],
      ['two', 'two', 'one', 'two'],
      ['rotated', 'one', 'two', 'one'],
      ['one', 'none', 'one', 'rotated'],
    ),
    twoRights: fc.integer({ min: 0, max: 15 }).map((n) => n === 0),
    ownRight: fc.integer({ min: 0, max: 15 }).map((n) => n === 0),
  })
  .map(({ defects, ...rest }) => ({
    ...rest,
    links: rest.links.map((one, n): Link => Object.assign({}, one, ...defects.filter(([at]) => at === n).map(([, change]) => change))),
  }));
type Scenario = typeof scenario extends fc.Arbitrary<infer T> ? T : never;

/** From the root to the token. Files the gate refuses are nowhere, except the token's own. */
function build({ links, documents, twoRights, ownRight }: Scenario) {
  const chain = links.map((one, n) => ({ ...one, who: (one.ixo ? people[n]!.ixo : people[n]!.key) as Person }));
  const beside: GatedToken[] = [];
  const stored: GatedToken[] = [];
  const revoked = new Set<string>();
  const root = chain[0]!.who;
  let file = '';
  let last: GatedToken | undefined;
  for (const [n, one] of chain.entries()) {
    const isToken = n === chain.length - 1;
    const next = isToken ? oracle.did : chain[n + 1]!.who.did;
    const resource = (one.wrongResource ? stranger : ownRight && isToken ? one.who : root).did;
    const right: UcanCapability = isToken
      ? { can: 'oracle/message', with: resource, nb: NB }
      : { can: one.can, with: resource, ...(one.nb === undefined ? {} : { nb: one.nb }) };
    const other: UcanCapability = { can: 'oracle/read', with: root.did };
    const capabilities = (isToken ? twoRights : one.more && right.can !== 'oracle/read') ? [right, other] : [right];
    const proofs: GatedToken[] = [];
    const proofLinks: string[] = [];
    if (n > 0) {
      const place = (token: GatedToken, where: string) => {
        if (where === 'file') proofs.push(token);
        else proofLinks.push(token.leaf.cid);
        if (where === 'beside') beside.push(token);
        if (where === 'stored') stored.push(token);
      };
      if (last !== undefined) place(last, one.place);
      else proofLinks.push(`01711220${'00'.repeat(32)}`);
      if (one.decoy !== 'none') {
        const can = one.decoy === 'narrow' ? 'oracle/read' : 'oracle/*';
        const decoy = mintUcan({
          ...{ key: root.key, issuer: root.did, audience: one.who.did, capabilities: [{ can, with: root.did }] },
          ...{ expiration: NOW_S + 5_000, nonce: `${NONCES}d` },
        });
        const gated = gateDelegation(decoy);
        if (gated.ok) place(gated.value, one.decoy === 'missing' ? 'nowhere' : n % 2 === 0 ? 'file' : 'stored');
      }
    }
    file = mintUcan({
      ...{ key: one.forged ? stranger.key : one.who.key, issuer: one.who.did },
      ...{ audience: (one.wrongAudience && !isToken ? stranger.did : next) as Did, capabilities, proofs, proofLinks },
      ...{ expiration: NOW_S + (isToken ? 300 : one.expiresIn), nonce: `${NONCES}${n}` },
      ...(one.startsIn === undefined || isToken ? {} : { notBefore: NOW_S + one.startsIn }),
    });
    const gated = gateDelegation(file);
    last = gated.ok ? gated.value : undefined;
    if (gated.ok && one.revokedBy !== null) {
      const id = one.revokedBy % 2 === 0 ? gated.value.leaf.tokenId : gated.value.leaf.cid;
      revoked.add(`${id} ${chain[one.revokedBy]?.who.did ?? stranger.did}`);
    }
  }
  const keys: Record<string, readonly Uint8Array[] | null> = {};
  for (const [n, { ixo }] of people.entries()) {
    const own = rawKeyOf(ixo);
    const found = { one: [own], two: [rawKeyOf(stranger), own], rotated: [rawKeyOf(stranger)], none: null };
    keys[ixo.did] = found[documents[n] as keyof typeof found];
  }
  return { file, beside, stored, revoked, keys };
}

async function first({ file, beside, stored, revoked, keys }: ReturnType<typeof build>): Promise<Answer> {
  const gated = gateDelegation(file);
  if (!gated.ok) return { code: gated.error };
  const known = Object.fromEntries(Object.entries(keys).flatMap(([did, found]) => (found === null ? [] : [[did, found]])));
  const result = await verifierIn({ stored, revoked: [...revoked], keys: known, now: TS }).invocation(gated.value, beside);
  if (!result.ok) return { code: result.error };
  const { principal, grants, grantsUntil } = result.value;
  return { code: 'verified', principal, grants: grants.map(({ cid }) => cid), until: grantsUntil };
}

test('the second verifier agrees on every generated chain (G8)', { timeout: 120_000 }, async () => {
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(scenario, async (drawn) => {
      const built = build(drawn);
      const cars = (tokens: readonly GatedToken[]) => tokens.map(({ car }) => car);

      const ours = await first(built);
      const again = await verifyInvocationAgain({ ...built, beside: cars(built.beside), stored: cars(built.stored), nowMs: TS });

      expect(again).toEqual(ours);
      const kind = ours.code === 'verified' ? `verified over ${ours.grants?.length}` : ours.code;
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
    }),
    { numRuns: 2_000 },
  );
  // A generator that never makes a good chain, or never one of the defects, would prove nothing.
  const wanted = ['verified over 0', 'verified over 1', 'verified over 2', 'verified over 3'];
  const defects = ['BROKEN_CHAIN', 'NOT_DELEGATED', 'MISSING_PROOF', 'BAD_SIGNATURE', 'DID_NOT_RESOLVED', 'GRANT_EXPIRED', 'REVOKED'];
  const more = ['GRANT_NOT_YET_VALID', 'GRANT_LIVES_TOO_LONG', 'BAD_CAPABILITY'];
  expect([...wanted, ...defects, ...more].filter((kind) => !seen.has(kind))).toEqual([]);
});
