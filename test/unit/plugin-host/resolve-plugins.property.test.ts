/** Any graph of needs, any switches, any environment: what is loaded can work, stands after what it needs, and is the same every time. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { AnyOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { type Features, type PluginCandidate, resolvePlugins } from '../../../src/plugin-host/resolve-plugins.ts';

const RUNS = 2_000;
const NAMES = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const name = fc.constantFrom(...NAMES, 'unknown');
const anyPlugin = fc.record({
  dependsOn: fc.uniqueArray(name, { maxLength: 3 }),
  softDependsOn: fc.uniqueArray(name, { maxLength: 2 }),
  detects: fc.constantFrom('yes', 'no', 'nothing', 'throws'),
  origin: fc.constantFrom('bundled' as const, 'given' as const),
});
const anyFeature = fc.constantFrom<boolean | 'auto' | undefined>(true, false, 'auto', undefined);
interface Case {
  readonly candidates: readonly PluginCandidate[];
  readonly features: Features;
}
const build = (
  plugins: readonly (typeof anyPlugin extends fc.Arbitrary<infer T> ? T : never)[],
  switches: readonly (boolean | 'auto' | undefined)[],
): Case => ({
  candidates: plugins.map(({ dependsOn, softDependsOn, detects, origin }, index) => ({
    plugin: {
      name: NAMES[index] ?? '',
      version: '1',
      manifest: { title: NAMES[index] ?? '', summary: 'S.', whenToUse: ['Now.'] },
      dependsOn,
      softDependsOn,
      ...(detects === 'nothing'
        ? {}
        : {
            autoDetect: () => {
              if (detects === 'throws') throw new Error('boom');
              return detects === 'yes';
            },
          }),
    } satisfies AnyOraclePlugin,
    origin,
  })),
  features: Object.fromEntries(
    switches.flatMap((value, index) => (value === undefined || index >= plugins.length ? [] : [[NAMES[index] ?? '', value]])),
  ),
});
const anyCase = fc
  .tuple(fc.array(anyPlugin, { maxLength: NAMES.length }), fc.array(anyFeature, { minLength: NAMES.length, maxLength: NAMES.length }))
  .map(([plugins, switches]) => build(plugins, switches));
/** Needs only what comes before it or is nowhere: most of these start. */
const orderly = fc
  .tuple(
    fc.array(anyPlugin, { maxLength: NAMES.length }),
    fc.array(fc.constantFrom<false | 'auto' | undefined>(false, 'auto', undefined), { minLength: NAMES.length, maxLength: NAMES.length }),
  )
  .map(([plugins, switches]) =>
    build(
      plugins.map((one, index) => ({
        ...one,
        detects: one.detects === 'throws' ? ('yes' as const) : one.detects,
        dependsOn: one.dependsOn.filter((need) => NAMES.slice(0, index).includes(need)),
      })),
      switches,
    ),
  );

test('a loaded plugin has everything it needs, and stands after it', () => {
  fc.assert(
    fc.property(anyCase, ({ candidates, features }) => {
      const plan = resolvePlugins(candidates, features, {});
      if (!plan.ok) return;
      const order = plan.value.loaded.map((plugin) => plugin.name);
      for (const { name: own, plugin } of plan.value.loaded)
        for (const need of plugin.dependsOn ?? []) expect(order.slice(0, order.indexOf(own))).toContain(need);
    }),
    { numRuns: RUNS },
  );
});

test('every plugin is loaded or excluded with a reason, never both, and one that is switched off is never loaded', () => {
  fc.assert(
    fc.property(anyCase, ({ candidates, features }) => {
      const plan = resolvePlugins(candidates, features, {});
      if (!plan.ok) return void expect(plan.error.length).toBeGreaterThan(0);
      const { loaded, excluded } = plan.value.status;
      expect([...loaded, ...excluded].map((one) => one.name).sort()).toEqual(candidates.map(({ plugin }) => plugin.name).sort());
      for (const { name: own } of loaded) expect(features[own]).not.toBe(false);
      for (const { reason } of excluded) expect(reason).not.toBe('');
      for (const { name: own } of excluded) expect(features[own]).not.toBe(true);
    }),
    { numRuns: RUNS },
  );
});

test('the order is the one given where needs allow it: plugins in an order that works stay in it', () => {
  fc.assert(
    fc.property(orderly, ({ candidates, features }) => {
      const plan = resolvePlugins(candidates, features, {});

      expect(plan.ok && plan.value.loaded.map((plugin) => plugin.name)).toEqual(
        candidates.map(({ plugin }) => plugin.name).filter((own) => plan.ok && plan.value.loaded.some((plugin) => plugin.name === own)),
      );
    }),
    { numRuns: RUNS },
  );
});

test('resolving again in the resolved order changes nothing', () => {
  fc.assert(
    fc.property(anyCase, ({ candidates, features }) => {
      const first = resolvePlugins(candidates, features, {});
      if (!first.ok) return;
      const order = first.value.loaded.map((plugin) => plugin.name);
      const again = resolvePlugins(
        [...candidates].sort((a, b) => order.indexOf(a.plugin.name) - order.indexOf(b.plugin.name)),
        features,
        {},
      );

      expect(again.ok && again.value.loaded.map((plugin) => plugin.name)).toEqual(order);
    }),
    { numRuns: RUNS },
  );
});

test('a start is refused only with a problem that names a plugin and what to do', () => {
  fc.assert(
    fc.property(anyCase, ({ candidates, features }) => {
      const plan = resolvePlugins(candidates, features, {});
      if (plan.ok) return;
      for (const { code, plugin, message } of plan.error) {
        expect(code).toMatch(/^boot\.plugin\.(?:env_missing|dep_missing|cycle|hook_failed)$/u);
        expect(message).toContain(plugin ?? 'nobody');
        expect(message).toMatch(/\. (?:Set|Switch|Add|Correct) .*\.$/u);
      }
    }),
    { numRuns: RUNS },
  );
});

test('an orderly graph starts: what is refused elsewhere is refused for its circles, switches and unknown needs', () => {
  fc.assert(
    fc.property(orderly, ({ candidates, features }) => {
      expect(resolvePlugins(candidates, features, {}).ok).toBe(true);
    }),
    { numRuns: RUNS },
  );
});
