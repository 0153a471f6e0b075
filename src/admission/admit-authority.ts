/**
 * Commands and grants on their way in: what people say about their authority instead of to the agent (DESIGN §5, §6). Only in a direct room,
 * where nobody else can speak or read. Effect, reply and the end of the row are one transaction (G1, G4); nothing of it reaches the transcript.
 */
import type { Commands } from '../commands/commands.ts';
import type { OwnGrants } from '../commands/own-grants.ts';
import type { AuthorityCommand } from '../commands/read-command.ts';
import { type ErrorCode, refusal } from '../errors.ts';
import { type EventId, noticeTxnId, type RoomId, type TokenId, type UserId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { OutboundEvent, Outbox } from '../outbox/outbox.ts';
import type { Result } from '../result.ts';
import { writeAudit } from '../turn/audit.ts';
import type { GrantReceipt, RegisterGrant } from '../ucan/register-grant.ts';
import { mayUse } from './access.ts';
import type { AdmitOptions } from './admit.ts';
import { type IgnoreReason, latenessOf } from './decide-admission.ts';
import { decideTrust } from './decide-trust.ts';
import type { EndRow } from './end-row.ts';
import type { InboxItem, MessageItem } from './inbox-item.ts';
import type { RefuseRow } from './refuse-row.ts';
import type { RoomFacts } from './room-facts.ts';

/** What admission needs for grants and commands, beside the rest. */
export interface AuthorityOptions {
  readonly commands: Commands;
  readonly registerGrant: Pick<RegisterGrant, 'fromEvent' | 'fromState'>;
  readonly ownGrants: OwnGrants;
  readonly outbox: Outbox;
  readonly receiptWords: ReceiptWords;
  /** Ends what rests on these; called after the commit. */
  readonly onRevoked: (tokenIds: readonly TokenId[]) => void;
}
/** How the transport words a receipt; pure. */
export interface ReceiptWords {
  receipt(receipt: GrantReceipt & { readonly cause: EventId }): Pick<OutboundEvent, 'eventType' | 'content'>;
}

type Said = Pick<MessageItem, 'sender' | 'trust' | 'thread'>;
type Item<Kind extends InboxItem['kind']> = Extract<InboxItem, { kind: Kind }>;
export interface AdmitAuthority {
  /** A command that stands in a direct room; the usage of one that works anywhere. */
  obey(row: InboxRow, message: MessageItem, command: AuthorityCommand): Promise<void>;
  take(row: InboxRow, item: Item<'grant' | 'revoke' | 'state_grant'>): Promise<void>;
}

export type AdmitAuthorityOptions = AuthorityOptions &
  Pick<AdmitOptions, 'store' | 'inbox' | 'actions' | 'known' | 'rules' | 'now' | 'oracle' | 'cryptoTrust'>;

export const GRANT_CAPABILITY = 'grant/store';

export function createAdmitAuthority(options: AdmitAuthorityOptions, end: EndRow, refuse: RefuseRow): AdmitAuthority {
  const {
    store,
    inbox,
    actions,
    known,
    rules,
    now,
    oracle,
    cryptoTrust,
    commands,
    registerGrant,
    ownGrants,
    outbox,
    receiptWords,
    onRevoked,
  } = options;
  const { note, finish, ignore, factsOf } = end;

  async function carryOut(row: InboxRow, { sender, trust, thread }: Said, command: AuthorityCommand): Promise<void> {
    const { refused, after } = await store.write((tx) => {
      const at = now();
      const sentAt = at - latenessOf({ ageMs: row.ageMs, receivedAt: row.receivedAt, now: at });
      const request = { command, sender, trust, roomId: row.roomId, cause: row.eventId, threadRoot: thread, sentAt };
      const done = commands.obey(tx, request, at);
      inbox.finish(tx, row);
      return done;
    });
    after();
    if (refused === null) note(row, 'command', command.kind);
    else note(row, 'refused', refused);
    actions.markRead(row.roomId, row.eventId);
  }

  async function take(row: InboxRow, item: Item<'grant' | 'revoke' | 'state_grant'>): Promise<void> {
    const facts = await factsOf(row.roomId);
    const reason = decideIgnore(row, item, facts);
    if (reason !== null) return ignore(row, reason);
    // State is never encrypted, and a token in it is verified like any other.
    const untrusted = item.kind === 'state_grant' ? null : decideTrust(cryptoTrust, item.trust, facts.encryption);
    if (untrusted !== null) return turnDown(row, item, untrusted);
    switch (item.kind) {
      case 'grant':
        return takeGrant(row, item);
      case 'revoke':
        return carryOut(row, { ...item, thread: null }, { kind: 'revoke_token', tokenId: item.tokenId });
      case 'state_grant':
        return takeStateGrant(row, item, facts);
    }
  }

  function decideIgnore(row: InboxRow, item: Item<'grant' | 'revoke' | 'state_grant'>, facts: RoomFacts): IgnoreReason | null {
    if (!facts.joined) return 'not_joined';
    if (facts.kind !== 'direct') return 'not_direct';
    if (item.kind === 'state_grant') return null;
    const isHistory =
      row.source !== 'push' &&
      ((facts.admissionCursor !== null && item.sentAt < facts.admissionCursor) ||
        (row.source === 'backfill' && item.sender !== known.of(row.roomId)?.inviter));
    if (isHistory) return 'history';
    return mayUse(item.sender, rules) ? null : 'not_allowed';
  }

  const turnDown = (row: InboxRow, { sender, trust }: InboxItem, code: ErrorCode): Promise<void> =>
    refuse(row, { sender, trust, thread: null, content: {} }, true, {
      refusal: refusal(code),
      principal: null,
      capability: GRANT_CAPABILITY,
    });

  async function takeGrant(row: InboxRow, item: Item<'grant'>): Promise<void> {
    const { sender, dlg } = item;
    const planned = await registerGrant.fromEvent({ dlg, sender, roomId: row.roomId });
    if (!planned.ok) return turnDown(row, item, planned.error);
    const written = await store.write((tx): Result<GrantReceipt, ErrorCode> => {
      const receipt = planned.value.write(tx, now());
      if (!receipt.ok) return receipt;
      const event = receiptWords.receipt({ ...receipt.value, cause: row.eventId });
      const txnId = noticeTxnId('receipt', row.eventId);
      outbox.insert(tx, { txnId, lane: `receipt.${row.eventId}`, roomId: row.roomId, kind: 'notice', ...event }, now());
      inbox.finish(tx, row);
      return receipt;
    });
    if (!written.ok) return turnDown(row, item, written.error);
    outbox.wake();
    note(row, 'granted', written.value.kind);
    actions.markRead(row.roomId, row.eventId);
  }

  /** Nobody typed it and nobody waits for a reply: what became of it is in the audit log and in `!grants`. */
  async function takeStateGrant(row: InboxRow, item: Item<'state_grant'>, facts: RoomFacts): Promise<void> {
    const person = personOf(row.roomId, item.sender, facts);
    if (person === null) return ignore(row, 'own_event');
    if (!mayUse(person, rules)) return ignore(row, 'not_allowed');
    if (item.data === null) return revokeState(row, person);
    const planned = await registerGrant.fromState({ data: item.data, roomId: row.roomId, person });
    const code = await store.write((tx): ErrorCode | null => {
      const receipt = planned.ok ? planned.value.write(tx, now()) : planned;
      if (!receipt.ok) {
        writeAudit(store, tx, {
          at: now(),
          event_id: row.eventId,
          matrix_user_id: person,
          capability: GRANT_CAPABILITY,
          decision: 'refused',
          code: receipt.error,
        });
      }
      inbox.finish(tx, row);
      return receipt.ok ? null : receipt.error;
    });
    if (code === null) note(row, 'granted', 'state');
    else note(row, 'refused', code);
  }

  /** The older oracle wrote it in the name of whoever invited it; then it is that person's, and it is verified like any other. */
  function personOf(room: RoomId, sender: UserId, facts: RoomFacts): UserId | null {
    if (sender !== oracle) return sender;
    const inviter = known.of(room)?.inviter ?? null;
    return inviter !== null && facts.people.has(inviter) ? inviter : null;
  }

  async function revokeState(row: InboxRow, person: UserId): Promise<void> {
    note(row, 'revoked', 'state');
    let revoked: readonly TokenId[] = [];
    await finish(row, (tx) => {
      const at = now();
      const list = ownGrants.of(person, at).filter(({ source }) => source === 'state');
      revoked = ownGrants.revoke(tx, list, { user: person, eventId: row.eventId, trust: 'clear' }, at);
    });
    if (revoked.length > 0) onRevoked(revoked);
  }

  return {
    obey: carryOut,
    take,
  };
}
