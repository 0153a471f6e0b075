/**
 * Where a message stands in its room. The relation is on the original only: inside edits it is ignored by the spec but read by some clients,
 * which then move the message (research/peers.md §3.2). A thread reply names the newest event of the thread for clients without threads.
 */
import type { EventId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';

export interface ThreadPlace {
  readonly root: EventId;
  /** Newest event of the thread, else the root. */
  readonly latest?: EventId;
}

export interface Place {
  readonly thread?: ThreadPlace;
  /** A real reply; in an unthreaded room without it there is no relation at all. */
  readonly replyTo?: EventId;
}

export function buildRelation({ thread, replyTo }: Place): JsonObject {
  if (thread !== undefined) {
    return {
      'm.relates_to': {
        rel_type: 'm.thread',
        event_id: thread.root,
        is_falling_back: replyTo === undefined,
        'm.in_reply_to': { event_id: replyTo ?? thread.latest ?? thread.root },
      },
    };
  }
  return replyTo === undefined ? {} : { 'm.relates_to': { 'm.in_reply_to': { event_id: replyTo } } };
}
