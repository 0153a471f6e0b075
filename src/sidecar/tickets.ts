/**
 * A browser's `EventSource` can send no header, so it could not show an invocation; what it has instead is a ticket in the address: for one run,
 * for one use, for a minute. An address is written down in many places (histories, proxies' logs), so a ticket must be worth nothing there: it is
 * used up by then, and what it opens is judged again as any read (G8, G13). Kept in memory as a hash; after a restart a client asks for another.
 * Cost: one hash per use; at most LIMITS.tickets of them, some hundred bytes each.
 */
import { createHash, randomBytes } from 'node:crypto';
import { type Refusal, refusal } from '../errors.ts';
import type { Did, RoomId, RunId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Clock } from '../time.ts';
import type { RestsOn } from '../turn/principal.ts';

/** Who asked for a ticket, and by what right. */
export interface TicketHolder {
  readonly runId: RunId;
  readonly did: Did;
  readonly userId: UserId;
  readonly room: RoomId;
  readonly grants: RestsOn;
  /** The request was signed by nobody: HTTP_LEGACY_AUTH. */
  readonly isLegacy: boolean;
}
export interface Tickets {
  issue(holder: TicketHolder): Result<{ readonly ticket: string; readonly expiresInMs: number }, Refusal>;
  /** Used up by this, also when it was for another run. Undefined: never was one, is used up, is too old, or is for another run. */
  redeem(ticket: string, run: RunId): TicketHolder | undefined;
}

/** 256 bits: nobody finds one by trying, so looking up its hash tells a guesser nothing by its time either. */
const TICKET_BYTES = 32;
export const TICKET = /^[A-Za-z0-9_-]{43}$/u;

export function createTickets({ clock }: { clock: Clock }): Tickets {
  // In the order of their ends: all live equally long.
  const held = new Map<string, { readonly holder: TicketHolder; readonly until: number }>();

  function forgetOld(): void {
    const now = clock.monotonic();
    for (const [key, { until }] of held) {
      if (until > now) return;
      held.delete(key);
    }
  }
  /** @returns in how many ms there is a place; 0 when there is one. */
  function placeIn(userId: UserId): number {
    let own = 0;
    let oldest: number | undefined;
    for (const { holder, until } of held.values()) {
      if (holder.userId !== userId) continue;
      own += 1;
      oldest ??= until;
    }
    if (own < LIMITS.ticketsPerCaller && held.size < LIMITS.tickets) return 0;
    return Math.max(1, (own < LIMITS.ticketsPerCaller ? firstEnd() : (oldest ?? 0)) - clock.monotonic());
  }
  const firstEnd = (): number => held.values().next().value?.until ?? 0;

  return {
    issue(holder) {
      forgetOld();
      const retryAfterMs = placeIn(holder.userId);
      if (retryAfterMs > 0) return err(refusal('RATE_LIMITED', { details: { retryAfterMs } }));
      const ticket = randomBytes(TICKET_BYTES).toString('base64url');
      held.set(keyOf(ticket), { holder, until: clock.monotonic() + LIMITS.ticketMs });
      return ok({ ticket, expiresInMs: LIMITS.ticketMs });
    },
    redeem(ticket, run) {
      forgetOld();
      const key = keyOf(ticket);
      const one = held.get(key);
      held.delete(key);
      return one?.holder.runId === run ? one.holder : undefined;
    },
  };
}

const keyOf = (ticket: string): string => createHash('sha256').update(ticket).digest('base64url');
