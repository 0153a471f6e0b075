/** A message on its way to becoming (part of) a turn, whatever brought it: the one input of the checks. */
import type { Conversation } from '../admission/decide-admission.ts';
import type { Did, EventId, RoomId, SessionId, TokenId, UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';
import type { TurnHints } from '../runs/run.ts';
import type { Tx } from '../store/store.ts';
import type { VerifiedInvocation } from '../ucan/chain.ts';
import type { SenderTrust } from './principal.ts';

interface IncomingBase {
  readonly text: string;
  readonly roomId: RoomId;
  readonly direct: boolean;
  readonly sender: UserId;
  readonly hints: TurnHints;
  readonly requestId: string;
  /** Writes that belong to `open`: the inbox row ends, a portal prompt is mirrored. Runs only when the turn opens. */
  readonly alongside: (tx: Tx, opened: { runId: string; sessionId: SessionId; threadRoot: EventId | null }) => void;
}
export interface MatrixIncoming extends IncomingBase {
  readonly via: 'matrix';
  readonly eventId: EventId;
  readonly eventType: string;
  readonly content: JsonObject;
  readonly sentAt: number;
  readonly trust: SenderTrust;
  readonly threadRoot: EventId | null;
  readonly conversation: Conversation;
  /** Set when this is an edit of a prompt that has not started: then the signature must name it. */
  readonly editsTarget: EventId | null;
}
export interface HttpIncoming extends IncomingBase {
  readonly via: 'http';
  readonly sessionId: SessionId;
  readonly method: string;
  readonly path: string;
  /** base64url SHA-256 of the raw body. */
  readonly bodyHash: string;
  /** Verified once at the door of the sidecar; an invocation is bound and linked by `authenticate`. */
  readonly proof: VerifiedInvocation | LegacyProof;
}
/** Of a bearer token (HTTP_LEGACY_AUTH): it says who and nothing of the request. `tokenId` is made from the request, for one use. */
export interface LegacyProof {
  readonly did: Did;
  readonly tokenId: TokenId;
  readonly keepUntil: number;
}
export type Incoming = MatrixIncoming | HttpIncoming;
