/**
 * The import rule of docs/architecture.md: the runtime (src) knows Matrix ids but no Matrix events, no HTTP and no process; only src/app knows all parts.
 * Beside TypeScript 7 the cruiser's own TypeScript parser reads no module and still prints "no violations", hence `parser: 'swc'`
 * (which sees type imports without `tsPreCompilationDeps`, an option that only makes the cruiser warn that it misses TypeScript);
 * test/unit/tooling/import-rule.test.ts keeps forbidden imports as fixtures that must be reported.
 * What a plugin writes as its import (`matrix-oracle`, never a path into src) is checked by Biome: here both are the same file.
 */
const OUTER = 'src/app|src/sidecar|appservice|plugins|synapse-dev|test|scripts';
const without = (...names) =>
  OUTER.split('|')
    .filter((name) => !names.includes(name))
    .join('|');
const rule = (name, comment, from, to) => ({ name, comment, severity: 'error', from, to });

module.exports = {
  forbidden: [
    rule(
      'runtime-knows-no-outside',
      'src (but app and sidecar) declares ports; it imports no transport, no plugin and no composition.',
      { path: '^src/', pathNot: '^src/(app|sidecar)/' },
      { path: `^(${OUTER})/` },
    ),
    rule(
      'sidecar-imports-runtime-only',
      'The sidecar imports src only.',
      { path: '^src/sidecar/' },
      { path: `^(${without('src/sidecar')})/` },
    ),
    rule(
      'page-runs-in-a-browser',
      'The authorise page imports its own files, the UCAN builder, which knows no Node, and types.',
      { path: '^src/sidecar/pages/authorise/' },
      {
        path: '^src/',
        pathNot: '^src/(sidecar/pages/authorise/|ucan/(abilities|build-ucan)[.]ts$)',
        dependencyTypesNot: ['type-only'],
      },
    ),
    rule(
      'appservice-imports-runtime-only',
      'The application service imports src only.',
      { path: '^appservice/' },
      { path: `^(${without('appservice')})/` },
    ),
    rule(
      'app-ships-without-tests',
      'Tests, scripts and synapse-dev are not in the package; only the demo command starts synapse-dev.',
      { path: '^src/app/', pathNot: '^src/app/cli/' },
      { path: '^(synapse-dev|test|scripts)/' },
    ),
    rule(
      'cli-ships-without-tests',
      'The demo command may start synapse-dev, nothing may import tests or scripts.',
      { path: '^src/app/cli/' },
      { path: '^(test|scripts)/' },
    ),
    rule(
      'plugin-imports-the-package',
      "A bundled plugin imports the package, as anybody's would: src/index.ts and (its tests) src/testing.ts.",
      { path: '^plugins/' },
      { path: `^(src|${without('plugins')})/`, pathNot: '^src/(index|testing)[.]ts$' },
    ),
    rule(
      'plugin-is-alone',
      'A plugin imports no other plugin.',
      { path: '^plugins/([^/]+)/' },
      { path: '^plugins/', pathNot: '^plugins/$1/' },
    ),
    rule(
      'plugin-dependencies',
      'A bundled plugin needs nothing but the package, zod, Node and types of @langchain/core; mcp loads the adapters when a server is configured.',
      { path: '^plugins/' },
      { path: 'node_modules/', pathNot: 'node_modules/(zod|@langchain/(core|mcp-adapters))/' },
    ),
    rule(
      'plugin-langchain-types-only',
      'Of @langchain/core a plugin sees types only; the agent library loads after listening.',
      { path: '^plugins/' },
      { path: 'node_modules/@langchain/core/', dependencyTypesNot: ['type-only'] },
    ),
    rule(
      'matrix-bot-sdk-behind-its-port',
      'matrix-bot-sdk is used through the MatrixApi port only.',
      { path: '^(src|appservice|plugins)/', pathNot: '^appservice/client[^/]*[.]ts$' },
      { path: 'node_modules/matrix-bot-sdk/' },
    ),
    rule(
      'no-dev-dependency',
      'What ships must not need a development dependency; the authorise page is bundled before it ships.',
      { path: '^(src|appservice|plugins)/', pathNot: '^src/sidecar/pages/authorise/' },
      { dependencyTypes: ['npm-dev'], dependencyTypesNot: ['type-only', 'npm'] },
    ),
    rule(
      'no-circular',
      'Modules in a circle see each other half built.',
      {},
      { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    ),
    rule('resolvable', 'An import that cannot be resolved would be checked by no rule.', {}, { couldNotResolve: true }),
  ],
  options: {
    parser: 'swc',
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['matrix-oracle-source', 'import', 'node', 'default', 'types'],
      extensions: ['.ts', '.mjs', '.cjs', '.js', '.d.ts', '.json'],
      mainFields: ['main', 'types'],
    },
  },
};
