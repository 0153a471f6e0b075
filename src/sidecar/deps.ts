/** Everything the sidecar needs, as ports: it knows neither Matrix nor the process it runs in. `src/app/main.ts` wires them. */

import type { RoomDirectory } from '../admission/room-facts.ts';
import type { ErrorCode, Refusal } from '../errors.ts';
import type { Did, EventId, RoomId, SessionId, TokenId, UserId } from '../ids.ts';
import type { Logger } from '../observe/logger.ts';
import type { Result } from '../result.ts';
import type { FrameReader } from '../runs/frames.ts';
import type { Runs } from '../runs/ledger.ts';
import type { Scheduler } from '../runs/scheduler.ts';
import type { Viewers } from '../runs/viewers.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { Store, Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import type { Links } from '../turn/links.ts';
import type { TurnChecks } from '../turn/turn.ts';
import type { AuthoriseLinks } from '../ucan/authorise-links.ts';
import type { VerifyInvocation } from '../ucan/chain.ts';
import type { Grants } from '../ucan/grants.ts';
import type { RegisterGrant } from '../ucan/register-grant.ts';
import type { DoorOptions } from './door.ts';
import type { AuthorisePage } from './pages/read-pages.ts';
import type { PluginRoutePorts } from './plugin-routes.ts';
import type { AbilityToAsk } from './routes/authorise.ts';

export interface Health {
  readonly live: boolean;
  readonly ready: boolean;
  readonly parts: readonly { readonly name: string; readonly ok: boolean; readonly detail?: string }[];
}

export interface SessionToOpen {
  /** Null: no direct room with this account is known; one is to be opened. */
  readonly roomId: RoomId | null;
  readonly userId: UserId;
  readonly did: Did;
  /** The same token always means the same session: derive the transaction id of the event from it. */
  readonly tokenId: TokenId;
}
export interface PromptToMirror {
  readonly runId: string;
  readonly sessionId: SessionId;
  readonly roomId: RoomId;
  readonly threadRoot: EventId | null;
  readonly text: string;
  readonly did: Did;
  readonly requestId: string;
  /** `http:<token id>`: unique, so the transaction id of the mirror is derived from it. */
  readonly promptId: string;
}

export interface SidecarDeps {
  readonly identity: { readonly name: string; readonly did: Did; readonly entityDid: string | null };
  readonly store: Store;
  readonly turn: TurnChecks;
  readonly runs: Pick<Runs, 'read' | 'running' | 'askStop' | 'cancelQueued' | 'waitingPrompt' | 'withdrawPrompt'>;
  readonly frames: Pick<FrameReader, 'fold'>;
  readonly viewers: Pick<Viewers, 'follow'>;
  readonly sessions: Pick<Sessions, 'byId' | 'create'>;
  readonly transcript: Pick<Transcript, 'page'>;
  readonly links: Links;
  readonly verify: VerifyInvocation;
  /** HTTP_LEGACY_AUTH; null when it is off. */
  readonly verifyLegacy: DoorOptions['verifyLegacy'];
  /** Only the word of these servers about their accounts is taken without a signature. */
  readonly isTrustedServer: (user: UserId) => boolean;
  /** ACCESS, judged on the linked account and, with `granted`, on the DID (DESIGN §5 "Who may use the oracle at all"). */
  readonly mayUse: (user: UserId, did: Did) => boolean;
  readonly grants: Pick<Grants, 'list' | 'actingOf' | 'byTokenId' | 'revoke' | 'isRevoked'>;
  readonly registerGrant: Pick<RegisterGrant, 'fromCaller' | 'fromPage'>;
  readonly authoriseLinks: Pick<AuthoriseLinks, 'holder'>;
  /** Null: not built, and the page says so. */
  readonly authorisePage: AuthorisePage | null;
  readonly abilitiesToAsk: () => readonly AbilityToAsk[];
  /** Stops the runs that rest on these. */
  readonly onRevoked: (tokens: readonly TokenId[]) => void;
  readonly scheduler: Pick<Scheduler, 'cancel'>;
  /** What the room is now: it may have become a group, or encrypted, since Matrix proved the link. */
  readonly rooms: Pick<RoomDirectory, 'facts'>;
  /** Posts the event that the session is named after. Idempotent per token: asked again it answers the same session. */
  readonly openSession: (session: SessionToOpen) => Promise<Result<{ sessionId: SessionId; roomId: RoomId }, Refusal>>;
  /** Writes the `m.notice` that shows a portal's prompt in the room, in the transaction that opens its turn. */
  readonly mirrorPrompt: (tx: Tx, prompt: PromptToMirror) => void;
  /** After that commit: a run may start, and the mirrored prompt may go out. */
  readonly wakeScheduler: () => void;
  /** Routes of plugins; left out: there are none. */
  readonly plugins?: PluginRoutePorts;
  readonly health: () => Health;
  readonly models: () => { readonly ids: readonly string[]; readonly default: string };
  /** Of a request that was answered with an error. Not of a run that failed: that is counted when the run ends. */
  readonly observeRefusal: (code: ErrorCode) => void;
  readonly clock: Clock;
  readonly logger: Logger;
  /** A fresh random id; for requests that bring none, or one that may not be logged. */
  readonly newRequestId: () => string;
  readonly options: SidecarOptions;
}
export interface SidecarOptions {
  /** `*`, or origins; only named origins may send credentials. */
  readonly corsOrigins: readonly string[];
  /** Whose `X-Forwarded-For` is believed: addresses and ranges. Everybody else's would name another address for each request. */
  readonly trustedProxies?: readonly string[];
  readonly requestsPerMinute?: number;
  /** Requests refused with 401 or 403, after which an address is not even verified for the rest of the minute. */
  readonly refusedPerMinute?: number;
}
