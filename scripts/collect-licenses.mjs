/**
 * The licences of what went into a bundle: most ask for their text to go with every copy, and a bundle is one.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Text of one file with the licence of every package of which something is in the bundle. @param {readonly string[]} modules paths */
export function collectLicenses(modules) {
  const folders = new Set(modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/u.exec(id)?.[0] ?? []));
  const texts = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const files = readdirSync(folder).filter((file) => /^(?:licen[cs]e|notice|copying)/iu.test(file));
    const text = files.map((file) => readFileSync(join(folder, file), 'utf8').trim()).join('\n\n');
    return `${name} ${version} (${license ?? 'see text'})\n\n${text}`;
  });
  return `${[...new Set(texts)].join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}
