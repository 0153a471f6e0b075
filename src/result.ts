/**
 * What a stranger or another service can cause is a value, not a throw: a caller must look at it before it can go on.
 * What only a bug can cause throws, and is caught at four doors: turn, outbox row, HTTP handler, plugin call.
 */
export type Ok<T> = { readonly ok: true; readonly value: T };
export type Err<E> = { readonly ok: false; readonly error: E };
export type Result<T, E> = Ok<T> | Err<E>;

export const ok = <T>(value: T): Ok<T> => ({ ok: true, value });
export const err = <E>(error: E): Err<E> => ({ ok: false, error });

/** Ends a `switch` over a union: a member that nobody handled is a compile error here, and a bug if it ever runs. */
export function assertNever(value: never): never {
  throw new Error(`unhandled case: ${JSON.stringify(value)}`);
}
