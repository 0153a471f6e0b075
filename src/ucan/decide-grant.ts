/**
 * What a verified delegation is to us: an acting grant (to the oracle, for named abilities), a session grant (to a key of a client, for nothing
 * but talking to the oracle), or none. Without this a person could hand the oracle everything, or the oracle could be made to keep other
 * services' tokens; UCAN 0.9.1 has no type tag that would tell (research/ucan.md §0.7). Pure. Who may bring it is register-grant.ts.
 */
import type { ErrorCode } from '../errors.ts';
import { type Did, parseUserId, type UserId } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import { MESSAGE_ABILITY, READ_ABILITY } from './abilities.ts';
import type { VerifiedGrant } from './chain.ts';
import type { GrantKind } from './grants.ts';

export interface GrantLink {
  /** From the link to the authorise page. */
  readonly nonce: string;
  readonly sender: UserId;
}
export interface DecidedGrant {
  readonly kind: GrantKind;
  /** Only of an acting grant that holds both `nb.link` and `nb.sender`: made on the authorise page. */
  readonly link: GrantLink | null;
  /** The account that the grant itself names. */
  readonly sender: UserId | null;
}

/** What the capabilities claim, before anybody has verified them: cheap, so that a stranger without a live nonce costs no signature. */
export function readGrantLink({ capabilities }: Pick<VerifiedGrant, 'capabilities'>): GrantLink | null {
  const nonce = readOne({ capabilities }, 'link');
  const sender = parseUserId(readOne({ capabilities }, 'sender'));
  return typeof nonce === 'string' && NONCE.test(nonce) && sender.ok ? { nonce, sender: sender.value } : null;
}

type Decidable = Pick<VerifiedGrant, 'audience' | 'principal' | 'capabilities' | 'expiration'>;

const NONCE = /^[A-Za-z0-9_-]{22}$/u;

/** @returns GRANT_TOO_WIDE, GRANT_LIVES_TOO_LONG or BAD_GRANT. `now` in wall clock ms. */
export function decideGrant(
  grant: Decidable,
  { oracleDids, now }: { oracleDids: readonly Did[]; now: number },
): Result<DecidedGrant, ErrorCode> {
  const kind = oracleDids.includes(grant.audience) ? 'acting' : 'session';
  if (kind === 'acting' && grant.capabilities.some(({ can }) => isTooWide(can))) return err('GRANT_TOO_WIDE');
  if (kind === 'session' && !isSession(grant)) return err('BAD_GRANT');
  const lifetimeS = kind === 'acting' ? LIMITS.actingGrantLifetimeS : LIMITS.sessionGrantLifetimeS;
  if (grant.expiration > now / 1_000 + lifetimeS + LIMITS.clockSkewS) return err('GRANT_LIVES_TOO_LONG');

  const nonce = readOne(grant, 'link');
  const claimed = readOne(grant, 'sender');
  if (nonce === CONTRADICTS || claimed === CONTRADICTS || (nonce !== undefined && !NONCE.test(nonce))) return err('BAD_GRANT');
  const sender = claimed === undefined ? undefined : parseUserId(claimed);
  if (sender?.ok === false) return err('BAD_GRANT');
  const link = kind === 'acting' && nonce !== undefined && sender !== undefined ? { nonce, sender: sender.value } : null;
  return ok({ kind, link, sender: sender?.value ?? null });
}

/** With these the oracle could write its own orders: whoever holds them speaks as the person. */
const isTooWide = (can: string): boolean => can === '*' || can === 'oracle/*' || can === MESSAGE_ABILITY || can === READ_ABILITY;

const SESSION_ABILITIES: ReadonlySet<string> = new Set([MESSAGE_ABILITY, READ_ABILITY, 'oracle/*']);
const isSession = ({ audience, principal, capabilities }: Decidable): boolean =>
  audience.startsWith('did:key:') && capabilities.every(({ can, with: resource }) => SESSION_ABILITIES.has(can) && resource === principal);

const CONTRADICTS = Symbol('contradicts');
/** What all capabilities that hold this caveat agree on. */
function readOne({ capabilities }: Pick<Decidable, 'capabilities'>, key: 'link' | 'sender'): string | undefined | typeof CONTRADICTS {
  const values = new Set(capabilities.flatMap(({ nb }) => (nb !== undefined && Object.hasOwn(nb, key) ? [nb[key]] : [])));
  if (values.size > 1) return CONTRADICTS;
  const [value] = values;
  return value === undefined || typeof value === 'string' ? value : CONTRADICTS;
}
