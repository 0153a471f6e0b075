/**
 * The time that the oracle will judge by. Clocks of phones are minutes off, and a token signed with such a time is refused; each answer of
 * the oracle says what time it is there (the HTTP header `Date`, in whole seconds).
 */
export interface PageClock {
  /** Milliseconds since the epoch, as the oracle counts. */
  now(): number;
  /** The header of an answer that has just come. */
  learn(dateHeader: string | null): void;
}

/** Below this the header's own roughness and the way of the answer are most of the difference. */
const TRUSTED_DIFFERENCE_MS = 5_000;

export function createPageClock(local: () => number, parse: (text: string) => number): PageClock {
  let offset = 0;
  return {
    now: () => local() + offset,
    learn(dateHeader) {
      const there = dateHeader === null ? Number.NaN : parse(dateHeader);
      if (!Number.isFinite(there)) return;
      const difference = there - local();
      offset = Math.abs(difference) < TRUSTED_DIFFERENCE_MS ? 0 : difference;
    },
  };
}
