/**
 * The one file of a token: the gate accepts a single order of blocks, so everything that writes a file (minting, storing a grant that came
 * inside another) writes it here. Pure.
 */
import { buildCar } from './car.ts';
import type { GatedUcan } from './gate.ts';
import { buildVariant } from './write-car.ts';

type Link = Pick<GatedUcan, 'cid' | 'block' | 'proofs'>;

/** Unpadded base64url CAR of `leaf` with what of its proofs, and of theirs, is in `known`; the rest stays named only. */
export function buildFile(leaf: Link, known: ReadonlyMap<string, Link>): string {
  const placed = new Map<string, Uint8Array>();
  const place = (link: Link): void => {
    for (const cid of link.proofs) {
      const proof = known.get(cid);
      if (proof !== undefined && !placed.has(cid)) place(proof);
    }
    placed.set(link.cid, link.block);
  };
  place(leaf);
  const root = buildVariant(Buffer.from(leaf.cid, 'hex'));
  return buildCar(root, [...placed.values(), root]).toString('base64url');
}
