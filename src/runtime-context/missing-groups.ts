/** Groups of the context whose parts are not built yet: each use names the part it misses. */
import { NotAvailableError } from '../errors.ts';
import type { RuntimeContext, SharedAccessors } from './runtime-context.ts';

const missing = (part: string) => async (): Promise<never> => {
  throw new NotAvailableError(part);
};

export const buildSecretsGroup = (): RuntimeContext['secrets'] => ({
  getIndex: missing('secrets.getIndex'),
  getValues: missing('secrets.getValues'),
});

export const buildBlobStoreGroup = (): RuntimeContext['blobStore'] => ({
  put: missing('blobStore.put'),
  get: missing('blobStore.get'),
  isValidBlobId: (_value): _value is string => {
    throw new NotAvailableError('blobStore.isValidBlobId');
  },
});

/** Symbols are left alone: the platform looks at them when a value is awaited or printed. */
export const buildSharedGroup = (): SharedAccessors =>
  new Proxy(Object.freeze({}), {
    get(_target, key) {
      if (typeof key === 'symbol') return undefined;
      throw new NotAvailableError(`shared.${key}`);
    },
  });
