/**
 * Grants over HTTP. A portal hands one in with a signed request; the authorise page with nothing but the nonce that its grant carries, which went
 * to one account in its direct room. What was handed in is verified before it is stored, and never shown again (G12).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { type ErrorCode, type Refusal, refusal } from '../../errors.ts';
import type { Did, TokenId } from '../../ids.ts';
import { err, ok, type Result } from '../../result.ts';
import { type AuditEntry, writeAudit } from '../../turn/audit.ts';
import type { StoredGrant } from '../../ucan/grants.ts';
import type { GrantReceipt, PlannedGrant } from '../../ucan/register-grant.ts';
import { findSpent, spend } from '../../ucan/replay.ts';
import type { SidecarDeps } from '../deps.ts';
import { type Caller, identify, promptIdOf, spendOnce } from '../identify.ts';
import { orRefuse } from '../problem.ts';
import { delegationDeleted, delegationStored, delegations, newDelegation, problems, revocation } from '../wire/schemas.ts';

export const delegationRoutes =
  (deps: SidecarDeps): FastifyPluginAsyncZod =>
  async (app) => {
    const { store, grants, clock } = deps;

    app.get(
      '/delegation',
      { schema: { summary: 'Own grants that have not ended, newest first', response: { 200: delegations, ...problems } } },
      async (request) => {
        const { did, userId, room } = orRefuse(identify(request, undefined, deps));
        const now = clock.now();
        const [acting] = grants.actingOf(did, now);
        return {
          authorized: acting !== undefined,
          ...(acting === undefined ? {} : { expiration: Math.floor(acting.expiresAt / 1_000), capabilities: [...acting.capabilities] }),
          grants: grants.list({ did }, now).map(showGrant),
          matrix_user_id: userId,
          room_id: room,
        };
      },
    );

    app.delete(
      '/delegation',
      {
        schema: {
          summary: 'Take grants back: the one named, or all; runs that rest on them stop',
          body: revocation,
          response: { 200: delegationDeleted, ...problems },
        },
      },
      async (request) => {
        const caller = orRefuse(identify(request, undefined, deps));
        const asked = request.body?.token_id as TokenId | undefined;
        const { did } = caller;
        if (asked !== undefined && grants.byTokenId(asked)?.did !== did) orRefuse(err(refusal('NOT_FOUND')));
        orRefuse(await spendOnce(caller, deps));
        const now = clock.now();
        const revoked = await store.write((tx) => {
          const tokens = asked === undefined ? grants.list({ did }, now).map(({ tokenId }) => tokenId) : [asked];
          const ended = tokens.flatMap((tokenId) => grants.revoke(tx, { tokenId, by: did }, now));
          for (const tokenId of ended)
            writeAudit(store, tx, auditOf(caller, tokenId, { at: now, decision: 'allowed', capability: 'grant/revoke' }));
          return [...new Set(ended)];
        });
        deps.onRevoked(revoked);
        return { ok: true as const, revoked };
      },
    );
  };

/** Not behind the door: whoever brings no signed request may still bring a grant that carries a live nonce. */
export const newDelegationRoute =
  (deps: SidecarDeps, door: (request: FastifyRequest) => Promise<void>): FastifyPluginAsyncZod =>
  async (app) => {
    app.addHook('onRequest', async (request) => {
      if (request.headers.authorization !== undefined) await door(request);
    });
    app.post(
      '/delegation',
      { schema: { summary: 'Hand in a grant', body: newDelegation, response: { 201: delegationStored, ...problems } } },
      async (request, reply) => {
        const { raw } = request.body;
        if (request.invocation === null) return send(reply, orRefuse(await registerFromPage(raw, deps)));
        const caller = identify(request, undefined, deps);
        // A live nonce proves the account as well as a link does (DESIGN §5 "Over HTTP").
        if (!caller.ok && caller.error.code === 'NOT_LINKED') return send(reply, orRefuse(await registerFromPage(raw, deps)));
        return send(reply, orRefuse(await registerFromCaller(raw, orRefuse(caller), deps)));
      },
    );
  };

const send = (reply: FastifyReply, receipt: GrantReceipt) => reply.code(201).send(showReceipt(receipt)) as never;

async function registerFromPage(raw: string, deps: SidecarDeps): Promise<Result<GrantReceipt, Refusal>> {
  const planned = await deps.registerGrant.fromPage({ raw });
  if (!planned.ok) return err(refusal(planned.error));
  return write(deps, planned.value);
}

/** The request's token and the grant go in together, so that a request sent twice stores once and answers twice. */
async function registerFromCaller(raw: string, caller: Caller, deps: SidecarDeps): Promise<Result<GrantReceipt, Refusal>> {
  const planned = await deps.registerGrant.fromCaller({ raw, caller: caller.did, source: 'http' });
  if (!planned.ok) return err(refusal(planned.error));
  const { tokenId, keepUntil, bodyHash } = caller;
  return write(deps, planned.value, (tx) => {
    const spent = findSpent(deps.store, tokenId);
    if (spent !== undefined) return spent.bodyHash === bodyHash ? null : 'CONFLICT';
    spend(deps.store, tx, { tokenId, keepUntil, bodyHash }, { promptId: promptIdOf(tokenId), runId: null });
    return null;
  });
}

type Write = Parameters<SidecarDeps['store']['write']>[0] extends (tx: infer Tx) => unknown ? Tx : never;

async function write(
  { store, clock }: SidecarDeps,
  planned: PlannedGrant,
  first: (tx: Write) => ErrorCode | null = () => null,
): Promise<Result<GrantReceipt, Refusal>> {
  const written = await store.write((tx): Result<GrantReceipt, ErrorCode> => {
    const at = clock.now();
    const refused = first(tx);
    if (refused !== null) return err(refused);
    return planned.write(tx, at);
  });
  return written.ok ? ok(written.value) : err(refusal(written.error));
}

const auditOf = (caller: Caller, tokenId: TokenId, entry: AuditEntry): AuditEntry => ({
  principal_id: caller.did,
  matrix_user_id: caller.userId,
  tier: 'signed',
  token_id: tokenId,
  ...entry,
});

/** `x-ucan-delegation` of a portal counts when its root issuer is the caller; anything else in it is as if it were not there (DESIGN §5). */
export async function takeDelegationHeader(request: FastifyRequest, did: Did, deps: SidecarDeps): Promise<void> {
  const raw = request.headers['x-ucan-delegation'];
  if (typeof raw !== 'string' || raw === '') return;
  const planned = await deps.registerGrant.fromCaller({ raw, caller: did, source: 'header' });
  if (!planned.ok) {
    deps.logger.info({ request_id: request.id, code: planned.error }, 'a delegation in a header was not taken');
    return;
  }
  if (deps.grants.byTokenId(planned.value.receipt.tokenId) !== undefined) return;
  await deps.store.write((tx) => planned.value.write(tx, deps.clock.now()));
}

const showReceipt = ({ tokenId, kind, expiresAt, capabilities, pending }: GrantReceipt) => ({
  ok: true as const,
  expiration: Math.floor(expiresAt / 1_000),
  token_id: tokenId,
  kind,
  expires_at: expiresAt,
  capabilities: [...capabilities],
  pending,
});

/** Never the CAR, and no nonce: a grant is shown to its owner, but a list is the wrong place for what proves something. */
const showGrant = (grant: StoredGrant) => ({
  token_id: grant.tokenId,
  kind: grant.kind,
  audience: grant.audience,
  capabilities: grant.capabilities.map(({ can, with: resource }) => ({ can, with: resource })),
  expires_at: grant.expiresAt,
  source: grant.source,
  revoked: grant.revokedAt !== null,
  pending: grant.matrixUserId !== null && grant.activatedAt === null,
});
