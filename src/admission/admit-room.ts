/**
 * Invites, joins and leaves: where a room begins and ends for the oracle (DESIGN §2). What is accepted is joined, looked at, and read back to the
 * invite before its row ends, so a crash repeats the whole way and the inviter's first "hello" is not lost (G1).
 */
import { serverOf } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import { Unavailable } from '../inbox/unavailable.ts';
import { LIMITS } from '../limits.ts';
import { isTrustedServer } from './access.ts';
import type { AdmitOptions } from './admit.ts';
import type { Screened } from './decide-admission.ts';
import type { EndRow } from './end-row.ts';
import type { InboxItem } from './inbox-item.ts';

export type AdmitRoomOptions = Pick<AdmitOptions, 'store' | 'actions' | 'known' | 'rooms' | 'rules' | 'greet' | 'now'>;
export interface AdmitRoom {
  takeInvite(row: InboxRow, item: InboxItem & { kind: 'invite' }, screened: Screened & { kind: 'invite' }): Promise<void>;
  noteMembership(row: InboxRow, membership: 'join' | 'leave' | 'ban'): Promise<void>;
  noteChange(row: InboxRow): Promise<void>;
}

export function createAdmitRoom({ store, actions, known, rooms, rules, greet, now }: AdmitRoomOptions, end: EndRow): AdmitRoom {
  const { note, finish, ignore, factsOf } = end;

  /**
   * Our homeserver asks the inviter's about a join and about a decline, and waits as long as that one likes. A hundred invites of a server
   * that never answers must not take every connection and every room's turn.
   */
  const moves: string[] = [];
  async function takeInvite(row: InboxRow, item: InboxItem & { kind: 'invite' }, screened: Screened & { kind: 'invite' }): Promise<void> {
    if (isTrustedServer(item.sender, rules)) return decideInvite(row, item, screened);
    const server = serverOf(item.sender);
    const ofServer = moves.filter((other) => other === server).length;
    if (ofServer >= LIMITS.roomMovesAtOncePerServer || moves.length >= LIMITS.roomMovesAtOnce)
      throw new Unavailable('too many rooms are entered and left at once');
    moves.push(server);
    try {
      return await decideInvite(row, item, screened);
    } finally {
      moves.splice(moves.indexOf(server), 1);
    }
  }

  async function decideInvite(row: InboxRow, item: InboxItem & { kind: 'invite' }, screened: Screened & { kind: 'invite' }): Promise<void> {
    if (!screened.accept) {
      await actions.leave(row.roomId, screened.reason);
      note(row, 'declined', screened.because);
      return finish(row, (tx) => known.left(tx, row.roomId));
    }
    await store.write((tx) => known.invited(tx, row.roomId, { inviter: item.sender, isDirect: item.isDirect, at: item.sentAt }));
    if ((await actions.join(row.roomId)) === 'gone') {
      note(row, 'declined', 'not_joined');
      return finish(row, (tx) => known.left(tx, row.roomId));
    }
    await store.write((tx) => known.joined(tx, row.roomId, now()));
    rooms.forget(row.roomId);
    const facts = await factsOf(row.roomId);
    // What the inviter typed before the join ("hello") reaches the inbox here, ahead of what came since.
    await actions.readBackToInvite(row.roomId);
    // Last, so that it stands before what was read above: a grant comes before the message that needs it.
    if (facts.kind === 'direct') await actions.readStateGrant(row.roomId);
    note(row, 'joined', facts.kind);
    let said = (): void => undefined;
    await finish(row, (tx) => {
      known.firstRead(tx, row.roomId);
      if (facts.kind === 'group') said = greet(tx, row.roomId);
    });
    said();
  }

  async function noteMembership(row: InboxRow, membership: 'join' | 'leave' | 'ban'): Promise<void> {
    rooms.forget(row.roomId);
    note(row, 'ignored', 'membership');
    // A stuck push brings a leave long after we were invited again (research/synapse.md §0): the room itself says what is true.
    if (membership !== 'join' && (await rooms.facts(row.roomId)).joined) return finish(row);
    await finish(row, (tx) => (membership === 'join' ? known.joined(tx, row.roomId, now()) : known.left(tx, row.roomId)));
  }

  async function noteChange(row: InboxRow): Promise<void> {
    rooms.forget(row.roomId);
    return ignore(row, 'membership');
  }

  return { takeInvite, noteMembership, noteChange };
}
