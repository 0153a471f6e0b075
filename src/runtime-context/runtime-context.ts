/**
 * What a plugin's code sees on every turn: the shape of the mission's seed, names exactly, so that plugins written for this family fit.
 * Built fresh per turn and tool call, over values that were verified before (never over anything the model said); useless afterwards.
 * A part that is not built yet throws `NotAvailableError`, which names it, instead of pretending.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { BaseMessage } from '@langchain/core/messages';
import type { ChatOpenAIFields } from '@langchain/openai';
import type { ModelRole } from '../models/models.ts';
import type { PluginStorage } from '../plugin-api/define-oracle-plugin.ts';
import type { FrameData } from '../runs/run.ts';

export type { ModelRole };

/** The validated configuration of the plugin whose context it is, and of no other. */
export type MergedConfig = Readonly<Record<string, unknown>>;
/** Fields that a plugin keeps per thread (`stateSchema`). */
export type PluginState = Readonly<Record<string, unknown>>;

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
/** One message of the person's own conversations that a search found. */
export interface HistoryHit {
  readonly text: string;
  readonly role: 'human' | 'ai';
  readonly sessionId: string;
  /** Wall clock ms. */
  readonly at: number;
}
export interface SecretIndexEntry {
  readonly name: string;
  /** Of the event that holds the value. */
  readonly eventId: string;
  /** Which key of the oracle it is encrypted to, as the client says. */
  readonly publicKeyId?: string;
}
/** Names, never values. */
export type SecretIndex = readonly SecretIndexEntry[];
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
  /** There are more events than a plugin is given; members come last. */
  readonly truncated?: true;
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
/** Payloads of events; checked once more when they are emitted, because plugins hand on what services answered. */
export type ToolCallEventPayload =
  | FrameData['tool_call']
  /** As oracles of this family say it; without `eventId` it is the call that runs. */
  | {
      readonly toolName: string;
      readonly eventId?: string;
      readonly status?: 'isRunning' | 'done' | 'error';
      readonly args?: unknown;
      readonly output?: string;
    };
export type ActionCallEventPayload = FrameData['action_call'];
export type RenderComponentEventPayload = FrameData['render_component'];
export type ReasoningEventPayload = FrameData['reasoning'];
export type BrowserToolCallEventPayload = FrameData['browser_tool_call'];
export type RouterEventPayload = FrameData['router'];
export type MessageCacheInvalidationPayload = FrameData['message_cache_invalidation'];

/** Accessors of state that other plugins share; plugins extend it by declaration merging. Each is read when it is asked for, and may be absent. */
// biome-ignore lint/suspicious/noEmptyInterface: declaration merging needs an interface
export interface SharedAccessors {}

/** What plugins log with: a constant message and a few facts. */
export interface PluginLogger {
  debug(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  info(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  warn(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
  error(message: string, facts?: Readonly<Record<string, string | number | boolean>>): void;
}

export interface RuntimeContext<TConfig = MergedConfig, TState extends PluginState = PluginState> {
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
    /** Whether nobody else reads what is answered. */
    readonly direct: boolean;
  };
  readonly history: {
    /** What the model was shown of the conversation, then this turn. */
    readonly messages: readonly BaseMessage[];
    readonly recent: (n: number) => BaseMessage[];
    readonly userContext: UserContextData;
    readonly state: ReadonlyState;
    /**
     * Earlier messages by words, best first: in a direct room this person's own conversations, in a group what this person asked there and was
     * answered. At most 50.
     */
    readonly search: (query: string, options?: { readonly limit?: number }) => Promise<readonly HistoryHit[]>;
  };
  readonly config: TConfig;
  /** What this plugin keeps for this person, across conversations. */
  readonly storage: PluginStorage;
  /** What this plugin keeps for this thread, by its `stateSchema`. */
  readonly state: {
    readonly get: () => TState;
    /** Merged into it by field; what does not fit the schema throws. */
    readonly update: (patch: Partial<TState>) => void;
  };
  readonly availablePlugins: ReadonlySet<string>;
  readonly loadedPlugins: ReadonlySet<string>;
  readonly secrets: {
    /** What this person has put into this room. */
    readonly getIndex: () => Promise<SecretIndex>;
    /**
     * Those of the names that have a value; never show one to anybody. Throws `OracleError` TIER_TOO_LOW unless the message was signed.
     */
    readonly getValues: (keys: string[]) => Promise<Record<string, string>>;
  };
  readonly blobStore: {
    /** Kept for `ttlSeconds` (default an hour, at most a day), for this person and this plugin; `userDid` must be the context's own. */
    readonly put: (params: { userDid: string; name: string; value: string; ttlSeconds?: number }) => Promise<string>;
    readonly get: (params: { userDid: string; blobId: string }) => Promise<{ name: string; value: string } | null>;
    readonly isValidBlobId: (value: unknown) => value is string;
  };
  readonly matrix: {
    /**
     * Sends into the run's own room, or another one that both this user and the oracle have joined, and returns the event id: message content,
     * or `{ type, state_key?, content }` of an allowed type. Refused unless the tool declares `effect: 'write'` and `reach: 'external'`, and the
     * user's own power level allows the event.
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
