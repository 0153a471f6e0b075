/**
 * The text of an answer arrives as one small row for each 30 ms; for years it should cost what it says and little more. When a run ends, in its
 * terminal transaction, neighbouring text frames become one row: at the number of the last, with the number of the first (`from`), the time
 * between them (`ms`) and the length of each. Reading gives back the very frames that were written, so a viewer that comes back with any number
 * never notices (G7); only the times in between are spread evenly.
 * Cost: a character for each frame of up to 31 UTF-16 units, two for longer ones; one read of the run's text when it ends.
 */
import { sql as raw } from 'kysely';
import { z } from 'zod';
import type { RunId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';
import { type Frame, readFrame } from './run.ts';

export interface FrameRow {
  readonly seq: number;
  readonly kind: string;
  readonly data: string;
  readonly at: number;
}
export interface Merge {
  /** Number of the first frame; those before `row.seq` are deleted. */
  readonly from: number;
  readonly row: FrameRow;
}

/** UTF-16 units in one row: whoever reads on from the middle of it reads the whole row. */
const MAX_ROW_UNITS = 32 * 1024;

const merged = z.object({ delta: z.string(), from: z.number().int().positive(), ms: z.number().nonnegative(), lengths: z.string() });

/** The frames that a stored row holds, one or many. Throws on a row that no release wrote, as `readFrame` does. */
export function readFrameRow(row: FrameRow): Frame[] {
  if (row.kind !== 'text') return [readFrame(row)];
  const stored: unknown = JSON.parse(row.data);
  if (typeof stored !== 'object' || stored === null || !('from' in stored)) return [readFrame(row)];
  const { delta, from, ms, lengths } = merged.parse(stored);
  const units = readLengths(lengths);
  if (from + units.length - 1 !== row.seq) throw new Error(`the frames ${from} to ${row.seq} do not fit their row`);
  const stepMs = units.length > 1 ? ms / (units.length - 1) : 0;
  let end = 0;
  return units.map((length, index) => {
    const start = end;
    end += length;
    const at = Math.round(row.at - ms + stepMs * index);
    return { seq: from + index, at, kind: 'text', data: { delta: delta.slice(start, end) } };
  });
}

/** Which of these text frames become one row. In order of their numbers; a gap is a frame of another kind, and is not merged over. */
export function planMerges(frames: readonly Extract<Frame, { kind: 'text' }>[]): Merge[] {
  const merges: Merge[] = [];
  let group: Extract<Frame, { kind: 'text' }>[] = [];
  let units = 0;
  const close = (): void => {
    const [first, last] = [group[0], group.at(-1)];
    if (first !== undefined && last !== undefined && group.length > 1) {
      const data = {
        delta: group.map((frame) => frame.data.delta).join(''),
        from: first.seq,
        // The wall clock may have been put back meanwhile.
        ms: Math.max(0, last.at - first.at),
        lengths: writeLengths(group.map((frame) => frame.data.delta.length)),
      };
      merges.push({ from: first.seq, row: { seq: last.seq, kind: 'text', data: JSON.stringify(data), at: last.at } });
    }
    group = [];
    units = 0;
  };
  for (const frame of frames) {
    const last = group.at(-1);
    const { length } = frame.data.delta;
    if (last !== undefined && (frame.seq !== last.seq + 1 || units + length > MAX_ROW_UNITS)) close();
    group.push(frame);
    units += length;
  }
  close();
  return merges;
}

/** Inside the transaction that ends the run: afterwards nobody writes frames of it. */
export function compactText(store: Store, tx: Tx, run: RunId): void {
  const { sql } = store;
  const rows = tx.all(
    sql
      .selectFrom('frames')
      .select(['seq', 'kind', 'data', 'at'])
      .where('run_id', '=', run)
      .where('kind', '=', raw.lit('text'))
      .orderBy('seq'),
  );
  if (rows.length < 2) return;
  const frames = rows.flatMap(readFrameRow).filter((frame) => frame.kind === 'text');
  for (const { from, row } of planMerges(frames)) {
    tx.run(sql.deleteFrom('frames').where('run_id', '=', run).where('seq', '>=', from).where('seq', '<', row.seq));
    tx.run(sql.updateTable('frames').set({ data: row.data, at: row.at }).where('run_id', '=', run).where('seq', '=', row.seq));
  }
}

/** Numbers as base-64 digits of five bits, lowest first; the sixth bit says that more follow. */
const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const MORE = 32;
const VALUES: ReadonlyMap<string, number> = new Map([...DIGITS].map((digit, value) => [digit, value]));

function writeLengths(lengths: readonly number[]): string {
  let text = '';
  for (const length of lengths) {
    let rest = length;
    for (; rest >= MORE; rest = Math.floor(rest / MORE)) text += DIGITS.charAt(MORE + (rest % MORE));
    text += DIGITS.charAt(rest);
  }
  return text;
}

function readLengths(text: string): number[] {
  const lengths: number[] = [];
  let length = 0;
  let weight = 1;
  for (const digit of text) {
    const value = VALUES.get(digit);
    if (value === undefined) throw new Error('the lengths of merged frames cannot be read');
    length += (value % MORE) * weight;
    weight *= MORE;
    if (value >= MORE) continue;
    lengths.push(length);
    length = 0;
    weight = 1;
  }
  return lengths;
}
