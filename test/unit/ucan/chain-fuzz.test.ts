import * as dagCbor from '@ipld/dag-cbor';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { buildCar, readCar } from '../../../src/ucan/car.ts';
import { gateDelegation } from '../../../src/ucan/gate.ts';
import { grant, invocation, phone, right, session, user, verifierIn } from './chains.ts';
import { carBytes, variantOf } from './tokens.ts';

const far = grant({ from: user, to: phone });
const near = grant({ from: phone, to: session, capabilities: [right('oracle/message', user)], proofs: [far] });
const token = invocation({ by: session, of: user, proofs: [near] });
const file = carBytes(token.car);
const read = readCar(file);
const blocks = read.ok ? read.value.blocks.map(({ bytes }) => bytes) : [];
const root = blocks.at(-1)!;

/** What becomes of a file behind the gate. */
async function outcome(bytes: Uint8Array): Promise<string> {
  const gated = gateDelegation(Buffer.from(bytes).toString('base64url'));
  if (!gated.ok) return gated.error;
  const asInvocation = await verifierIn().invocation(gated.value);
  const asGrant = await verifierIn().grant(gated.value);
  return asInvocation.ok || asGrant.ok ? 'verified' : asInvocation.error;
}

test('the file as it is passes', async () => {
  expect(await outcome(file)).toBe('verified');
});

test('any other bytes of the file are refused (G8, G14)', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(file.length - 1), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 4 }),
      async (flips) => {
        const changed = Buffer.from(file);
        for (const [at, bits] of flips) changed[at]! ^= bits;
        fc.pre(!changed.equals(file));
        expect(await outcome(changed)).not.toBe('verified');
      },
    ),
    { numRuns: 1_500 },
  );
});

test('any other block, its hashes right all the way up, is refused: nobody signed the token above it (G8)', async () => {
  const value = fc.oneof(fc.jsonValue(), fc.uint8Array({ maxLength: 80 }), fc.maxSafeInteger());
  const field = fc.constantFrom('v', 's', 'iss', 'aud', 'att', 'prf', 'exp', 'fct', 'nnc', 'nbf', 'x');
  await fc.assert(
    fc.asyncProperty(fc.nat(blocks.length - 2), field, value, async (at, name, replacement) => {
      const models = blocks.slice(0, -1).map((block) => dagCbor.decode(block) as Record<string, unknown>);
      models[at]![name] = replacement;
      const rebuilt: Uint8Array[] = [];
      for (const [n, model] of models.entries()) {
        const below = rebuilt[n - 1];
        // The links follow the change, so that every hash in the file fits; the signatures cannot.
        if (n > at && below !== undefined) model['prf'] = [(dagCbor.decode(variantOf(below)) as Record<string, unknown>)['ucan@0.9.1']];
        rebuilt.push(dagCbor.encode(model));
      }
      const leaf = rebuilt.at(-1)!;
      const changed = buildCar(variantOf(leaf), [...rebuilt, variantOf(leaf)]);
      fc.pre(!changed.equals(file));
      expect(await outcome(changed)).not.toBe('verified');
    }),
    { numRuns: 1_500 },
  );
});

test('blocks left out, twice, elsewhere or with others between are refused, but for shorter files that are whole (G14)', async () => {
  const others = [dagCbor.encode({ extra: true }), Uint8Array.from(carBytes(near.car).subarray(0, 60))];
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...blocks, ...others), { maxLength: 9 }), async (some) => {
      const result = await outcome(buildCar(root, some));
      const whole = some.length === blocks.length && some.every((block, n) => block === blocks[n]);
      expect(result === 'verified').toBe(whole);
    }),
    { numRuns: 1_500 },
  );
});
