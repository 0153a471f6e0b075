import { expect, test } from 'vitest';
import { CryptoUnavailable } from '../../../appservice/crypto/crypto-service.ts';
import { createEncryption, type EncryptionOptions } from '../../../src/app/encryption.ts';
import { ROOM } from '../../fakes/events.ts';

test('before it is open, an encrypted event is not taken for one that cannot be read: what it answered would be answered again', async () => {
  const encryption = createEncryption({ config: { dataDir: '/nowhere', cryptoVerify: 'auto' } } as unknown as EncryptionOptions);

  await expect(encryption.read({ type: 'm.room.encrypted' }, ROOM)).rejects.toThrow(CryptoUnavailable);
});
