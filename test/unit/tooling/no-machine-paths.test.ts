/**
 * Nothing in the repository may know the machine it was written on: an absolute path works there and nowhere else, a registry's host in a lockfile breaks
 * the installation behind another mirror. The patterns are put together from pieces, because this file is searched too.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../../..');
const HOMES = ['work', 'root', 'home', 'Users', 'mnt', 'workspace', 'builds'];
const REGISTRIES = [
  'registry' + '.npmjs',
  'registry' + '.yarnpkg',
  'pypi' + '.org',
  'files.python' + 'hosted',
  'deb' + '.debian',
  'npm' + '.pkg.github',
];

// An absolute path: not after a character that makes it part of a URL, a relative path or a Matrix id.
const machinePath = new RegExp(`(?<![\\w.~})\\]:/*-])/(?:${HOMES.join('|')})/[\\w.-]+`, 'g');
const temporaryPath = new RegExp(`(?<![\\w.~})\\]:/*-])/tmp/(?:${'pl' + 'an'}|bash_jobs)[\\w./-]*`, 'g');
const registryHost = new RegExp(`(?:${REGISTRIES.map((host) => host.replaceAll('.', '\\.')).join('|')})`, 'g');
const PATTERNS = [machinePath, temporaryPath, registryHost];

const isText = (bytes: Buffer): boolean => !bytes.subarray(0, 8_000).includes(0);
const find = (text: string): string[] => PATTERNS.flatMap((pattern) => text.match(pattern) ?? []);

test('no file names a path of a machine or the host of a registry', () => {
  const listed = execFileSync('git', ['-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const files = listed.split('\0').filter((file) => file !== '' && existsSync(join(ROOT, file)));
  const findings = files.flatMap((file) => {
    const bytes = readFileSync(join(ROOT, file));
    if (!isText(bytes)) return [];
    return find(bytes.toString('utf8')).map((finding) => `${file}: ${finding}`);
  });

  expect(files.length).toBeGreaterThan(10);
  expect(findings).toEqual([]);
});

test('the search finds what it looks for: the control', () => {
  const samples = [
    `cd /${'work'}/main`,
    `'/${'root'}/.npmrc'`,
    `(/${'home'}/me/x)`,
    `https://${'registry'}.npmjs.org/x`,
    `/tmp/${'plan'}/RULES`,
  ];

  expect(samples.filter((sample) => find(sample).length === 0)).toEqual([]);
});

test.each(['https://example.org/work/x', './work/x', 'src/home/page.ts', '/tmp/matrix-oracle-x', '@user:server/root/x', '/workers/a'])(
  '%s is not taken for a machine path',
  (text) => {
    expect(find(text)).toEqual([]);
  },
);
