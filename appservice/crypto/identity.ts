/**
 * The oracle's cross-signing identity at start: clients send keys only to devices that their owner signed, and an identity that changes without a word
 * looks like an attack, because it is what one would look like. So the homeserver, the store and the file are compared, and what they say together
 * decides; nothing is ever replaced in silence. Pure.
 */

/** Public master keys, unpadded base64; null: there is none. */
export interface IdentityFacts {
  readonly onServer: string | null;
  /** Whose private keys are in the store. */
  readonly inStore: string | null;
  /** Whose private keys are in the file. */
  readonly inFile: string | null;
  /** The homeserver holds the identity's signature of our device. */
  readonly deviceIsSigned: boolean;
  /** The operator asked for a new identity (`crypto new-identity`). */
  readonly wantsNew: boolean;
}

export type IdentityStep =
  /** A new one: into the store, into the file, and then its public keys to the homeserver. */
  | { readonly kind: 'create' }
  /** From the store to the file. */
  | { readonly kind: 'write_file' }
  /** Public keys to the homeserver, which has none, or lost them. */
  | { readonly kind: 'publish' }
  /** From the file into the store; the homeserver knows it. */
  | { readonly kind: 'import' }
  | { readonly kind: 'sign_device' }
  | { readonly kind: 'done' }
  | { readonly kind: 'stop'; readonly because: IdentityStop };

/**
 * `unknown`: the homeserver has an identity whose private keys we do not have. `changed`: it has another than we have. `file_differs`: store and homeserver
 * agree, or the store alone has one, and the file holds another.
 */
export type IdentityStop = 'unknown' | 'changed' | 'file_differs';

/** The next step; the facts are gathered again after it. */
export function decideIdentity({ onServer, inStore, inFile, deviceIsSigned, wantsNew }: IdentityFacts): IdentityStep {
  if (wantsNew) return { kind: 'create' };
  if (onServer === null) {
    if (inFile === null) return { kind: inStore === null ? 'create' : 'write_file' };
    return inStore === null || inStore === inFile ? { kind: 'publish' } : { kind: 'stop', because: 'file_differs' };
  }
  if (inStore === onServer) {
    if (inFile === null) return { kind: 'write_file' };
    if (inFile !== inStore) return { kind: 'stop', because: 'file_differs' };
    return deviceIsSigned ? { kind: 'done' } : { kind: 'sign_device' };
  }
  if (inFile === onServer) return { kind: 'import' };
  return { kind: 'stop', because: inStore === null && inFile === null ? 'unknown' : 'changed' };
}
