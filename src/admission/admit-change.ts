/**
 * What becomes of a prompt that its author corrects or takes back (DESIGN §7). A correction counts only until the turn starts; taking back counts
 * always: it stops what runs and blanks what was kept.
 */
import { sql as raw } from 'kysely';
import { readCommand } from '../commands/read-command.ts';
import type { ErrorCode } from '../errors.ts';
import { type EventId, noticeTxnId, type OutboxTxnId, type RoomId, type RunId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import { LIMITS } from '../limits.ts';
import { askErasure, blankPrompt } from '../runs/erase-run.ts';
import type { WaitingPrompt } from '../runs/ledger.ts';
import type { Tx } from '../store/store.ts';
import { type AuditEntry, writeAudit } from '../turn/audit.ts';
import { isBelow, type Principal } from '../turn/principal.ts';
import type { MatrixIncoming } from '../turn/prompt.ts';
import { beginTurn } from '../turn/turn.ts';
import { MESSAGE_ABILITY } from '../ucan/abilities.ts';
import { spend } from '../ucan/replay.ts';
import { mayUse } from './access.ts';
import type { AdmitOptions } from './admit.ts';
import { afterCommandPrefix, type IgnoreReason, latenessOfRow } from './decide-admission.ts';
import { decideChange, decideTrust } from './decide-trust.ts';
import type { EndRow } from './end-row.ts';
import type { InboxItem } from './inbox-item.ts';
import { isSigned } from './refuse-row.ts';

export type AdmitChangeOptions = Pick<
  AdmitOptions,
  | 'store'
  | 'rooms'
  | 'inbox'
  | 'runs'
  | 'inputs'
  | 'replacing'
  | 'scheduler'
  | 'maxLatenessMs'
  | 'checks'
  | 'now'
  | 'newRequestId'
  | 'rules'
  | 'commandPrefix'
  | 'cryptoTrust'
  | 'parked'
> & {
  /** Whether this account's turns here follow each other as only a bot's do. */
  readonly loops: (room: RoomId, user: UserId) => boolean;
};
/** Of rows that the redaction of their event does not stand behind in the queue. */
const OUT_OF_LINE = ['dead', 'parked'] as const;
/** Thrown where an edit would change what a model has been shown. */
class Started extends Error {
  override readonly name = 'Started';
}
/** Whose prompt is edited. */
type Edited = Pick<WaitingPrompt, 'runId' | 'principalId' | 'trust'>;
export interface AdmitChange {
  amend(row: InboxRow, item: InboxItem & { kind: 'edit' }): Promise<void>;
  redact(row: InboxRow, item: InboxItem, target: EventId): Promise<void>;
}

export function createAdmitChange(options: AdmitChangeOptions, end: EndRow): AdmitChange {
  const { store, rooms, runs, inputs, scheduler, checks, now, newRequestId, rules, commandPrefix } = options;
  const { note, finish, ignore, factsOf } = end;
  const { sql } = store;

  /**
   * Only under at least the authority of the message itself: what no model was shown is amended; the last prompt of a conversation is answered anew;
   * for any other it is too late.
   */
  async function amend(row: InboxRow, item: InboxItem & { kind: 'edit' }): Promise<void> {
    const waiting = runs.waitingPrompt(store.read, item.target);
    const last = waiting === null ? options.replacing.find(store.read, item.target) : undefined;
    const present = waiting ?? last;
    if (present === undefined) {
      // What it edits may be set aside for its key, and is then answered as it reads by then.
      if (await options.parked.parkBehind(row, item.target)) return note(row, 'parked', 'edit');
      return ignore(row, 'edit_too_late');
    }
    // What was asked while we were away is past; and before the join nothing of it was ours.
    const latenessMs = latenessOfRow(row, now());
    if (last !== undefined && (latenessMs > options.maxLatenessMs || row.source === 'backfill')) return ignore(row, 'edit_too_late');
    if (item.text.trim() === '') return ignore(row, 'empty_body');
    if (item.text.length > LIMITS.promptChars) return ignore(row, 'too_long');
    if (!mayUse(item.sender, rules, isSigned(item.content))) return ignore(row, 'not_allowed');
    const facts = await factsOf(row.roomId);
    const untrusted = decideTrust(options.cryptoTrust, item.trust, facts.encryption) ?? decideChange(item.trust, present.trust);
    if (untrusted !== null) return refuseEdit(row, item, { waiting: present, code: untrusted, reason: 'edit_refused' });
    const text = facts.kind === 'direct' ? item.text : (afterCommandPrefix(item.text, commandPrefix) ?? item.text);
    // A command is never for the model, and only a message of its own is obeyed.
    if (facts.kind === 'direct' && readCommand(text) !== null) return ignore(row, 'not_a_prompt');
    if (last?.text === text) return ignore(row, 'edit_of_nothing');
    if (last !== undefined && options.loops(row.roomId, item.sender)) return ignore(row, 'bot_loop');
    const incoming: MatrixIncoming = {
      via: 'matrix',
      text,
      roomId: row.roomId,
      direct: facts.kind === 'direct',
      sender: item.sender,
      hints: {},
      requestId: newRequestId(),
      eventId: row.eventId,
      eventType: 'm.room.message',
      content: item.content,
      sentAt: item.sentAt,
      trust: item.trust,
      threadRoot: null,
      conversation: { kind: 'rolling' },
      editsTarget: item.target,
      alongside: (tx) => options.inbox.finish(tx, row),
    };
    if (waiting === null) return answerAnew(row, item, { present, incoming });
    const authenticated = await checks.authenticate(incoming);
    if (!authenticated.ok) return refuseEdit(row, item, { waiting, code: authenticated.error.code });
    const { principal, token, grants: planned } = authenticated.value;
    if (!mayAmend(row, principal, waiting)) return refuseEdit(row, item, { waiting, code: 'NOT_ALLOWED' });
    try {
      await finish(row, (tx) => {
        // It may have started while we looked: then it is for a run of its own.
        if (runs.waitingPrompt(tx, item.target) === null) throw new Started();
        runs.amendPrompt(tx, item.target, text);
        if (token !== null) spend(store, tx, token, { promptId: row.eventId, runId: waiting.runId });
        // What no longer holds by now is left out: the change itself rests on none of them.
        for (const grant of planned) grant.write(tx, now());
        writeAudit(store, tx, {
          ...entryOf(row, item, waiting),
          token_id: token?.tokenId ?? null,
          tier: principal.tier,
          decision: 'allowed',
        });
      });
    } catch (error) {
      if (error instanceof Started) return amend(row, item);
      throw error;
    }
    note(row, 'amended', 'edit');
  }

  async function answerAnew(
    row: InboxRow,
    item: InboxItem & { kind: 'edit' },
    { present, incoming }: { present: Edited; incoming: MatrixIncoming },
  ): Promise<void> {
    const turn = await beginTurn(incoming, checks);
    if (!turn.ok) {
      const { code } = turn.error.refusal;
      if (code === 'CONFLICT') return ignore(row, 'edit_too_late');
      const isAnothers = turn.error.principal === null || code === 'NOT_ALLOWED';
      return refuseEdit(row, item, { waiting: present, code, reason: isAnothers ? 'edit_of_another' : 'edit_refused' });
    }
    note(row, 'admitted', 'edit');
    scheduler.wake();
  }

  const entryOf = (row: InboxRow, { sender, trust }: InboxItem, { runId, principalId }: Edited): Omit<AuditEntry, 'decision'> => ({
    at: now(),
    event_id: row.eventId,
    run_id: runId,
    principal_id: principalId,
    matrix_user_id: sender,
    trust,
    capability: MESSAGE_ABILITY,
    resource: principalId,
  });

  async function refuseEdit(
    row: InboxRow,
    item: InboxItem,
    { waiting, code, reason = 'edit_of_another' }: { waiting: Edited; code: ErrorCode; reason?: IgnoreReason },
  ): Promise<void> {
    note(row, 'ignored', reason);
    await finish(row, (tx) =>
      // Outside the run: anybody can try, so it is forgotten after a while.
      writeAudit(store, tx, {
        ...entryOf(row, item, waiting),
        run_id: null,
        principal_id: null,
        resource: null,
        decision: 'refused',
        code,
      }),
    );
  }

  /**
   * The author or a moderator takes a prompt back (G9): it leaves a run that has not taken it, stops one that has, and its text is blanked. What that
   * run made of it is erased when it is over. A prompt of a portal has no event; its copy in the room stands for it.
   */
  async function redact(row: InboxRow, item: InboxItem, target: EventId): Promise<void> {
    const mirror = store.read.get(
      sql
        .selectFrom('outbox')
        .select('txn_id')
        .where('event_id', '=', target)
        .where('kind', '=', 'mirror')
        .where('room_id', '=', row.roomId),
    )?.txn_id;
    const promptId: string = mirror === undefined ? target : mirror.slice(noticeTxnId('mirror', '').length);
    const prompt = store.read.get(
      sql
        .selectFrom('pending_inputs as p')
        .innerJoin('runs as r', 'r.run_id', 'p.run_id')
        .select(['r.run_id', 'r.session_id', 'r.matrix_user_id'])
        .where('p.prompt_id', '=', promptId)
        .where('r.room_id', '=', row.roomId),
    );
    if (prompt === undefined) return forget(row, item, target);
    if (prompt.matrix_user_id !== item.sender && !(await rooms.mayRedact(row.roomId, item.sender))) return ignore(row, 'redaction');
    const taken = await takeBack(row, { promptId, target, mirror });
    if (taken !== null) scheduler.cancel(prompt.session_id, taken);
    else store.dropLog();
    note(row, 'redacted', 'redaction');
  }

  /** @returns the run that has begun with it, if one has. */
  async function takeBack(
    row: InboxRow,
    { promptId, target, mirror }: { promptId: string; target: EventId; mirror: OutboxTxnId | undefined },
  ): Promise<RunId | null> {
    let taken: RunId | null = null;
    await finish(row, (tx) => {
      // Asked again: it may have gone over to another run while we looked.
      const runId = tx.get(sql.selectFrom('pending_inputs').select('run_id').where('prompt_id', '=', promptId))?.run_id;
      if (runId === undefined) taken = null;
      else if (runs.waitingPrompt(tx, promptId) !== null) {
        runs.withdrawPrompt(tx, promptId, runId, now());
        // An edit was to be answered anew: what answered it before holds it as well.
        const before = tx.get(sql.selectFrom('runs').select('replaces').where('run_id', '=', runId))?.replaces ?? null;
        if (before !== null) askErasure(store, tx, before, now());
      } else {
        // The process may die before the run has ended: it must then end, and not go on with what was taken back.
        runs.askStop(tx, runId, 'RUN_CANCELLED');
        // What was said to it meanwhile was not taken back.
        inputs.followUp(tx, runId, now());
        askErasure(store, tx, runId, now());
        taken = runId;
      }
      blankPrompt(store, tx, { promptId, roomId: row.roomId });
      if (mirror !== undefined) tx.run(sql.updateTable('outbox').set({ content: '{}' }).where('txn_id', '=', mirror));
      dropUnanswered(tx, row.roomId, target);
    });
    return taken;
  }

  /** What was only overheard is kept as context, and must go as well. */
  async function forget(row: InboxRow, item: InboxItem, target: EventId): Promise<void> {
    const said = sql.selectFrom('transcript').select('speaker').where('event_id', '=', target).where('room_id', '=', row.roomId);
    const buried = sql.selectFrom('inbox').select('sender').where('event_id', '=', target).where('room_id', '=', row.roomId);
    const dead = store.read.get(buried.where('state', 'in', OUT_OF_LINE))?.sender;
    const speaker = store.read.get(said)?.speaker ?? (dead === undefined ? undefined : unsignedPrincipalId(dead as UserId));
    const mayTake =
      speaker !== undefined && (speaker === unsignedPrincipalId(item.sender) || (await rooms.mayRedact(row.roomId, item.sender)));
    note(row, 'ignored', 'redaction');
    await finish(row, (tx) => {
      if (!mayTake) return;
      blankPrompt(store, tx, { promptId: target, roomId: row.roomId });
      dropUnanswered(tx, row.roomId, target);
    });
    // Overwritten in the file, it would still stand in the log beside it.
    if (mayTake) store.dropLog();
  }

  /** What was given up or waits for its key must not be answered after all, nor an edit of it. */
  function dropUnanswered(tx: Tx, room: RoomId, target: EventId): void {
    const relatesTo = raw<string>`json_extract(event, '$.content."m.relates_to".event_id')`;
    tx.run(
      sql
        .deleteFrom('inbox')
        .where('room_id', '=', room)
        .where('state', 'in', OUT_OF_LINE)
        .where((eb) => eb.or([eb('event_id', '=', target), eb(relatesTo, '=', target)])),
    );
  }

  return { amend, redact };
}

/**
 * The run goes on under what its prompt rested on, so an edit must come from the same account in the same room at no lower tier, and rest on nothing else:
 * a grant that is taken back now would stop neither this run nor its text.
 */
const mayAmend = ({ roomId }: InboxRow, { id, matrixUserId, tier, grants }: Principal, waiting: WaitingPrompt): boolean =>
  id === waiting.principalId &&
  matrixUserId === waiting.matrixUserId &&
  roomId === waiting.roomId &&
  !isBelow(tier, waiting.tier) &&
  grants.path.every(({ tokenId }) => waiting.grants.path.some((other) => other.tokenId === tokenId));
