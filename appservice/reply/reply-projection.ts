/**
 * A run as people in the room see it: typing, then a message that grows by edits, at last its final version. What goes out when is decided by
 * `decideCadence`, what it looks like by content/; here is the state between them. Frames are only looked at (25 a second are cheap): a row
 * is written when a version is due, never per token. The last versions are written in the run's terminal transaction, against what is on
 * disk (G10), so whatever went wrong while it grew, the end is right. A resumed run finds its messages in the outbox and goes on with them (G5).
 */
import { refusal } from '../../src/errors.ts';
import { answerTxnId, type EventId, type OutboxTxnId, type RoomId, type RunId } from '../../src/ids.ts';
import { LIMITS } from '../../src/limits.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { OutboundEvent, Outbox, OutboxRow } from '../../src/outbox/outbox.ts';
import type { Projection, RunView } from '../../src/runs/projection.ts';
import type { FoldedRun, Frame, Run } from '../../src/runs/run.ts';
import type { Store, Tx } from '../../src/store/store.ts';
import type { Clock, Timer } from '../../src/time.ts';
import { markerAfter } from '../content/mark-answer.ts';
import { EMPTY_SPLIT, growSplit, type Part, partsOf, type SplitState } from '../content/split-answer.ts';
import { buildAnswerRow, buildErrorRow, promptEvents, type ReplyFacts, type Version } from './build-reply-row.ts';
import { type Cadence, decideCadence } from './decide-cadence.ts';
import { markerOf, planFinal } from './plan-final.ts';
import { readShown, type Shown } from './read-shown.ts';

export interface ReplyOptions {
  readonly store: Store;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Shows or hides "is typing". Must not throw; may be lost. */
  readonly typing: (roomId: RoomId, on: boolean) => void;
  /** Another server is in the room. Synchronous, from what is known already. */
  readonly isFederated: (roomId: RoomId) => boolean;
  /** The run is still this process's to write for (`Runs.holds`, G18). */
  readonly holds?: (tx: Tx, run: Run) => boolean;
  readonly observe?: (event: ReplyObservation) => void;
}
export interface ReplyObservation {
  readonly kind: 'event_sent';
  readonly edit: boolean;
  readonly durationMs: number;
}
export interface ReplyProjection extends Projection {
  /** To be given to the sender: the homeserver confirmed this row. */
  onSent(row: OutboxRow, eventId: EventId, durationMs: number): void;
}

/** A person does not miss it before then. */
export const TYPING_AFTER_MS = 300;
/** Clients forget "is typing" after the 30 s the transport asks for. */
export const TYPING_REFRESH_MS = 20_000;

export function createReplyProjection(options: ReplyOptions): ReplyProjection {
  const views = new Map<RunId, ReplyView>();
  const typing = createTyping(options);
  return {
    open(run, folded) {
      const stopTyping = typing.start(run.roomId);
      const view = createView(run, folded, options, () => {
        stopTyping();
        if (views.get(run.id) === view) views.delete(run.id);
      });
      views.set(run.id, view);
      return view;
    },
    onSent(row, _eventId, durationMs) {
      if (row.kind !== 'answer' || row.run_id === null) return;
      options.observe?.({ kind: 'event_sent', edit: row.edits_txn !== null, durationMs });
      views.get(row.run_id)?.onSent(row, durationMs);
    },
  };
}

/**
 * Runs of two threads may share a room: it shows typing until the last of them is done. Not at once: an answer that is there sooner needs none, and
 * on a homeserver with one core the request would stand in its way.
 */
function createTyping({ clock, typing }: Pick<ReplyOptions, 'clock' | 'typing'>): { start(room: RoomId): () => void } {
  const rooms = new Map<RoomId, { runs: number; shown: boolean; timer: Timer }>();
  const showAfter = (room: RoomId, delayMs: number): Timer =>
    clock.after(delayMs, () => {
      const known = rooms.get(room);
      if (known === undefined) return;
      typing(room, true);
      known.shown = true;
      known.timer = showAfter(room, TYPING_REFRESH_MS);
    });
  return {
    start(room) {
      const known = rooms.get(room);
      if (known === undefined) rooms.set(room, { runs: 1, shown: false, timer: showAfter(room, TYPING_AFTER_MS) });
      else known.runs += 1;
      return () => {
        const now = rooms.get(room);
        if (now === undefined) return;
        now.runs -= 1;
        if (now.runs > 0) return;
        now.timer.cancel();
        rooms.delete(room);
        if (now.shown) typing(room, false);
      };
    },
  };
}

/** Somebody may edit one prompt again and again; each edit is a run. */
const MAX_REPLACED = 100;
/** The runs whose message is written anew, oldest first. */
function readReplaced({ sql, read }: Store, last: RunId): RunId[] {
  const chain: RunId[] = [];
  for (let id: RunId | null = last; id !== null && chain.length < MAX_REPLACED; ) {
    chain.unshift(id);
    id = read.get(sql.selectFrom('runs').select('replaces').where('run_id', '=', id))?.replaces ?? null;
  }
  return chain;
}

interface ReplyView extends RunView {
  onSent(row: OutboxRow, durationMs: number): void;
}

/** One message while the run goes on; times are monotonic. */
interface Message {
  originTxn: OutboxTxnId | null;
  text: string;
  live: boolean;
  edits: number;
  /** Newest version, not confirmed yet. */
  waitingTxn: OutboxTxnId | null;
  firstTextAt: number | null;
  lastSentAt: number | null;
  lastSendMs: number | null;
  parked: boolean;
}
const unsent = (): Message => ({
  originTxn: null,
  text: '',
  live: true,
  edits: 0,
  waitingTxn: null,
  firstTextAt: null,
  lastSentAt: null,
  lastSendMs: null,
  parked: false,
});

function createView(run: Run, before: FoldedRun, options: ReplyOptions, onClose: () => void): ReplyView {
  const { store, outbox, clock } = options;
  const logger = options.logger.child({ run_id: run.id, room_id: run.roomId });
  const gone = new AbortController();
  const messages = new Map<number, Message>();
  let nextSeq = 1;
  let folded = before;
  let split: SplitState = EMPTY_SPLIT;
  /** Text that `split` holds. */
  let splitText = '';
  let timer: Timer | null = null;
  let writing = false;
  /** After the last word, after close, or when the disk failed: then only the end writes. */
  let silent = false;

  const replaced = run.replaces === null ? [] : readReplaced(store, run.replaces);
  const first = replaced[0] ?? run.id;
  const rowsOf = (tx: Tx): OutboxRow[] => [...replaced, run.id].flatMap((id) => outbox.ofRun(tx, id));

  function restore(): void {
    const toMonotonic = (wall: number): number => clock.monotonic() - Math.max(0, clock.now() - wall);
    const shown = readShown(rowsOf(store.read), run.id);
    nextSeq = shown.nextSeq;
    for (const message of shown.messages.values()) {
      messages.set(message.part, {
        ...message,
        firstTextAt: message.text === '' ? null : toMonotonic(message.createdAt),
        lastSentAt: message.sentAt === null ? null : toMonotonic(message.sentAt),
        lastSendMs: null,
      });
      if (message.waitingTxn !== null) watch(message.part, message.waitingTxn);
    }
  }

  /** What it answers: also what was said while it works, once it has taken that. Names them so that a lost database does not answer twice (G2). */
  function promptsOf(tx: Tx, { isOver }: { isOver: boolean }): EventId[] {
    const rows = tx.all(
      store.sql.selectFrom('pending_inputs').select(['prompt_id', 'steers', 'consumed_at']).where('run_id', '=', run.id).orderBy('id'),
    );
    const own = rows.filter(({ steers, consumed_at }) => isOver || steers === 0 || consumed_at !== null).map(({ prompt_id }) => prompt_id);
    return promptEvents(own.length === 0 ? run.prompts.map(({ id }) => id) : own, outbox);
  }

  /** `onSent` is sooner and knows how long it took; this one also hears of rows that were given up, or sent before this view existed. */
  function watch(part: number, txnId: OutboxTxnId): void {
    outbox.settled(txnId, gone.signal).then(
      (event) => confirm(part, txnId, { parked: event === null, durationMs: null }),
      () => undefined,
    );
  }

  function confirm(part: number, txnId: string, { parked, durationMs }: { parked: boolean; durationMs: number | null }): void {
    const message = messages.get(part);
    if (message === undefined || message.waitingTxn !== txnId) return;
    message.waitingTxn = null;
    if (parked) message.parked ||= txnId === message.originTxn;
    else message.lastSentAt = clock.monotonic();
    if (durationMs !== null) message.lastSendMs = durationMs;
    evaluate();
  }

  /** Looks at what is new only: comparing or copying the whole text 25 times a second was 2 ms each for a long answer. */
  function follow(frames: readonly Frame[], text: string): void {
    const delta = frames.map((frame) => (frame.kind === 'text' ? frame.data.delta : '')).join('');
    const cut = frames.some(({ kind }) => kind === 'truncate') || splitText.length + delta.length !== text.length;
    split = cut ? growSplit(EMPTY_SPLIT, text) : growSplit(split, delta);
    splitText = text;
  }

  /** The whole text, once: at the end it may hold frames that nobody was told of. */
  function catchUp(text: string): void {
    split = text.startsWith(splitText) ? growSplit(split, text.slice(splitText.length)) : growSplit(EMPTY_SPLIT, text);
    splitText = text;
  }

  function evaluate(): void {
    timer?.cancel();
    timer = null;
    if (silent || writing) return;
    const due: Version[] = [];
    let wakeAt = Number.POSITIVE_INFINITY;
    for (const part of partsOf(split)) {
      const decision = decide(part);
      if (decision.kind === 'send') due.push(versionOf(part, nextSeq + due.length));
      else if (decision.untilMs !== null) wakeAt = Math.min(wakeAt, decision.untilMs);
    }
    if (due.length > 0) void write(due);
    else if (Number.isFinite(wakeAt)) timer = clock.after(Math.max(1, Math.ceil(wakeAt - clock.monotonic())), evaluate);
  }

  function decide(part: Part): Cadence {
    const now = clock.monotonic();
    let message = messages.get(part.part);
    if (message === undefined) {
      message = unsent();
      messages.set(part.part, message);
    }
    if (part.text !== '') message.firstTextAt ??= now;
    const finalSent = message.originTxn !== null && !message.live && message.text === part.text;
    if (message.parked || finalSent || !mayEdit(message, part)) return { kind: 'wait', untilMs: null };
    return decideCadence({
      now,
      firstTokenAt: message.firstTextAt,
      lastSentAt: message.originTxn === null ? null : (message.lastSentAt ?? now),
      lastSendMs: message.lastSendMs,
      editsSent: message.edits,
      textShown: message.text,
      // A resumed model says again what is shown already: nothing shrinks before it says something else.
      textNow: !part.closed && message.text.startsWith(part.text) ? message.text : part.text,
      inFlight: message.waitingTxn !== null,
      ended: part.closed,
      finalSent,
      federated: options.isFederated(run.roomId),
    });
  }

  function mayEdit(message: Message, part: Part): boolean {
    if (message.originTxn === null) return part.text !== '';
    // One edit is always kept for the end of the run, and the live marker never comes back.
    return message.edits < LIMITS.editsPerMessage - 1 && (message.live || part.closed);
  }

  function versionOf(part: Part, seq: number): Version {
    return {
      seq,
      part: part.part,
      text: part.text,
      editsTxn: messages.get(part.part)?.originTxn ?? null,
      live: !part.closed,
      status: 'running',
    };
  }

  /** One write at a time: versions are numbered in the order of their commits. */
  async function write(due: readonly Version[]): Promise<void> {
    writing = true;
    try {
      const facts = { run, folded, prompts: promptsOf(store.read, { isOver: false }), first };
      const rows = due.map((version) => buildAnswerRow(version, facts));
      const written = await store.write((tx) => {
        if (silent || options.holds?.(tx, run) === false) return false;
        for (const row of rows) {
          if (row.editsTxn !== undefined) outbox.dropSuperseded(tx, row.editsTxn);
          outbox.insert(tx, row, clock.now());
        }
        return true;
      });
      if (written) due.forEach(note);
      else silent = true;
    } catch (error) {
      // The end plans against what is on disk, so nothing is lost but versions in between.
      silent = true;
      logger.warn({ err: error }, 'versions of an answer could not be stored; only its end will be');
    }
    writing = false;
    if (silent) return;
    outbox.wake();
    evaluate();
  }

  function note({ seq, part, text, live, editsTxn }: Version): void {
    const message = messages.get(part);
    if (message === undefined) return;
    const txnId = answerTxnId(run.id, seq);
    nextSeq = seq + 1;
    if (editsTxn === null) message.originTxn = txnId;
    else message.edits += 1;
    Object.assign(message, { text, live, waitingTxn: txnId });
    watch(part, txnId);
  }

  function finish(tx: Tx, ended: FoldedRun): void {
    const shown = readShown(rowsOf(tx), run.id);
    const facts = { run, folded: ended, prompts: promptsOf(tx, { isOver: true }), first };
    for (const row of buildLastWord(facts, shown)) {
      if (row.editsTxn !== undefined) outbox.dropSuperseded(tx, row.editsTxn);
      outbox.insert(tx, row, clock.now());
    }
  }

  /** A text that cannot be laid out must neither end in silence nor keep the run, and with it the session, for ever (G5). */
  function buildLastWord(facts: ReplyFacts, shown: Shown): OutboundEvent[] {
    try {
      return buildLastVersions(facts, shown);
    } catch (error) {
      logger.error({ err: error }, 'an answer could not be laid out; an error is shown in its place');
      const { status, code, message, retryable } = refusal('INTERNAL');
      const row = buildErrorRow({ ...facts, folded: { ...facts.folded, error: { status, code, message, retryable } } });
      return row === null ? [] : [row];
    }
  }

  function buildLastVersions(facts: ReplyFacts, shown: Shown): OutboundEvent[] {
    const ended = facts.folded;
    const status = ended.end?.status ?? 'failed';
    catchUp(ended.text);
    const marker = markerOf(status, ended.error?.code);
    const silentSoFar = shown.messages.size === 0 && partsOf(split).every(({ text }) => text === '');
    if (silentSoFar) {
      const row = buildErrorRow(facts);
      return row === null ? [] : [row];
    }
    const whole = marker === null ? split : growSplit(split, markerAfter(ended.text, marker));
    const parts = partsOf(whole);
    const last = parts.findLast(({ text }) => text !== '')?.part ?? 1;
    return planFinal(parts, shown).map(({ part, text, message }, index) => {
      const version: Version = {
        seq: shown.nextSeq + index,
        part,
        text,
        editsTxn: message?.originTxn ?? null,
        live: false,
        // Only the last part says that the run ended: whoever reads along knows then that no further part follows.
        status: part < last ? 'running' : status,
      };
      return buildAnswerRow(version, facts);
    });
  }

  if (before.lastSeq > 0 || replaced.length > 0) restore();
  return {
    onFrames(frames, now) {
      if (silent) return;
      folded = now;
      follow(frames, now.text);
      evaluate();
    },
    onEnd(tx, ended) {
      silent = true;
      timer?.cancel();
      finish(tx, ended);
    },
    onSent(row, durationMs) {
      if (row.part !== null) confirm(row.part, row.txn_id, { parked: false, durationMs });
    },
    close() {
      silent = true;
      timer?.cancel();
      gone.abort();
      onClose();
      outbox.wake();
    },
  };
}
