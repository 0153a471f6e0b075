/**
 * What a package entry exports, as it stands in the source: comment and declaration. Biome's format does the parsing: a declaration begins at the
 * margin and ends with a line that closes what it opened. A name that cannot be found is a fault, so that nothing silently leaves the reference.
 */
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export interface Declaration {
  readonly name: string;
  readonly kind: 'interface' | 'type' | 'class' | 'function';
  /** The comment in front of it, as a paragraph; empty for none. */
  readonly comment: string;
  /** Without the comment in front of it, and without the body of a function or class. */
  readonly text: string;
}

const RE_EXPORT = /^export (?:type )?\{(?<names>[^}]*)\}(?: from '(?<from>[^']+)')?;$/gmu;
const nameOf = (entry: string): string => entry.trim().replace(/^type /u, '');

/** In the order of the entry's own lines. */
export async function readDeclarations(entry: string): Promise<readonly Declaration[]> {
  const text = await readFile(entry, 'utf8');
  const found: Declaration[] = [];
  for (const { groups } of text.matchAll(RE_EXPORT)) {
    for (const name of (groups?.['names'] ?? '').split(',').map(nameOf).filter(Boolean))
      found.push(await findDeclaration(groups?.['from'] === undefined ? entry : join(dirname(entry), groups['from']), name));
  }
  for (const { groups } of text.matchAll(/^export (?:async )?(?:interface|type|class|function) (?<name>\w+)/gmu))
    found.push(await findDeclaration(entry, groups?.['name'] ?? ''));
  return found;
}

/** Where it is written, however many files hand it on. */
async function findDeclaration(path: string, name: string): Promise<Declaration> {
  const text = await readFile(path, 'utf8');
  const start = new RegExp(`^export (?:async )?(?<kind>interface|type|class|function) ${name}\\b`, 'mu').exec(text);
  if (start === null) {
    const importing = new RegExp(`^import (?:type )?\\{[^}]*\\b${name}\\b[^}]*\\} from '(?<from>[^']+)';$`, 'mu').exec(text)?.groups?.[
      'from'
    ];
    if (importing === undefined) throw new Error(`${path} exports ${name}, but its declaration cannot be found`);
    return findDeclaration(join(dirname(path), importing), name);
  }
  const kind = start.groups?.['kind'] as Declaration['kind'];
  return { name, kind, comment: readComment(text.slice(0, start.index)), text: readText(text.slice(start.index), kind) };
}

function readComment(before: string): string {
  // Directives to tools stand between comment and declaration.
  const above = before.replace(/(?:^\/\/ biome-ignore.*\n)+$/mu, '');
  const comment = /\/\*\*(?<text>(?:(?!\*\/)[\s\S])*)\*\/\n$/u.exec(above)?.groups?.['text'] ?? '';
  return comment
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/u, '').trim())
    .filter((line) => line !== '')
    .join(' ')
    .trim();
}

function readText(from: string, kind: Declaration['kind']): string {
  const lines: string[] = [];
  let open = 0;
  for (const line of from.split('\n')) {
    if (/^\s*\/\/ biome-ignore/u.test(line)) continue;
    lines.push(line);
    const code = line.replaceAll(/\/\*.*?\*\/|'(?:[^'\\]|\\.)*'/gu, '');
    open += (code.match(/[{([]/gu)?.length ?? 0) - (code.match(/[})\]]/gu)?.length ?? 0);
    const isCode = !/^\s*(?:\/?\*|\/\/)/u.test(line);
    if (kind === 'function' && open === 1 && line.endsWith('{')) return `${lines.join('\n').slice(0, -2)};`;
    if (kind === 'class' && open === 1) return line.replace(/ \{$/u, ';');
    if (kind === 'interface' && open === 0) return lines.join('\n');
    if (kind === 'type' && open === 0 && isCode && line.endsWith(';')) return lines.join('\n');
  }
  throw new Error(`a declaration without an end: ${lines[0]}`);
}
