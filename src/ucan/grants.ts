/**
 * Stored grants: what people allowed the oracle (`acting`) or a key of their client (`session`) to do, until it ends or is taken back.
 * Every row was verified before it came here, and it keeps its canonical CAR, so that a message names its proof by CID and stays small. Expiry
 * and revocation are asked again at each use, of every link, never remembered as a verdict (G8): a CAR that was revoked may come again.
 * What one DID can make us keep is bounded (G14): live rows, dead rows and revocations each have a limit.
 * Cost: two indexed reads per use, and 20 µs for each link that is looked up among the revocations.
 */
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { Did, TokenId, UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { prepare } from '../store/prepared.ts';
import type { GrantsTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { GrantRef, VerifiedGrant } from './chain.ts';
import { type GatedToken, gateDelegation } from './gate.ts';
import type { UcanCapability } from './read-ucan.ts';

/** `event`: ixo.oracle.grant; `dlg`: beside an invocation; `proof`: inside an invocation; `http`: POST /delegation; `header`: x-ucan-delegation;
 * `page`: the authorise page; `state`: ixo.room.state / ucan_delegation. */
export type GrantSource = 'event' | 'dlg' | 'proof' | 'http' | 'header' | 'page' | 'state';
export type GrantKind = 'acting' | 'session';

export interface StoredGrant {
  readonly tokenId: TokenId;
  readonly cid: string;
  readonly kind: GrantKind;
  /** Whose rights are granted. */
  readonly did: Did;
  readonly audience: Did;
  readonly capabilities: readonly UcanCapability[];
  /** This token first. */
  readonly path: readonly GrantRef[];
  /** Canonical CAR, unpadded base64url. Secret-like: never logged. */
  readonly car: string;
  /** Wall clock ms; the earliest end of its chain. */
  readonly expiresAt: number;
  readonly source: GrantSource;
  readonly storedAt: number;
  /** The account it was made for on the authorise page; it counts once `activatedAt` is set. Null: it counts for the DID only, at once. */
  readonly matrixUserId: UserId | null;
  readonly shownAt: number | null;
  readonly activatedAt: number | null;
  readonly revokedAt: number | null;
}

export interface NewGrant {
  readonly verified: VerifiedGrant;
  readonly kind: GrantKind;
  readonly car: string;
  readonly source: GrantSource;
  readonly matrixUserId: UserId | null;
}

export interface Grants {
  /**
   * Idempotent by token id; a grant that is known and now comes from the page becomes pending for its account.
   * @returns false when nothing changed: it was there already, it is revoked or has ended, or the DID has LIMITS.grantsPerDid live ones and no
   * session grant that could give way.
   */
  store(tx: Tx, grant: NewGrant, now: number): boolean;
  /** For chains: the token behind a CID, whatever its state; expiry and revocation are judged by the chain. */
  findToken(cid: string): GatedToken | undefined;
  byTokenId(tokenId: TokenId): StoredGrant | undefined;
  /** Acting grants of this DID to this oracle that count now, newest first: not ended, not revoked, chain included. Those made on the page count once they are active. */
  actingOf(did: Did, now: number): StoredGrant[];
  /** The active grant that makes this account sender-bound, newest first; undefined when there is none. */
  boundTo(user: UserId, now: number): StoredGrant | undefined;
  /** Made on the page for this account within LIMITS.authoriseLinkMs and not yet confirmed; the newest. */
  pendingOf(user: UserId, now: number): StoredGrant | undefined;
  /** What was shown to the account before, and waits too, counts as not shown any more: a confirmation is about what was shown last. */
  markShown(tx: Tx, tokenId: TokenId, now: number): void;
  /** @returns false unless it is pending, was shown, and its account is not bound to another DID. */
  activate(tx: Tx, tokenId: TokenId, now: number): boolean;
  /** All of a DID, or of an account, that have not ended; newest first. */
  list(whose: { did: Did } | { user: UserId }, now: number): StoredGrant[];
  /**
   * Monotonic. `tokenId` may be a CID as hex. Marks the token, and every stored grant whose chain rests on it and has `by` as issuer of it or above.
   * What is not stored is remembered, because it may come later. @returns token ids of stored grants that ended by it.
   */
  revoke(tx: Tx, { tokenId, by }: { tokenId: TokenId; by: Did }, now: number): TokenId[];
  /** Whether one of `issuers` (of this token or above it) took it back. */
  isRevoked(token: { tokenId: TokenId; cid: string }, issuers: readonly Did[]): boolean;
  /** Removes what ended more than a day ago, and what nobody confirmed; returns how many. */
  sweep(now: number): Promise<number>;
}

const capabilities = z.array(z.object({ can: z.string(), with: z.string(), nb: z.record(z.string(), z.unknown()).optional() }));
const path = z.array(z.object({ tokenId: z.string(), cid: z.string(), issuer: z.string(), audience: z.string(), expiresAt: z.number() }));

/** Parsed tokens take some 20 kB each; what they say of a CID never changes. */
const TOKENS_KEPT = 256;
const DAY_MS = 24 * 60 * 60_000;
/** No token that was accepted lives longer, so a revoked row that is older has nothing left to hold back. */
const LONGEST_LIFE_MS = LIMITS.actingGrantLifetimeS * 1_000 + DAY_MS;
const SWEEP_BATCH = 1_000;
const TOKEN_ID = /^[A-Za-z0-9_-]{43}$/u;
const CID_HEX = /^[0-9a-f]{72}$/u;

/** The issuer of the link at `index` and of every link above it: who may take it back. A second branch of the chain has no say. */
export function revokersOf(links: readonly GrantRef[], index: number): Did[] {
  const start = links[index];
  const issuers = new Set<Did>(start === undefined ? [] : [start.issuer]);
  // A set is walked on over what is added meanwhile, so this climbs to the roots in whatever order the links stand.
  for (const issuer of issuers) for (const link of links) if (link.audience === issuer) issuers.add(link.issuer);
  return [...issuers];
}

export function createGrants({ store }: { store: Store }): Grants {
  const { sql } = store;
  const tokens = new LRUCache<string, GatedToken>({ max: TOKENS_KEPT });

  const byToken = prepare(({ id }: { id: string }) =>
    sql
      .selectFrom('grants')
      .selectAll()
      .where('token_id', '=', id as TokenId),
  );
  const byCid = prepare(({ cid }: { cid: string }) => sql.selectFrom('grants').selectAll().where('cid', '=', cid));
  const carByCid = prepare(({ cid }: { cid: string }) => sql.selectFrom('grants').select('car').where('cid', '=', cid));
  const ofDid = prepare(({ did, after }: { did: Did; after: number }) =>
    sql
      .selectFrom('grants')
      .selectAll()
      .where('did', '=', did)
      .where('expires_at', '>', after)
      .orderBy('stored_at', 'desc')
      .orderBy('token_id'),
  );
  /** Looked for in the text: reading all of a DID's rows for each of its grants takes seconds when all are taken back at once. */
  const mentions = prepare(({ did, id }: { did: Did; id: string }) =>
    sql
      .selectFrom('grants')
      .selectAll()
      .where('did', '=', did)
      .where((eb) => eb(eb.fn<number>('instr', ['path', eb.val(id)]), '>', 0)),
  );
  const ofUser = prepare(({ user, after }: { user: UserId; after: number }) =>
    sql
      .selectFrom('grants')
      .selectAll()
      .where('matrix_user_id', '=', user)
      .where('expires_at', '>', after)
      .orderBy('stored_at', 'desc')
      .orderBy('token_id')
      .limit(LIMITS.grantsPerDid),
  );
  const revocation = prepare(({ id, did }: { id: string; did: Did }) =>
    sql.selectFrom('revocations').select('at').where('id', '=', id).where('did', '=', did),
  );
  const revokedRow = prepare(({ id }: { id: TokenId }) => sql.selectFrom('grants').select('revoked_at').where('token_id', '=', id));

  const isRecorded = ({ tokenId, cid }: { tokenId: TokenId; cid: string }, issuers: readonly Did[]): boolean =>
    issuers.some((did) => [tokenId, cid].some((id) => store.read.get(revocation({ id, did })) !== undefined));
  /** Rows are marked, too, and that holds when the DID's revocations are full. */
  const isRevoked: Grants['isRevoked'] = (token, issuers) =>
    isRecorded(token, issuers) || (store.read.get(revokedRow({ id: token.tokenId }))?.revoked_at ?? null) !== null;
  const isPathRecorded = (links: readonly GrantRef[]): boolean => links.some((link, at) => isRecorded(link, revokersOf(links, at)));
  const isPathRevoked = (links: readonly GrantRef[]): boolean => links.some((link, at) => isRevoked(link, revokersOf(links, at)));

  const counts = (grant: StoredGrant, now: number): boolean =>
    grant.revokedAt === null && grant.expiresAt > now && !isPathRevoked(grant.path);
  const isPage = (grant: StoredGrant): boolean => grant.matrixUserId !== null;
  const isPending = (grant: StoredGrant, now: number): boolean =>
    isPage(grant) && grant.activatedAt === null && grant.storedAt > now - LIMITS.authoriseLinkMs;
  const isActive = (grant: StoredGrant): boolean => !isPage(grant) || grant.activatedAt !== null;

  const read = (rows: readonly GrantsTable[]): StoredGrant[] => rows.map(readRow);
  const byTokenId = (tokenId: TokenId): StoredGrant | undefined => read(store.read.all(byToken({ id: tokenId })))[0];
  const boundTo = (user: UserId, now: number): StoredGrant | undefined =>
    read(store.read.all(ofUser({ user, after: now }))).find(
      (grant) => grant.kind === 'acting' && grant.activatedAt !== null && counts(grant, now),
    );

  /** @returns whether there is a place for one more of this DID, made by what needs its place least. */
  function makeRoom(tx: Tx, did: Did, now: number): boolean {
    const rows = read(tx.all(ofDid({ did, after: 0 }))).reverse();
    const isLive = (grant: StoredGrant) => grant.revokedAt === null && grant.expiresAt > now;
    const live = rows.filter(isLive);
    const dead = rows.filter((grant) => !isLive(grant));
    const giveWay = (grant: StoredGrant | undefined): boolean =>
      grant !== undefined && tx.run(sql.deleteFrom('grants').where('token_id', '=', grant.tokenId)) > 0;
    // A row that alone says "revoked" must stay until its token is dead for good.
    if (dead.length >= LIMITS.grantsPerDid && !giveWay(dead.find((grant) => grant.revokedAt === null || isPathRecorded(grant.path))))
      return false;
    return live.length < LIMITS.grantsPerDid || giveWay(live.find(({ kind }) => kind === 'session'));
  }

  /** Stored grants that may rest on this token: the token itself, and whatever has the same root, or `by` as root. */
  function resting(tx: Tx, id: string, by: Did): StoredGrant[] {
    const itself = read([...tx.all(byToken({ id })), ...tx.all(byCid({ cid: id }))]);
    const roots = new Set([by, ...itself.map(({ did }) => did)]);
    const mentioning = [...roots].flatMap((did) => tx.all(mentions({ did, id })));
    return [...new Map([...itself, ...read(mentioning)].map((grant) => [grant.tokenId, grant])).values()];
  }

  return {
    store(tx, { verified, kind, car, source, matrixUserId }, now) {
      const { tokenId, cid, principal, audience, expiresAt } = verified;
      if (expiresAt <= now || isPathRevoked(verified.path)) return false;
      const known = byTokenId(tokenId);
      if (known !== undefined) {
        if (known.matrixUserId !== null || matrixUserId === null) return false;
        tx.run(sql.updateTable('grants').set({ matrix_user_id: matrixUserId, source, stored_at: now }).where('token_id', '=', tokenId));
        return true;
      }
      if (!makeRoom(tx, principal, now)) return false;
      tx.run(
        sql.insertInto('grants').values({
          token_id: tokenId,
          cid,
          kind,
          did: principal,
          audience,
          capabilities: JSON.stringify(verified.capabilities),
          path: JSON.stringify(
            verified.path.map(({ tokenId, cid, issuer, audience, expiresAt }) => ({ tokenId, cid, issuer, audience, expiresAt })),
          ),
          car,
          expires_at: expiresAt,
          source,
          stored_at: now,
          matrix_user_id: matrixUserId,
          shown_at: null,
          activated_at: null,
          revoked_at: null,
        }),
      );
      return true;
    },

    findToken(cid) {
      const known = tokens.get(cid);
      if (known !== undefined) return known;
      const row = store.read.get(carByCid({ cid }));
      const gated = row === undefined ? undefined : gateDelegation(row.car);
      if (gated === undefined || !gated.ok || gated.value.leaf.cid !== cid) return undefined;
      tokens.set(cid, gated.value);
      return gated.value;
    },

    byTokenId,

    actingOf: (did, now) =>
      read(store.read.all(ofDid({ did, after: now }))).filter((grant) => grant.kind === 'acting' && isActive(grant) && counts(grant, now)),

    boundTo,

    pendingOf: (user, now) =>
      read(store.read.all(ofUser({ user, after: now }))).find((grant) => isPending(grant, now) && counts(grant, now)),

    markShown(tx, tokenId, now) {
      const user = byTokenId(tokenId)?.matrixUserId ?? null;
      const waiting = sql
        .updateTable('grants')
        .set({ shown_at: null })
        .where('matrix_user_id', '=', user)
        .where('activated_at', 'is', null);
      if (user !== null) tx.run(waiting);
      tx.run(sql.updateTable('grants').set({ shown_at: now }).where('token_id', '=', tokenId));
    },

    activate(tx, tokenId, now) {
      const grant = byTokenId(tokenId);
      if (grant === undefined || grant.matrixUserId === null || !counts(grant, now)) return false;
      if (grant.activatedAt !== null) return true;
      if (grant.shownAt === null || !isPending(grant, now)) return false;
      const bound = boundTo(grant.matrixUserId, now);
      if (bound !== undefined && bound.did !== grant.did) return false;
      return tx.run(sql.updateTable('grants').set({ activated_at: now }).where('token_id', '=', tokenId)) > 0;
    },

    list: (whose, now) =>
      read(store.read.all('did' in whose ? ofDid({ did: whose.did, after: now }) : ofUser({ user: whose.user, after: now }))).filter(
        (grant) => (isActive(grant) || isPending(grant, now)) && counts(grant, now),
      ),

    revoke(tx, { tokenId: id, by }, now) {
      if (!TOKEN_ID.test(id) && !CID_HEX.test(id)) return [];
      const ids = new Set<string>([id]);
      const ended: TokenId[] = [];
      for (const grant of resting(tx, id, by)) {
        const at = grant.path.findIndex(({ tokenId, cid }) => tokenId === id || cid === id);
        const link = grant.path[at];
        if (link === undefined) continue;
        ids.add(link.tokenId).add(link.cid);
        if (grant.revokedAt !== null || !revokersOf(grant.path, at).includes(by)) continue;
        tx.run(sql.updateTable('grants').set({ revoked_at: now }).where('token_id', '=', grant.tokenId));
        if (grant.expiresAt > now) ended.push(grant.tokenId);
      }
      for (const one of ids) {
        const { count } = tx.get(
          sql
            .selectFrom('revocations')
            .select((eb) => eb.fn.countAll<number>().as('count'))
            .where('did', '=', by),
        ) ?? { count: 0 };
        if (count >= LIMITS.revocationsPerDid) break;
        tx.run(
          sql
            .insertInto('revocations')
            .values({ id: one, did: by, at: now })
            .onConflict((oc) => oc.columns(['id', 'did']).doNothing()),
        );
      }
      return ended;
    },

    isRevoked,

    async sweep(now) {
      const over = sql
        .selectFrom('grants')
        .select('token_id')
        .where('expires_at', '<', now - DAY_MS)
        .where((eb) => eb.or([eb('revoked_at', 'is', null), eb('stored_at', '<', now - LONGEST_LIFE_MS)]))
        .limit(SWEEP_BATCH);
      const unconfirmed = sql
        .selectFrom('grants')
        .select('token_id')
        .where('matrix_user_id', 'is not', null)
        .where('activated_at', 'is', null)
        .where('revoked_at', 'is', null)
        .where('stored_at', '<', now - DAY_MS)
        .limit(SWEEP_BATCH);
      let count = 0;
      for (const rows of [over, unconfirmed]) {
        for (let gone = SWEEP_BATCH; gone >= SWEEP_BATCH; count += gone)
          gone = await store.write((tx) => tx.run(sql.deleteFrom('grants').where('token_id', 'in', rows)));
      }
      return count;
    },
  };
}

/** Throws on a row that no release wrote: that is a bug or a damaged file, never a stranger's doing. */
function readRow(row: GrantsTable): StoredGrant {
  return {
    tokenId: row.token_id,
    cid: row.cid,
    kind: row.kind,
    did: row.did,
    audience: row.audience,
    capabilities: capabilities.parse(JSON.parse(row.capabilities)) as UcanCapability[],
    path: path.parse(JSON.parse(row.path)) as unknown as GrantRef[],
    car: row.car,
    expiresAt: row.expires_at,
    source: row.source,
    storedAt: row.stored_at,
    matrixUserId: row.matrix_user_id,
    shownAt: row.shown_at,
    activatedAt: row.activated_at,
    revokedAt: row.revoked_at,
  };
}
