/** Times of the HTTP interface are ISO 8601 in UTC, as clients of this family expect; stored times are milliseconds. */

// biome-ignore lint/style/noRestrictedGlobals: converts a time that it is given; reads no clock
export const isoTime = (wallMs: number): string => new Date(wallMs).toISOString();
