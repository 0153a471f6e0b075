import { CarReader } from '@ipld/car';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../../../src/limits.ts';
import { buildCar, readCar } from '../../../src/ucan/car.ts';
import { isPlainCbor } from '../../../src/ucan/scan-cbor.ts';
import { carBytes, honest } from './tokens.ts';

const block = (size: number, fill = 0) => Buffer.alloc(size, fill);

describe('readCar', () => {
  test('the usual reader finds the same root and blocks in what we write', async () => {
    const file = carBytes(honest());
    const theirs = await CarReader.fromBytes(Uint8Array.from(file));

    const ours = readCar(file);

    expect(ours.ok && ours.value.root).toBe(Buffer.from((await theirs.getRoots())[0]!.bytes).toString('hex'));
    expect(ours.ok && ours.value.blocks.length).toBe(2);
    for await (const { cid, bytes } of theirs.blocks()) {
      expect(ours.ok && ours.value.blocks.find((b) => b.cid === Buffer.from(cid.bytes).toString('hex'))?.bytes).toEqual(Buffer.from(bytes));
    }
  });

  test.each([
    ['at the limit of blocks', Array.from({ length: LIMITS.carBlocks }, (_, n) => block(2, n)), true],
    ['one block over', Array.from({ length: LIMITS.carBlocks + 1 }, (_, n) => block(2, n)), 'TOO_MANY_BLOCKS'],
    ['a thousand blocks', Array.from({ length: 1_000 }, (_, n) => block(3 + n)), 'TOO_MANY_BLOCKS'],
    ['a block at its limit', [block(2), block(LIMITS.carBlockBytes)], true],
    ['a block one byte over', [block(2), block(LIMITS.carBlockBytes + 1)], 'BLOCK_TOO_LARGE'],
    ['an empty block', [block(2), block(0)], 'TRUNCATED'],
    ['a block twice', [block(2), block(2)], 'DUPLICATE'],
    ['without its root', [block(3)], 'ROOT_MISSING'],
  ] as const)('%s (G14)', (_name, blocks, expected) => {
    const result = readCar(buildCar(block(2), blocks as readonly Buffer[]));

    expect(result.ok || result.error).toBe(expected);
  });
});

describe('isPlainCbor', () => {
  const hex = (text: string) => Buffer.from(text, 'hex');
  test.each([
    ['an integer', '17', true],
    ['a longer form than needed', '1817', false],
    ['a two-byte integer that fits one', '1900ff', false],
    ['2^53-1', '1b001fffffffffffff', true],
    ['2^53', '1b0020000000000000', false],
    ['a float', 'fb3ff8000000000000', false],
    ['a half float', 'f93c00', false],
    ['undefined', 'f7', false],
    ['a break', 'ff', false],
    ['an indefinite string', '7f6161ff', false],
    ['another tag', 'c000', false],
    ['tag 42 around text', 'd82a6161', false],
    ['two items', '0000', false],
    ['nothing', '', false],
    ['a key that is a number', 'a10000', false],
    ['a key __proto__', 'a1695f5f70726f746f5f5f00', false],
    ['a value __proto__', '695f5f70726f746f5f5f', true],
    ['seven levels', '81818181818181f6', true],
    ['eight levels', '8181818181818181f6', false],
    ['299 items in a list', `99012b${'00'.repeat(299)}`, true],
    ['300 items in a list', `99012c${'00'.repeat(300)}`, false],
  ])('%s (G14)', (_name, text, expected) => {
    expect(isPlainCbor(hex(text))).toBe(expected);
  });
});
