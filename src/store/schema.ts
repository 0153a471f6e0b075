/**
 * The shape of every table as TypeScript sees it; `migrations/` makes them. One file, so that "what is on disk?" has one answer.
 * Times are wall clock milliseconds; JSON columns are text and carry `v` where their shape may grow (STYLE §2 "Migrations").
 * Queries live beside their feature, not here.
 */
import type { Generated } from 'kysely';
import type {
  DeviceId,
  Did,
  EventId,
  MegolmSessionId,
  OutboxTxnId,
  OwnerId,
  PrincipalId,
  RoomId,
  RunId,
  SessionId,
  TokenId,
  UserId,
} from '../ids.ts';
import type { FrameKind, RunStatus } from '../runs/run.ts';
import type { SenderTrust, Tier } from '../turn/principal.ts';
import type { GrantSource } from '../ucan/grants.ts';

/** What came in and is not finished (G1). A row lives until its event was handled; `seen` remembers it afterwards. */
export interface InboxTable {
  id: Generated<number>;
  /** Order within the room: arrival, except that what a gap or a first look back brings stands before what waits. */
  ord: number;
  event_id: EventId;
  room_id: RoomId;
  sender: string;
  type: string;
  source: 'push' | 'sync' | 'backfill';
  /** The event as the homeserver sent it. */
  event: string;
  received_at: number;
  /** `unsigned.age` on arrival in ms; null when the homeserver gave none. */
  age_ms: number | null;
  /** `dead`: given up after the last attempt, kept for `matrix-oracle inbox list|requeue`. */
  /** `parked`: an encrypted event whose key is not here; it waits beside its room's queue, not in it. */
  state: Generated<'ready' | 'dead' | 'parked'>;
  attempts: Generated<number>;
  not_before: Generated<number>;
  lease_until: Generated<number>;
  fence: Generated<number>;
  error: string | null;
  /** Of a parked event: the Megolm session whose key it waits for. */
  megolm_session: Generated<MegolmSessionId | null>;
  /** When it was parked first; kept when it is ready again. */
  parked_at: Generated<number | null>;
  /** When the person was asked to send it again. */
  told_at: Generated<number | null>;
}
/** Event ids that took part, or never will, until they are older than RETENTION_DAYS (G2). */
export interface SeenTable {
  event_id: EventId;
  seen_at: number;
}
/** A stretch of a room's timeline that `/sync` left out; read page by page (DESIGN §2). */
export interface GapsTable {
  id: Generated<number>;
  room_id: RoomId;
  /** Token to go on from, backwards. */
  from_token: string;
  /** Token of the known end, or null for "back to the admission cursor". */
  to_token: string | null;
  opened_at: number;
  pages: Generated<number>;
}
export interface RoomsTable {
  room_id: RoomId;
  membership: 'invited' | 'joined' | 'left';
  inviter: UserId | null;
  is_direct: number;
  /** The admission cursor: origin_server_ts of the invite. What is older is history, never a prompt. */
  invited_at: number | null;
  joined_at: number | null;
  /** 1 once the messages between invite and join were read. */
  first_read: Generated<number>;
}
export interface SessionsTable {
  session_id: SessionId;
  room_id: RoomId;
  /** Principal id, or the room in a group; never changes (G13). */
  owner: OwnerId;
  kind: 'rolling' | 'thread';
  /** Null: answers stand unthreaded in the direct room. */
  thread_root: EventId | null;
  title: string | null;
  created_at: number;
  last_at: number;
  /** Set when a newer rolling session took over. */
  retired_at: number | null;
}
export interface RunsTable {
  run_id: RunId;
  session_id: SessionId;
  room_id: RoomId;
  thread_root: EventId | null;
  owner: OwnerId;
  principal_id: PrincipalId;
  matrix_user_id: UserId;
  tier: Tier;
  /** Where it came from: `rtCtx.session.client`. */
  client: 'portal' | 'matrix' | 'slack';
  request_id: string;
  /** Agent implementation; `main` is the built-in one. */
  runner: Generated<string>;
  parent: RunId | null;
  /** Frozen grants of the path as JSON `{v:1, …}`; null when the run rests on none. */
  grants: string | null;
  /** Turn hints, JSON `{v:1, timezone?, model?}`. */
  hints: string;
  /** 1: the room is direct; frozen, because authority was judged on it. */
  direct: number;
  status: RunStatus;
  attempt: Generated<number>;
  /** Attempts that a stop or a full disk ended; they do not count. */
  put_off: Generated<number>;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  /** Wall clock ms; a run without end by then ends with RUN_DEADLINE. Null until started. */
  deadline_at: number | null;
  model_asked: string | null;
  model_answered: string | null;
  usage: string | null;
  /** JSON `{v:1, code, message, retryable}`. */
  error: string | null;
  lease_until: Generated<number>;
  fence: Generated<number>;
  /** 1 once the model's input held text that its principal did not write (DESIGN §5 "Taint"); only ever turned on, also by a resumed run. */
  tainted: Generated<number>;
  /** The run whose message this one writes anew, because its prompt was edited (DESIGN §7). */
  replaces: Generated<RunId | null>;
  /** When retention removed its frames: a viewer is told 410, not 404. */
  frames_pruned_at: Generated<number | null>;
  /** Code of the error it is to end with: somebody asked it to stop, and it has not ended yet (G9). */
  stop_asked: Generated<string | null>;
  /** How the device of its first prompt was trusted; null over HTTP and in runs of older releases. */
  trust: Generated<SenderTrust | null>;
}
/** One row per prompt; `consumed_at` is set when the model's input that holds it is on disk, so a crash neither repeats nor forgets it. */
export interface PendingInputsTable {
  id: Generated<number>;
  run_id: RunId;
  session_id: SessionId;
  /** Event id of the prompt, or `http:<token id>`. */
  prompt_id: string;
  principal_id: PrincipalId;
  tier: Tier;
  text: string;
  received_at: number;
  consumed_at: number | null;
  /** 1: it came while the run worked. When the run ends without having taken it, a run of its own answers it (G2). */
  steers: Generated<number>;
}
/** Runs one of whose prompts was taken back: what they hold of it is erased when they are over (DESIGN §7). */
export interface ErasuresTable {
  run_id: RunId;
  asked_at: number;
}
export interface FramesTable {
  run_id: RunId;
  /** Contiguous from 1 (G7). */
  seq: number;
  kind: FrameKind;
  data: string;
  at: number;
}
export interface ToolMarksTable {
  run_id: RunId;
  tool_call_id: string;
  tool: string;
  /** base64url SHA-256 of the canonical arguments. */
  args_hash: string;
  state: 'started' | 'finished';
  result: string | null;
  at: number;
}
export interface OutboxTable {
  txn_id: OutboxTxnId;
  /** Rows of one lane go out one after the other; lanes are independent (G4: a poisoned row never blocks others). */
  lane: string;
  seq: Generated<number>;
  room_id: RoomId;
  sender: UserId;
  device_id: DeviceId;
  kind: 'answer' | 'notice' | 'mirror' | 'session' | 'tool';
  run_id: RunId | null;
  /** Part of the answer, 1…n; null for anything else. */
  part: number | null;
  event_type: string;
  state_key: string | null;
  /** Event content; frozen once attempted. */
  content: string;
  /** This row edits the event sent for that txn id: the sender puts `m.relates_to` in when the id is known. */
  edits_txn: OutboxTxnId | null;
  state: Generated<'ready' | 'sent' | 'parked' | 'dropped'>;
  event_id: EventId | null;
  attempts: Generated<number>;
  not_before: Generated<number>;
  deadline_at: number;
  created_at: number;
  sent_at: number | null;
  /** Why it was parked or dropped: errcode and status, never content. */
  error: string | null;
  /** Of the thread it stands in, to find an event that names it; null outside threads and in rows of older releases. */
  thread_root: Generated<EventId | null>;
  /** Content of the `m.room.encrypted` event that it became, once it was encrypted: a retry sends the same bytes and advances no ratchet (G4). */
  sealed: Generated<string | null>;
}
/** Rooms that were encrypted when last seen: once is for ever, whatever a homeserver says later (G11). */
export interface EncryptedRoomsTable {
  room_id: RoomId;
  seen_at: number;
}
/** Which event a ciphertext came in first: the same ciphertext under another event id is a replay. Kept for good. */
export interface DecryptedTable {
  megolm_session: MegolmSessionId;
  message_index: number;
  event_id: EventId;
  at: number;
}
/** The conversation: what the model may be shown, what a redaction blanks, what GET /messages reads (DESIGN §4 "Agent library"). */
export interface TranscriptTable {
  id: Generated<number>;
  room_id: RoomId;
  /** Null: said in a group outside any session; context only. */
  session_id: SessionId | null;
  run_id: RunId | null;
  event_id: string | null;
  role: 'human' | 'ai' | 'tool';
  /** Principal id, or `oracle`. */
  speaker: string;
  text: string;
  /** Stored LangChain message (tool calls, tool results) as JSON `{v:1, …}`; null when the text says it all. */
  message: string | null;
  attachments: string | null;
  redacted: Generated<number>;
  at: number;
  /** Tier under which it was said or answered; null for what was overheard. */
  tier: Tier | null;
  /** 1: an answer or a tool result of a tainted run; its taint goes on to whoever reads it. */
  tainted: Generated<number>;
}
export interface ReplayMarksTable {
  token_id: TokenId;
  /** The prompt this token was spent on. */
  prompt_id: string;
  run_id: RunId | null;
  body_hash: string | null;
  keep_until: number;
}
export interface RateCountsTable {
  key: string;
  at: number;
}
/** DID↔MXID links proven from Matrix, with the direct room (DESIGN §5 "Over HTTP"). */
export interface LinksTable {
  did: PrincipalId;
  matrix_user_id: UserId;
  room_id: RoomId | null;
  proven_at: number;
}
export interface AuditTable {
  id: Generated<number>;
  at: number;
  event_id: string | null;
  run_id: RunId | null;
  token_id: TokenId | null;
  principal_id: string | null;
  matrix_user_id: string | null;
  tier: string | null;
  capability: string | null;
  resource: string | null;
  decision: 'allowed' | 'refused';
  code: string | null;
  /** 1: the run was tainted when this was decided; null where it has no meaning. */
  tainted: number | null;
  /** Of a message from Matrix: how its device was trusted. */
  trust: Generated<SenderTrust | null>;
}
/** A verified UCAN delegation of a person: to the oracle (`acting`) or to a key of a client (`session`). Kept until it ends. */
export interface GrantsTable {
  token_id: TokenId;
  /** Hex of the CID bytes, recomputed from the block. */
  cid: string;
  kind: 'acting' | 'session';
  /** Root issuer: whose rights are granted. */
  did: Did;
  audience: Did;
  /** JSON array of `{can, with, nb?}`. */
  capabilities: string;
  /** Its chain, this token first, as JSON array of `{tokenId, cid, issuer, audience, expiresAt}`. */
  path: string;
  /** Canonical CAR with its proofs, unpadded base64url. Never logged (G12). */
  car: string;
  /** The earliest end of its chain. */
  expires_at: number;
  source: GrantSource;
  stored_at: number;
  /** Set when it was made on the authorise page for this account (`nb.link`): pending until `activated_at`, then the account is sender-bound. */
  matrix_user_id: UserId | null;
  /** When the oracle told this account whose grant it is. */
  shown_at: number | null;
  activated_at: number | null;
  revoked_at: number | null;
}
/** `id` is a token id, or a CID as hex; counts when `did` issued that token or one above it. Kept for good: the token may come again. */
export interface RevocationsTable {
  id: string;
  did: Did;
  at: number;
}
/** Nonces of links to the authorise page, as SHA-256: 128 bits that went to one account in its direct room. */
export interface AuthoriseLinksTable {
  nonce_hash: string;
  matrix_user_id: UserId;
  room_id: RoomId;
  created_at: number;
  used_at: number | null;
}
/** With ACCESS=granted: who may use the oracle (`matrix-oracle grant-use`). */
export interface UseGrantsTable {
  did: Did;
  granted_at: number;
}
/** When a notice of a kind was last said to somebody, so that it is not said again too soon. */
export interface NoticeStampsTable {
  key: string;
  at: number;
}
/** What a plugin keeps for one person; found by key or by words. */
export interface PluginStorageTable {
  id: Generated<number>;
  plugin: string;
  principal_id: PrincipalId;
  key: string;
  /** Text, or JSON. */
  value: string;
  /** 1: written by a run that had read text of strangers; whoever reads it is tainted. */
  tainted: Generated<number>;
  updated_at: number;
}
/** Values that the model must not see, handed on between tools by id. */
export interface BlobsTable {
  blob_id: string;
  principal_id: PrincipalId;
  plugin: string;
  /** Encrypted with a key that is not in the database. */
  sealed: Uint8Array;
  expires_at: number;
}
/** In whole credits; what is held is taken off the balance. */
export interface CreditAccountsTable {
  principal_id: PrincipalId;
  balance: number;
}
/** What is set aside for a run that has not ended. Gone with its end. */
export interface CreditHoldsTable {
  run_id: RunId;
  principal_id: PrincipalId;
  amount: number;
  /** Of the amount, what its model calls have cost so far. */
  spent: Generated<number>;
  created_at: number;
}
export interface CreditEntriesTable {
  id: Generated<number>;
  principal_id: PrincipalId;
  run_id: RunId | null;
  kind: 'grant' | 'settle';
  /** Given or taken; negative for what a run spent. */
  amount: number;
  balance_after: number;
  reason: string | null;
  at: number;
}
export interface StateTable {
  scope: string;
  scope_id: string;
  key: string;
  value: string;
  updated_at: number;
}
/** Orders from the CLI to the running process; there is no admin over HTTP. */
export interface ControlTable {
  id: Generated<number>;
  kind: string;
  argument: string;
  created_at: number;
  done_at: number | null;
  outcome: string | null;
}
/** Small facts of the installation: fence, sync token, device. */
export interface MetaTable {
  key: string;
  value: string;
}

export interface Schema {
  grants: GrantsTable;
  revocations: RevocationsTable;
  authorise_links: AuthoriseLinksTable;
  use_grants: UseGrantsTable;
  inbox: InboxTable;
  encrypted_rooms: EncryptedRoomsTable;
  decrypted: DecryptedTable;
  seen: SeenTable;
  gaps: GapsTable;
  rooms: RoomsTable;
  sessions: SessionsTable;
  runs: RunsTable;
  pending_inputs: PendingInputsTable;
  erasures: ErasuresTable;
  frames: FramesTable;
  tool_marks: ToolMarksTable;
  outbox: OutboxTable;
  transcript: TranscriptTable;
  replay_marks: ReplayMarksTable;
  rate_counts: RateCountsTable;
  links: LinksTable;
  audit: AuditTable;
  notice_stamps: NoticeStampsTable;
  state: StateTable;
  plugin_storage: PluginStorageTable;
  blobs: BlobsTable;
  credit_accounts: CreditAccountsTable;
  credit_holds: CreditHoldsTable;
  credit_entries: CreditEntriesTable;
  control: ControlTable;
  meta: MetaTable;
}
