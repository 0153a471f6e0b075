import { describe, expect, test } from 'vitest';
import { COMMANDS } from '../../../src/commands/read-command.ts';
import type { Did, RoomId } from '../../../src/ids.ts';
import { LIMITS } from '../../../src/limits.ts';
import { ALICE_KEY, MALLORY_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, incoming, ROOM, STRANGER } from '../../fakes/events.ts';
import { failingStore, settle } from '../../fakes/memory-store.ts';
import { held } from '../../fakes/scripted-runner.ts';
import { authorityWorld, DAY_MS, type World } from '../admission/authority-world.ts';

/** Alice has authorised the oracle as the page and the two commands do it. */
async function authorised(world: World): Promise<void> {
  await world.say('!authorise');
  expect(await world.page(world.newestNonce())).toBeNull();
  await world.say('!authorise');
  await world.say('!authorise confirm');
  expect(world.bound()).toBe(ALICE_KEY.did);
}

test('!help lists every form there is, and says which belong into a direct chat', async () => {
  const world = await authorityWorld();

  const [reply = ''] = await world.say('!help');

  for (const { uses } of COMMANDS) for (const { form } of uses) expect(reply).toContain(`\`${form}\``);
  expect(reply).toMatch(/`!authorise`, `!grants`, `!revoke`, `!balance` only work in a direct chat with me\.$/u);
});

describe('!authorise', () => {
  test('gives a fresh link, which is for this account and used up by what is made with it', async () => {
    const world = await authorityWorld();

    const [reply = ''] = await world.say('!authorise');

    expect(reply).toMatch(/https:\/\/oracle\.example\.org\/authorise#[A-Za-z0-9_-]{22}$/u);
    expect(await world.page(world.newestNonce(), { sender: BOB })).toBe('BAD_LINK');
    expect(await world.page(world.newestNonce())).toBeNull();
    expect(await world.page(world.newestNonce())).toBe('BAD_LINK');
  });

  test('gives one link a minute', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');

    expect(await world.say('!authorise')).toEqual([expect.stringContaining('less than a minute ago')]);

    await world.clock.advanceAsync(LIMITS.authoriseLinkRepeatMs);
    expect(await world.say('!authorise')).toEqual([expect.stringContaining('/authorise#')]);
  });

  test('a link is good for 15 minutes', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    const nonce = world.newestNonce();

    await world.clock.advanceAsync(LIMITS.authoriseLinkMs);

    expect(await world.page(nonce)).toBe('BAD_LINK');
  });

  test('without a page says whom to ask, and makes no link', async () => {
    const world = await authorityWorld({ publicUrl: null });

    expect(await world.say('!authorise')).toEqual([expect.stringContaining('ask the operator to set PUBLIC_URL')]);
    expect(world.store.read.all(world.store.sql.selectFrom('authorise_links').selectAll())).toEqual([]);
  });

  test('of an account on a server that is not trusted is refused: its word is not enough', async () => {
    const world = await authorityWorld({ rules: { access: 'open' } });

    expect(await world.say('!authorise', { sender: STRANGER })).toEqual([expect.stringContaining('use a client that signs')]);
    expect(await world.say('!authorise confirm', { sender: STRANGER })).toEqual([expect.stringContaining('use a client that signs')]);
    expect(world.said().at(-1)?.content).toMatchObject({ code: 'UNTRUSTED_SERVER' });
    expect(world.decisions()).toEqual(['grant/confirm UNTRUSTED_SERVER', 'grant/confirm UNTRUSTED_SERVER']);
  });

  test('a person talked into typing it sees whose DID it is, and without confirm nothing changes', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    // The person gave the link away, and somebody else used it with a key of his own.
    expect(await world.page(world.newestNonce(), { key: MALLORY_KEY })).toBeNull();

    const [shown = ''] = await world.say('!authorise');

    expect(shown).toContain(`\`${MALLORY_KEY.did}\``);
    expect(shown).toContain('answer this account as that identity');
    expect(shown).toContain('use `calendar/read` on `ixo:calendar`');
    expect(shown).toMatch(/Until: \d{4}-\d\d-\d\d \d\d:\d\d UTC/u);
    expect([world.bound(), world.links.didsOf(ALICE), world.grants.actingOf(MALLORY_KEY.did, world.clock.now())]).toEqual([null, [], []]);
    expect(await world.say('hello')).toEqual([expect.stringContaining('you have not authorised me')]);
    expect(world.count('runs')).toBe(0);

    const id = /!revoke ([A-Za-z0-9_-]{8})/u.exec(shown)?.[1];
    expect(await world.say(`!revoke ${id}`)).toEqual([expect.stringContaining('Taken back')]);
    expect(await world.say('!authorise confirm')).toEqual([expect.stringContaining('Nothing waits')]);
    expect(world.bound()).toBeNull();
  });
});

describe('!authorise confirm', () => {
  test('activates what was shown, makes the link with its room, and says what counts now', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());
    await world.say('!authorise');

    const [reply = ''] = await world.say('!authorise confirm');

    expect(reply).toContain(`\`${ALICE_KEY.did}\``);
    expect(world.bound()).toBe(ALICE_KEY.did);
    expect(world.links.of(ALICE_KEY.did, ALICE)).toEqual({ userId: ALICE, directRoom: ROOM });
    expect(world.decisions()).toContain('grant/confirm allowed');
    expect(await world.take(incoming('hello'))).toEqual(['admitted:direct']);
    expect(world.store.read.get(world.store.sql.selectFrom('runs').select(['tier', 'principal_id']))).toEqual({
      tier: 'sender-bound',
      principal_id: ALICE_KEY.did,
    });
  });

  test('of what was not shown yet only shows it', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce(), { key: MALLORY_KEY });

    expect(await world.say('!authorise confirm')).toEqual([expect.stringContaining(MALLORY_KEY.did)]);

    expect(world.bound()).toBeNull();
  });

  test('does not accept what took the place of what was shown', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());
    await world.say('!authorise');
    await world.clock.advanceAsync(LIMITS.authoriseLinkRepeatMs);
    const nonce = await world.store.write((tx) => world.authoriseLinks.issue(tx, { user: ALICE, room: ROOM }, world.clock.now()));
    await world.page(nonce ?? '', { key: MALLORY_KEY });

    const [reply = ''] = await world.say('!authorise confirm');

    expect(reply).toContain(MALLORY_KEY.did);
    expect(world.bound()).toBeNull();
  });

  test('with nothing to confirm says so', async () => {
    const world = await authorityWorld();

    expect(await world.say('!authorise confirm')).toEqual([expect.stringContaining('Nothing waits for your confirmation')]);
  });

  test('comes too late 15 minutes after the grant was made', async () => {
    const world = await authorityWorld();
    await world.say('!authorise');
    await world.page(world.newestNonce());
    await world.say('!authorise');

    await world.clock.advanceAsync(LIMITS.authoriseLinkMs);

    expect(await world.say('!authorise confirm')).toEqual([expect.stringContaining('Nothing waits')]);
    expect(world.bound()).toBeNull();
  });

  test('of another identity is refused until what counts was taken back', async () => {
    const world = await authorityWorld();
    // Both were made before either was confirmed: the page refuses the second DID only from then on.
    await world.say('!authorise');
    await world.page(world.newestNonce(), { key: MALLORY_KEY });
    await world.clock.advanceAsync(1);
    const second = await world.store.write((tx) => world.authoriseLinks.issue(tx, { user: ALICE, room: ROOM }, world.clock.now() + 60_000));
    await world.clock.advanceAsync(60_001);
    await world.page(second ?? '');
    await world.say('!authorise');
    await world.say('!authorise confirm');
    expect(world.bound()).toBe(ALICE_KEY.did);

    const [shown = ''] = await world.say('!authorise');
    expect(shown).toContain(MALLORY_KEY.did);
    expect(shown).toContain('!revoke all');
    expect(await world.say('!authorise confirm')).toEqual([expect.stringContaining('already acts for another identity')]);
    expect(world.bound()).toBe(ALICE_KEY.did);
    expect(world.decisions()).toContain('grant/confirm LINKED_TO_ANOTHER');
  });

  test('a second DID can be used once the first was revoked', async () => {
    const world = await authorityWorld();
    await authorised(world);
    await world.say('!revoke all');
    await world.clock.advanceAsync(LIMITS.authoriseLinkRepeatMs);

    await world.say('!authorise');
    expect(await world.page(world.newestNonce(), { key: MALLORY_KEY })).toBeNull();
    await world.say('!authorise');
    await world.say('!authorise confirm');

    expect(world.bound()).toBe(MALLORY_KEY.did);
  });
});

describe('!grants', () => {
  test('lists what counts for this person, newest first, and at most 20 of it', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    for (let n = 0; n < 25; n += 1) {
      const planned = await world.registerGrant.fromCaller({
        raw: world.mint({ capabilities: [{ can: `service${n}/read`, with: 'ixo:x' }] }),
        caller: ALICE_KEY.did,
        source: 'http',
      });
      if (planned.ok) await world.store.write((tx) => planned.value.write(tx, world.clock.now()));
      await world.clock.advanceAsync(1);
    }

    const [reply = ''] = await world.say('!grants');

    const shown = [...reply.matchAll(/service(\d+)\/read/gu)].map(([, n]) => Number(n));
    expect(shown).toEqual(Array.from({ length: 20 }, (_, n) => 24 - n));
    expect(reply).toContain('and 5 more');
    expect(reply).toContain(`\`${world.ids()[0]?.slice(0, 8)}\``);
  });

  test('says so when there are none, and shows nothing of anybody else', async () => {
    const world = await authorityWorld();
    await authorised(world);

    expect(await world.say('!grants', { sender: BOB })).toEqual([expect.stringContaining('granted me nothing')]);
    expect(await world.say('!grants')).toEqual([expect.stringContaining('made on my page')]);
  });
});

describe('!revoke', () => {
  test('takes back the one whose id begins so', async () => {
    const world = await authorityWorld();
    await authorised(world);
    const [id = ''] = world.ids();

    expect(await world.say(`!revoke ${id.slice(0, 8)}`)).toEqual([
      expect.stringContaining(`Taken back, from now on and for good:\n\n- \`${id.slice(0, 8)}\``),
    ]);

    expect([world.bound(), world.ids()]).toEqual([null, []]);
    expect(world.decisions()).toContain('grant/revoke allowed');
  });

  test('of more than one changes nothing and shows them with their whole ids', async () => {
    const world = await authorityWorld();
    await world.link(ALICE_KEY.did, ALICE);
    const first = new Set<string>();
    // Until two ids begin with the same character.
    while (first.size === world.ids().length) {
      const planned = await world.registerGrant.fromCaller({ raw: world.mint(), caller: ALICE_KEY.did, source: 'http' });
      if (planned.ok) await world.store.write((tx) => planned.value.write(tx, world.clock.now()));
      for (const id of world.ids()) first.add(id.slice(0, 1));
    }
    const all = world.ids();
    const prefix = all.map((id) => id.slice(0, 1)).find((letter, at, list) => list.indexOf(letter) !== at) ?? '';

    const [reply = ''] = await world.say(`!revoke ${prefix}`);

    for (const id of all.filter((one) => one.startsWith(prefix))) expect(reply).toContain(id);
    expect(world.ids()).toEqual(all);
  });

  test('all takes back everything, and ends at once what runs on it; the text so far stays', async () => {
    const world = await authorityWorld();
    await authorised(world);
    world.letRun();
    const holding = held('part of an ans');
    world.runner.script(holding.script);
    await world.say('hello');
    await settle();
    expect(holding.started).toBe(1);

    const [reply = ''] = await world.say('!revoke all');
    await settle();

    expect(reply).toContain('Taken back');
    const run = world.store.read.get(world.store.sql.selectFrom('runs').select(['status', 'error']));
    expect(run).toMatchObject({ status: 'failed', error: expect.stringContaining('REVOKED') });
    expect(world.projection.views[0]?.ended).toMatchObject({ text: 'part of an ans', error: { code: 'REVOKED' } });
    expect(await world.say('hello')).toEqual([expect.stringContaining('you have not authorised me')]);
  });

  test.each(['zzzzzzzz', 'all'])('with nothing that fits (%s) there is one sentence, whoever else has one', async (what) => {
    const world = await authorityWorld();
    await authorised(world);

    const unknown = await world.say(`!revoke ${what}`, { sender: BOB });
    const foreign = await world.say(`!revoke ${world.ids()[0]}`, { sender: BOB });

    expect(unknown).toEqual([expect.stringContaining('no such authorisation of yours')]);
    expect(foreign).toEqual(unknown);
    expect(world.bound()).toBe(ALICE_KEY.did);
  });
});

describe('any command', () => {
  test('reaches neither the model nor the transcript, takes part in no run, and ends its row', async () => {
    const world = await authorityWorld({ rules: { unsignedUsers: ['@*:example.org'] } });

    for (const text of ['!authorise', '!authorise confirm', '!grants', '!revoke all', '!authorise x']) await world.say(text);

    expect([world.count('runs'), world.count('transcript'), world.count('pending_inputs'), world.count('inbox')]).toEqual([0, 0, 0, 0]);
    expect(world.bodies()).toHaveLength(5);
    expect(world.admitted).toEqual(['command:authorise', 'command:confirm', 'command:grants', 'refused:NOT_FOUND', 'command:usage']);
  });

  test('with something that it does not take shows how it is used', async () => {
    const world = await authorityWorld();

    expect(await world.say('!revoke')).toEqual([expect.stringContaining('`!revoke <id>`')]);
  });

  test('counts however late it comes', async () => {
    const world = await authorityWorld();
    await authorised(world);

    expect(await world.say('!revoke all', { ageMs: 10 * DAY_MS })).toEqual([expect.stringContaining('Taken back')]);
    expect(world.bound()).toBeNull();
  });

  test('another !word is a message for the agent', async () => {
    const world = await authorityWorld({ rules: { unsignedUsers: ['@*:example.org'] } });

    expect(await world.take(incoming('a', { text: '!new' }))).toEqual(['admitted:direct']);
  });

  test('of who may not use the oracle is refused like any message', async () => {
    const world = await authorityWorld();

    expect(await world.take(incoming('a', { text: '!grants', sender: STRANGER }))).toEqual(['refused:NOT_ALLOWED']);
  });

  test('with ACCESS=granted needs a trusted server, whatever the message carries', async () => {
    const world = await authorityWorld({ rules: { access: 'granted' } });
    const content = { msgtype: 'm.text', body: '!grants', 'ixo.oracle.ucan': { v: 1, inv: 'x' } };

    expect(await world.take(incoming('a', { content, sender: STRANGER }), incoming('b', { content }))).toEqual([
      'refused:NOT_ALLOWED',
      'command:grants',
    ]);
  });

  test('in a group gets one notice that it belongs into a direct chat, and does nothing', async () => {
    const world = await authorityWorld();
    await authorised(world);
    const group = '!group:example.org' as RoomId;
    world.rooms.room(group, { kind: 'group' });

    const said = [
      ...(await world.say('!oracle !revoke all', { roomId: group })),
      ...(await world.say('Oracle: !grants', { roomId: group })),
      ...(await world.say('!revoke all', { roomId: group })),
    ];

    expect(said).toEqual(['This works in a direct chat with me only, where nobody else reads it.']);
    expect(world.bound()).toBe(ALICE_KEY.did);
  });

  test('an edit into one is none, and never becomes the prompt', async () => {
    const world = await authorityWorld({ rules: { unsignedUsers: ['@*:example.org'] } });
    await world.link('did:key:z6MkOther' as Did, ALICE);
    await world.take(incoming('hello'));
    const edit = incoming('edit', {
      content: {
        msgtype: 'm.text',
        body: '* !revoke all',
        'm.new_content': { msgtype: 'm.text', body: '!revoke all' },
        'm.relates_to': { rel_type: 'm.replace', event_id: '$hello' },
      },
    });

    expect(await world.take(edit)).toEqual(['ignored:not_a_prompt']);
    expect(world.bodies()).toEqual([]);
  });

  test('a failed commit leaves neither effect nor reply, and it is obeyed when it comes again (G1)', async () => {
    const store = failingStore();
    const world = await authorityWorld({ store });
    await authorised(world);
    await world.inbox.receive([incoming('revoke', { text: '!revoke all' })]);
    const said = world.bodies().length;

    // The first write counts the claim.
    store.failWrite(1);
    await expect(world.admit.handle(world.claim())).rejects.toThrow();
    expect(store.failed).toBe(true);

    expect([world.bound(), world.bodies().length]).toEqual([ALICE_KEY.did, said]);
    await world.admit.handle(world.claim());
    expect([world.bound(), world.bodies().length]).toEqual([null, said + 1]);
  });
});
