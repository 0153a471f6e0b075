/**
 * Import this first: better-sqlite3 crashes without a word on an older Node, and a `.ts` file is only a syntax error there.
 * Plain JavaScript with no imports of its own, so that an old Node gets as far as the sentence. `npm run` puts node_modules/.bin first in PATH,
 * and with it the Node 24 of the package `node`; only a direct `node …` or `npm ci --ignore-scripts` comes here with another one.
 */
const NEEDED = 24;
const major = Number(process.versions.node.split('.')[0]);

if (!(major >= NEEDED)) {
  process.stderr.write(
    `matrix-oracle needs Node.js ${NEEDED} or newer, but this is ${process.versions.node}. In a clone run \`npm ci\` and then ` +
      `\`npm run oracle -- <command>\`, which brings its own Node ${NEEDED}; or install Node.js ${NEEDED} from https://nodejs.org.\n`,
  );
  process.exit(1);
}
