/** `rtCtx.user` and `rtCtx.session`: who speaks and in which conversation, from the run row that the checks of the turn wrote; nothing here is a claim. */
import type { Run } from '../runs/run.ts';
import { buildLocalTime, readTimeZone } from './local-time.ts';
import type { RuntimeContext } from './runtime-context.ts';

export function buildUserGroup({ run, now }: { run: Run; now: () => number }): RuntimeContext['user'] {
  const zone = readTimeZone(run.hints.timezone);
  return {
    did: run.principalId,
    matrixUserId: run.matrixUserId,
    // Grants come with the authority capability; until then no run rests on one.
    ucanDelegation: { raw: '' },
    ...(zone === null ? {} : { timezone: zone }),
    get currentTime() {
      return buildLocalTime(now(), zone ?? 'UTC').iso;
    },
  };
}

export const buildSessionGroup = (run: Run): RuntimeContext['session'] => ({
  id: run.sessionId,
  client: run.client,
  requestId: run.requestId,
  roomId: run.roomId,
});
