import { describe, expect, test } from 'vitest';
import type { EventId, RoomId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import type { MatrixAccess, RoomStateEvent } from '../../../src/runtime-context/matrix-access.ts';
import { planSnapshot } from '../../../src/runtime-context/matrix-group.ts';
import { createRedactor } from '../../../src/secrets/redactor.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';
import { buildContext, refusedWith } from './context-fixture.ts';

const OTHER = '!other:test';
const MESSAGE = { msgtype: 'm.text', body: 'hello' };

function roomsOf({ joined = true, may = true, visibility }: { joined?: boolean; may?: boolean; visibility?: string } = {}) {
  const sent: { roomId: RoomId; content: JsonObject }[] = [];
  const state: RoomStateEvent[] =
    visibility === undefined
      ? []
      : [{ type: 'm.room.history_visibility', stateKey: '', sender: '@x:test', content: { history_visibility: visibility } }];
  const matrix: MatrixAccess = {
    ...noMatrix,
    areJoined: async (_user, room) => joined && room === OTHER,
    mayUserSend: async () => may,
    roomState: async () => state,
    event: async () => ({ type: 'm.room.message', content: MESSAGE }),
    send: async ({ roomId, content }) => {
      sent.push({ roomId, content });
      return '$sent' as EventId;
    },
  };
  return { matrix, sent };
}

test('a room that both have joined may be read and written', async () => {
  const { matrix, sent } = roomsOf();
  const { context } = buildContext({ matrix });

  expect(await context.matrix.postToRoom(OTHER, MESSAGE)).toBe('$sent');
  expect(await context.matrix.getRoomState(OTHER)).toEqual({ roomId: OTHER, events: [] });
  expect(await context.matrix.getEventById(OTHER, '$e')).toMatchObject({ type: 'm.room.message' });
  expect(sent).toMatchObject([{ roomId: OTHER }]);
});

describe('no confused deputy', () => {
  test.each(['!third:test', 'not a room', '', null as never])('a room the user is not in is not there: %s', async (room) => {
    const { matrix, sent } = roomsOf();
    const { context } = buildContext({ matrix });
    const refused = { refusal: { code: 'NOT_ALLOWED' } };

    await expect(context.matrix.postToRoom(room, MESSAGE)).rejects.toMatchObject(refused);
    await expect(context.matrix.getRoomState(room)).rejects.toMatchObject(refused);
    await expect(context.matrix.getEventById(room, '$e')).rejects.toMatchObject(refused);
    expect(sent).toEqual([]);
  });

  test('nor is any other room when nobody can say who is in it', async () => {
    const areJoined = () => Promise.reject(new Error('the homeserver is away'));
    const { matrix, sent } = roomsOf();

    await expect(buildContext({ matrix: { ...matrix, areJoined } }).context.matrix.postToRoom(OTHER, MESSAGE)).rejects.toThrow('away');
    expect(sent).toEqual([]);
  });

  test("the user's own power level there decides", async () => {
    const { matrix, sent } = roomsOf({ may: false });

    await expect(buildContext({ matrix }).context.matrix.postToRoom(OTHER, MESSAGE)).rejects.toMatchObject({
      refusal: { code: 'NOT_ALLOWED' },
    });
    expect(sent).toEqual([]);
  });

  test.each([
    ['joined', false],
    ['invited', false],
    ['shared', true],
    ['world_readable', true],
  ])('events of a room whose history is %s are read: %s', async (visibility, readable) => {
    const { context } = buildContext(roomsOf({ visibility }));
    const read = context.matrix.getEventById(OTHER, '$e');

    if (readable) await expect(read).resolves.toBeDefined();
    else await expect(read).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  });

  test('below tier signed nothing is posted', async () => {
    const { context } = buildContext({ ...roomsOf(), run: fakeRun({ tier: 'sender-bound' }) });

    await expect(context.matrix.postToRoom(OTHER, MESSAGE)).rejects.toMatchObject({ refusal: { code: 'TIER_TOO_LOW' } });
  });
});

describe('taint (DESIGN §5)', () => {
  test('a tainted run posts into no other room', async () => {
    const { matrix, sent } = roomsOf();
    const { context } = buildContext({ matrix, isTainted: () => true });

    await expect(context.matrix.postToRoom(OTHER, MESSAGE)).rejects.toMatchObject({ refusal: { code: 'NEEDS_CONFIRMATION' } });
    expect(sent).toEqual([]);
  });

  test('what is read in a room taints, its own room as well', async () => {
    const { context, foreign } = buildContext(roomsOf());
    await context.matrix.getRoomState('!room:test');
    await context.matrix.getEventById(OTHER, '$e');

    expect(foreign.count).toBe(2);
  });
});

test('a secret that was given out is not posted anywhere (G12)', async () => {
  const { matrix, sent } = roomsOf();
  const { context } = buildContext({ matrix, redactor: createRedactor(['top-secret-value']) });

  for (const room of [OTHER, '!room:test'])
    await expect(context.matrix.postToRoom(room, { msgtype: 'm.text', body: 'my top-secret-value' })).rejects.toEqual(
      refusedWith('BAD_REQUEST'),
    );
  expect(sent).toEqual([]);
});

describe('sizes (G14)', () => {
  const member = (at: number): RoomStateEvent => ({
    type: 'm.room.member',
    stateKey: `@u${at}:test`,
    sender: '@x:test',
    content: { membership: 'join' },
  });
  const topic: RoomStateEvent = { type: 'm.room.topic', stateKey: '', sender: '@x:test', content: { topic: 't' } };

  test('of a large room a plugin is given what is no member first, and is told that there is more', async () => {
    const state = [...Array.from({ length: 5_000 }, (_, at) => member(at)), topic];
    const { context } = buildContext({ matrix: { ...roomsOf().matrix, roomState: async () => state } });

    const snapshot = await context.matrix.getRoomState(OTHER);

    expect(snapshot.events).toHaveLength(2_000);
    expect(snapshot.events[0]).toEqual(topic);
    expect(snapshot.truncated).toBe(true);
  });

  test('large contents are cut off by their size', () => {
    const large = Array.from({ length: 100 }, (_, at) => ({ ...topic, type: `x.${at}`, content: { text: 'x'.repeat(60_000) } }));

    expect(planSnapshot(large)).toHaveLength(17);
    expect(planSnapshot([topic])).toEqual([topic]);
  });

  test('an event that is no event any more by its size is refused', async () => {
    const { context } = buildContext({ matrix: { ...roomsOf().matrix, event: async () => ({ body: 'x'.repeat(300_000) }) } });

    await expect(context.matrix.getEventById(OTHER, '$e')).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
  });
});
