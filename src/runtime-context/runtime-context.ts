/**
 * What a plugin's code sees on every turn: the shape of the mission's seed, names exactly, so that plugins written for this family fit.
 * Built fresh per turn and tool call, over values that were verified before (never over anything the model said); useless afterwards.
 * A part that is not built yet throws `NotAvailableError`, which names it, instead of pretending.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { BaseMessage } from '@langchain/core/messages';
import type { ChatOpenAIFields } from '@langchain/openai';
import type { ModelRole } from '../models/models.ts';

export type { ModelRole };

/** Merged and validated configuration; a plugin reads its own part with its own schema. */
export type MergedConfig = Readonly<Record<string, unknown>>;

/** The newest acting grant of the person to this oracle that counts now. It is worth nothing without the oracle's key. */
export interface UcanDelegation {
  /** CAR as padded base64; '' when there is none. */
  readonly raw: string;
  readonly issuer?: string;
  readonly audience?: string;
  /** Seconds since the epoch; the earliest end of its chain. */
  readonly expiration?: number;
  readonly capabilities?: readonly { readonly can: string; readonly with: string }[];
}
export type UserContextData = Readonly<Record<string, unknown>>;
/** Graph state as a plugin may read it. */
export interface ReadonlyState {
  readonly messages: readonly BaseMessage[];
  readonly loadedPlugins: readonly string[];
  readonly userContext: UserContextData;
}
export type SecretIndex = readonly Readonly<Record<string, unknown>>[];
export interface MatrixEvent {
  readonly [key: string]: unknown;
}
export interface RoomStateSnapshot {
  readonly roomId: string;
  readonly events: readonly {
    readonly type: string;
    readonly stateKey: string;
    readonly sender: string;
    readonly content: Readonly<Record<string, unknown>>;
  }[];
}
/** A file that somebody shared. Its name and type are what the sender says. */
export interface RoomFile {
  readonly name: string;
  readonly mimeType: string;
  /** Bytes. */
  readonly size: number;
  readonly bytes: Uint8Array;
  /** Present when it is text. */
  readonly text?: string;
}
/** What is sent: text, or bytes. */
export type OutgoingFile = { readonly name: string; readonly mimeType: string } & (
  | { readonly text: string }
  | { readonly bytes: Uint8Array }
);
/** Payloads of events; checked when they are emitted. */
export type ToolCallEventPayload = Record<string, unknown>;
export type ActionCallEventPayload = Record<string, unknown>;
export type RenderComponentEventPayload = Record<string, unknown>;
export type ReasoningEventPayload = Record<string, unknown>;
export type BrowserToolCallEventPayload = Record<string, unknown>;
export type RouterEventPayload = Record<string, unknown>;
export type MessageCacheInvalidationPayload = Record<string, unknown>;

/** Accessors of state that other plugins share; plugins extend it by declaration merging. */
// biome-ignore lint/suspicious/noEmptyInterface: declaration merging needs an interface
export interface SharedAccessors {}

/** What plugins log with: a constant message and a few facts. */
export interface PluginLogger {
  debug(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  info(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  warn(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  error(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
}

export interface RuntimeContext<TConfig = MergedConfig> {
  readonly user: {
    /** A DID; for users who sign nothing `matrix:u/name:server`. */
    readonly did: string;
    readonly matrixUserId: string;
    /**
     * How it is known who speaks. `signed`: by a signature of the DID itself; `sender-bound`: the homeserver says so, and a grant names the account;
     * `listed`: the homeserver says so, and the operator listed the account.
     */
    readonly tier: 'signed' | 'sender-bound' | 'listed';
    /** Whether what the model has read so far holds text that this user did not write. Asked at each look. */
    readonly tainted: boolean;
    readonly ucanDelegation: UcanDelegation;
    /** IANA name; absent when the user gave none. */
    readonly timezone?: string;
    /** ISO 8601 with offset, in `timezone` or else UTC. */
    readonly currentTime?: string;
  };
  readonly session: {
    readonly id: string;
    readonly client: 'portal' | 'matrix' | 'slack';
    readonly wsId?: string;
    readonly requestId: string;
    readonly roomId?: string;
  };
  readonly history: {
    /** What the model was shown of the conversation, then this turn. */
    readonly messages: readonly BaseMessage[];
    readonly recent: (n: number) => BaseMessage[];
    readonly userContext: UserContextData;
    readonly state: ReadonlyState;
  };
  readonly config: TConfig;
  readonly availablePlugins: ReadonlySet<string>;
  readonly loadedPlugins: ReadonlySet<string>;
  readonly secrets: {
    readonly getIndex: () => Promise<SecretIndex>;
    readonly getValues: (keys: string[]) => Promise<Record<string, string>>;
  };
  readonly blobStore: {
    readonly put: (params: { userDid: string; name: string; value: string; ttlSeconds?: number }) => Promise<string>;
    readonly get: (params: { userDid: string; blobId: string }) => Promise<{ name: string; value: string } | null>;
    readonly isValidBlobId: (value: unknown) => value is string;
  };
  readonly matrix: {
    /**
     * Sends into the run's own room and returns the event id: message content, or `{ type, state_key?, content }` of an allowed type.
     * Refused unless the tool declares `effect: 'write'` and `reach: 'external'`, and the user's own power level allows the event.
     */
    readonly postToRoom: (roomId: string, content: unknown) => Promise<string>;
    readonly getRoomState: (roomId: string) => Promise<RoomStateSnapshot>;
    readonly getEventById: (roomId: string, eventId: string) => Promise<MatrixEvent>;
  };
  readonly files: {
    /**
     * The file that a message of the run's own room shows, decrypted where it was encrypted. Throws `OracleError` BAD_REQUEST when there is none, it is
     * larger than 8 MiB, or not the one that was sent. Text of strangers: say `untrusted` in the tool.
     */
    readonly read: (eventId: string) => Promise<RoomFile>;
    /** Sends a file into the run's own room, encrypted where the room is, and returns the event id. The rules of `matrix.postToRoom` hold. */
    readonly send: (file: OutgoingFile) => Promise<string>;
  };
  readonly ucan: {
    /** Throws `OracleError` NEEDS_GRANT unless an acting grant that counts now covers it (`seg/*` covers everything below `seg`). */
    readonly requireCapability: (resource: string, action: string) => void;
    readonly hasCapability: (resource: string, action: string) => boolean;
    /**
     * A signed request to a service, resting on what the user granted: CAR as padded base64, at most five minutes, for one ability.
     * `did` is the service's (`resolveServiceDid`); `capability` is `<ability> <resource>`, or a resource on which exactly one ability is granted.
     * Throws `OracleError` NO_SIGNING_KEY, TIER_TOO_LOW, BAD_REQUEST or NEEDS_GRANT.
     */
    readonly mintInvocation: (target: { did: string; capability: string }, opts?: { skipCache?: boolean }) => Promise<string>;
    /** The did:web that the service's own host publishes, or null. */
    readonly resolveServiceDid: (serviceUrl: string) => Promise<string | null>;
    readonly hasSigningKey: () => boolean;
    /** The same from a delegation of this user that the tool was handed, for at most 60 s unless `maxTtlSeconds` says else. Never throws. */
    readonly createInvocationFromDelegation: (
      delegationCar: string,
      serviceUrl: string,
      capability: { can: string; with: string },
      options?: { maxTtlSeconds?: number },
    ) => Promise<{ invocation: string } | { error: string }>;
  };
  readonly llm: {
    readonly get: (role: ModelRole, params?: ChatOpenAIFields) => BaseChatModel;
  };
  readonly emit: {
    readonly toolCall: (payload: ToolCallEventPayload) => void;
    readonly actionCall: (payload: ActionCallEventPayload) => void;
    readonly renderComponent: (payload: RenderComponentEventPayload) => void;
    readonly reasoning: (payload: ReasoningEventPayload) => void;
    readonly browserToolCall: (payload: BrowserToolCallEventPayload) => void;
    readonly router: (payload: RouterEventPayload) => void;
    readonly messageCacheInvalidation: (payload: MessageCacheInvalidationPayload) => void;
  };
  readonly logger: PluginLogger;
  /** Fires when the run is cancelled, and when the tool's own time is over. */
  readonly abortSignal: AbortSignal;
  readonly shared: SharedAccessors;
  readonly toolCallId?: string;
}
