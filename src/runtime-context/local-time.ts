/** The user's wall time as text, without a time zone library: the platform knows the zones, it only has to be asked in parts. */

import type { UserContextData } from './runtime-context.ts';

/** A zone that the platform knows, or null. A name from outside is hostile text until this has looked at it. */
export function readTimeZone(name: string | undefined): string | null {
  if (name === undefined || name.length > 64) return null;
  try {
    // Throws for an unknown zone. The name stays as the user wrote it: the platform would give an old alias for some.
    new Intl.DateTimeFormat('en-GB', { timeZone: name });
    return name;
  } catch {
    return null;
  }
}

/** The message's own zone, else the person's preference (a plugin's `getUserContext`), else null: then times are in UTC (DESIGN §6 "Turn hints"). */
export const decideTimeZone = (hint: string | undefined, userContext: UserContextData): string | null => {
  const preferred = userContext['timezone'];
  return readTimeZone(hint) ?? (typeof preferred === 'string' ? readTimeZone(preferred) : null);
};

export interface LocalTime {
  /** ISO 8601 with offset, for example `2026-11-30T12:00:00+01:00`. */
  readonly iso: string;
  /** `Monday` … `Sunday`: models count days of the week badly. */
  readonly weekday: string;
}

/** One formatter for all parts: making it is what costs. */
export function buildLocalTime(wallMs: number, timeZone: string): LocalTime {
  const parts: Record<string, string> = {};
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    hourCycle: 'h23',
    weekday: 'long',
    year: 'numeric',
    month: '2-digit',
    day: '2-digit',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    timeZoneName: 'longOffset',
  });
  for (const { type, value } of format.formatToParts(wallMs)) parts[type] = value;
  const { year, month, day, hour, minute, second, weekday = '' } = parts;
  const offset = parts['timeZoneName']?.replace('GMT', '').slice(0, 6) ?? '';
  return { iso: `${year}-${month}-${day}T${hour}:${minute}:${second}${offset === '' ? '+00:00' : offset}`, weekday };
}
