import { deflateSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import type { Did, RoomId, TokenId } from '../../../src/ids.ts';
import type { IncomingEvent } from '../../../src/inbox/inbox.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { gateDelegation } from '../../../src/ucan/gate.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { ALICE_KEY, MALLORY_KEY, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, ORACLE, OTHER_ROOM, ROOM, STRANGER } from '../../fakes/events.ts';
import { FAKE_START_MS } from '../../fakes/fake-clock.ts';
import { failingStore, settle } from '../../fakes/memory-store.ts';
import { authorityWorld, DAY_MS, type World } from './authority-world.ts';

const GROUP = '!group:example.org' as RoomId;
const tokenIdOf = (car: string): TokenId => {
  const gated = gateDelegation(car);
  return gated.ok ? gated.value.leaf.tokenId : expect.fail(gated.error);
};
const grant = (name: string, dlg: string, change: Partial<IncomingEvent> = {}): IncomingEvent =>
  incoming(name, { type: 'ixo.oracle.grant', content: { v: 1, dlg, body: 'A grant' }, ...change });
const revoke = (name: string, tokenId: string, change: Partial<IncomingEvent> = {}): IncomingEvent =>
  incoming(name, { type: 'ixo.oracle.revoke', content: { token_id: tokenId }, ...change });
const pack = (raw: string): string => deflateSync(JSON.stringify({ json: { raw, updatedAt: 1 } })).toString('base64');
const stateGrant = (name: string, content: JsonObject, change: Partial<IncomingEvent> = {}): IncomingEvent => {
  const base = incoming(name, { type: 'ixo.room.state', content, ...change });
  return { ...base, event: { ...base.event, state_key: 'ucan_delegation' } };
};
const session = (world: World, content: JsonObject): JsonObject =>
  signContent(
    {
      key: ALICE_KEY,
      audience: ORACLE_KEY.did,
      room: ROOM,
      sender: ALICE,
      type: 'm.room.message',
      ts: world.clock.now(),
      nonce: newNonce(),
    },
    content,
  );

describe('ixo.oracle.grant', () => {
  test('of a linked DID is stored and gets a receipt, both once', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const dlg = world.mint();

    expect(await world.take(grant('g', dlg))).toEqual(['granted:acting']);
    await world.inbox.receive([grant('g', dlg)]);

    expect(world.ids()).toEqual([tokenIdOf(dlg)]);
    expect(world.said()).toEqual([
      { lane: 'receipt.$g', content: { token_id: tokenIdOf(dlg), expires_at: world.clock.now() + DAY_MS, cause: '$g', body: 'Stored.' } },
    ]);
    expect([world.count('inbox'), world.count('transcript')]).toEqual([0, 0]);
    expect(world.decisions()).toEqual(['grant/store allowed']);
  });

  test('registered by one user naming another is refused, and nothing is kept', async () => {
    const world = await authorityWorld();
    const dlg = world.mint({ capabilities: [{ can: 'calendar/read', with: 'ixo:calendar', nb: { sender: BOB } }] });

    expect(await world.take(grant('g', dlg))).toEqual(['refused:WRONG_SENDER']);

    expect(world.count('grants')).toBe(0);
    expect(world.said()).toMatchObject([{ lane: 'notice.$g', content: { code: 'WRONG_SENDER' } }]);
    expect(world.decisions()).toEqual(['grant/store WRONG_SENDER']);
  });

  test.each<[string, string, (world: World) => string]>([
    ['of a DID that nothing ties to the account', 'NOT_LINKED', (world) => world.mint({ key: MALLORY_KEY })],
    ['that is no token', 'UCAN_MALFORMED', () => 'CAR'],
    ['for everything', 'GRANT_TOO_WIDE', (world) => world.mint({ capabilities: [{ can: '*', with: ALICE_KEY.did }] })],
    ['for too long', 'GRANT_LIVES_TOO_LONG', (world) => world.mint({ expiresAt: world.clock.now() + 40 * DAY_MS })],
    ['that has ended', 'GRANT_EXPIRED', (world) => world.mint({ expiresAt: world.clock.now() - DAY_MS })],
    ['for another oracle', 'BAD_GRANT', (world) => world.mint({ audience: MALLORY_KEY.did })],
  ])('%s is refused with %s', async (_name, code, make) => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);

    expect(await world.take(grant('g', make(world)))).toEqual([`refused:${code}`]);

    expect([world.count('grants'), world.count('inbox')]).toEqual([0, 0]);
  });

  test('makes no account sender-bound, even with what only the page may say', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    const nb = { link: world.newestNonce(), sender: ALICE };
    const dlg = world.mint({ key: MALLORY_KEY, capabilities: [{ can: 'oracle/chat', with: MALLORY_KEY.did, nb }] });

    await world.take(grant('g', dlg));

    expect(world.grants.pendingOf(ALICE, world.clock.now())).toBeUndefined();
    expect(world.bound()).toBeNull();
  });

  test('in a group is ignored, and of who may not use the oracle', async () => {
    const world = await authorityWorld();
    world.rooms.room(GROUP, { kind: 'group' });

    expect(
      await world.take(
        grant('g', 'x', { roomId: GROUP }),
        grant('h', 'x', { sender: STRANGER }),
        revoke('r', 'A'.repeat(43), { roomId: GROUP }),
      ),
    ).toEqual(['ignored:not_direct', 'ignored:not_allowed', 'ignored:not_direct']);
    expect(world.said()).toEqual([]);
  });

  test('from before the invite, or of somebody else before the join, is history', async () => {
    const world = await authorityWorld();
    world.rooms.room(ROOM, { admissionCursor: FAKE_START_MS + 1 });
    world.rooms.forget(ROOM);

    expect(await world.take(grant('g', 'x', { source: 'sync' }), grant('h', 'x', { source: 'backfill', sender: BOB }))).toEqual([
      'ignored:history',
      'ignored:history',
    ]);
  });

  test('that is malformed is skipped with its reason, and the next is taken (G17)', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);

    expect(await world.take(incoming('a', { type: 'ixo.oracle.grant', content: { v: 1, dlg: 7 } }), grant('b', world.mint()))).toEqual([
      'ignored:unreadable',
      'granted:acting',
    ]);
    expect(world.logger.lines.some(({ reason }) => reason === 'bad_grant')).toBe(true);
  });

  test('whose commit fails leaves nothing and is taken again (G1, G4)', async () => {
    const store = failingStore();
    const world = await authorityWorld({ store });
    await world.link(ALICE_KEY.did, ALICE);
    await world.inbox.receive([grant('g', world.mint())]);

    store.failWrite(1);
    await expect(world.admit.handle(world.claim())).rejects.toThrow();
    expect([world.count('grants'), world.count('outbox'), world.count('inbox')]).toEqual([0, 0, 1]);

    await world.admit.handle(world.claim());
    expect([world.count('grants'), world.count('outbox'), world.count('inbox')]).toEqual([1, 1, 0]);
  });
});

describe('ixo.oracle.revoke', () => {
  test('ends a grant of a linked DID, says so, and it cannot come back', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const dlg = world.mint();
    await world.take(grant('g', dlg));

    expect(await world.take(revoke('r', tokenIdOf(dlg)))).toEqual(['command:revoke_token']);

    expect(world.bodies().at(-1)).toContain('Taken back');
    expect(world.ids()).toEqual([]);
    expect(await world.take(grant('h', dlg))).toEqual(['refused:REVOKED']);
    expect(world.decisions()).toEqual(['grant/store allowed', 'grant/revoke allowed', 'grant/store REVOKED']);
  });

  test('of an unknown token, of another person’s and a second time are one and the same (G13)', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const dlg = world.mint();
    const tokenId = tokenIdOf(dlg);
    await world.take(grant('g', dlg));

    await world.take(revoke('a', tokenId, { sender: BOB }), revoke('b', 'A'.repeat(43), { sender: BOB }));
    expect(world.ids()).toEqual([tokenId]);
    await world.take(revoke('c', tokenId), revoke('d', tokenId));

    const [foreign, unknown, , again] = world
      .said()
      .slice(1)
      .map(({ content }) => content);
    expect(foreign).toEqual(unknown);
    expect(again).toEqual(unknown);
    expect(unknown).toMatchObject({ code: 'NOT_FOUND' });
  });
});

describe('ixo.room.state / ucan_delegation', () => {
  test('is stored for the DID, without a word in the room', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const dlg = world.mint();

    expect(await world.take(stateGrant('s', { data: pack(dlg) }))).toEqual(['granted:state']);

    expect(world.grants.byTokenId(tokenIdOf(dlg))).toMatchObject({ did: ALICE_KEY.did, source: 'state', matrixUserId: null });
    expect([world.bound(), world.bodies()]).toEqual([null, []]);
  });

  test('written by the older oracle under this account is the inviter’s', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);

    expect(await world.take(stateGrant('s', { data: pack(world.mint()) }, { sender: ORACLE }))).toEqual(['granted:state']);
  });

  test('of a DID that is not theirs, or broken, is refused in the audit log only', async () => {
    const world = await authorityWorld();

    expect(await world.take(stateGrant('s', { data: pack(world.mint()) }), stateGrant('t', { data: 'eJw=' }))).toEqual([
      'refused:NOT_LINKED',
      'refused:UCAN_MALFORMED',
    ]);
    expect([world.bodies(), world.decisions()]).toEqual([[], ['grant/store NOT_LINKED', 'grant/store UCAN_MALFORMED']]);
  });

  test('emptied takes back what came by state, and nothing else', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const [byState, byEvent] = [world.mint(), world.mint()];
    await world.take(stateGrant('s', { data: pack(byState) }), grant('g', byEvent));

    expect(await world.take(stateGrant('t', {}))).toEqual(['revoked:state']);

    expect(world.ids()).toEqual([tokenIdOf(byEvent)]);
    expect(world.grants.byTokenId(tokenIdOf(byState))?.revokedAt).toBe(world.clock.now());
  });

  test('in a group is ignored', async () => {
    const world = await authorityWorld();
    world.rooms.room(GROUP, { kind: 'group' });

    expect(await world.take(stateGrant('s', { data: 'x' }, { roomId: GROUP }))).toEqual(['ignored:not_direct']);
  });

  test('that stands there before the oracle joins is read once, before what was said meanwhile', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    world.rooms.room(OTHER_ROOM, { kind: 'direct', membership: 'invite' });
    const set = stateGrant('s', { data: pack(world.mint()) }, { roomId: OTHER_ROOM, source: 'backfill' });
    world.rooms.onReadBack = async () => {
      await world.inbox.receive([incoming('hello', { roomId: OTHER_ROOM, source: 'backfill' })]);
      return true;
    };
    world.rooms.onReadState = async () => world.inbox.receive([set]);
    const invite = incoming('invite', { type: 'm.room.member', roomId: OTHER_ROOM, content: { membership: 'invite', is_direct: true } });
    await world.inbox.receive([{ ...invite, event: { ...invite.event, state_key: ORACLE } }]);

    await world.admit.handle(world.claim(OTHER_ROOM));
    await world.admit.handle(world.claim(OTHER_ROOM));
    await world.admit.handle(world.claim(OTHER_ROOM));
    await world.inbox.receive([{ ...set, source: 'push' }]);

    expect(world.admitted.slice(-3)).toEqual(['joined:direct', 'granted:state', 'refused:NO_AUTHORITY']);
    expect(world.count('inbox')).toBe(0);
  });

  test('is not asked for in a group', async () => {
    const world = await authorityWorld();
    world.rooms.room(GROUP, { kind: 'group', membership: 'invite' });
    const asked: RoomId[] = [];
    world.rooms.onReadState = async (room) => void asked.push(room);
    const invite = incoming('invite', { type: 'm.room.member', roomId: GROUP, content: { membership: 'invite' } });

    await world.take({ ...invite, event: { ...invite.event, state_key: ORACLE } });

    expect([world.greeted, asked]).toEqual([[GROUP], []]);
  });
});

describe('who has not authorised the oracle', () => {
  test('gets the link in the direct chat, once in 6 h, and a lock in between', async () => {
    const world = await authorityWorld();

    const [first = ''] = await world.say('hello');

    expect(first).toContain('you have not authorised me');
    expect(first).toContain('`!authorise`');
    expect(world.store.read.all(world.store.sql.selectFrom('authorise_links').select('room_id'))).toEqual([{ room_id: ROOM }]);
    expect(await world.say('are you there?')).toEqual(['🔒']);
    expect(await world.say('hello?', { roomId: ROOM })).toEqual(['🔒']);
    await world.clock.advanceAsync(LIMITS.authorityNoticeRepeatMs);
    expect(await world.say('now?')).toEqual([expect.stringMatching(/Open this page/u)]);
  });

  test('and whose notice could not be sent gets it again', async () => {
    const world = await authorityWorld();
    await world.say('hello');
    const [row] = world.outbox.due(world.clock.now(), { limit: 1, busy: new Set() });
    if (row === undefined) return expect.fail('no notice');

    await world.outbox.park(row, 'M_FORBIDDEN');
    await settle();

    expect(await world.say('again')).toEqual([expect.stringContaining('you have not authorised me')]);
  });

  test('and just asked for a link is not sent a second one', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');

    expect(await world.say('hello')).toEqual([expect.stringContaining('I sent you a link less than a minute ago')]);
  });

  test('and made a grant that waits is told to confirm it', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());

    expect(await world.say('hello')).toEqual([expect.stringContaining('waits for you: send `!authorise`')]);
  });

  test('without PUBLIC_URL is sent to the operator', async () => {
    const world = await authorityWorld({ publicUrl: null });

    expect(await world.say('hello')).toEqual([expect.stringContaining('ask the operator')]);
  });

  test('on a foreign server gets no link, and "use a client that signs"', async () => {
    const world = await authorityWorld({ rules: { access: 'open' } });

    expect(await world.say('hello', { sender: STRANGER })).toEqual([expect.stringContaining('use a client that signs')]);
    expect(world.count('outbox')).toBe(1);
  });

  test('whose grant ends before the answer could be finished gets the link, too', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());
    await world.say('!authorise');
    await world.say('!authorise confirm');

    await world.clock.advanceAsync(30 * DAY_MS - 60_000);

    expect(await world.take(incoming('late', { text: 'hello' }))).toEqual(['refused:EXPIRES_TOO_SOON']);
    expect(world.bodies().at(-1)).toMatch(/ends before my answer could be finished\. Open this page/u);
  });

  test('but signs is told what is wrong with the token, without a link', async () => {
    const world = await authorityWorld();
    const content = { msgtype: 'm.text', body: 'hello', 'ixo.oracle.ucan': { v: 1, inv: 'x' } };

    expect(await world.take(incoming('a', { content }))).toEqual(['refused:UCAN_MALFORMED']);
    expect(world.bodies()).toEqual(['The authorisation in this message cannot be read.']);
  });

  describe('in a group', () => {
    async function groupWorld(): Promise<World> {
      const world = await authorityWorld();
      world.rooms.room(GROUP, { kind: 'group' });
      return world;
    }
    const rows = (world: World) =>
      world.store.read
        .all(world.store.sql.selectFrom('outbox').select(['room_id', 'event_type', 'content', 'lane']).orderBy('seq'))
        .map(({ content, ...row }) => ({ ...row, content: content }));

    test('with a direct chat gets the link there and a lock in the group', async () => {
      const world = await groupWorld();

      await world.say('Oracle: hello', { roomId: GROUP });
      await world.say('Oracle: hello?', { roomId: GROUP });
      await world.say('hello');

      expect(rows(world).map(({ room_id, event_type }) => `${room_id} ${event_type}`)).toEqual([
        `${GROUP} m.reaction`,
        `${ROOM} m.room.message`,
        `${GROUP} m.reaction`,
        `${ROOM} m.reaction`,
      ]);
      expect(new Set(rows(world).map(({ lane }) => lane)).size).toBe(4);
      expect(world.store.read.all(world.store.sql.selectFrom('authorise_links').select(['matrix_user_id', 'room_id']))).toEqual([
        { matrix_user_id: ALICE, room_id: ROOM },
      ]);
    });

    test('without one is asked to open it, once in 6 h, and the group learns nothing of the person', async () => {
      const world = await groupWorld();

      const said = [
        ...(await world.say('Oracle: hello', { roomId: GROUP, sender: BOB })),
        ...(await world.say('Oracle: hello?', { roomId: GROUP, sender: BOB })),
      ];

      expect(said).toEqual([expect.stringContaining('open a direct chat with me'), '🔒']);
      expect(rows(world).every(({ content }) => !/did:|https?:|authorise#/u.test(content))).toBe(true);
      expect(world.store.read.all(world.store.sql.selectFrom('authorise_links').selectAll())).toEqual([]);
    });

    test.each([
      ['is a group by now', { kind: 'group' as const }],
      ['was left', { membership: 'leave' as const }],
      ['cannot be looked up', { encryption: 'unknown' as const }],
    ])('a direct chat that %s gets no link', async (_name, change) => {
      const world = await groupWorld();
      world.rooms.room(ROOM, change);
      world.rooms.forget(ROOM);

      expect(await world.say('Oracle: hello', { roomId: GROUP })).toEqual([expect.stringContaining('open a direct chat with me')]);
    });
  });
});

describe('a changed prompt', () => {
  const edit = (content: JsonObject): JsonObject => ({
    msgtype: 'm.text',
    body: '* better',
    'm.new_content': { msgtype: 'm.text', body: 'better' },
    'm.relates_to': { rel_type: 'm.replace', event_id: '$hello' },
    ...content,
  });
  const asked = (world: World) => world.store.read.all(world.store.sql.selectFrom('pending_inputs').select('text')).map(({ text }) => text);

  async function boundWorld(): Promise<World> {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());
    await world.say('!authorise');
    await world.say('!authorise confirm');
    await world.take(incoming('hello'));
    return world;
  }

  test('of a sender-bound message may be signed by the same person', async () => {
    const world = await boundWorld();
    const signed = signContent(
      {
        key: ALICE_KEY,
        audience: ORACLE_KEY.did,
        room: ROOM,
        sender: ALICE,
        type: 'm.room.message',
        ts: world.clock.now(),
        nonce: newNonce(),
        edits: '$hello' as never,
      },
      edit({}),
    );

    expect(await world.take(incoming('e', { content: signed }))).toEqual(['amended:edit']);
    expect(asked(world)).toEqual(['better']);
  });

  test('of a signed message needs a signature: the bound account alone is less', async () => {
    const world = await boundWorld();
    await world.store.write((tx) => tx.run(world.store.sql.deleteFrom('pending_inputs')));
    await world.take(incoming('hello2', { content: session(world, { msgtype: 'm.text', body: 'signed' }) }));
    const content = { ...edit({}), 'm.relates_to': { rel_type: 'm.replace', event_id: '$hello2' } };

    expect(await world.take(incoming('e', { content }))).toEqual(['ignored:edit_of_another']);
    expect(asked(world)).toEqual(['signed']);
  });

  test('by another identity is refused, whatever the tier', async () => {
    const world = await boundWorld();
    const signed = signContent(
      {
        key: MALLORY_KEY,
        audience: ORACLE_KEY.did,
        room: ROOM,
        sender: ALICE,
        type: 'm.room.message',
        ts: world.clock.now(),
        nonce: newNonce(),
        edits: '$hello' as never,
      },
      edit({}),
    );

    expect(await world.take(incoming('e', { content: signed }))).toEqual(['ignored:edit_of_another']);
  });
});

test('with ACCESS=granted a signed message of any server is judged by its DID, an unsigned one of a foreign server not at all', async () => {
  const world = await authorityWorld({ rules: { access: 'granted' } });
  const signedBy = (sender: typeof STRANGER, key = ALICE_KEY) =>
    signContent(
      { key, audience: ORACLE_KEY.did, room: ROOM, sender, type: 'm.room.message', ts: world.clock.now(), nonce: newNonce() },
      { msgtype: 'm.text', body: 'hello' },
    );
  await world.store.write((tx) =>
    tx.run(world.store.sql.insertInto('use_grants').values({ did: ALICE_KEY.did as Did, granted_at: world.clock.now() })),
  );

  expect(
    await world.take(
      incoming('a', { sender: STRANGER, content: signedBy(STRANGER) }),
      incoming('b', { sender: STRANGER, content: signedBy(STRANGER, MALLORY_KEY) }),
      incoming('c', { sender: STRANGER }),
    ),
  ).toEqual(['admitted:direct', 'refused:NOT_ALLOWED', 'refused:NOT_ALLOWED']);
});
