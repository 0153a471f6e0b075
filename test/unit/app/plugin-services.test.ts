import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openPluginServices } from '../../../src/app/plugin-services.ts';
import type { PrincipalId } from '../../../src/ids.ts';
import { keyFromSeed } from '../../../src/ucan/signing-key.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { fakeLogger } from '../../fakes/fake-logger.ts';
import { memoryStore, tempFolder } from '../../fakes/memory-store.ts';
import { hostOf } from '../../fakes/plugin-host.ts';
import { noMatrix } from '../agent/turn-fixture.ts';

const OWNER = { plugin: 'p', principal: 'did:key:zAlice' as PrincipalId };
function setUp(more: { secretsKeyFile?: string; signing?: ReturnType<typeof keyFromSeed> } = {}) {
  const dataDir = tempFolder();
  const options = {
    config: { dataDir, secretsKeyFile: more.secretsKeyFile },
    store: memoryStore(),
    clock: fakeClock(),
    logger: fakeLogger(),
    matrix: noMatrix,
    signing: more.signing ?? null,
  };
  return { dataDir, open: async () => openPluginServices({ ...options, host: await hostOf([]) }) };
}

test.each([undefined, keyFromSeed(new Uint8Array(32).fill(7))])(
  'a blob is there after the next start, with and without a key of the oracle',
  async (signing) => {
    const { dataDir, open } = setUp(signing === undefined ? {} : { signing });
    const id = await (await open()).blobs.put(OWNER, { name: 'n', value: 'v', tainted: false });

    expect((await open()).blobs.get(OWNER, id)?.value).toBe('v');
    expect(existsSync(join(dataDir, 'blob.key'))).toBe(signing === undefined);
  },
);

test('a key for secrets that cannot be used stops the start', async () => {
  const file = join(tempFolder(), 'key');
  writeFileSync(file, 'no key');

  await expect(setUp({ secretsKeyFile: file }).open()).rejects.toThrow('SECRETS_KEY_FILE holds no P-256 private key.');
});
