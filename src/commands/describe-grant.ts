/**
 * A grant in plain words, for the person who has to decide about it. Its DID, abilities and resources may be a stranger's (somebody who talks
 * a person into authorising the wrong account), so they are shown as code, by an alphabet of their own and bounded: they can neither break the
 * markdown nor pass for our own words. Pure.
 */
import { buildLocalTime } from '../runtime-context/local-time.ts';
import { CHAT_ABILITY, MESSAGE_ABILITY, READ_ABILITY } from '../ucan/abilities.ts';
import type { GrantSource, StoredGrant } from '../ucan/grants.ts';
import type { UcanCapability } from '../ucan/read-ucan.ts';

const SHORT_ID_CHARS = 8;
/** A DID may have 240; nobody compares one that is cut. */
const CODE_CHARS = 256;
const RESOURCE_CHARS = 80;
const ABILITIES_SHOWN = 8;
const ABILITIES_LISTED = 3;

export const shortId = (tokenId: string): string => tokenId.slice(0, SHORT_ID_CHARS);

/** As inline code: visible ASCII but backticks; anything else is shown as `?`. */
export function code(text: string, maxChars: number = CODE_CHARS): string {
  const shown = text.length > maxChars ? `${text.slice(0, maxChars - 3)}...` : text;
  return `\`${shown.replace(/[^\u0021-\u007e]|`/gu, '?') || '?'}\``;
}

/** Minutes are enough, and everybody can read UTC. */
export function describeTime(wallMs: number): string {
  const { iso } = buildLocalTime(wallMs, 'UTC');
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}

export function describeAbility({ can, with: resource }: UcanCapability, did: string): string {
  const whose = resource === did ? '' : ` on ${code(resource, RESOURCE_CHARS)}`;
  switch (can) {
    case CHAT_ABILITY:
      return `answer this account as that identity${whose}`;
    case MESSAGE_ABILITY:
      return `take messages signed by a key of your client as that identity’s${whose}`;
    case READ_ABILITY:
      return `show that key the conversations of that identity${whose}`;
    default:
      return `use ${code(can)}${whose}`;
  }
}

export function describeAbilities({ capabilities, did }: Pick<StoredGrant, 'capabilities' | 'did'>): string {
  const shown = capabilities.slice(0, ABILITIES_SHOWN).map((capability) => describeAbility(capability, did));
  const more = capabilities.length - shown.length;
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join('; ');
}

const SOURCES: Readonly<Record<GrantSource, string>> = {
  event: 'sent in a chat',
  dlg: 'sent with a message',
  proof: 'sent with a message',
  http: 'handed in by a portal',
  header: 'sent with a portal’s request',
  page: 'made on my page',
  state: 'from the state of a room',
};

/** One line of `!grants`. */
export function describeGrant(grant: StoredGrant): string {
  const { tokenId, kind, capabilities, expiresAt, source, matrixUserId, activatedAt } = grant;
  const named = capabilities.slice(0, ABILITIES_LISTED).map(({ can }) => code(can, RESOURCE_CHARS));
  const more = capabilities.length - named.length;
  const abilities = [...named, ...(more > 0 ? [`${more} more`] : [])].join(', ');
  const waits = matrixUserId !== null && activatedAt === null ? ', waits for `!authorise`' : '';
  const what = kind === 'acting' ? 'what I may do' : 'a key of your client';
  return `${code(shortId(tokenId))} ${what}: ${abilities}, until ${describeTime(expiresAt)}, ${SOURCES[source]}${waits}`;
}

/** What a person must see before it counts. */
export function describePending(grant: StoredGrant): string {
  return [
    `- Whose identity: ${code(grant.did)}`,
    `- I may then: ${describeAbilities(grant)}`,
    `- Until: ${describeTime(grant.expiresAt)}`,
    `- Id: ${code(shortId(grant.tokenId))}`,
  ].join('\n');
}
