/**
 * Thrown where a row cannot be handled yet because something it needs does not answer. It is not the row's fault: counting it as an attempt
 * would give up every message that waits while the homeserver restarts (G1). The dispatcher tries the row again and counts nothing.
 */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
}
