/** Gives a device's owner an identity that signs the device, as a client does at its first login. */
import { readRequest } from '../../appservice/crypto/engine-request.ts';
import type { KeyMachine } from './key-machine.ts';

export async function giveIdentity({ engine, outgoing, api }: KeyMachine): Promise<void> {
  const { keys, upload, signatures } = await engine.call('bootstrap', async (machine) => {
    const requests = await machine.bootstrapCrossSigning(false);
    return {
      keys: requests.uploadKeysRequest === undefined ? null : readRequest(requests.uploadKeysRequest),
      upload: requests.uploadSigningKeysRequest.body,
      signatures: readRequest(requests.uploadSignaturesRequest),
    };
  });
  if (keys !== null) await outgoing.send(keys);
  await api.request('POST', '/_matrix/client/v3/keys/device_signing/upload', { body: Buffer.from(upload) });
  await outgoing.send(signatures);
  await outgoing.flush();
}
