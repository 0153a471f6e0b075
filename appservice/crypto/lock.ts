/**
 * One piece of work at a time, in the order of asking. The engine hands out the same request until it is told of the answer, and a room's key must be
 * shared and used in one go: two of these side by side would upload a key twice or encrypt for yesterday's readers.
 * Not re-entrant: work that asks for its own lock waits for ever, so a lock is taken in one place per file.
 */
export type Lock = <T>(work: () => Promise<T>) => Promise<T>;

export function createLock(): Lock {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const next = last.then(work);
    // The failure is the caller's; the next in line does not care.
    last = next.catch(() => undefined);
    return next;
  };
}
