/**
 * npm 10 calls node-gyp for every package with a binding.gyp, and so `npm ci` fails on a machine without a compiler, although better-sqlite3 ships its
 * binaries and says `gypfile: false`: npm reads that from the lockfile, where it does not write it. So it is written here, after each `npm install`
 * (npm's events `dependencies`, when packages changed, and `prepare`, when none did). npm 11.16 and newer refuses the same script by `allowScripts`. Changes nothing when the mark is there (`npm ci`).
 */
import { readFileSync, writeFileSync } from 'node:fs';

const PREBUILT = ['node_modules/better-sqlite3'];
const file = new URL('../package-lock.json', import.meta.url);

const before = readFileSync(file, 'utf8');
const lockfile = JSON.parse(before);
for (const path of PREBUILT) if (lockfile.packages[path]) lockfile.packages[path].gypfile = false;
const after = `${JSON.stringify(lockfile, null, 2)}\n`;
if (after !== before) writeFileSync(file, after);
