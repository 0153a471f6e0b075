/**
 * Rooms as a homeserver knows them, for admission: who is in, whether direct, whether encrypted. Not kinder than the real thing: facts are
 * a snapshot until `forget`, a look-up fails while the homeserver is down (then: a group with unknown encryption, not joined), a join of a
 * room without invite says "gone", and leaving twice is no error.
 */
import type { RoomActions, RoomDirectory, RoomFacts } from '../../src/admission/room-facts.ts';
import type { EventId, RoomId, UserId } from '../../src/ids.ts';
import { Unavailable } from '../../src/inbox/unavailable.ts';

export interface FakeRoom {
  kind: RoomFacts['kind'];
  encryption: RoomFacts['encryption'];
  membership: 'invite' | 'join' | 'leave';
  admissionCursor: number | null;
  levels: Map<UserId, number>;
  senders: Map<EventId, UserId>;
}
export interface FakeRooms extends RoomDirectory, RoomActions {
  /** Adds or changes a room. */
  room(id: RoomId, change?: Partial<FakeRoom>): FakeRoom;
  /** While down, look-ups are unknown and actions throw. */
  down: boolean;
  /** What the inbox gets between invite and join. */
  onReadBack: (room: RoomId) => Promise<boolean>;
  /** What the inbox gets from the state of a direct room. */
  onReadState: (room: RoomId) => Promise<void>;
  /** Everything that was done, in order: `join !room`, `leave !room <reason>`, `read !room $event`, `back !room`. */
  readonly log: string[];
}

export function fakeRooms(): FakeRooms {
  const known = new Map<RoomId, FakeRoom>();
  const cached = new Map<RoomId, RoomFacts>();
  const log: string[] = [];

  function act(what: string): void {
    if (fake.down) throw new Unavailable('the homeserver is down');
    log.push(what);
  }
  const fake: FakeRooms = {
    down: false,
    log,
    onReadBack: async () => true,
    onReadState: async () => undefined,
    room(id, change = {}) {
      const room = known.get(id) ?? {
        kind: 'direct',
        encryption: 'none',
        membership: 'join',
        admissionCursor: null,
        levels: new Map(),
        senders: new Map(),
      };
      known.set(id, Object.assign(room, change));
      return room;
    },
    async facts(id) {
      const room = known.get(id);
      if (fake.down || room === undefined)
        return {
          roomId: id,
          kind: 'group',
          encryption: 'unknown',
          federated: true,
          joined: false,
          people: new Set<UserId>(),
          displayName: null,
          admissionCursor: null,
        };
      const facts = cached.get(id) ?? {
        roomId: id,
        kind: room.kind,
        encryption: room.encryption,
        federated: false,
        joined: room.membership === 'join',
        people: { has: () => true },
        displayName: 'A room',
        admissionCursor: room.admissionCursor,
      };
      cached.set(id, facts);
      return facts;
    },
    forget: (id) => void cached.delete(id),
    sawEncryption(id) {
      fake.room(id, { encryption: 'encrypted' });
      cached.delete(id);
    },
    powerLevel: async (id, user) => known.get(id)?.levels.get(user) ?? 0,
    async mayRedact(id, user) {
      if (fake.down) throw new Unavailable('the homeserver is down');
      return (known.get(id)?.levels.get(user) ?? 0) >= 50;
    },
    async maySetState(id, user) {
      if (fake.down) throw new Unavailable('the homeserver is down');
      return (known.get(id)?.levels.get(user) ?? 0) >= 50;
    },
    senderOf: async (id, event) => (fake.down ? null : (known.get(id)?.senders.get(event) ?? null)),
    async join(id) {
      act(`join ${id}`);
      const room = known.get(id);
      if (room === undefined || room.membership === 'leave') return 'gone';
      room.membership = 'join';
      return 'joined';
    },
    async leave(id, reason) {
      act(`leave ${id} ${reason}`);
      const room = known.get(id);
      if (room !== undefined) room.membership = 'leave';
    },
    markRead: (id, event) => void log.push(`read ${id} ${event}`),
    async readBackToInvite(id) {
      act(`back ${id}`);
      return await fake.onReadBack(id);
    },
    async readStateGrant(id) {
      if (fake.down) throw new Unavailable('the homeserver is down');
      await fake.onReadState(id);
    },
  };
  return fake;
}
