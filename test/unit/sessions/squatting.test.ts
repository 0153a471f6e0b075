import { expect, test } from 'vitest';
import type { EventId } from '../../../src/ids.ts';
import { buildCore } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';

const inThreadOf = (root: string, body: string) => ({
  msgtype: 'm.text',
  body,
  'm.relates_to': { rel_type: 'm.thread', event_id: root },
});

test('a stranger who names my message as the root of a thread of his own does not keep me from being answered (G1, G13)', async () => {
  const core = buildCore();
  core.execute = null;
  await core.joinDirect(OTHER_ROOM);
  core.rooms.room(ROOM, { kind: 'group' });
  // Bob sees Alice's message in the group before we work on it, and claims its id in his direct room.
  await core.take(incoming('squat', { roomId: OTHER_ROOM, sender: BOB, content: inThreadOf('$mention', 'mine') }));

  expect(await core.take(incoming('mention', { sender: ALICE, text: 'Oracle: hi' }))).toEqual(['admitted:mention']);
  expect(await core.take(incoming('more', { sender: ALICE, content: inThreadOf('$mention', 'Oracle: and?') }))).toEqual([
    'admitted:mention',
  ]);

  const sessions = core.store.read.all(core.store.sql.selectFrom('sessions').select(['session_id', 'room_id', 'owner', 'thread_root']));
  expect(sessions).toHaveLength(2);
  const group = sessions.find(({ room_id }) => room_id === ROOM);
  expect(group).toMatchObject({ owner: ROOM, thread_root: '$mention' as EventId });
  expect(group?.session_id).not.toBe('$mention');
});
