#!/usr/bin/env node
/**
 * The executable. It looks at the Node version before anything else is loaded, then makes sure that `import 'matrix-oracle'` in a plugin means
 * the source this process runs, not a second copy of it: `npm run` says so with --conditions, a direct `node bin.mjs` gets the same by a hook.
 */
import './require-node.mjs';

const CONDITION = 'matrix-oracle-source';
const PACKAGE = 'matrix-oracle';

if (!process.execArgv.join(' ').includes(CONDITION)) {
  // Not a static import: registerHooks does not exist on the versions that require-node turns away.
  const { registerHooks } = await import('node:module');
  registerHooks({
    resolve: (specifier, context, next) =>
      specifier === PACKAGE || specifier.startsWith(`${PACKAGE}/`)
        ? next(specifier, { ...context, conditions: [...context.conditions, CONDITION] })
        : next(specifier, context),
  });
}

// Not static either: enableCompileCache is missing on those versions too.
const { makeLean } = await import('./lean-process.mjs');
makeLean();
const { main } = await import('./main.ts');
await main(process.argv.slice(2));
