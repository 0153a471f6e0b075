/**
 * An encrypted event becomes what it says, or ends with a reason, or waits for its key (src/inbox/parked.ts); the room goes on in each case (G17).
 * Stands behind the flood guard, because a ciphertext costs its reader more than its writer (G14). A ciphertext counts under one event id for good:
 * a homeserver that repeats one under another would repeat a command (research/e2ee.md §8).
 */
import { refusal } from '../errors.ts';
import type { EventId, MegolmSessionId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { Parked } from '../inbox/parked.ts';
import { LIMITS } from '../limits.ts';
import { assertNever } from '../result.ts';
import { MESSAGE_ABILITY } from '../ucan/abilities.ts';
import { mayUse } from './access.ts';
import type { AdmitOptions } from './admit.ts';
import type { IgnoreReason } from './decide-admission.ts';
import type { EndRow } from './end-row.ts';
import type { InboxItem } from './inbox-item.ts';
import type { RefuseRow } from './refuse-row.ts';
import type { Reveal, Revealed, RevealRefusal } from './reveal.ts';
import type { RoomFacts } from './room-facts.ts';

/** What admission needs for encrypted events, beside the rest. */
export interface EncryptedOptions {
  readonly reveal: Reveal;
  readonly parked: Parked;
  /** These keys are here: what waits for them is taken up, whatever the disk does meanwhile. */
  readonly keysArrived: (sessions: readonly MegolmSessionId[]) => void;
  /** Once per event, however often its row is claimed. */
  readonly onDecrypted?: (sinceReceivedMs: number) => void;
}
export type AdmitEncryptedOptions = EncryptedOptions &
  Pick<AdmitOptions, 'store' | 'rooms' | 'known' | 'rules' | 'now' | 'readItem' | 'logger'>;

type EncryptedItem = Extract<InboxItem, { kind: 'encrypted' }>;
export interface AdmitEncrypted {
  /** @returns null when its row has ended, or waits. */
  open(row: InboxRow, item: EncryptedItem): Promise<InboxItem | null>;
}

export function createAdmitEncrypted(options: AdmitEncryptedOptions, end: EndRow, refuse: RefuseRow): AdmitEncrypted {
  const { store, rooms, reveal, parked, known, rules, now, readItem, logger } = options;
  const { note, ignore, factsOf } = end;
  const { sql } = store;

  async function open(row: InboxRow, item: EncryptedItem): Promise<InboxItem | null> {
    if (row.source === 'backfill' && item.sender !== known.of(row.roomId)?.inviter) return over(row, 'history');
    const revealed = await reveal(row);
    switch (revealed.kind) {
      case 'clear':
        return read(row, revealed);
      case 'missing_key':
        return miss(row, item, revealed);
      case 'refused':
        return turnDown(row, item, revealed.reason);
      default:
        return assertNever(revealed);
    }
  }

  async function over(row: InboxRow, reason: IgnoreReason): Promise<null> {
    await ignore(row, reason);
    return null;
  }

  async function read(row: InboxRow, { event, trust, session, index }: Revealed & { kind: 'clear' }): Promise<InboxItem | null> {
    // The other one encrypts, so what the two say is encrypted, whatever a homeserver shows of the room's state (G11). In a group one member alone
    // must not decide that for all: there the answers to encrypted messages are encrypted (src/runs/asked-encrypted.ts).
    if ((await factsOf(row.roomId)).kind === 'direct') rooms.sawEncryption(row.roomId);
    const first = await firstEventOf(session, index, row.eventId);
    if (first.event !== row.eventId) return over(row, 'replayed');
    if (first.isNew) options.onDecrypted?.(Math.max(0, now() - row.receivedAt));
    const item = readItem({ ...row, event });
    if (item.ok) return { ...item.value, trust };
    logger.info({ event_id: row.eventId, room_id: row.roomId, reason: item.error }, 'an event was skipped');
    return over(row, 'unreadable');
  }

  /** Written before anything that the message causes, by a write of its own: a crash in between finds the same event. */
  const firstEventOf = (session: MegolmSessionId, index: number, event: EventId): Promise<{ event: EventId; isNew: boolean }> =>
    store.write((tx) => {
      const row = { megolm_session: session, message_index: index, event_id: event, at: now() };
      const inserted = tx.run(
        sql
          .insertInto('decrypted')
          .values(row)
          .onConflict((oc) => oc.columns(['megolm_session', 'message_index']).doNothing()),
      );
      const first = sql.selectFrom('decrypted').select('event_id').where('megolm_session', '=', session).where('message_index', '=', index);
      return { event: tx.get(first)?.event_id ?? event, isNew: inserted > 0 };
    });

  async function miss(row: InboxRow, item: EncryptedItem, { session, indexTooOld }: Revealed & { kind: 'missing_key' }): Promise<null> {
    const reason = decideHopeless(row, item, await factsOf(row.roomId));
    if (reason !== null) return over(row, reason);
    const until = row.receivedAt + LIMITS.keyWaitMs;
    const isYoung = row.parkedAt === null && now() < until && !indexTooOld;
    if (isYoung) await parked.awaitKey(row, session, until);
    else if (!mayUse(item.sender, rules, true)) return over(row, 'not_allowed');
    else if (!(await parked.park(row, session))) return over(row, 'too_many_unreadable');
    else note(row, 'parked', indexTooOld ? 'index_too_old' : 'missing_key');
    await lookAgain(row, session);
    return null;
  }

  /** What would be no prompt, whatever it says. */
  function decideHopeless(row: InboxRow, item: EncryptedItem, room: RoomFacts): IgnoreReason | null {
    if (!room.joined) return 'not_joined';
    return row.source !== 'push' && room.admissionCursor !== null && item.sentAt < room.admissionCursor ? 'history' : null;
  }

  /** The key may have come between the look and the row's being put aside: then nobody woke it. */
  async function lookAgain(row: InboxRow, session: MegolmSessionId): Promise<void> {
    // Who cannot look takes it up again: the first look of the next claim says why, and is judged.
    const again = await reveal(row).catch(() => null);
    if (again?.kind !== 'missing_key') options.keysArrived([session]);
  }

  /** A hostile ciphertext is answered with nothing; to whom an app does not give its keys somebody should say so. */
  async function turnDown(row: InboxRow, item: EncryptedItem, reason: RevealRefusal): Promise<null> {
    logger.info({ event_id: row.eventId, room_id: row.roomId, reason }, 'an encrypted event was refused');
    if (reason !== 'withheld' || row.toldAt !== null) return over(row, reason);
    const facts = await factsOf(row.roomId);
    const hopeless = decideHopeless(row, item, facts) ?? (mayUse(item.sender, rules, true) ? null : 'not_allowed');
    if (hopeless !== null) return over(row, hopeless);
    const { sender, thread, trust } = item;
    const why = { refusal: refusal('CANNOT_READ', { message: WITHHELD }), principal: null };
    await refuse(row, { sender, thread, trust, content: {} }, facts.kind === 'direct', {
      ...why,
      capability: MESSAGE_ABILITY,
      kind: 'unreadable',
    });
    return null;
  }

  return { open };
}

const WITHHELD =
  'I could not read your message: your app does not give me its key. Please allow messages to unverified sessions in its settings, or verify me first, then send it again.';
