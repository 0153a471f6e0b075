/**
 * Files of encrypted rooms: encrypted with a key of their own that travels inside the encrypted message, so the media repository sees ciphertext
 * only. The hash is of the ciphertext, and checked before anything is decrypted: a repository that swaps or cuts a file is found out.
 */
import { Attachment, EncryptedAttachment, initAsync } from '@matrix-org/matrix-sdk-crypto-wasm';
import { isJsonObject } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';
import type { FileKey } from '../wire/read-shared-file.ts';

export interface Attachments {
  encrypt(bytes: Uint8Array): Promise<{ readonly bytes: Uint8Array; readonly key: FileKey }>;
  /** `FILE_DAMAGED`: not what its sender encrypted, or not with this key. */
  decrypt(bytes: Uint8Array, key: FileKey): Promise<Result<Uint8Array, 'FILE_DAMAGED'>>;
}

export interface AttachmentsOptions {
  /** The engine panicked: what it does next is anybody's guess, so the process must end. */
  readonly onFatal: (reason: string) => void;
}

export function createAttachments({ onFatal }: AttachmentsOptions): Attachments {
  const isPanic = (error: unknown): boolean => {
    const panicked = error instanceof Error && error.name === 'RuntimeError';
    if (panicked) onFatal('the cryptographic engine panicked over a file');
    return panicked;
  };
  return {
    async encrypt(bytes) {
      await initAsync();
      const encrypted = Attachment.encrypt(bytes);
      try {
        const key: unknown = JSON.parse(encrypted.mediaEncryptionInfo ?? 'null');
        if (!isJsonObject(key)) throw new Error('the engine gave no key of a file');
        return { bytes: encrypted.encryptedData, key: key as unknown as FileKey };
      } finally {
        encrypted.free();
      }
    },
    async decrypt(bytes, key) {
      await initAsync();
      let encrypted: EncryptedAttachment | null = null;
      try {
        encrypted = new EncryptedAttachment(bytes, JSON.stringify(key));
        return ok(Attachment.decrypt(encrypted));
      } catch (error) {
        if (isPanic(error)) throw error;
        return err('FILE_DAMAGED');
      } finally {
        encrypted?.free();
      }
    },
  };
}
