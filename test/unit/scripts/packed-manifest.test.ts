import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { BUNDLED, planPackedManifest } from '../../../scripts/packed-manifest.ts';

const manifest = JSON.parse(readFileSync(join(import.meta.dirname, '../../../package.json'), 'utf8'));
const packed = planPackedManifest(manifest);

test('the packed manifest has no condition of ours, so that a setting of a user cannot lead to source that is not there', () => {
  expect(JSON.stringify(packed.exports)).not.toContain('matrix-oracle-source');
  expect(Object.keys(packed.exports)).toEqual(Object.keys(manifest.exports));
});

test('what is bundled is no dependency of the packed manifest, and everything else still is', () => {
  const all = Object.keys(manifest.dependencies);

  expect(Object.keys(packed.dependencies)).toEqual(all.filter((name) => !BUNDLED.includes(name)));
  expect(BUNDLED.filter((name) => !all.includes(name))).toEqual([]);
});

test('nothing of a clone is packed: no scripts that would run at install, no workspaces, no overrides', () => {
  expect(Object.keys(packed).filter((key) => /scripts|workspaces|overrides|devDependencies|private/iu.test(key))).toEqual([]);
});
