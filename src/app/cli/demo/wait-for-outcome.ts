/**
 * The end of one prompt: the answer's messages when none grows any more, or the notice that says why there is none. In a direct room such a
 * notice points to no message, so it is told by its place: the first error after the prompt. True as long as one prompt is open at a time.
 */
import type { SeenMessage } from '../../../../synapse-dev/homeserver/room-watch.ts';
import type { Person } from './person.ts';

/** Past the oracle's own limit of a run (RUN_DEADLINE_S). */
const ENDS_WITHIN_MS = 330_000;
export const ENDS_WITHIN_S = ENDS_WITHIN_MS / 1_000;

/** Rejects when neither comes in time. */
export function waitForOutcome({ watch, userId }: Person, promptId: string): Promise<readonly SeenMessage[]> {
  const refusal = watch.waitUntil(() => {
    const after = watch.events.findIndex(({ event }) => event.event_id === promptId);
    if (after === -1) return undefined;
    const later = new Set(watch.events.slice(after).map(({ event }) => event.event_id));
    const notice = watch
      .messages()
      .find(({ eventId, sender, content }) => sender !== userId && later.has(eventId) && 'ixo.oracle.error' in content);
    return notice && [notice];
  }, ENDS_WITHIN_MS);
  return Promise.race([watch.waitForAnswerTo(promptId, ENDS_WITHIN_MS), refusal]);
}
