/** Every known hostile input and its honest twin, through the whole of gate, chain and binding (research/ucan.md §3.2, §3.4). */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../../src/errors.ts';
import type { Did } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createVerifier } from '../../../src/ucan/chain.ts';
import { createResolveKeys } from '../../../src/ucan/did/resolve-keys.ts';
import { readWebDid } from '../../../src/ucan/did/web.ts';
import { gateDelegation, gateInvocation } from '../../../src/ucan/gate.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { CONTEXT, message, type Vector } from '../../vectors/ucan/cast.ts';
import { makeFiles } from '../../vectors/ucan/make.ts';
import { DID_STRINGS, WEB_DIDS } from '../../vectors/ucan/rows/g-o.ts';
import { gateCounted, noWork, portsOf, readVectors, runVector } from '../../vectors/ucan/run.ts';
import { encode } from '../../vectors/ucan/wire.ts';

const FOLDER = join(import.meta.dirname, '../../vectors/ucan');
const vectors = readVectors();
const sections = new Map<string, Vector[]>();
for (const vector of vectors) sections.set(vector.section, [...(sections.get(vector.section) ?? []), vector]);

for (const [section, list] of sections) {
  describe(`vectors ${section}`, () => {
    test.each(list.map((vector) => [vector.name, vector] as const))('%s (G8, G14)', async (_name, vector) => {
      const work = noWork();

      const result = await runVector(vector, work);

      expect(result.ok ? 'ok' : result.error, vector.what).toBe(vector.expect);
      if (result.ok) expect(result.value).toMatchObject(vector.gives ?? {});
      // Of one event: its `inv`, and two files beside it.
      const files = 1 + (vector.beside?.length ?? 0);
      expect(work.blocks).toBeLessThanOrEqual(files * LIMITS.carBlocks);
      expect(work.decoded).toBeLessThanOrEqual(files * (LIMITS.carBlocks - 1));
      expect(work.cborItems).toBeLessThanOrEqual(files * LIMITS.carBlocks * 301);
      expect(work.signatures).toBeLessThanOrEqual(LIMITS.signaturesPerToken);
      // One more for the account of a did:ixo on a server that we do not trust.
      expect(work.lookUps).toBeLessThanOrEqual(LIMITS.issuersPerToken + 1);
      expect(work.storeReads).toBeLessThanOrEqual(LIMITS.pathsPerToken * LIMITS.proofsPerLink);
      expect(work.revocationReads).toBeLessThanOrEqual(LIMITS.pathsPerToken * LIMITS.proofDepth);
    });
  });
}

describe('the vectors themselves', () => {
  test('the maker writes the files that are there, byte by byte', () => {
    const files = makeFiles();

    expect(
      readdirSync(FOLDER)
        .filter((name) => name.endsWith('.json'))
        .sort(),
    ).toEqual([...files.keys()].sort());
    for (const [name, text] of files)
      expect(readFileSync(join(FOLDER, name), 'utf8') === text, `${name} is stale: npm run vectors`).toBe(true);
  });

  test('every section has vectors, no two of one section have a name, and every code exists', () => {
    expect([...sections.keys()].sort()).toEqual([...'ABCDEFGHIJKLMNO', 'replay', 'valid'].sort());
    expect(new Set(vectors.map(({ section, name }) => `${section}/${name}`)).size).toBe(vectors.length);
    for (const { expect: code } of vectors) expect(code === 'ok' || Object.hasOwn(ERRORS, code), code).toBe(true);
  });

  test('counting changes nothing: the doors for texts answer the same', () => {
    for (const { as, token } of vectors) {
      const door = as === 'grant' ? gateDelegation(token) : gateInvocation(token);
      const counted = gateCounted(token, as === 'grant' ? LIMITS.delegationBytes : LIMITS.invocationBytes, noWork());

      expect(door.ok ? 'ok' : door.error).toBe(counted.ok ? 'ok' : counted.error);
    }
  });

  test('nothing is left behind in Object.prototype (G14)', async () => {
    for (const vector of vectors.filter(({ section }) => section === 'E' || section === 'O')) await runVector(vector);

    expect(Object.keys(Object.prototype)).toEqual([]);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    expect(({} as Record<string, unknown>)['room']).toBeUndefined();
  });
});

describe('what stands beside the vectors', () => {
  // How long a DID may be is said once, by `parseDid`.
  test.each([...DID_STRINGS, ...WEB_DIDS].filter(([name]) => name !== 'long'))(
    '%s is not looked up, even if it got past the gate (G8, G14)',
    async (_name, did) => {
      const asked: string[] = [];
      const keysOf = createResolveKeys({
        blocksyncUrl: 'https://blocksync.example.org/graphql',
        clock: fakeClock(),
        fetch: {
          async post(url) {
            asked.push(url);
            return { ok: false, error: 'UNREACHABLE' } as never;
          },
        },
      });

      expect(await keysOf(did as Did)).toEqual({ ok: false, error: 'BAD_ISSUER' });
      expect(asked).toEqual([]);
    },
  );

  test.each([
    'https://127.0.0.1:8008',
    'https://169.254.169.254/latest/meta-data',
    'https://[::1]',
    'https://2130706433',
    'https://0x7f.1',
    'https://localhost',
    'https://user@evil.example.org',
    'http://evil.example.org',
    'https://evil.example.org.',
    'file:///etc/passwd',
    'data:,x',
    'evil.example.org',
    '',
  ])('no service lives at %s (G14)', (url) => {
    expect(readWebDid(url)).toBeUndefined();
  });

  test('a store that cannot say what is revoked refuses by failing, never by passing (G8)', async () => {
    const token = gateInvocation(encode(message()));
    if (!token.ok) throw new Error(token.error);
    const ports = portsOf(CONTEXT, noWork());
    const fails = (): never => {
      throw new Error('the disk is gone');
    };

    await expect(createVerifier({ ...ports, isRevoked: fails }).invocation(token.value)).rejects.toThrow('the disk is gone');
  });
});
