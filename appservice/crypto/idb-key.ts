/**
 * IndexedDB's keys as text, one text per key: two spellings of one key would leave the older record beside the newer one, and the engine would meet a
 * ratchet of yesterday after a restart. (v8.serialize is not canonical: it writes one string in two ways.)
 */
import { z } from 'zod';

/** The engine uses strings only; dates and bytes have no plain JSON, and are refused rather than written in a way that is not read back. */
export type IdbKey = string | number | IdbKey[];

const Key: z.ZodType<IdbKey> = z.lazy(() => z.union([z.string(), z.number(), z.array(Key)]));

/** @throws TypeError for a key that has no text. */
export function writeKey(key: unknown): string {
  const parsed = Key.safeParse(key);
  if (!parsed.success) throw new TypeError('only text, finite numbers and lists of them can be keys of the key store');
  return JSON.stringify(parsed.data);
}
export const readKey = (text: string): IdbKey => Key.parse(JSON.parse(text));
