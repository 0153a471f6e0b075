/** The caller's id of a request is echoed and logged, so it may only be what a log line and a header can hold safely (G12, G14). */
import { LIMITS } from '../limits.ts';

const REQUEST_ID = /^[A-Za-z0-9._-]+$/u;

/** The caller's own id, or undefined when another one must be made. */
export const readRequestId = (header: string | readonly string[] | undefined): string | undefined =>
  typeof header === 'string' && header.length <= LIMITS.requestIdChars && REQUEST_ID.test(header) ? header : undefined;
