/**
 * One version of one message of an answer as an outbox row. All rows of a run share a lane, so original, edits and parts reach the room in
 * the order they were written; the txn id is numbered over all attempts of the run, so no version takes the place of another (G4).
 */
import { answerTxnId, type EventId, noticeTxnId, type OutboxTxnId, parseEventId, type RunId } from '../../src/ids.ts';
import type { OutboundEvent, Outbox } from '../../src/outbox/outbox.ts';
import type { FoldedRun, Run, RunStatus } from '../../src/runs/run.ts';
import { buildAnswerContent, buildAnswerEdit } from '../content/build-answer.ts';
import { buildNotice } from '../content/build-notice.ts';
import type { Place } from '../content/relations.ts';

export interface Version {
  readonly seq: number;
  readonly part: number;
  readonly text: string;
  /** Null: this is the original. */
  readonly editsTxn: OutboxTxnId | null;
  readonly live: boolean;
  readonly status: RunStatus;
}

export interface ReplyFacts {
  readonly run: Run;
  readonly folded: FoldedRun;
  /** Events of the prompts it answers. */
  readonly prompts: readonly EventId[];
  /** The run, or the first of those that it replaces: what is sent into one message stays in order. */
  readonly first: RunId;
}

const laneOf = ({ first }: ReplyFacts): string => `run.${first}`;

/** Stands in while the relation is built and measured: the sender fills in the real one. Event ids of today's rooms are as long. */
const PLACEHOLDER = `$${'x'.repeat(43)}` as EventId;

export function buildAnswerRow(version: Version, facts: ReplyFacts): OutboundEvent {
  const { run, folded } = facts;
  const answer = {
    runId: run.id,
    sessionId: run.sessionId,
    prompts: facts.prompts,
    part: version.part,
    seq: folded.lastSeq,
    status: version.status,
    tools: folded.tools.map(({ name }) => name),
    ...(folded.end?.usage === undefined ? {} : { usage: folded.end.usage }),
    text: version.text,
    live: version.live,
  };
  const common = {
    txnId: answerTxnId(run.id, version.seq),
    lane: laneOf(facts),
    roomId: run.roomId,
    kind: 'answer',
    eventType: 'm.room.message',
    runId: run.id,
    part: version.part,
  } as const;
  if (version.editsTxn === null) return { ...common, content: buildAnswerContent({ ...answer, ...placeOf(facts) }) };
  const { 'm.relates_to': _relation, ...content } = buildAnswerEdit({ ...answer, target: PLACEHOLDER });
  return { ...common, content, editsTxn: version.editsTxn };
}

/** A run that ended without a word says why. Null: it has no error to tell. */
export function buildErrorRow(facts: ReplyFacts): OutboundEvent | null {
  const { run, folded } = facts;
  if (folded.error === null) return null;
  const { status, code, message, retryable } = folded.error;
  const prompt = facts.prompts.at(-1);
  // Nothing else says what it is about: an answer names its prompts, a notice in an unthreaded room replies to the newest.
  const place: Place = run.threadRoot === null && prompt !== undefined ? { replyTo: prompt } : placeOf(facts);
  return {
    txnId: noticeTxnId(folded.end?.status === 'interrupted' ? 'interrupted' : 'refusal', run.id),
    lane: laneOf(facts),
    roomId: run.roomId,
    kind: 'notice',
    eventType: 'm.room.message',
    runId: run.id,
    content: buildNotice({ error: { status, code, message, retryable, runId: run.id }, ...place }),
  };
}

/** In a thread every message is a plain member of it; for clients without threads it hangs at the newest prompt. */
function placeOf({ run, prompts }: ReplyFacts): Place {
  if (run.threadRoot === null) return {};
  const latest = prompts.at(-1);
  return { thread: { root: run.threadRoot, ...(latest === undefined ? {} : { latest }) } };
}

/** The events a run answers. A prompt that came over HTTP is in the room as its mirror, once that is sent. */
export function promptEvents(promptIds: readonly string[], outbox: Pick<Outbox, 'eventIdOf'>): EventId[] {
  const events: EventId[] = [];
  for (const id of promptIds) {
    const parsed = parseEventId(id);
    const event = parsed.ok ? parsed.value : outbox.eventIdOf(noticeTxnId('mirror', id));
    if (event !== null) events.push(event);
  }
  return events;
}
