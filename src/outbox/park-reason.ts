/**
 * Why an event was given up, as one of a few words: what is stored names the code of the homeserver, and a label of a metric must not be whatever
 * somebody else's server says (G14).
 */
export type ParkReason = 'forbidden' | 'not_found' | 'too_large' | 'bad_request' | 'encrypted' | 'deadline' | 'other';

/** Refused by ourselves, before the homeserver would. */
export const TOO_LARGE_SEALED = 'too large once encrypted';

/** Pure. @param error what stands in the `error` column: an errcode with its HTTP status, or our own words. */
export function parkReasonOf(error: string): ParkReason {
  if (error === 'deadline') return 'deadline';
  if (error === 'encrypted room') return 'encrypted';
  if (error === TOO_LARGE_SEALED) return 'too_large';
  const status = / (\d{3})$/u.exec(error)?.[1];
  if (status === '401' || status === '403') return 'forbidden';
  if (status === '404') return 'not_found';
  if (status === '413') return 'too_large';
  return status?.startsWith('4') === true ? 'bad_request' : 'other';
}
