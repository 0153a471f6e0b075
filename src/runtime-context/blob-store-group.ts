/**
 * `rtCtx.blobStore`: the seed has the caller pass `userDid`; here the host knows whose run it is, and another DID finds nothing (G13). A value that a
 * tainted run put there taints whoever reads it, as if the strangers' text had been read itself.
 */
import { type Blobs, isValidBlobId } from '../blob-store/blobs.ts';
import { OracleError, refusal } from '../errors.ts';
import type { PrincipalId } from '../ids.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface BlobStoreGroupSources {
  readonly blobs: Blobs;
  readonly principal: PrincipalId;
  readonly plugin: string;
  readonly isTainted: () => boolean;
  readonly readsForeign: () => void;
}

export function buildBlobStoreGroup({
  blobs,
  principal,
  plugin,
  isTainted,
  readsForeign,
}: BlobStoreGroupSources): RuntimeContext['blobStore'] {
  const owner = { principal, plugin };
  return {
    async put({ userDid, name, value, ttlSeconds }) {
      if (userDid !== principal)
        throw new OracleError(refusal('BAD_REQUEST', { message: 'A blob belongs to the user of the run: pass its user.did.' }));
      return blobs.put(owner, { name, value, tainted: isTainted() }, ttlSeconds);
    },
    async get({ userDid, blobId }) {
      const blob = userDid === principal ? blobs.get(owner, blobId) : null;
      if (blob === null) return null;
      if (blob.tainted) readsForeign();
      return { name: blob.name, value: blob.value };
    },
    isValidBlobId: (value): value is string => isValidBlobId(value),
  };
}
