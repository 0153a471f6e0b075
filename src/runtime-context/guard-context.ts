/**
 * A context kept after its turn would act for a user who is no longer there, with services that may belong to the next one. Every property
 * and every method, also one that was taken out before, throws `STALE_CONTEXT` once the turn is over.
 */
import { OracleError, refusal } from '../errors.ts';

/** @param isOver looked at on each access and each call. */
export function guardContext<T extends object>(target: T, isOver: () => boolean): T {
  const check = (): void => {
    if (isOver()) throw new OracleError(refusal('STALE_CONTEXT'));
  };
  const guarded = new Map<unknown, unknown>();
  const wrap = (value: unknown): unknown => {
    if (typeof value !== 'function' && !isPlainObject(value)) return value;
    const known = guarded.get(value);
    if (known !== undefined) return known;
    const wrapped =
      typeof value === 'function'
        ? (...args: unknown[]) => {
            check();
            return (value as (...all: unknown[]) => unknown)(...args);
          }
        : guardContext(value, isOver);
    guarded.set(value, wrapped);
    return wrapped;
  };
  return new Proxy(target, {
    get(object, key) {
      check();
      return wrap(Reflect.get(object, key));
    },
    has(object, key) {
      check();
      return Reflect.has(object, key);
    },
    set: () => false,
    defineProperty: () => false,
    deleteProperty: () => false,
  });
}

const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype && !Object.isFrozen(value);
