import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { AnyOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { type Features, type PluginCandidate, resolvePlugins } from '../../../src/plugin-host/resolve-plugins.ts';

const MANIFEST = { title: 'T', summary: 'S.', whenToUse: ['Sometimes.'] };
const plugin = (name: string, more: Partial<AnyOraclePlugin> = {}): AnyOraclePlugin => ({
  name,
  version: '1.0.0',
  manifest: { ...MANIFEST, title: name },
  ...more,
});
const bundled = (name: string, more: Partial<AnyOraclePlugin> = {}): PluginCandidate => ({ plugin: plugin(name, more), origin: 'bundled' });
const given = (name: string, more: Partial<AnyOraclePlugin> = {}): PluginCandidate => ({ plugin: plugin(name, more), origin: 'given' });

function plan(candidates: readonly PluginCandidate[], features: Features = {}, env: Record<string, string> = {}) {
  const resolved = resolvePlugins(candidates, features, env);
  if (!resolved.ok) throw new Error(JSON.stringify(resolved.error));
  return resolved.value;
}
function problems(candidates: readonly PluginCandidate[], features: Features = {}, env: Record<string, string> = {}): string[] {
  const resolved = resolvePlugins(candidates, features, env);
  return resolved.ok ? [] : resolved.error.map(({ code, message }) => `${code.replace('boot.plugin.', '')}: ${message}`);
}
const names = (candidates: readonly PluginCandidate[], features: Features = {}, env: Record<string, string> = {}) =>
  plan(candidates, features, env).loaded.map(({ name }) => name);

const wantsKey = { autoDetect: (env: Record<string, string | undefined>) => env['KEY'] !== undefined, autoDetectHint: 'set KEY' };

describe('which plugins are loaded, and because of what', () => {
  test.each<[string, Partial<AnyOraclePlugin>, boolean | 'auto' | undefined, Record<string, string>, string]>([
    ['without a word, one that detects nothing is on', {}, undefined, {}, 'loaded: on unless switched off'],
    ['auto is without a word', {}, 'auto', {}, 'loaded: on unless switched off'],
    ['switched on, one that detects nothing', {}, true, {}, 'loaded: switched on'],
    ['switched off wins over what it detects', wantsKey, false, { KEY: 'x' }, 'excluded: switched off'],
    ['it detects what it needs', wantsKey, undefined, { KEY: 'x' }, 'loaded: it is configured'],
    ['switched on, and what it needs is there', wantsKey, true, { KEY: 'x' }, 'loaded: switched on'],
    ['it misses what it needs, and says what', wantsKey, 'auto', {}, 'excluded: not configured: set KEY'],
  ])('%s', (_, more, feature, env, expected) => {
    const { status } = plan([bundled('a', more)], feature === undefined ? {} : { a: feature }, env);

    const said = [
      ...status.loaded.map(({ because }) => `loaded: ${because}`),
      ...status.excluded.map(({ reason }) => `excluded: ${reason}`),
    ];
    expect(said).toEqual([expected]);
  });

  test('a given plugin takes the place of a bundled one of its name, and needs no switch', () => {
    const { loaded, status } = plan([bundled('a'), bundled('b'), given('a', { version: '9.0.0' })]);

    expect(loaded.map(({ name, version }) => `${name} ${version}`)).toEqual(['a 9.0.0', 'b 1.0.0']);
    expect(status.loaded.map(({ origin }) => origin)).toEqual(['given', 'bundled']);
  });

  test('what needs an excluded plugin is excluded with it, through any number of steps, with a warning each', () => {
    const { status, warnings } = plan(
      [bundled('c', { dependsOn: ['b'] }), bundled('b', { dependsOn: ['a'] }), bundled('a'), bundled('d')],
      {
        a: false,
      },
    );

    expect(status.loaded.map(({ name }) => name)).toEqual(['d']);
    expect(status.excluded).toEqual([
      { name: 'c', reason: 'it needs b, which is not loaded' },
      { name: 'b', reason: 'it needs a, which is not loaded' },
      { name: 'a', reason: 'switched off' },
    ]);
    expect(warnings.map(({ code, plugin: name }) => `${code} ${name}`)).toEqual([
      'boot.plugin.cascaded_off b',
      'boot.plugin.cascaded_off c',
    ]);
  });

  test('each comes after what it needs, otherwise in the order given', () => {
    expect(names([bundled('d', { dependsOn: ['c', 'a'] }), bundled('a'), bundled('b'), bundled('c', { dependsOn: ['b'] })])).toEqual([
      'a',
      'b',
      'c',
      'd',
    ]);
    expect(names([bundled('b'), bundled('a')])).toEqual(['b', 'a']);
  });

  test('a wish that is not there excludes nothing and is told', () => {
    const { loaded, status, warnings } = plan([bundled('a', { softDependsOn: ['b', 'gone'] }), bundled('b')], { b: false });

    expect(loaded.map(({ name }) => name)).toEqual(['a']);
    expect(status.softGaps).toEqual([
      { plugin: 'a', missing: 'b' },
      { plugin: 'a', missing: 'gone' },
    ]);
    expect(warnings.map(({ code }) => code)).toEqual(['boot.plugin.soft_gap', 'boot.plugin.soft_gap']);
  });
});

test('what a plugin looks at to decide whether it can work holds neither secrets of the oracle nor what only others read (G12)', () => {
  let seen: unknown;
  const looks = bundled('a', {
    configSchema: z.object({ MINE: z.string() }),
    autoDetect: (env) => {
      seen = { ...env };
      return true;
    },
  });

  plan(
    [looks, bundled('b', { configSchema: z.object({ THEIRS: z.string(), MINE: z.string() }) })],
    {},
    {
      MINE: '1',
      THEIRS: '2',
      MATRIX_AS_TOKEN: '3',
      HOME: '/root',
    },
  );

  expect(seen).toEqual({ MINE: '1', HOME: '/root' });
});

describe('what stops the start, with what to do', () => {
  test.each<[string, readonly PluginCandidate[], Features, string]>([
    [
      'one that is switched on misses what it needs',
      [bundled('a', wantsKey)],
      { a: true },
      'env_missing: Plugin a is switched on, but it is not configured: set KEY. Set what it needs, or switch it off in FEATURES.',
    ],
    [
      'one that is switched on needs one that is off',
      [bundled('a', { dependsOn: ['b'] }), bundled('b')],
      { a: true, b: false },
      'dep_missing: Plugin a is switched on, but it needs b, which is not loaded. Switch b on as well, or a off.',
    ],
    [
      'a need that nobody has',
      [bundled('a', { dependsOn: ['gone'] })],
      {},
      'dep_missing: Plugin a needs "gone", which is no plugin here. Add it to PLUGINS, or switch a off in FEATURES.',
    ],
    [
      'a circle',
      [bundled('a', { dependsOn: ['b'] }), bundled('b', { dependsOn: ['c'] }), bundled('c', { dependsOn: ['a'] })],
      {},
      'cycle: These plugins need each other: a → b → c → a. Switch one of them off in FEATURES.',
    ],
    [
      'one that needs itself',
      [bundled('a', { dependsOn: ['a'] })],
      {},
      'cycle: These plugins need each other: a → a. Switch one of them off in FEATURES.',
    ],
    ['one name twice', [given('a'), given('a')], {}, 'duplicate: Two plugins are called a. Take one of them out of PLUGINS.'],
    [
      'a switch for nobody',
      [bundled('a')],
      { b: false },
      'unknown: FEATURES names "b", which is no plugin here. Correct the name, or add the plugin to PLUGINS.',
    ],
    [
      'a detection that throws',
      [
        bundled('a', {
          autoDetect: () => {
            throw new Error('boom');
          },
        }),
      ],
      {},
      'hook_failed: Plugin a cannot start, autoDetect failed: boom. Correct it, or switch it off in FEATURES.',
    ],
    [
      'a manifest without an occasion',
      [bundled('a', { manifest: { ...MANIFEST, whenToUse: [] } })],
      {},
      'manifest_invalid: The manifest of plugin a is not valid: whenToUse needs an entry, unless visibility is silent. Correct it in the plugin.',
    ],
    [
      'a manifest without a summary',
      [bundled('a', { manifest: { ...MANIFEST, summary: ' ' } })],
      {},
      'manifest_invalid: The manifest of plugin a is not valid: summary is empty. Correct it in the plugin.',
    ],
    [
      'a tag that is not lower case',
      [bundled('a', { manifest: { ...MANIFEST, tags: ['ok', 'Not'] } })],
      {},
      'manifest_invalid: The manifest of plugin a is not valid: tags.1 is not lower case. Correct it in the plugin.',
    ],
    [
      'a hook of another runtime',
      [given('a', { getNestModules: () => [] } as Partial<AnyOraclePlugin>)],
      {},
      'invalid: Plugin a cannot be used: getNestModules: there is no such hook (use getRoutes, which takes a Fastify plugin). Correct it, or take it out of PLUGINS.',
    ],
    [
      'something that is no plugin',
      [{ plugin: 'x' as unknown as AnyOraclePlugin, origin: 'given' }],
      {},
      'invalid: Plugin without a name cannot be used: it is no object made with defineOraclePlugin. Correct it, or take it out of PLUGINS.',
    ],
  ])('%s', (_, candidates, features, expected) => {
    expect(problems(candidates, features)).toEqual([expected]);
  });

  test('everything at once: a fault of one hides no other', () => {
    const found = problems(
      [
        given('a', { manifest: { ...MANIFEST, summary: '' }, configSchema: z.object({ A: z.string() }) }),
        given('b', { dependsOn: ['gone'] }),
        given('b'),
        bundled('c', wantsKey),
      ],
      { c: true, d: true },
    );

    expect(found.map((line) => line.slice(0, line.indexOf(':')))).toEqual([
      'duplicate',
      'unknown',
      'env_missing',
      'dep_missing',
      'manifest_invalid',
      'env_invalid',
    ]);
  });

  test('a plugin that is not loaded is held to nothing: neither its manifest nor its needs', () => {
    const broken = bundled('a', { manifest: { ...MANIFEST, summary: '' }, dependsOn: ['gone'], configSchema: z.object({ A: z.string() }) });

    expect(names([broken, bundled('b')], { a: false })).toEqual(['b']);
  });

  test('two circles are named each once, and what only needs one of them is not accused', () => {
    const found = problems([
      bundled('a', { dependsOn: ['b'] }),
      bundled('b', { dependsOn: ['a'] }),
      bundled('x', { dependsOn: ['y'] }),
      bundled('y', { dependsOn: ['x'] }),
      bundled('leaf', { dependsOn: ['a'] }),
    ]);

    expect(found.map((line) => /other: (?<circle>.*?)\./u.exec(line)?.groups?.['circle'])).toEqual(['a → b → a', 'x → y → x']);
  });
});

describe("a plugin's configuration", () => {
  const schema = z.object({
    URL: z.url().describe('Address of the service.'),
    MAX: z.coerce.number().default(3),
    LIST: z.array(z.string()).default(['x']),
  });
  const service = (name: string, configSchema: z.ZodObject) => bundled(name, { configSchema });

  test('is what its own schema makes of the variables it names, and nothing else (G12)', () => {
    const { loaded } = plan(
      [service('a', schema), service('b', z.object({ OTHER: z.string() }))],
      {},
      {
        URL: 'https://a.example',
        MAX: '5',
        OTHER: 'secret of b',
        PATH: '/bin',
      },
    );

    expect(loaded.map(({ config }) => config)).toEqual([{ URL: 'https://a.example', MAX: 5, LIST: ['x'] }, { OTHER: 'secret of b' }]);
  });

  test('cannot be changed by anybody, also below its first level', () => {
    const config = plan([service('a', schema)], {}, { URL: 'https://a.example' }).loaded[0]?.config;

    expect([Object.isFrozen(config), Object.isFrozen(config?.['LIST'])]).toEqual([true, true]);
  });

  test.each([
    [{}, 'For plugin a, URL is not set. It is: Address of the service. Correct it, or switch the plugin off in FEATURES.'],
    [
      { URL: 'hunter2' },
      'For plugin a, URL is not valid: Invalid URL. It is: Address of the service. Correct it, or switch the plugin off in FEATURES.',
    ],
  ])('that is wrong is told by its name and meaning, never by its value: %j (G12)', (env, expected) => {
    const found = problems([service('a', schema)], {}, env as Record<string, string>);

    expect(found).toEqual([`env_invalid: ${expected}`]);
  });

  test('all that is wrong in all plugins is told at once', () => {
    const two = z.object({ B: z.string(), C: z.string() });

    expect(problems([service('a', schema), service('b', two)])).toHaveLength(3);
  });

  test('must be checked without waiting', () => {
    const late = z.object({ A: z.string().refine(async () => true) });

    expect(problems([service('a', late)], {}, { A: 'x' })[0]).toMatch(
      /^env_invalid: The configSchema of plugin a cannot be used: .* without waiting\.$/u,
    );
  });

  test("that two read, and that is a secret of the oracle's, is warned of", () => {
    const { warnings } = plan(
      [service('a', z.object({ A: z.string() })), service('b', z.object({ A: z.string(), MATRIX_AS_TOKEN: z.string() }))],
      {},
      { A: 'x', MATRIX_AS_TOKEN: 'x' },
    );

    expect(warnings.map(({ message }) => message)).toEqual([
      'Plugin b reads A, as does plugin a.',
      'Plugin b reads MATRIX_AS_TOKEN, as does the oracle itself.',
    ]);
  });
});

describe('a manifest', () => {
  test('is laid over by the overrides before it is checked', () => {
    const silent: PluginCandidate = {
      ...bundled('a', { manifest: { ...MANIFEST, whenToUse: [] } }),
      overrides: { visibility: 'silent', title: 'B' },
    };

    expect(plan([silent]).loaded[0]?.manifest).toMatchObject({ title: 'B', visibility: 'silent', summary: 'S.' });
  });

  test('is on demand unless it says else', () => {
    expect(plan([bundled('a')]).loaded[0]?.manifest.visibility).toBe('on-demand');
  });

  test('that costs every prompt too much is warned of', () => {
    const long = 'x'.repeat(121);
    const { warnings } = plan([
      bundled('a', {
        manifest: {
          ...MANIFEST,
          summary: long,
          whenToUse: Array.from({ length: 9 }, () => long),
          whenNotToUse: Array.from({ length: 5 }, () => long),
          examples: Array.from({ length: 4 }, () => ({ user: 'u', tool: 't' })),
        },
      }),
      bundled('b', { manifest: { ...MANIFEST, title: 'T' } }),
    ]);

    expect(warnings.map(({ message }) => message)).toEqual([
      'In the manifest of plugin a, summary has more than 120 characters.',
      'In the manifest of plugin a, whenToUse has more than 8 entries.',
      'In the manifest of plugin a, whenToUse has an entry of more than 100 characters.',
      'In the manifest of plugin a, whenNotToUse has more than 4 entries.',
      'In the manifest of plugin a, whenNotToUse has an entry of more than 80 characters.',
      'In the manifest of plugin a, examples has more than 3 entries.',
      'Plugins a and b have the same title.',
    ]);
  });
});
