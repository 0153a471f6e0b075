/** The worst that fits through the gate: work is bounded by counts (G14); milliseconds are the bench's. */
import { describe, expect, test } from 'vitest';
import type { Did } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { GatedToken } from '../../../src/ucan/gate.ts';
import { mintUcan, type UcanToMint } from '../../../src/ucan/mint.ts';
import { codeOf, ixoPerson, person, rawKeyOf, right, session, stranger, user, verifierIn } from './chains.ts';
import { gated, gatedGrant, NB, NONCE, oracle, TS } from './tokens.ts';

const somebody = person('somebody');
const base = { audience: somebody.did, capabilities: [right('oracle/message', user)], expiration: TS / 1000 + 3_600 };
let made = 0;
/** Each is another token. */
function mint(change: Partial<UcanToMint> = {}): GatedToken {
  made += 1;
  return gatedGrant(mintUcan({ key: somebody.key, ...base, nonce: `${NONCE}${made}`, ...change }));
}
const ask = (change: Partial<UcanToMint>): GatedToken =>
  gated(
    mintUcan({
      ...{ key: somebody.key, audience: oracle.did, expiration: TS / 1000 + 300, nonce: NONCE },
      capabilities: [right('oracle/message', user, NB)],
      ...change,
    }),
  );
const links = (tokens: readonly GatedToken[]) => tokens.map(({ leaf }) => leaf.cid);

/** A binary tree of `levels` below its top, all made out to one key, every link stored by itself. */
function tree(levels: number, change: (level: number) => Partial<UcanToMint> = () => ({})): { top: GatedToken[]; stored: GatedToken[] } {
  const stored: GatedToken[] = [];
  let below: GatedToken[] = [];
  for (let level = 0; level < levels; level += 1) {
    const width = 2 ** (levels - level);
    below = Array.from({ length: width }, (_, n) => mint({ proofLinks: links(below.slice(2 * n, 2 * n + 2)), ...change(level) }));
    stored.push(...below);
  }
  return { top: below, stored };
}

describe('the most ways that are looked at', () => {
  const { top, stored } = tree(LIMITS.proofDepth - 1);
  const token = ask({ proofLinks: links(top) });

  test('lead to nobody: one signature is checked, each proof is looked up once', async () => {
    const { asked, ...verifier } = verifierIn({ stored });

    expect(codeOf(await verifier.invocation(token))).toBe('NOT_DELEGATED');
    expect(asked.tokens.length).toBe(stored.length);
    expect(new Set(asked.tokens).size).toBe(stored.length);
    expect(asked.count.signatures).toBe(1);
  });

  test('are 16: one level more is refused before it is looked at', async () => {
    const deeper = tree(LIMITS.proofDepth);
    const { asked, ...verifier } = verifierIn({ stored: deeper.stored });

    expect(codeOf(await verifier.invocation(ask({ proofLinks: links(deeper.top) })))).toBe('TOO_MANY_PROOFS');
    expect(asked.count.signatures).toBe(1);
    expect(asked.tokens.length).toBeLessThanOrEqual(LIMITS.proofDepth);
  });

  test('all lead to the owner and each fails at its end: no more than 16 signatures are checked', async () => {
    const forged = tree(LIMITS.proofDepth - 1, (level) => (level === 0 ? { key: stranger.key, issuer: user.did } : {}));
    const { asked, ...verifier } = verifierIn({ stored: forged.stored });

    expect(codeOf(await verifier.invocation(ask({ proofLinks: links(forged.top) })))).toBe('TOO_MANY_PROOFS');
    expect(asked.count.signatures).toBe(LIMITS.signaturesPerToken);
  });

  test('have eight rights a link: each link is still checked once', async () => {
    const many = ['*', 'oracle/*', 'oracle/message', 'a/b', 'a/c', 'a/d', 'a/e', 'a/f'].map((can) => right(can, user));
    const owned = tree(LIMITS.proofDepth - 1, (level) => ({ capabilities: many, ...(level === 0 ? { key: user.key } : {}) }));
    const { asked, ...verifier } = verifierIn({ stored: owned.stored });

    expect(codeOf(await verifier.invocation(ask({ proofLinks: links(owned.top) })))).toBe('verified');
    expect(asked.count.signatures).toBe(LIMITS.proofDepth);
  });
});

describe('a diamond in one file', () => {
  test('is checked link by link, and a grant with eight rights no more often', async () => {
    const rights = Array.from({ length: 8 }, (_, n) => right(`a/b${n}`, user));
    let below: GatedToken[] = [];
    for (let level = 0; level < 3; level += 1) {
      below = [0, 1].map(() => mint({ capabilities: rights, proofs: below, ...(level === 0 ? { key: user.key } : {}) }));
    }
    const { asked, ...verifier } = verifierIn();

    const result = await verifier.grant(mint({ audience: oracle.did, capabilities: rights, proofs: below }));

    expect(codeOf(result)).toBe('verified');
    expect(asked.count.signatures).toBe(4);
  });
});

describe('issuers that have to be asked for', () => {
  const crowd = Array.from({ length: 14 }, (_, n) => ixoPerson(`crowd${n}`));
  const keys = Object.fromEntries(crowd.map((one) => [one.did, [rawKeyOf(one)]]));
  /** Sixteen ways to the user; every link on the levels named was issued by another did:ixo. */
  function ways(levels: readonly number[]) {
    const stored: GatedToken[] = [];
    const left = [...crowd];
    const grow = (level: number, audience: Did): GatedToken => {
      const who = level === 0 ? user : levels.includes(level) ? left.shift()! : somebody;
      const below = level === 0 ? [] : [grow(level - 1, who.did), grow(level - 1, who.did)];
      const token = mint({ key: who.key, issuer: who.did, audience, proofLinks: links(below) });
      stored.push(token);
      return token;
    };
    const top = [grow(LIMITS.proofDepth - 2, somebody.did), grow(LIMITS.proofDepth - 2, somebody.did)];
    return { token: ask({ proofLinks: links(top) }), stored };
  }

  test('are asked for once each, up to eight', async () => {
    const { token, stored } = ways([1]);
    const { asked, ...verifier } = verifierIn({ stored, keys });

    expect(codeOf(await verifier.invocation(token))).toBe('verified');
    expect(asked.dids.length).toBe(LIMITS.issuersPerToken);
    expect(new Set(asked.dids).size).toBe(LIMITS.issuersPerToken);
  });

  test('when they are more, nobody is asked for', async () => {
    const { token, stored } = ways([1, 2]);
    const { asked, ...verifier } = verifierIn({ stored, keys });

    expect(codeOf(await verifier.invocation(token))).toBe('TOO_MANY_PROOFS');
    expect(asked.dids).toEqual([]);
  });

  test('a document with many keys costs no more than the signatures of a token', async () => {
    const one = crowd[0]!;
    const many = Array.from({ length: 100 }, (_, n) => rawKeyOf(person(`key ${n}`)));
    const { asked, ...verifier } = verifierIn({ keys: { [one.did]: many } });

    expect(codeOf(await verifier.invocation(ask({ key: one.key, issuer: one.did })))).toBe('TOO_MANY_PROOFS');
    expect(asked.count.signatures).toBe(LIMITS.signaturesPerToken);
  });
});

test('two full files beside a token are known, and only what the token rests on is looked at', async () => {
  const useless = [0, 1].map(() => mint({ proofs: [mint({ proofs: [mint()] }), mint()] }));
  const grant = mint({ key: user.key, audience: session.did });
  const { asked, ...verifier } = verifierIn();

  const token = ask({ key: session.key, proofLinks: [grant.leaf.cid] });

  expect(codeOf(await verifier.invocation(token, [useless[0]!, grant]))).toBe('verified');
  expect(asked.count.signatures).toBe(2);
});
