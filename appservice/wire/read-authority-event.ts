/**
 * What people say about their grants in a direct room: here is one, that one is taken back, and the room state in which clients of the older
 * oracle keep theirs. All three come from strangers and lead to signature checks, so size and shape are judged first (G14); what does not
 * fit is skipped with its reason (G17). Unknown fields are ignored.
 */
import { z } from 'zod';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { err, ok, type Result } from '../../src/result.ts';

export const GRANT_TYPE = 'ixo.oracle.grant';
export const REVOKE_TYPE = 'ixo.oracle.revoke';
export const STATE_GRANT_TYPE = 'ixo.room.state';
export const STATE_GRANT_KEY = 'ucan_delegation';

/** A file of this many bytes as base64. */
const MAX_TOKEN_CHARS = Math.ceil(LIMITS.delegationBytes / 3) * 4;

const Grant = z.object({ v: z.literal(1), dlg: z.string().min(1).max(MAX_TOKEN_CHARS) });
/** SHA-256 as unpadded base64url. */
const Revoke = z.object({ token_id: z.string().regex(/^[A-Za-z0-9_-]{43}$/u) });
const StateGrant = z.object({ data: z.string().max(LIMITS.stateGrantBytes).nullish() });

export function readGrantContent(content: JsonObject): Result<{ dlg: string }, 'bad_grant'> {
  const parsed = Grant.safeParse(content);
  return parsed.success ? ok({ dlg: parsed.data.dlg }) : err('bad_grant');
}

export function readRevokeContent(content: JsonObject): Result<{ tokenId: string }, 'bad_revoke'> {
  const parsed = Revoke.safeParse(content);
  return parsed.success ? ok({ tokenId: parsed.data.token_id }) : err('bad_revoke');
}

/** `data: null` is how an older client takes its grant back: it writes the state again, empty. */
export function readStateGrantContent(content: JsonObject): Result<{ data: string | null }, 'bad_state_grant'> {
  const parsed = StateGrant.safeParse(content);
  return parsed.success ? ok({ data: parsed.data.data || null }) : err('bad_state_grant');
}

/** Whether a raw state event is that of a grant, so that one of many can be picked out before anything else is read. */
export const isStateGrant = (event: unknown): boolean =>
  isJsonObject(event) && event['type'] === STATE_GRANT_TYPE && event['state_key'] === STATE_GRANT_KEY;
