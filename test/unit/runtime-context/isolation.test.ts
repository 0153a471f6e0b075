import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { CompactEncrypt } from 'jose';
import { expect, test } from 'vitest';
import { z } from 'zod';
import type { Did, EventId, OwnerId, PrincipalId, RoomId, SessionId, UserId } from '../../../src/ids.ts';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import type { PluginStatePort } from '../../../src/runtime-context/state-group.ts';
import { createTranscript } from '../../../src/sessions/transcript.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { memoryStore } from '../../fakes/memory-store.ts';
import { fakeRun } from '../agent/turn-fixture.ts';
import { buildContext, memoryState } from './context-fixture.ts';

const PEOPLE = ['alice', 'bob'] as const;
const PLUGINS = ['one', 'two'] as const;
const TURNS = 100;
type Person = (typeof PEOPLE)[number];

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const seal = (value: string): Promise<string> =>
  new CompactEncrypt(Buffer.from(value)).setProtectedHeader({ alg: 'ECDH-ES+A256KW', enc: 'A256GCM' }).encrypt(createPublicKey(privateKey));

const idsOf = (person: Person) => ({
  did: `did:key:z${person}` as Did,
  principal: `did:key:z${person}` as PrincipalId,
  user: `@${person}:test` as UserId,
  room: `!${person}:test` as RoomId,
  session: `$${person}` as SessionId,
});

async function setUp() {
  const store = memoryStore();
  const transcript = createTranscript({ store });
  const secretOf = Object.fromEntries(await Promise.all(PEOPLE.map(async (person) => [person, await seal(`secret-of-${person}`)])));
  const personIn = (room: RoomId): Person => PEOPLE.find((person) => idsOf(person).room === room) ?? 'alice';
  await store.write((tx) => {
    for (const person of PEOPLE) {
      const { room, session, principal } = idsOf(person);
      const row = {
        session_id: session,
        room_id: room,
        owner: principal as OwnerId,
        kind: 'thread',
        thread_root: null,
        title: null,
      } as const;
      tx.run(store.sql.insertInto('sessions').values({ ...row, created_at: 0, last_at: 0, retired_at: null }));
      const said = {
        roomId: room,
        sessionId: session,
        runId: null,
        eventId: `$said-${person}`,
        message: null,
        at: 0,
        tier: 'signed',
      } as const;
      transcript.append(tx, { ...said, role: 'human', speaker: principal, text: `the dog of ${person}` });
    }
  });
  const services = fakeServices({
    store,
    plugins: PLUGINS.map((name) =>
      defineOraclePlugin({
        name,
        version: '1.0.0',
        manifest: { title: name, summary: name, whenToUse: ['x'] },
        stateSchema: z.object({ mine: z.string().default('') }),
        getSharedState: () => ({ [`shared_${name}`]: (_state, ctx) => `${name} for ${ctx.user.did} with ${JSON.stringify(ctx.config)}` }),
      }),
    ),
    configs: { one: { ONE_KEY: 'config-of-one' }, two: { TWO_KEY: 'config-of-two' } },
    secrets: {
      key: privateKey,
      matrix: {
        roomState: async (room) => [
          {
            type: 'ixo.room.secret.index',
            stateKey: 'TOKEN',
            sender: idsOf(personIn(room)).user,
            content: { eventId: `$secret-${personIn(room)}` },
          },
        ],
        event: async (room) => ({
          type: 'ixo.room.secret',
          sender: idsOf(personIn(room)).user,
          content: { value: secretOf[personIn(room)] ?? '' },
        }),
      },
    },
  });
  const states = new Map<string, PluginStatePort>();
  const stateOf = (person: Person) => (plugin: string) => {
    const key = `${person} ${plugin}`;
    const port = states.get(key) ?? memoryState();
    states.set(key, port);
    return port;
  };
  const contextOf = (person: Person, plugin: string): RuntimeContext => {
    const { did, principal, user, room, session } = idsOf(person);
    const run = fakeRun({ did, principalId: principal, owner: principal as OwnerId, matrixUserId: user, roomId: room, sessionId: session });
    return buildContext({ services, run, plugin, stateOf: stateOf(person) }).context;
  };
  return contextOf;
}

/** Everything that a plugin can see of the world, as text. */
async function look(context: RuntimeContext, blobIds: readonly string[]): Promise<string> {
  const { storage, state, secrets, blobStore, history, user, shared } = context;
  const blobs = await Promise.all(blobIds.map((blobId) => blobStore.get({ userDid: user.did, blobId })));
  return JSON.stringify([
    context.config,
    user,
    context.session,
    await storage.list(),
    await storage.search('mark dog secret'),
    state.get(),
    await secrets.getIndex(),
    await secrets.getValues(['TOKEN']),
    blobs,
    await history.search('dog'),
    PLUGINS.map((name) => (shared as Record<string, unknown>)[`shared_${name}`]),
  ]);
}

test('two people at once, in a hundred interleaved turns of two plugins, never see anything of each other (G13)', async () => {
  const contextOf = await setUp();
  const blobIds: string[] = [];
  const seen: { person: Person; plugin: string; text: string }[] = [];
  const pauses = Array.from({ length: TURNS }, (_, at) => (at * 7) % 5);

  await Promise.all(
    pauses.map(async (pause, at) => {
      const person = PEOPLE[at % 2] ?? 'alice';
      const plugin = PLUGINS[(at >> 1) % 2] ?? 'one';
      const context = contextOf(person, plugin);
      const mark = `mark-${person}-${plugin}`;
      for (let tick = 0; tick < pause; tick += 1) await Promise.resolve();
      await context.storage.put(`k${at % 8}`, `${mark} ${at}`);
      context.state.update({ mine: mark });
      blobIds.push(await context.blobStore.put({ userDid: context.user.did, name: mark, value: mark }));
      seen.push({ person, plugin, text: await look(context, blobIds.slice(-10)) });
    }),
  );

  expect(seen).toHaveLength(TURNS);
  for (const { person, plugin, text } of seen) {
    const other = person === 'alice' ? 'bob' : 'alice';
    const neighbour = plugin === 'one' ? 'two' : 'one';
    expect(text).not.toContain(other);
    expect(text).not.toContain(`mark-${person}-${neighbour}`);
    // Control: one's own is all there.
    for (const own of [
      `mark-${person}-${plugin}`,
      `secret-of-${person}`,
      `the dog of ${person}`,
      `config-of-${plugin}`,
      `${neighbour} for did:key:z${person}`,
    ])
      expect(text).toContain(own);
    // What a neighbour shares is its own decision; its configuration is in it here because this one chose to.
    expect(JSON.parse(text)[0]).toEqual({ [`${plugin.toUpperCase()}_KEY`]: `config-of-${plugin}` });
  }
});

test('an id of somebody else opens nothing, even when it is known (G13)', async () => {
  const contextOf = await setUp();
  const alice = contextOf('alice', 'one');
  const blobId = await alice.blobStore.put({ userDid: alice.user.did, name: 'n', value: 'v' });
  const bob = contextOf('bob', 'one');

  for (const userDid of [alice.user.did, bob.user.did]) expect(await bob.blobStore.get({ userDid, blobId })).toBeNull();
  expect(await contextOf('alice', 'two').blobStore.get({ userDid: alice.user.did, blobId })).toBeNull();
  await expect(bob.matrix.getEventById('!alice:test', '$said-alice' as EventId)).rejects.toMatchObject({
    refusal: { code: 'NOT_ALLOWED' },
  });
});
