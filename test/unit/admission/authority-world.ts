/** The core in a direct room with Alice, who uses an ordinary client, and the authorise page as a function: what it posts, and for whom. */
import type { Did, RoomId, TokenId, UserId } from '../../../src/ids.ts';
import { type GrantToSign, mintGrant, newNonce } from '../../../src/ucan/mint.ts';
import type { SigningKey } from '../../../src/ucan/signing-key.ts';
import { ALICE_KEY, buildCore, type Core, type CoreOptions, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, incoming, ROOM } from '../../fakes/events.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

export type World = Core & ReturnType<typeof around> & { readonly letRun: () => void };

export async function authorityWorld(options: CoreOptions = {}): Promise<World> {
  const core = buildCore({ ...options, rules: { unsignedUsers: [], ...options.rules } });
  await core.joinDirect();
  const { execute } = core;
  core.execute = null;
  return Object.assign(core, around(core), { letRun: () => void Object.assign(core, { execute }) });
}

function around(core: Core) {
  let sent = 0;
  const bodies = (): string[] => core.said().map(({ content }) => String(content['body'] ?? content['key']));
  return {
    bodies,
    /** Sends a text and resolves with the bodies of what was said to it, and locks. */
    async say(text: string, change: { sender?: UserId; roomId?: RoomId; ageMs?: number } = {}): Promise<string[]> {
      const from = bodies().length;
      await core.take(incoming(`m${++sent}`, { text, ...change }));
      return bodies().slice(from);
    },
    mint: (change: Partial<GrantToSign> = {}): string =>
      mintGrant({
        key: ALICE_KEY,
        audience: ORACLE_KEY.did,
        capabilities: [{ can: 'calendar/read', with: 'ixo:calendar' }],
        expiresAt: core.clock.now() + DAY_MS,
        nonce: newNonce(),
        ...change,
      }),
    /** The newest link that stands in a room, as a person opens it. */
    newestNonce(): string {
      const found = bodies().flatMap((body) => /https:\/\/oracle\.example\.org\/authorise#([A-Za-z0-9_-]{22})/u.exec(body)?.[1] ?? []);
      return found.at(-1) ?? 'no link was sent';
    },
    /** What the authorise page posts for a key that its visitor has. @returns the code of a refusal, or null. */
    async page(nonce: string, change: { key?: SigningKey; sender?: UserId; can?: string } = {}): Promise<string | null> {
      const { key = ALICE_KEY, sender = ALICE, can = 'calendar/read' } = change;
      const nb = { link: nonce, sender };
      const raw = mintGrant({
        key,
        audience: ORACLE_KEY.did,
        capabilities: [
          { can: 'oracle/chat', with: key.did, nb },
          { can, with: 'ixo:calendar' },
        ],
        expiresAt: core.clock.now() + 30 * DAY_MS,
        nonce: newNonce(),
      });
      const planned = await core.registerGrant.fromPage({ raw });
      if (!planned.ok) return planned.error;
      const written = await core.store.write((tx) => planned.value.write(tx, core.clock.now()));
      return written.ok ? null : written.error;
    },
    bound: (user: UserId = ALICE): Did | null => core.grants.boundTo(user, core.clock.now())?.did ?? null,
    /** Ids of what counts for this account, as `!grants` sees it. */
    ids: (user: UserId = ALICE): TokenId[] => core.ownGrants.of(user, core.clock.now()).map(({ tokenId }) => tokenId),
    link: (did: Did, user: UserId, room: RoomId = ROOM): Promise<void> =>
      core.store.write((tx) => core.links.prove(tx, { did, userId: user, directRoom: room }, core.clock.now())),
    decisions: (): string[] =>
      core.store.read
        .all(core.store.sql.selectFrom('audit').select(['capability', 'decision', 'code']).orderBy('id'))
        .map(({ capability, decision, code }) => `${capability} ${code ?? decision}`),
  };
}
