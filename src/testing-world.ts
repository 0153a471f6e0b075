/**
 * What lies below the contexts of a test runtime: the host's own storage, blobs, secrets and search on a database in memory, and a room that only
 * remembers. Loaded with the first call: a database takes a moment that tests which only import a tool need not wait for.
 */
import { createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto';
import { CompactEncrypt } from 'jose';
import { createBlobs } from './blob-store/blobs.ts';
import type { EventId, PrincipalId, RoomId, SessionId, UserId } from './ids.ts';
import type { Logger } from './observe/logger.ts';
import type { AnyOraclePlugin, PluginEnvironment } from './plugin-api/define-oracle-plugin.ts';
import { createPluginStore } from './plugin-storage/plugin-store.ts';
import type { ContextServices } from './runtime-context/build-runtime-context.ts';
import type { RoomStateEvent } from './runtime-context/matrix-access.ts';
import { JWE_ALGORITHM, JWE_ENCRYPTION } from './secrets/read-jwe.ts';
import { createSecrets, SECRET_INDEX_TYPE, SECRET_TYPE } from './secrets/secrets.ts';
import { createTranscriptSearch } from './sessions/search-transcript.ts';
import { createTranscript } from './sessions/transcript.ts';
import { openStore, type Store } from './store/store.ts';

export interface TestWorldOptions {
  readonly now: () => number;
  readonly logger: Logger;
  readonly plugins: readonly AnyOraclePlugin[];
  readonly env: PluginEnvironment;
  /** Of the user, in the room. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly history: readonly { readonly role: 'human' | 'ai'; readonly text: string }[];
  readonly owner: { readonly principal: PrincipalId; readonly user: UserId; readonly room: RoomId; readonly direct: boolean };
}
export interface TestWorld {
  readonly services: ContextServices;
  readonly roomState: (room: RoomId) => Promise<readonly RoomStateEvent[]>;
}

export async function openTestWorld(options: TestWorldOptions): Promise<TestWorld> {
  const { now, logger, owner } = options;
  const store = openStore({ path: ':memory:', now: now() });
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const publicKey = createPublicKey(privateKey);
  const values = new Map<EventId, string>();
  const index: RoomStateEvent[] = [];
  for (const [name, value] of Object.entries(options.secrets)) {
    const eventId = `$secret${index.length}` as EventId;
    const jwe = new CompactEncrypt(Buffer.from(value)).setProtectedHeader({ alg: JWE_ALGORITHM, enc: JWE_ENCRYPTION });
    values.set(eventId, await jwe.encrypt(publicKey));
    index.push({ type: SECRET_INDEX_TYPE, stateKey: name, sender: owner.user, content: { eventId } });
  }
  await seedHistory(store, options);
  const roomState = async (room: RoomId) => (room === owner.room ? index : []);
  return {
    roomState,
    services: {
      host: buildTestHost(options),
      storage: createPluginStore({ store, now }),
      blobs: createBlobs({ store, key: randomBytes(32), now }),
      secrets: createSecrets({
        matrix: {
          roomState,
          event: async (_room, id) => ({ type: SECRET_TYPE, sender: owner.user, content: { value: values.get(id) ?? '' } }),
        },
        key: privateKey,
        monotonic: now,
        logger,
      }),
      search: createTranscriptSearch({ store }),
    },
  };
}

/** Each plugin has what its own schema makes of the test's environment, as at a start. */
function buildTestHost({ plugins, env }: TestWorldOptions): ContextServices['host'] {
  const configs = new Map(plugins.map(({ name, configSchema }) => [name, Object.freeze({ ...configSchema?.parse(env) })]));
  const shared = plugins.flatMap(({ name, getSharedState }) =>
    Object.entries(getSharedState?.() ?? {}).map(([key, read]) => [key, { plugin: name, read }] as const),
  );
  const configOf = (name: string): Readonly<Record<string, unknown>> => configs.get(name) ?? {};
  return {
    names: new Set(plugins.map(({ name }) => name)),
    plugins: plugins.map((plugin) => ({
      name: plugin.name,
      version: plugin.version,
      manifest: { ...plugin.manifest, visibility: plugin.manifest.visibility ?? 'on-demand' },
      config: configOf(plugin.name),
      plugin,
    })),
    shared: new Map(shared),
    configOf,
  };
}

async function seedHistory(store: Store, { history, owner, now }: TestWorldOptions): Promise<void> {
  const { sql } = store;
  const transcript = createTranscript({ store });
  const sessionId = '$session' as SessionId;
  await store.write((tx) => {
    const session = {
      session_id: sessionId,
      room_id: owner.room,
      owner: owner.direct ? owner.principal : owner.room,
      kind: 'rolling',
    } as const;
    tx.run(
      sql
        .insertInto('sessions')
        .values({ ...session, thread_root: null, title: null, created_at: now(), last_at: now(), retired_at: null }),
    );
    for (const [at, { role, text }] of history.entries()) {
      const speaker = role === 'human' ? owner.principal : 'oracle';
      const place = { roomId: owner.room, sessionId, runId: null, eventId: `$history${at}` };
      transcript.append(tx, { ...place, role, speaker, text, message: null, at: now(), tier: 'signed' });
    }
  });
}
