/** Groups of the context whose parts are not wired yet: each use names the part it misses. */
import { NotAvailableError } from '../errors.ts';
import type { RuntimeContext, SharedAccessors } from './runtime-context.ts';

const missing = (part: string) => async (): Promise<never> => {
  throw new NotAvailableError(part);
};

export const MISSING_SECRETS: RuntimeContext['secrets'] = {
  getIndex: missing('secrets.getIndex'),
  getValues: missing('secrets.getValues'),
};

export const MISSING_BLOBS: RuntimeContext['blobStore'] = {
  put: missing('blobStore.put'),
  get: missing('blobStore.get'),
  isValidBlobId: (_value): _value is string => {
    throw new NotAvailableError('blobStore.isValidBlobId');
  },
};

export const MISSING_STORAGE: RuntimeContext['storage'] = {
  get: missing('storage.get'),
  put: missing('storage.put'),
  delete: missing('storage.delete'),
  list: missing('storage.list'),
  search: missing('storage.search'),
};

/** Symbols are left alone: the platform looks at them when a value is awaited or printed. */
export const MISSING_SHARED: SharedAccessors = new Proxy(Object.freeze({}), {
  get(_target, key) {
    if (typeof key === 'symbol') return undefined;
    throw new NotAvailableError(`shared.${key}`);
  },
});
