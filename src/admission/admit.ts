/**
 * One inbox row to its end: gather the facts, decide (decide-admission.ts), act. Every path finishes the row in the transaction that
 * carries its effect, so a crash repeats the whole step or nothing (G1, G2). A throw means "the homeserver or the disk is not there":
 * the dispatcher tries the row again.
 */
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { type EventId, type RoomId, type SessionId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { Inbox, InboxRow } from '../inbox/inbox.ts';
import { LIMITS } from '../limits.ts';
import type { Logger } from '../observe/logger.ts';
import { assertNever, type Result } from '../result.ts';
import type { Control } from '../runs/control.ts';
import type { Inputs } from '../runs/inputs.ts';
import type { Runs } from '../runs/ledger.ts';
import type { Replacing } from '../runs/replace.ts';
import { type TurnHints, turnHints } from '../runs/run.ts';
import type { Scheduler } from '../runs/scheduler.ts';
import type { RoomSettings } from '../sessions/room-settings.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { Store, Tx } from '../store/store.ts';
import type { MatrixIncoming } from '../turn/prompt.ts';
import { beginTurn, type Refused, type TurnChecks } from '../turn/turn.ts';
import { MESSAGE_ABILITY } from '../ucan/abilities.ts';
import { type AccessRules, mayInvite, mayUse } from './access.ts';
import { type AuthorityOptions, createAdmitAuthority } from './admit-authority.ts';
import { createAdmitChange } from './admit-change.ts';
import { createAdmitControl } from './admit-control.ts';
import { createAdmitDevice, type DeviceOptions } from './admit-device.ts';
import { createAdmitEncrypted, type EncryptedOptions } from './admit-encrypted.ts';
import { createAdmitRoom } from './admit-room.ts';
import {
  type Admission,
  decideAdmission,
  isBotLoop,
  latenessOfRow,
  type Screened,
  screenItem,
  type TurnTimes,
} from './decide-admission.ts';
import type { CryptoTrust } from './decide-trust.ts';
import { createEndRow } from './end-row.ts';
import type { FloodGuard } from './flood.ts';
import type { InboxItem, MessageItem } from './inbox-item.ts';
import type { KnownRooms } from './known-rooms.ts';
import type { Notices } from './notices.ts';
import { createRefuseRow, isSigned } from './refuse-row.ts';
import type { RoomActions, RoomDirectory, RoomFacts } from './room-facts.ts';
import { createSaidSince } from './said-since.ts';

export interface AdmitOptions extends AuthorityOptions, EncryptedOptions, DeviceOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly rooms: RoomDirectory;
  readonly actions: RoomActions;
  readonly known: KnownRooms;
  readonly runs: Runs;
  readonly inputs: Inputs;
  readonly control: Control;
  readonly replacing: Replacing;
  readonly settings: RoomSettings;
  readonly scheduler: Scheduler;
  readonly transcript: Transcript;
  readonly notices: Notices;
  readonly checks: TurnChecks;
  readonly flood: FloodGuard;
  readonly logger: Logger;
  readonly now: () => number;
  readonly readItem: (row: InboxRow) => Result<InboxItem, string>;
  /** Says in a group how to address the oracle; once per room. Call the returned function after the commit. */
  readonly greet: (tx: Tx, room: RoomId) => () => void;
  readonly newRequestId: () => string;
  readonly observe: (outcome: string, reason: string) => void;
  readonly oracle: UserId;
  readonly oracleName: string;
  readonly rules: AccessRules;
  /** Whose messages are obeyed in encrypted rooms. */
  readonly cryptoTrust: CryptoTrust;
  readonly maxLatenessMs: number;
  readonly retentionMs: number;
  readonly commandPrefix: string;
  /** Turns in a row without a pause after which a conversation is taken for two bots; 0 = never. */
  readonly botHopBudget: number;
}

export interface Admit {
  handle(row: InboxRow): Promise<void>;
  giveUp(row: InboxRow): Promise<void>;
}

export function createAdmit(options: AdmitOptions): Admit {
  const { store, inbox, rooms, actions, known, scheduler, transcript, notices, checks, flood, logger, now, oracle, rules } = options;
  const { sql } = store;
  const end = createEndRow(options);
  const { note, finish, ignore, factsOf } = end;
  const room = createAdmitRoom(options, end);
  const loops = (room: RoomId, user: UserId): boolean => isBotLoop(recentTurns(room, user), now(), options.botHopBudget);
  const change = createAdmitChange({ ...options, loops }, end);
  const refuseRow = createRefuseRow(options, end);
  const authority = createAdmitAuthority(options, end, refuseRow);
  const control = createAdmitControl(options, end);
  const encrypted = createAdmitEncrypted(options, end, refuseRow);
  const device = createAdmitDevice(options, end);
  const saidSince = createSaidSince(options);

  /** Monotonic ms; no earlier than what could still be answered, so that a claimed age buys little (G14). */
  const sentAtOf = (row: InboxRow): number => checks.monotonic() - Math.min(options.maxLatenessMs, latenessOfRow(row, now()));

  async function handle(row: InboxRow): Promise<void> {
    const item = options.readItem(row);
    if (!item.ok) {
      logger.info({ event_id: row.eventId, room_id: row.roomId, reason: item.error }, 'an event was skipped');
      return ignore(row, 'unreadable');
    }
    const floodAllows = item.value.sender === oracle || row.again || flood.allows(item.value.sender, sentAtOf(row));
    await act(row, item.value, screen(item.value, floodAllows));
  }

  const screen = (item: InboxItem, floodAllows: boolean): Screened =>
    screenItem(item, { oracle, floodAllows, mayInvite: mayInvite(item.sender, rules), seenSince: now() - options.retentionMs });

  async function decrypt(row: InboxRow, item: InboxItem & { kind: 'encrypted' }): Promise<void> {
    const opened = await encrypted.open(row, item);
    if (opened === null) return;
    const screened = screen(opened, true);
    // What is encrypted twice is nobody's message.
    if (screened.kind === 'encrypted') return ignore(row, 'unreadable');
    if (screened.kind === 'message' && row.toldAt !== null && saidSince(row, opened.sender, row.toldAt)) return ignore(row, 'sent_again');
    await act(row, opened, screened);
  }

  function act(row: InboxRow, item: InboxItem, screened: Screened): Promise<void> {
    switch (screened.kind) {
      case 'ignore':
        return ignore(row, screened.reason);
      case 'invite':
        return item.kind === 'invite' ? room.takeInvite(row, item, screened) : ignore(row, 'not_a_prompt');
      case 'own_membership':
        return room.noteMembership(row, screened.membership);
      case 'room_changed':
        return room.noteChange(row);
      case 'message':
        return takeMessage(row, screened.message);
      case 'edit':
        return item.kind === 'edit' ? change.amend(row, item) : ignore(row, 'not_a_prompt');
      case 'redaction':
        return change.redact(row, item, screened.target);
      case 'stop':
        return control.react(row, item.sender, screened.target);
      case 'authority':
        return item.kind === 'grant' || item.kind === 'revoke' || item.kind === 'state_grant'
          ? authority.take(row, item)
          : ignore(row, 'not_a_prompt');
      case 'encrypted':
        return item.kind === 'encrypted' ? decrypt(row, item) : ignore(row, 'not_a_prompt');
      case 'verification':
        return item.kind === 'verification' ? device.verify(row, item) : ignore(row, 'not_a_prompt');
      default:
        return assertNever(screened);
    }
  }

  async function takeMessage(row: InboxRow, message: MessageItem): Promise<void> {
    const facts = await factsOf(row.roomId);
    const admission = await decide(row, message, facts);
    switch (admission.kind) {
      case 'ignore':
        return ignore(row, admission.reason);
      case 'overhear':
        note(row, 'overheard', admission.reason);
        return finish(row, (tx) => overhear(tx, message, facts));
      case 'late':
        return refuse(row, message, facts, { refusal: refusal('TOO_LATE'), principal: null }, 'late');
      case 'not_allowed':
        return refuse(row, message, facts, { refusal: refusal('NOT_ALLOWED'), principal: null });
      case 'untrusted':
        return refuse(row, message, facts, { refusal: refusal(admission.code), principal: null });
      case 'verify':
        return device.show(row, message);
      case 'command':
        return authority.obey(row, message, admission.command);
      case 'control':
        return control.obey(row, message, admission.command, facts.kind === 'direct');
      case 'command_in_group':
        return refuse(row, message, facts, { refusal: refusal('BAD_REQUEST', { message: ONLY_IN_DIRECT }), principal: null });
      case 'admit':
        return begin(row, message, facts, admission);
      default:
        return assertNever(admission);
    }
  }

  async function decide(row: InboxRow, message: MessageItem, room: RoomFacts): Promise<Admission> {
    const at = now();
    const mightReply = room.kind === 'group' && message.inReplyTo !== null;
    return decideAdmission(message, room, {
      oracle,
      source: row.source,
      inviter: known.of(row.roomId)?.inviter ?? null,
      mayUse: mayUse(message.sender, rules, isSigned(message.content)),
      mayCommand: mayUse(message.sender, rules),
      latenessMs: latenessOfRow(row, at),
      maxLatenessMs: options.maxLatenessMs,
      commandPrefix: options.commandPrefix,
      oracleName: options.oracleName,
      repliesToOracle: mightReply && message.inReplyTo !== null && (await rooms.senderOf(row.roomId, message.inReplyTo)) === oracle,
      inOwnThread: room.kind === 'group' && message.thread !== null && hasConversation(row.roomId, message.thread),
      answeredInThreadAt: message.thread === null ? null : lastAnswerTo(message.sender, row.roomId, message.thread),
      now: at,
      botLoop: loops(row.roomId, message.sender),
      cryptoTrust: options.cryptoTrust,
    });
  }

  const hasConversation = (room: RoomId, thread: EventId): boolean =>
    store.read.get(
      sql.selectFrom('sessions').select('session_id').where('thread_root', '=', thread).where('room_id', '=', room).limit(1),
    ) !== undefined;

  function lastAnswerTo(user: UserId, room: RoomId, thread: EventId): number | null {
    const row = store.read.get(
      sql
        .selectFrom('runs')
        .select(['ended_at', 'status'])
        .where('thread_root', '=', thread)
        .where('matrix_user_id', '=', user)
        .where('room_id', '=', room)
        .where('status', 'in', ['queued', 'running', 'waiting', 'completed'])
        .orderBy('run_id', 'desc')
        .limit(1),
    );
    if (row === undefined) return null;
    // Who says more while it is being answered goes on with that conversation.
    return row.status === 'completed' ? row.ended_at : now();
  }
  const recentTurns = (room: RoomId, user: UserId): TurnTimes[] =>
    options.botHopBudget === 0
      ? []
      : store.read
          .all(
            sql
              .selectFrom('runs')
              .select(['created_at', 'ended_at'])
              .where('room_id', '=', room)
              .where('matrix_user_id', '=', user)
              .orderBy('run_id', 'desc')
              .limit(options.botHopBudget),
          )
          .map((run) => ({ createdAt: run.created_at, endedAt: run.ended_at }));

  /** The thread's, or in a direct room the one that goes on; its owner is a person there, and the room in a group. */
  function conversationOf(tx: Tx, { roomId, thread }: MessageItem, { kind }: RoomFacts): SessionId | null {
    if (thread === null && kind === 'group') return null;
    const ofRoom = sql
      .selectFrom('sessions')
      .select('session_id')
      .where('room_id', '=', roomId)
      .where('owner', kind === 'direct' ? '!=' : '=', roomId);
    const session =
      thread === null
        ? ofRoom.where('kind', '=', 'rolling').where('retired_at', 'is', null).orderBy('last_at', 'desc').limit(1)
        : ofRoom.where('thread_root', '=', thread);
    return tx.get(session)?.session_id ?? null;
  }

  /** Kept as context of its conversation, or of the room when there is none. */
  function overhear(tx: Tx, message: MessageItem, facts: RoomFacts): void {
    transcript.append(tx, {
      roomId: message.roomId,
      sessionId: conversationOf(tx, message, facts),
      runId: null,
      eventId: message.eventId,
      role: 'human',
      speaker: unsignedPrincipalId(message.sender),
      text: message.text.slice(0, LIMITS.overheardChars).toWellFormed(),
      message: null,
      at: now(),
    });
  }

  const incomingOf = (row: InboxRow, message: MessageItem, facts: RoomFacts, admission: Admission & { kind: 'admit' }): MatrixIncoming => ({
    via: 'matrix',
    text: admission.text,
    roomId: row.roomId,
    direct: facts.kind === 'direct',
    sender: message.sender,
    hints: readHints(message),
    requestId: options.newRequestId(),
    eventId: row.eventId,
    eventType: message.eventType,
    content: message.content,
    sentAt: message.sentAt,
    trust: message.trust,
    threadRoot: message.thread,
    conversation: admission.conversation,
    editsTarget: null,
    alongside: (tx) => inbox.finish(tx, row),
  });

  async function begin(row: InboxRow, message: MessageItem, facts: RoomFacts, admission: Admission & { kind: 'admit' }): Promise<void> {
    const turn = await beginTurn(incomingOf(row, message, facts, admission), checks);
    if (!turn.ok) return refuse(row, message, facts, turn.error);
    note(row, 'admitted', admission.because);
    scheduler.wake();
    actions.markRead(row.roomId, row.eventId);
  }

  const refuse = (
    row: InboxRow,
    message: MessageItem,
    facts: RoomFacts,
    why: Refused,
    kind: 'refusal' | 'late' = 'refusal',
  ): Promise<void> => refuseRow(row, message, facts.kind === 'direct', { ...why, capability: MESSAGE_ABILITY, kind });

  async function giveUp(row: InboxRow): Promise<void> {
    const item = options.readItem(row);
    const message = item.ok && (item.value.kind === 'message' || item.value.kind === 'encrypted') ? item.value : null;
    const isMentioned = message?.kind === 'message' && (message.mentions?.includes(oracle) ?? false);
    const addressed = known.of(row.roomId)?.is_direct === 1 || isMentioned;
    const said = await store.write((tx) => {
      inbox.bury(tx, row, 'GAVE_UP' satisfies ErrorCode);
      if (!addressed || message === null) return () => undefined;
      const { sender, thread } = message;
      return notices.refuse(tx, {
        refusal: gaveUp(),
        sender,
        roomId: row.roomId,
        direct: false,
        signed: false,
        directRoom: null,
        cause: row.eventId,
        threadRoot: thread,
        kind: 'gave-up',
      });
    });
    said();
    note(row, 'gave_up', 'attempts');
  }

  return { handle, giveUp };
}

const ONLY_IN_DIRECT = 'This works in a direct chat with me only, where nobody else reads it.';
const gaveUp = (): Refusal => refusal('GAVE_UP');

/** Hints are wishes: a broken one is no reason to refuse the message. */
function readHints(message: MessageItem): TurnHints {
  const parsed = turnHints.safeParse(message.content['ixo.oracle.turn']);
  return parsed.success ? parsed.data : {};
}
