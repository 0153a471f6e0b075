/**
 * `npm run vectors` writes test/vectors/ucan/*.json: every row of research/ucan.md §3.2 A to O, the replay matrix of §3.4 and honest twins, as bytes that
 * other implementations can be tried with, too. Deterministic; a test runs it again and compares.
 */
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { restart, type Vector } from './cast.ts';
import { abilities, caveats, kind, time } from './rows/a-d.ts';
import { encoding, work } from './rows/e-f.ts';
import { alignment, attestation, didStrings, didWeb, fine, keys, nonStandard, replay, revocation, roots, valid } from './rows/g-o.ts';

const FILES: Readonly<Record<string, () => Vector[]>> = {
  'a-time': time,
  'b-kind': kind,
  'c-abilities': abilities,
  'd-caveats': caveats,
  'e-encoding': encoding,
  'f-work': work,
  'g-keys': keys,
  'h-non-standard-signatures': nonStandard,
  'i-did-strings': didStrings,
  'j-did-web': didWeb,
  'k-alignment': alignment,
  'l-attestation': attestation,
  'm-roots': roots,
  'n-revocation': revocation,
  'o-fine': fine,
  replay,
  valid,
};

/** File name without folder, and its text. */
export function makeFiles(): Map<string, string> {
  const files = new Map<string, string>();
  for (const [name, make] of Object.entries(FILES)) {
    restart();
    files.set(
      `${name}.json`,
      `[\n${make()
        .map((vector) => JSON.stringify(vector))
        .join(',\n')}\n]\n`,
    );
  }
  return files;
}

if (process.argv[1] === import.meta.filename) {
  const folder = import.meta.dirname;
  const files = makeFiles();
  for (const name of readdirSync(folder)) if (name.endsWith('.json') && !files.has(name)) rmSync(join(folder, name));
  let count = 0;
  for (const [name, text] of files) {
    writeFileSync(join(folder, name), text);
    count += (JSON.parse(text) as unknown[]).length;
  }
  process.stdout.write(`${count} vectors in ${files.size} files.\n`);
}
