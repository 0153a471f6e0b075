import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { didKeyOf, signUcan, type WebSigner } from '../../../src/ucan/build-ucan.ts';
import { mintGrant, mintMessageInvocation, mintReadInvocation, mintRequestInvocation, mintUcan } from '../../../src/ucan/mint.ts';
import { codeOf, grant, ixoUser, NOW, type Person, rawKeyOf, right, session, user, verifierIn } from './chains.ts';
import { CONTENT, gated, MESSAGE, NB, NONCE, oracle, TS } from './tokens.ts';

/** As in a browser: a key that cannot be read, and asynchronous hashes. */
async function webSigner({ key }: Person): Promise<WebSigner> {
  const pkcs8 = Uint8Array.from(key.privateKey.export({ format: 'der', type: 'pkcs8' }));
  const secret = await crypto.subtle.importKey('pkcs8', pkcs8, 'Ed25519', false, ['sign']);
  return {
    sign: async (payload) => new Uint8Array(await crypto.subtle.sign('Ed25519', secret, payload)),
    sha256: async (bytes) => new Uint8Array(await crypto.subtle.digest('SHA-256', Uint8Array.from(bytes))),
  };
}

describe('a token signed by WebCrypto', () => {
  const facts = { audience: session.did, capabilities: [right('oracle/*', user)], nonce: NONCE };
  const asked = { audience: oracle.did, capabilities: [right('oracle/message', user, NB)], nonce: NONCE };

  test('has the very bytes of one signed by node', async () => {
    const web = await signUcan({ ...facts, issuer: user.did, expiration: TS / 1000 }, await webSigner(user));

    expect(web.car).toBe(mintUcan({ ...facts, key: user.key, expiration: TS / 1000 }));
  });

  test('rests on a grant signed by WebCrypto, with the bytes of one that rests on ours', async () => {
    const given = await signUcan({ ...facts, issuer: user.did, expiration: TS / 1000 + 600 }, await webSigner(user));
    const web = await signUcan(
      { ...asked, issuer: session.did, expiration: TS / 1000 + 300, proof: given.sections },
      await webSigner(session),
    );
    const proof = grant({ from: user, to: session, expiresAt: TS + 600_000 });

    expect(web.car).toBe(mintUcan({ ...asked, key: session.key, expiration: TS / 1000 + 300, proofs: [proof] }));
    expect(codeOf(await verifierIn().invocation(gated(web.car)))).toBe('verified');
  });

  test('is named by the did:key of its public key', () => {
    expect(didKeyOf(rawKeyOf(user))).toBe(user.did);
  });

  test.each(['build-ucan', 'write-car'])('%s.ts runs in a browser: nothing of node is in it', (name) => {
    const text = readFileSync(new URL(`../../../src/ucan/${name}.ts`, import.meta.url), 'utf8');
    const imports = [...text.matchAll(/^import (?!type ).* from '(.*)';$/gmu)].map(([, from]) => from);

    expect(imports.filter((from) => !/^(?:@ipld\/dag-ucan|multiformats)\b|^\.\/write-car\.ts$/u.test(String(from)))).toEqual([]);
    expect(text).not.toMatch(/\bBuffer\b|\bprocess\b/u);
  });
});

describe('invocations of a client', () => {
  const request = { key: session.key, audience: oracle.did, sender: MESSAGE.sender, ts: TS, nonce: NONCE };

  test('of a session key are on the DID that granted it, signed as the key it is', () => {
    const proofs = [grant({ from: user, to: session })];
    const tokens = [
      mintMessageInvocation({ ...MESSAGE, key: session.key, content: CONTENT, as: user.did, proofs }),
      mintRequestInvocation({ ...request, method: 'POST', path: '/sessions', as: user.did, proofs }),
      mintRequestInvocation({ ...request, method: 'GET', path: '/sessions', as: user.did, proofLinks: [proofs[0]!.leaf.cid] }),
      mintReadInvocation({ ...request, as: user.did, proofs }),
    ].map(gated);

    expect(tokens.map(({ leaf }) => leaf.issuer)).toEqual(Array(4).fill(session.did));
    expect(tokens.map(({ leaf }) => leaf.capabilities[0]?.with)).toEqual(Array(4).fill(user.did));
    expect(tokens.map(({ leaf }) => leaf.proofs)).toEqual(Array(4).fill([proofs[0]!.leaf.cid]));
  });

  test('of a key of a did:ixo are signed as that DID', () => {
    const { leaf } = gated(mintReadInvocation({ ...request, key: ixoUser.key, as: ixoUser.did }));

    expect(leaf).toMatchObject({
      issuer: ixoUser.did,
      issuerKey: null,
      proofs: [],
      capabilities: [{ can: 'oracle/read', with: ixoUser.did }],
    });
  });

  test('a grant ends within the second that was asked for', () => {
    const text = mintGrant({ key: user.key, audience: session.did, capabilities: [right('oracle/*', user)], expiresAt: NOW, nonce: NONCE });

    expect(gated(text).leaf.expiration).toBe(Math.floor(NOW / 1000));
  });
});
