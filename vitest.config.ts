/**
 * One project per kind of test, so that a run says what it needs: `unit`, `properties`, `cli`, `contracts`, `conformance` and `crash-matrix` need nothing, `e2e`, `e2e-slow` and `crash` a
 * real Synapse. `crash-matrix` kills whole oracles in one process at every durable step: too many to stand among what is run at every save.
 * The condition `matrix-oracle-source` is set twice on purpose: for what vitest transforms, and (execArgv) for what it leaves to Node. With only one
 * of them a plugin's `import 'matrix-oracle'` would load a second copy of src/, or the build that a clone does not have.
 */
import { configDefaults, defineConfig } from 'vitest/config';

const CONDITION = 'matrix-oracle-source';
const SECOND = 1_000;
const PROPERTIES = 'test/unit/**/*.property.test.ts';
const CLI = 'test/unit/app/cli/**/*.test.ts';
const SLOW = ['test/e2e/faults.test.ts', 'test/e2e/package.test.ts', 'test/e2e/crypto-hostile.test.ts'];

const project = (name: string, options: Record<string, unknown> = {}) => ({
  extends: true as const,
  test: { name, include: [`test/${name}/**/*.test.ts`], ...options },
});

// A homeserver per file is heavy: one file at a time, so that what a test measures or waits for is not another file's work.
const HEAVY = { testTimeout: 120 * SECOND, hookTimeout: 300 * SECOND, fileParallelism: false };

export default defineConfig({
  resolve: { conditions: [CONDITION, 'node', 'import', 'module', 'default'] },
  ssr: { resolve: { conditions: [CONDITION, 'node', 'import', 'module', 'default'], externalConditions: [CONDITION, 'node'] } },
  test: {
    pool: 'forks',
    execArgv: [`--conditions=${CONDITION}`],
    passWithNoTests: false,
    testTimeout: 10 * SECOND,
    teardownTimeout: 30 * SECOND,
    restoreMocks: true,
    projects: [
      // Nothing of ours works on import and there are no singletons, so files may share a process: a quarter of the time.
      project('unit', { exclude: [...configDefaults.exclude, CLI, PROPERTIES], isolate: false }),
      // Thousands of generated cases each, likewise.
      project('properties', { include: [PROPERTIES], testTimeout: 60 * SECOND }),
      // Each of these starts processes: too slow to stand among what is run at every save.
      project('cli', { include: [CLI], testTimeout: 60 * SECOND }),
      project('contracts'),
      project('conformance', { globals: true, testTimeout: 30 * SECOND }),
      project('crash-matrix', { testTimeout: 120 * SECOND }),
      project('e2e', { exclude: [...configDefaults.exclude, ...SLOW], ...HEAVY, sequence: { groupOrder: 1 } }),
      // Minutes of waiting each, for outages, a registry and a notice: beside the others, in a process of its own (scripts/test.mjs).
      project('e2e-slow', { include: SLOW, ...HEAVY, sequence: { groupOrder: 3 } }),
      project('crash', { ...HEAVY, sequence: { groupOrder: 2 } }),
    ],
  },
});
