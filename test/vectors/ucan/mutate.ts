/**
 * Damages honest tokens in every way we can think of, from one character of the text to a whole chain that is hashed anew around a changed field, and
 * checks what must hold for each: refused with a code, or made of nothing but honest blocks; never thrown; within the counted bounds. The n-th mutant of
 * a seed is always the same one. `test/unit/ucan/mutation.property.test.ts` runs 100,000 of them, `npm run fuzz` as many as there is time for.
 */
import * as dagCbor from '@ipld/dag-cbor';
import { CID } from 'multiformats/cid';
import { LIMITS } from '../../../src/limits.ts';
import type { Vector } from './cast.ts';
import { noWork, readVectors, runVector, type Work } from './run.ts';
import { carHeader, carSection, cbor, cidOf, entries, float, link, raw, type Section, type Value } from './wire.ts';

export const FAMILIES = ['text', 'bytes', 'sections', 'blocks', 'fields'] as const;
export type Family = (typeof FAMILIES)[number];

/** mulberry32: small, and the same everywhere. */
export class Dice {
  #state: number;
  constructor(seed: number, n: number) {
    this.#state = (Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(n + 1, 0xc2b2ae35)) >>> 0;
    this.below(2);
  }
  below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * limit);
  }
  one<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}

interface Honest {
  readonly vector: Vector;
  readonly bytes: Buffer;
  readonly sections: readonly Section[];
  /** Decoded, ready to be changed; null for a root. */
  readonly models: readonly Value[];
}

const honest: readonly Honest[] = readVectors()
  .filter(({ expect, token }) => expect === 'ok' && !/[+/=]/u.test(token))
  .map((vector) => {
    const bytes = Buffer.from(vector.token, 'base64url');
    const sections = split(bytes);
    return { vector, bytes, sections, models: sections.map(({ bytes: block }) => toValue(dagCbor.decode(Uint8Array.from(block)))) };
  });
/** Every block that an honest signer made, in any vector. */
const honestBlocks: ReadonlySet<string> = new Set(
  honest.flatMap(({ vector, sections }) => {
    const more = [...(vector.beside ?? []), ...(vector.context.stored ?? []).map(({ token }) => token)];
    return [...sections, ...more.flatMap((token) => split(Buffer.from(token, 'base64url')))].map(({ cid }) =>
      Buffer.from(cid).toString('hex'),
    );
  }),
);

function split(bytes: Buffer): Section[] {
  const sections: Section[] = [];
  let at = 59;
  while (at < bytes.length) {
    const first = bytes[at] as number;
    const [length, size] = first < 0x80 ? [first, 1] : [(first & 0x7f) | ((bytes[at + 1] as number) << 7), 2];
    const start = at + size;
    sections.push({ cid: bytes.subarray(start, start + 36), bytes: bytes.subarray(start + 36, start + length) });
    at = start + length;
  }
  return sections;
}
function toValue(decoded: unknown): Value {
  const cid = CID.asCID(decoded);
  if (cid !== null) return link(cid.bytes);
  if (Array.isArray(decoded)) return decoded.map(toValue);
  if (typeof decoded === 'object' && decoded !== null && !(decoded instanceof Uint8Array)) {
    return Object.fromEntries(Object.entries(decoded).map(([key, value]) => [key, toValue(value)]));
  }
  return decoded as Value;
}
const join = (sections: readonly Section[], root: Uint8Array = sections.at(-1)?.cid ?? Buffer.alloc(36)): Buffer =>
  Buffer.concat([carHeader([root]), ...sections.map(carSection)]);

// Mutations

const PIECES = [
  '00',
  'ff',
  '80',
  '9f',
  'bf',
  'f7',
  'fb7ff0000000000000',
  '1bffffffffffffffff',
  '5bffffffffffffffff',
  'd82a',
  'a1695f5f70726f746f5f5fa0',
  'c2',
  '7f',
].map((hex) => Buffer.from(hex, 'hex'));

function mutateText(dice: Dice, text: string): string {
  const at = dice.below(text.length + 1);
  const put = (piece: string, remove = 0): string => `${text.slice(0, at)}${piece}${text.slice(at + remove)}`;
  switch (dice.below(8)) {
    case 0:
      return put(dice.one([' ', '\n', '\t', '=', '==', '!', '%', '\0', '\u00e9', '\ud800', '+', '/', '.', ',']));
    case 1:
      return put(dice.one(['A', 'z', '-', '_', '0']), 1);
    case 2:
      return put('', 1 + dice.below(8));
    case 3:
      return text.replaceAll('-', '+');
    case 4:
      return text.slice(0, at);
    case 5:
      return `${text}${dice.one(['=', 'A', '\n', text])}`;
    case 6:
      return dice.one([text.toLowerCase(), text.toUpperCase(), `u${text}`, `data:;base64,${text}`, [...text].reverse().join('')]);
    default:
      return Buffer.from(text, 'base64url').toString(dice.one(['base64', 'hex', 'latin1']));
  }
}

function mutateBytes(dice: Dice, bytes: Buffer): Buffer {
  const at = dice.below(bytes.length + 1);
  const length = 1 + dice.below(dice.one([2, 8, 40, 200]));
  const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)];
  switch (dice.below(9)) {
    case 0:
    case 1:
    case 2: {
      const changed = Buffer.from(bytes);
      for (let n = dice.below(3); n >= 0 && bytes.length > 0; n -= 1) changed[dice.below(bytes.length)]! ^= 1 << dice.below(8);
      return changed;
    }
    case 3:
      return Buffer.concat([head, dice.bytes(length), tail]);
    case 4:
      return Buffer.concat([head, tail.subarray(length)]);
    case 5:
      return head;
    case 6:
      return Buffer.concat([head, tail.subarray(0, length), tail]);
    case 7: {
      const piece = dice.one(PIECES);
      return Buffer.concat([head, piece, tail.subarray(dice.below(2) * piece.length)]);
    }
    default:
      return Buffer.concat([bytes, dice.one([bytes, Buffer.of(0), dice.bytes(length), dice.one(honest).bytes])]);
  }
}

function mutateSections(dice: Dice, sections: readonly Section[]): Buffer {
  const list = [...sections];
  const [a, b] = [dice.below(list.length), dice.below(list.length)];
  const [one, two] = [list[a] as Section, list[b] as Section];
  const stranger = dice.one(dice.one(honest).sections);
  switch (dice.below(11)) {
    case 0:
      [list[a], list[b]] = [two, one];
      break;
    case 1:
      list.splice(b, 0, one);
      break;
    case 2:
      list.splice(a, 1);
      break;
    case 3:
      list[a] = { cid: two.cid, bytes: one.bytes };
      break;
    case 4:
      list[a] = { cid: one.cid, bytes: two.bytes };
      break;
    case 5:
      list[a] = { cid: one.cid, bytes: stranger.bytes };
      break;
    case 6:
      list.splice(a, 0, stranger);
      break;
    case 7: {
      const bytes = dice.one([dice.bytes(dice.below(80)), cbor([1, { a: 'x' }]), Buffer.alloc(0), Buffer.alloc(4_001, 0x60)]);
      list.splice(a, 0, { cid: cidOf(bytes), bytes });
      break;
    }
    case 8: {
      const cid = dice.one([
        Buffer.concat([Buffer.from('017100', 'hex'), Buffer.of(one.bytes.length & 0x7f), one.bytes]),
        Buffer.concat([Buffer.from('01551220', 'hex'), one.cid.subarray(4)]),
        Buffer.concat([Buffer.from('01711220', 'hex'), Buffer.alloc(32)]),
        one.cid.subarray(2),
      ]);
      list[a] = { cid, bytes: one.bytes };
      break;
    }
    case 9:
      return join(list, dice.one([one.cid, stranger.cid, Buffer.alloc(36)]));
    default:
      return Buffer.concat([carHeader(dice.one([[], [one.cid, two.cid]]), 1 + dice.below(3)), ...list.map(carSection)]);
  }
  return join(list, sections.at(-1)?.cid);
}

/** The file with one block changed and everything that names it hashed anew; once in four times a changed proof is named by nobody. */
function rehash(dice: Dice, sections: readonly Section[], at: number, block: Buffer): Buffer {
  const list: Section[] = sections.map((one) => ({ ...one }));
  const renamed = new Map<string, Buffer>();
  const rename = (n: number, bytes: Buffer): void => {
    const cid = cidOf(bytes);
    renamed.set(Buffer.from((list[n] as Section).cid).toString('hex'), cid);
    list[n] = { cid, bytes };
  };
  rename(at, block);
  if (dice.below(4) === 0 && at < list.length - 2) return join(list);
  for (let n = at + 1; n < list.length; n += 1) {
    let text = Buffer.from((list[n] as Section).bytes).toString('hex');
    const before = text;
    for (const [from, to] of renamed) text = text.replaceAll(from, to.toString('hex'));
    if (text !== before) rename(n, Buffer.from(text, 'hex'));
  }
  return join(list);
}

const KEYS = [
  '__proto__',
  'constructor',
  'toString',
  'junk',
  '/',
  '',
  'nnc',
  'nbf',
  'fct',
  'nb',
  's',
  'exp',
  'with',
  'can',
  'room',
  'é',
  'x'.repeat(600),
];
function deep(dice: Dice): Value {
  const depth = dice.one([2, 5, 9, 40, 500]);
  return raw(
    dice.one([`${'81'.repeat(depth)}01`, `${'a16161'.repeat(depth)}01`, `${'a1695f5f70726f746f5f5f'.repeat(Math.min(depth, 100))}01`]),
  );
}
function anything(dice: Dice): Value {
  return dice.one<() => Value>([
    () => null,
    () => true,
    () => 0,
    () => -1,
    () => 1,
    () => 4_102_444_800,
    () => 2n ** 63n,
    () => float(dice.one([1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 1e300, -0])),
    () =>
      raw(
        dice.one([
          'f7',
          '1800',
          '190001',
          '1b0000000000000001',
          '9fff',
          'bfff',
          '7fff',
          'c100',
          'd82a41ff',
          'd82a40',
          'f4',
          'fa7fc00000',
          'f97e00',
          '62c328',
          'ff',
          '',
        ]),
      ),
    () => '',
    () => dice.one(['*', 'ucan:*', 'oracle/*', '__proto__', 'did:ixo:a', 'x\0', 'X', '\u202e', 'x'.repeat(513)]),
    () => dice.bytes(dice.below(70)),
    () => [],
    () => ({}),
    () => deep(dice),
    () => link(cidOf(dice.bytes(4))),
    () => raw(cbor(dice.one(dice.one(honest).models)).toString('hex')),
  ])();
}
const isMap = (value: Value): value is { readonly [key: string]: Value } =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  !(value instanceof Uint8Array) &&
  Object.getOwnPropertySymbols(value).length === 0;

function mutateValue(dice: Dice, value: Value): Value {
  const goesDown = dice.below(4) > 0;
  if (Array.isArray(value) && value.length > 0) {
    const at = dice.below(value.length);
    if (goesDown) return value.with(at, mutateValue(dice, value[at] as Value));
    return dice.one<() => Value>([
      () => [...value, value[at] as Value],
      () => value.toSpliced(at, 1),
      () => value.toReversed(),
      () => [...value, anything(dice)],
      () => anything(dice),
    ])();
  }
  if (isMap(value) && Object.keys(value).length > 0) {
    const pairs = Object.entries(value);
    const [key, current] = dice.one(pairs);
    if (goesDown) return { ...value, [key]: mutateValue(dice, current) };
    const sorted = pairs.toSorted(([a], [b]) => a.length - b.length || (a < b ? -1 : 1));
    return dice.one<() => Value>([
      () => Object.fromEntries(pairs.filter(([other]) => other !== key)),
      () => entries(...sorted, [dice.one(KEYS), anything(dice)]),
      () =>
        entries(
          ...[...sorted, [dice.one(KEYS), anything(dice)] as [string, Value]].toSorted(
            ([a], [b]) => a.length - b.length || (a < b ? -1 : 1),
          ),
        ),
      () => entries(...sorted, [key, current]),
      () => entries(...sorted.toReversed()),
      () => entries(['__proto__', current], ...sorted),
      () =>
        Object.fromEntries(
          pairs.map(([other, one]) => (other === key ? [dice.one([`${key}x`, key.toUpperCase(), ` ${key}`]), one] : [other, one])),
        ),
      () => anything(dice),
    ])();
  }
  if (typeof value === 'string' && dice.below(3) > 0) {
    return dice.one([
      `${value} `,
      ` ${value}`,
      `${value}\0`,
      `${value}*`,
      value.toUpperCase(),
      value.slice(1),
      `${value}/x`,
      value.replace(/[a-z]/u, '\u0430'),
      `${value}\u0301`,
    ]);
  }
  if (typeof value === 'number' && dice.below(3) > 0) return dice.one([value + 1, value - 1, -value, value * 1_000, float(value)]);
  if (value instanceof Uint8Array && dice.below(3) > 0) return mutateBytes(dice, Buffer.from(value));
  return anything(dice);
}

export interface Mutant {
  readonly vector: Vector;
  readonly family: Family;
  readonly token: string;
  /** It came out as it went in. */
  readonly same: boolean;
}
/** The n-th mutant of this seed. */
export function mutant(seed: number, n: number, family: Family): Mutant {
  const dice = new Dice(seed, n * FAMILIES.length + FAMILIES.indexOf(family));
  const { vector, bytes, sections, models } = dice.one(honest);
  const finish = (token: string): Mutant => ({ vector, family, token, same: Buffer.from(token, 'base64url').equals(bytes) });
  const encoded = (changed: Uint8Array): Mutant => finish(Buffer.from(changed).toString('base64url'));
  if (family === 'text') return finish(mutateText(dice, vector.token));
  if (family === 'bytes') return encoded(mutateBytes(dice, dice.below(4) === 0 ? mutateBytes(dice, bytes) : bytes));
  if (family === 'sections') return encoded(mutateSections(dice, sections));
  const at = dice.below(sections.length);
  const block = (sections[at] as Section).bytes;
  if (family === 'blocks') return encoded(rehash(dice, sections, at, mutateBytes(dice, Buffer.from(block))));
  return encoded(rehash(dice, sections, at, cbor(mutateValue(dice, models[at] as Value))));
}

/** What is wrong with how we took this mutant, for people; undefined when nothing is. */
export async function examine({ vector, token, same }: Mutant): Promise<string | undefined> {
  if (same) return undefined;
  const work = noWork();
  try {
    const result = await runVector({ ...vector, token }, work);
    const beyond = boundsBroken(work, 1 + (vector.beside?.length ?? 0));
    if (beyond !== undefined) return beyond;
    if (!result.ok) return undefined;
    // The last block, the root, is not signed: it only says which block is meant.
    const strange = split(Buffer.from(token, 'base64url'))
      .slice(0, -1)
      .some(({ cid }) => !honestBlocks.has(Buffer.from(cid).toString('hex')));
    return strange ? 'accepted, with a block that nobody signed' : undefined;
  } catch (error) {
    return `thrown: ${error instanceof Error ? error.stack : String(error)}`;
  }
}
function boundsBroken(work: Work, files: number): string | undefined {
  const limits: Record<keyof Work, number> = {
    blocks: files * LIMITS.carBlocks,
    decoded: files * (LIMITS.carBlocks - 1),
    cborItems: files * LIMITS.carBlocks * 301,
    signatures: LIMITS.signaturesPerToken,
    lookUps: LIMITS.issuersPerToken + 1,
    storeReads: LIMITS.pathsPerToken * LIMITS.proofsPerLink,
    revocationReads: LIMITS.pathsPerToken * LIMITS.proofDepth,
  };
  for (const key of Object.keys(limits) as (keyof Work)[]) if (work[key] > limits[key]) return `${key}: ${work[key]}`;
  return undefined;
}

/** Enough to see it again, here or with `npm run fuzz`. */
export const describeMutant = (seed: number, n: number, { vector, family, token }: Mutant): string =>
  `seed ${seed}, number ${n}, family ${family}, from ${vector.section}/${vector.name}, as ${vector.as}: ${token}`;
