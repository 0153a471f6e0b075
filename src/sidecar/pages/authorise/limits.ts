/** What the oracle refuses anyway, said before anything is signed. */

/** A token names 8 capabilities (src/ucan/read-ucan.ts), one of which is to chat. */
export const MAX_EXTRA = 7;
