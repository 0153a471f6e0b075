/**
 * Everything the oracle says that is not an answer: refusals, the missing grant, the portal's prompt, its greeting. All are `m.notice`, which
 * other bots do not answer, so two oracles in a room cannot talk to each other for ever. A person reads `body`; a program reads the custom
 * field, whose shape is part of the wire format (docs/wire-formats.md).
 */
import { describeTime, shortId } from '../../src/commands/describe-grant.ts';
import type { Did, EventId, PrincipalId, RunId, TokenId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { buildText } from './build-answer.ts';
import { cleanText, shorten } from './clean-text.ts';
import { buildRelation, type Place } from './relations.ts';
import { type Rendered, renderMarkdown } from './render-markdown.ts';

export const ERROR_KEY = 'ixo.oracle.error';
const MIRROR_KEY = 'ixo.oracle.mirror';
const DELEGATION_REQUIRED_KEY = 'ixo.oracle.delegation_required';

/** A `Refusal` of src/errors.ts fits; its details and cause stay behind. */
export interface NoticeError {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly retryable: boolean;
  readonly runId?: RunId;
}

/** Sentences are ours and short; prompts from a portal are bounded at the sidecar. */
const NOTICE_CHARS = 16_000;
const MESSAGE_CHARS = 2_000;

export interface Notice extends Place {
  /** Markdown; without it the message of the error is said. */
  readonly text?: string;
  /** Our own address, below the text. */
  readonly link?: string;
  readonly error?: NoticeError;
}

export function buildNotice({ text, link, error, ...place }: Notice): JsonObject {
  const said = shorten(text ?? error?.message ?? '', NOTICE_CHARS);
  return {
    ...buildText('m.notice', link === undefined ? renderMarkdown(said) : withLink(said, link)),
    ...(error === undefined ? {} : { [ERROR_KEY]: buildErrorField(error) }),
    ...buildRelation(place),
  };
}

/** In markdown an address that nobody marked is text, and one with two underscores is not even itself; in `body` it stands as it is. */
function withLink(text: string, link: string): Rendered {
  const { body } = renderMarkdown(text);
  const { formattedBody } = renderMarkdown(`${text}\n\n<${link}>`);
  return { body: `${body}\n\n${link}`, ...(formattedBody === undefined ? {} : { formattedBody }) };
}

function buildErrorField({ status, code, message, retryable, runId }: NoticeError): JsonObject {
  return {
    status,
    code,
    message: shorten(cleanText(message), MESSAGE_CHARS),
    retryable,
    ...(runId === undefined ? {} : { run_id: runId }),
  };
}

export interface DelegationRequired extends Place {
  readonly oracleDid: Did;
  readonly oracleEntityDid?: Did;
  /** Page where the person can authorise the oracle; absent while there is none. */
  readonly url?: string;
  readonly body: string;
  readonly error?: NoticeError;
}

/** The 401 of somebody who has to grant something first. */
export function buildDelegationRequired({ oracleDid, oracleEntityDid, url, body, error, ...place }: DelegationRequired): JsonObject {
  const said = shorten(cleanText(body), MESSAGE_CHARS);
  return {
    ...buildNotice({ text: said, ...(url === undefined ? {} : { link: url }), ...(error === undefined ? {} : { error }), ...place }),
    [DELEGATION_REQUIRED_KEY]: {
      oracleDid,
      ...(oracleEntityDid === undefined ? {} : { oracleEntityDid }),
      ...(url === undefined ? {} : { url }),
      body: said,
    },
  };
}

export interface Mirror extends Place {
  /** What the person typed in the portal. Shown as it is, never as markdown: it is quoted, not said by the oracle. */
  readonly text: string;
  readonly did: PrincipalId;
  readonly requestId: string;
}

/** A portal's prompt, shown in the room so that the conversation can be read there. Admission ignores it (own event, notice). */
export function buildMirror({ text, did, requestId, ...place }: Mirror): JsonObject {
  return {
    ...buildText('m.notice', { body: shorten(cleanText(text), NOTICE_CHARS) }),
    [MIRROR_KEY]: { did, request_id: requestId },
    ...buildRelation(place),
  };
}

export interface Receipt {
  readonly tokenId: TokenId;
  readonly kind: 'acting' | 'session';
  readonly expiresAt: number;
  readonly capabilities: readonly { readonly can: string; readonly with: string }[];
  /** The event that brought the grant. */
  readonly cause: EventId;
}

/** For the client that sent a grant: it was verified and is kept. Ability and resource only; caveats stay in the token. */
export function buildReceipt({ tokenId, kind, expiresAt, capabilities, cause }: Receipt): JsonObject {
  const what = kind === 'acting' ? 'I keep what you have granted me' : 'I know the key of your client';
  return {
    token_id: tokenId,
    expires_at: expiresAt,
    capabilities: capabilities.map(({ can, with: resource }) => ({ can, with: resource })),
    body: `${what} until ${describeTime(expiresAt)}. \`!revoke ${shortId(tokenId)}\` takes it back.`,
    'm.relates_to': { rel_type: 'm.reference', event_id: cause },
  };
}

/** Same user, target and key twice is `M_DUPLICATE_ANNOTATION`: the sender treats that as sent. */
export const buildReaction = ({ target, key }: { readonly target: EventId; readonly key: string }): JsonObject => ({
  'm.relates_to': { rel_type: 'm.annotation', event_id: target, key },
});

/** One notice on joining: in a group the oracle stays silent until it is addressed, and nobody could guess how. */
export function buildHello({
  kind,
  name,
  userId,
}: {
  readonly kind: 'direct' | 'group';
  readonly name: string;
  readonly userId: UserId;
}): JsonObject {
  const me = shorten(cleanText(name).replace(/\s+/gu, ' ').trim(), 100) || userId;
  const how =
    kind === 'direct'
      ? 'Write to me here; each thread is a conversation of its own.'
      : `Mention me (${userId}) and I answer in a thread. In that thread, or when you reply to me, you need not mention me again.`;
  return buildText('m.notice', { body: `Hello, I am ${me}. ${how} !help shows what else I understand.` });
}
