import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { CompactEncrypt } from 'jose';
import { describe, expect, test } from 'vitest';
import { createRedactor } from '../../../src/secrets/redactor.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';
import { buildContext } from './context-fixture.ts';

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const VALUE = 'ghp_very_secret_token';
const value = await new CompactEncrypt(Buffer.from(VALUE))
  .setProtectedHeader({ alg: 'ECDH-ES+A256KW', enc: 'A256GCM' })
  .encrypt(createPublicKey(privateKey));
const services = (key = privateKey) =>
  fakeServices({
    secrets: {
      key,
      matrix: {
        roomState: async () => [{ type: 'ixo.room.secret.index', stateKey: 'GITHUB', sender: '@alice:test', content: { eventId: '$v' } }],
        event: async () => ({ type: 'ixo.room.secret', sender: '@alice:test', content: { value } }),
      },
    },
  });

describe('secrets', () => {
  test('names and values of the room', async () => {
    const { secrets } = buildContext({ services: services() }).context;

    expect(await secrets.getIndex()).toEqual([{ name: 'GITHUB', eventId: '$v' }]);
    expect(await secrets.getValues(['GITHUB', 'OTHER'])).toEqual({ GITHUB: VALUE });
  });

  test.each(['sender-bound', 'listed'] as const)('below tier signed there are names, no values: %s', async (tier) => {
    const { secrets } = buildContext({ services: services(), run: fakeRun({ tier }) }).context;

    expect(await secrets.getIndex()).toHaveLength(1);
    await expect(secrets.getValues(['GITHUB'])).rejects.toMatchObject({ refusal: { code: 'TIER_TOO_LOW' } });
  });

  test.each<[string, unknown]>([
    ['no list', 'GITHUB'],
    ['too many', Array.from({ length: 51 }, (_, at) => `n${at}`)],
    ['no names', [5]],
    ['a long name', ['x'.repeat(201)]],
  ])('what is asked for is checked: %s (G14)', async (_name, keys) => {
    await expect(buildContext({ services: services() }).context.secrets.getValues(keys as never)).rejects.toMatchObject({
      refusal: { code: 'BAD_REQUEST' },
    });
  });

  test('a value that was given out is masked in frames and log lines, of other plugins of the run as well (G12)', async () => {
    const redactor = createRedactor();
    await buildContext({ services: services(), redactor }).context.secrets.getValues(['GITHUB']);
    const { context, emitted, logger } = buildContext({ services: services(), redactor, plugin: 'other' });

    context.emit.actionCall({ toolCallId: 'a', toolName: `x ${VALUE}`, args: { url: `https://x/?t=${VALUE}`, [VALUE]: 1 } });
    context.emit.toolCall({ toolName: 't', output: `got ${VALUE}` });
    context.emit.reasoning({ reasoning: `I use ${VALUE}` });
    context.logger.info(`asking with ${VALUE}`, { reason: `failed: ${VALUE}`, code: VALUE });

    expect(emitted).toHaveLength(3);
    expect(JSON.stringify([emitted, logger.lines])).not.toContain(VALUE);
    expect(JSON.stringify(emitted)).toContain('https://x/?t=[secret]');
    expect(logger.lines).toMatchObject([{ message: 'asking with [secret]', reason: 'failed: [secret]', code: '[secret]' }]);
  });

  test('a value at the end of a long text is masked before the text is cut', async () => {
    const { context, logger } = buildContext({ redactor: createRedactor([VALUE]) });

    context.logger.info(`${'x'.repeat(190)}${VALUE}`);

    expect(logger.lines[0]?.message).toBe(`${'x'.repeat(190)}[secret]`);
  });

  test('a file that holds one is not sent', async () => {
    const { context } = buildContext({ redactor: createRedactor([VALUE]), matrix: { ...noMatrix, mayUserSend: async () => true } });

    await expect(context.files.send({ name: 'a.txt', mimeType: 'text/plain', text: `x ${VALUE}` })).rejects.toMatchObject({
      refusal: { code: 'BAD_REQUEST' },
    });
  });
});

describe('blobs', () => {
  test("another user's DID finds nothing and puts nothing, whoever passes it (G13)", async () => {
    const { blobStore, user } = buildContext().context;
    const blobId = await blobStore.put({ userDid: user.did, name: 'n', value: 'v' });

    expect(await blobStore.get({ userDid: user.did, blobId })).toEqual({ name: 'n', value: 'v' });
    expect(await blobStore.get({ userDid: 'did:key:zBob', blobId })).toBeNull();
    await expect(blobStore.put({ userDid: 'did:key:zBob', name: 'n', value: 'v' })).rejects.toMatchObject({
      refusal: { code: 'BAD_REQUEST' },
    });
    expect([blobStore.isValidBlobId(blobId), blobStore.isValidBlobId('blob_x')]).toEqual([true, false]);
  });

  test('a blob of a tainted run taints whoever reads it', async () => {
    const over = fakeServices();
    const { blobStore, user } = buildContext({ services: over, isTainted: () => true }).context;
    const blobId = await blobStore.put({ userDid: user.did, name: 'n', value: 'v' });
    const reader = buildContext({ services: over });

    await reader.context.blobStore.get({ userDid: user.did, blobId });

    expect(reader.foreign.count).toBe(1);
  });
});
