/**
 * What the chat commands do. They need no signature, because they exist for people whose client cannot sign; so they only ever show a
 * person's own grants, take them back, or make one count that was made for this very account through a link sent to it, and only after its
 * owner, abilities and end were shown (DESIGN §5 "Grants from ordinary clients"). Effect and reply are one transaction of the caller, with
 * the end of the inbox row (G1, G4); the model and the transcript never see either.
 */
import type { Credits } from '../credits/credits.ts';
import { type ErrorCode, type Refusal, refusal } from '../errors.ts';
import { type EventId, noticeTxnId, type RoomId, type TokenId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { OutboundEvent, Outbox } from '../outbox/outbox.ts';
import { assertNever } from '../result.ts';
import type { Control } from '../runs/control.ts';
import type { Store, Tx } from '../store/store.ts';
import { writeAudit } from '../turn/audit.ts';
import type { Links } from '../turn/links.ts';
import type { SenderTrust } from '../turn/principal.ts';
import type { Grants, StoredGrant } from '../ucan/grants.ts';
import { type AuthorisePage, describeOffer } from './authorise-page.ts';
import { code, describeAbilities, describeGrant, describePending, describeTime, shortId } from './describe-grant.ts';
import type { OwnGrants } from './own-grants.ts';
import { type AuthorityCommand, COMMANDS, type CommandSpec } from './read-command.ts';

export interface CommandReply {
  readonly roomId: RoomId;
  /** The message it answers. */
  readonly cause: EventId;
  readonly threadRoot: EventId | null;
  /** Markdown, readable as it is. */
  readonly text: string;
  /** Stands below the text. */
  readonly link: string | null;
  readonly refusal: Refusal | null;
}
/** How the transport words a reply; pure. */
export interface CommandWords {
  reply(reply: CommandReply): Pick<OutboundEvent, 'eventType' | 'content'>;
}

export interface CommandRequest {
  readonly command: AuthorityCommand;
  readonly sender: UserId;
  readonly trust: SenderTrust;
  /** A direct room; another one only for help and the usage of a command that works anywhere. */
  readonly roomId: RoomId;
  readonly cause: EventId;
  readonly threadRoot: EventId | null;
  /** When it was sent, in our own wall clock ms: it may have been long under way. */
  readonly sentAt: number;
}
export interface Commands {
  /** Acts and answers inside the caller's transaction. */
  obey(tx: Tx, request: CommandRequest, now: number): Obeyed;
  /** Only answers, inside the caller's transaction. */
  say(tx: Tx, reply: CommandReply, now: number): void;
}
export interface Obeyed {
  /** Why it was not done; the person was told. */
  readonly refused: ErrorCode | null;
  /** Call after the commit. */
  readonly after: () => void;
}

export interface CommandsOptions {
  readonly store: Store;
  readonly grants: Grants;
  readonly own: OwnGrants;
  readonly links: Pick<Links, 'prove' | 'forgetAll' | 'didsOf'>;
  readonly page: AuthorisePage;
  readonly outbox: Outbox;
  readonly words: CommandWords;
  /** Only the word of these servers about who speaks is taken (DESIGN §5 "Tiers"). */
  readonly isTrustedServer: (user: UserId) => boolean;
  /** Ends what rests on these; called after the commit. */
  readonly onRevoked: (tokenIds: readonly TokenId[]) => void;
  readonly control: Pick<Control, 'stopSpeakingFor'>;
  readonly credits: Pick<Credits, 'isActive' | 'accounts'>;
}

interface Said {
  readonly text: string;
  readonly link?: string;
  readonly refusal?: Refusal;
  readonly revoked?: readonly TokenId[];
  readonly after?: () => void;
}

const GRANTS_SHOWN = 20;

export function createCommands(options: CommandsOptions): Commands {
  const { store, grants, own, links, page, outbox, words, isTrustedServer, onRevoked, control } = options;

  function act(tx: Tx, request: CommandRequest, now: number): Said {
    const { command, sender } = request;
    switch (command.kind) {
      case 'authorise':
        return authorise(tx, request, now);
      case 'confirm':
        return confirm(tx, request, now);
      case 'grants':
        return { text: listing(own.of(sender, now)) };
      case 'balance':
        return { text: balanceOf(tx, sender) };
      case 'revoke':
        return revokeByPrefix(tx, request, command.prefix, now);
      case 'revoke_all':
        return revokeAll(tx, request, now);
      case 'revoke_token': {
        const grant = own.find(sender, command.tokenId, now);
        return revoke(tx, request, grant === undefined || grant.revokedAt !== null ? [] : [grant], now);
      }
      case 'help':
        return { text: HELP };
      case 'usage':
        return { text: usage([command.of]) };
      default:
        return assertNever(command);
    }
  }

  /** By who pays: what they signed, and what they only said. Who speaks under one identity is shown no ids. */
  function balanceOf(tx: Tx, user: UserId): string {
    if (!options.credits.isActive()) return 'Answers cost nothing here.';
    const balances = [...links.didsOf(user), unsignedPrincipalId(user)]
      .map((principal) => ({ principal, credits: options.credits.accounts.balance(tx, principal, user) }))
      .filter(({ credits }) => credits > 0);
    const [only, ...more] = balances;
    if (only === undefined) return 'You have no credits.';
    if (more.length === 0) return `You have ${count(only.credits)}.`;
    return `You have:\n\n${balances.map(({ principal, credits }) => `- ${count(credits)} as ${code(principal)}`).join('\n')}`;
  }

  function authorise(tx: Tx, request: CommandRequest, now: number): Said {
    const { sender, roomId } = request;
    const pending = grants.pendingOf(sender, now);
    if (pending !== undefined) return show(tx, request, pending, now);
    if (!isTrustedServer(sender)) return refused(tx, request, refusal('UNTRUSTED_SERVER'), now);
    const offer = page.offer(tx, { user: sender, room: roomId }, now);
    const bound = grants.boundTo(sender, now);
    const present = bound === undefined ? '' : `You have authorised me until ${describeTime(bound.expiresAt)}. To renew that: `;
    return { text: `${present}${describeOffer(offer)}`, ...(offer.kind === 'link' ? { link: offer.url } : {}) };
  }

  function show(tx: Tx, { sender }: CommandRequest, pending: StoredGrant, now: number): Said {
    grants.markShown(tx, pending.tokenId, now);
    const bound = grants.boundTo(sender, now);
    const another =
      bound === undefined || bound.did === pending.did
        ? ''
        : `\n\nThis account already acts for another identity, ${code(bound.did)}: send \`!revoke all\` first, then authorise me again.`;
    const text =
      `This was made for your account and does not count yet:\n\n${describePending(pending)}\n\n` +
      'Send `!authorise confirm` to accept it. If you did not make it yourself on my page, do not accept it: whoever made it would see what you ' +
      `write to me. Then send \`!revoke ${shortId(pending.tokenId)}\`.`;
    return { text: text + another };
  }

  function confirm(tx: Tx, request: CommandRequest, now: number): Said {
    const { sender, roomId, sentAt } = request;
    if (!isTrustedServer(sender)) return refused(tx, request, refusal('UNTRUSTED_SERVER'), now);
    const pending = grants.pendingOf(sender, now);
    const bound = grants.boundTo(sender, now);
    if (pending === undefined) {
      const present = bound === undefined ? '' : ` You have authorised me until ${describeTime(bound.expiresAt)}.`;
      return { text: `Nothing waits for your confirmation.${present} Send \`!authorise\` to get a link to my page.` };
    }
    // Also what was sent before it was shown: a confirmation that was late must not fall on something else.
    if (pending.shownAt === null || sentAt < pending.shownAt) return show(tx, request, pending, now);
    if (bound !== undefined && bound.did !== pending.did) return refused(tx, request, refusal('LINKED_TO_ANOTHER'), now, pending);
    if (!grants.activate(tx, pending.tokenId, now)) return refused(tx, request, refusal('BAD_LINK'), now, pending);
    links.prove(tx, { did: pending.did, userId: sender, directRoom: roomId }, now);
    audit(tx, request, pending, null, now);
    return {
      text:
        `Done. Until ${describeTime(pending.expiresAt)} I act for ${code(pending.did)} in this account, and may: ${describeAbilities(pending)}. ` +
        `\`!grants\` shows it, \`!revoke ${shortId(pending.tokenId)}\` takes it back.`,
    };
  }

  /**
   * The links go too, also those of grants that have ended: whoever talked a person into his own DID could take that grant back himself, and then go
   * on over HTTP in this room with a link that nothing else would end. Neither must what he began there go on. A client that signs proves its link anew with the next message.
   */
  function revokeAll(tx: Tx, request: CommandRequest, now: number): Said {
    const list = own.of(request.sender, now);
    const unlinked = links.forgetAll(tx, request.sender) > 0;
    const after = control.stopSpeakingFor(tx, request.sender, now);
    return { ...(list.length === 0 && unlinked ? { text: UNLINKED } : revoke(tx, request, list, now)), after };
  }

  function revokeByPrefix(tx: Tx, request: CommandRequest, prefix: string, now: number): Said {
    const matching = own.of(request.sender, now).filter(({ tokenId }) => tokenId.startsWith(prefix));
    if (matching.length > 1)
      return {
        text: `More than one begins with ${code(prefix)}; give more characters of its id:\n\n${lines(matching, ({ tokenId }) => tokenId)}`,
      };
    return revoke(tx, request, matching, now);
  }

  function revoke(tx: Tx, request: CommandRequest, list: readonly StoredGrant[], now: number): Said {
    if (list.length === 0) return { text: NOTHING_TO_REVOKE, refusal: refusal('NOT_FOUND', { message: NOTHING_TO_REVOKE }) };
    const revoked = own.revoke(tx, list, { user: request.sender, eventId: request.cause, trust: request.trust }, now);
    return { text: `Taken back, from now on and for good:\n\n${lines(list)}`, revoked };
  }

  function refused(tx: Tx, request: CommandRequest, why: Refusal, now: number, grant?: StoredGrant): Said {
    audit(tx, request, grant, why.code, now);
    return { text: why.message, refusal: why };
  }

  function audit(
    tx: Tx,
    { sender, cause, trust }: CommandRequest,
    grant: StoredGrant | undefined,
    refusedWith: string | null,
    now: number,
  ): void {
    writeAudit(store, tx, {
      at: now,
      event_id: cause,
      token_id: grant?.tokenId ?? null,
      principal_id: grant?.did ?? null,
      matrix_user_id: sender,
      trust,
      capability: 'grant/confirm',
      decision: refusedWith === null ? 'allowed' : 'refused',
      code: refusedWith,
    });
  }

  function say(tx: Tx, reply: CommandReply, now: number): void {
    const { roomId, cause } = reply;
    const event = words.reply(reply);
    outbox.insert(tx, { txnId: noticeTxnId('command', cause), lane: `notice.${cause}`, roomId, kind: 'notice', ...event }, now);
  }

  return {
    say,
    obey(tx, request, now) {
      const { text, link = null, refusal: why = null, revoked = [], after } = act(tx, request, now);
      const { roomId, cause, threadRoot } = request;
      say(tx, { roomId, cause, threadRoot, text, link, refusal: why }, now);
      return {
        refused: why?.code ?? null,
        after: () => {
          outbox.wake();
          if (revoked.length > 0) onRevoked(revoked);
          after?.();
        },
      };
    },
  };
}

const count = (credits: number): string => `${credits} ${credits === 1 ? 'credit' : 'credits'}`;

const UNLINKED = 'Nothing that you granted me counts now, and I no longer know this account as anybody’s.';
const NOTHING_TO_REVOKE = 'I have no such authorisation of yours. `!grants` lists them.';

function listing(list: readonly StoredGrant[]): string {
  if (list.length === 0) return 'You have granted me nothing that counts now. Send `!authorise` to get a link to my page.';
  return `What you have granted me, newest first:\n\n${lines(list)}\n\n\`!revoke <id>\` takes one back, \`!revoke all\` all of them.`;
}

function lines(list: readonly StoredGrant[], note: (grant: StoredGrant) => string | null = () => null): string {
  const shown = list.slice(0, GRANTS_SHOWN).map((grant) => {
    const more = note(grant);
    return `- ${describeGrant(grant)}${more === null ? '' : `, whole id ${code(more)}`}`;
  });
  const rest = list.length - shown.length;
  return [...shown, ...(rest > 0 ? [`- and ${rest} more`] : [])].join('\n');
}

const usage = (specs: readonly CommandSpec[]): string =>
  `I know these:\n\n${specs.flatMap(({ uses }) => uses.map(({ form, summary }) => `- \`${form}\`: ${summary}`)).join('\n')}`;

const HELP =
  `Just write to me; in a group, mention me or answer one of my messages. A 🛑 on your message or on my answer stops it. ${usage(COMMANDS)}\n\n` +
  `In a group mention me first; ${COMMANDS.filter(({ where }) => where === 'direct')
    .map(({ words: [word] }) => `\`${word}\``)
    .join(', ')} only work in a direct chat with me.`;
