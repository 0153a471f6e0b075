/** Waiting must end when the person has had enough, also for what cannot itself be cancelled (STYLE: every wait has a deadline or a signal). */

/** The promise, or a rejection as soon as the signal says so. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) return onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
