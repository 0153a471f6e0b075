/**
 * The HTTP interface as zod schemas: what is refused, what types the handlers see and what /docs/json says come from this one place.
 * Requests are strict: an unknown field is refused with its name, so that a client learns that it is not heard.
 */
import { z } from 'zod';
import { LIMITS } from '../../limits.ts';

const sessionId = z.string().min(2).max(255).describe('Root event id of the conversation; also the thread in the room.');
const runId = z.string().describe('Id of the run that answers; read it again with GET /runs/{runId}.');

export const problem = z
  .object({
    statusCode: z.number().int(),
    code: z.string().describe('One of docs/errors.md.'),
    message: z.string(),
    requestId: z.string(),
    details: z.record(z.string(), z.unknown()).optional(),
  })
  .describe('Any refusal or failure.');
/** Reply schemas of every route: the same error shape under each status class. */
export const problems = { '4xx': problem, '5xx': problem };

const part = z.object({ name: z.string(), ok: z.boolean(), detail: z.string().optional() });
export const about = z.object({ status: z.literal('ok'), message: z.string(), timestamp: z.string() });
export const health = z.object({
  status: z.enum(['ok', 'degraded']),
  timestamp: z.string(),
  live: z.boolean(),
  ready: z.boolean(),
  parts: z.array(part),
});
export const models = z.object({ models: z.array(z.object({ id: z.string() })), default: z.string() });

export const session = z.object({
  sessionId,
  title: z.string().optional(),
  lastUpdatedAt: z.string(),
  createdAt: z.string(),
  oracleName: z.string(),
  oracleDid: z.string(),
  oracleEntityDid: z.string(),
  roomId: z.string(),
});
export type SessionReply = z.infer<typeof session>;
export const newSession = z.strictObject({}).nullish();
export const sessionsQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(LIMITS.sessionsPage).default(20),
  offset: z.coerce.number().int().min(0).max(1_000_000).default(0),
});
export const sessionsPage = z.object({ sessions: z.array(session), total: z.number().int() });
export const sessionParams = z.strictObject({ sessionId });
export const sessionDeleted = z.object({ message: z.string() });

/** Fields of this family whose part is not built yet: refused by name when they ask for something, never taken and dropped. */
const notYet = z.array(z.unknown()).max(200).optional().describe('Not available yet: anything but an empty list is answered with 501.');
const short = z.string().max(255).optional();
export const newMessage = z.strictObject({
  message: z
    .string()
    .max(LIMITS.httpMessageChars)
    .refine((text) => text.trim() !== '', 'is empty')
    .refine((text) => text.isWellFormed() && !text.includes('\0'), 'has a character that no message can carry'),
  stream: z.boolean().default(false).describe('true: the answer as server-sent events.'),
  returnAllMessages: z.boolean().default(false),
  model: z.string().max(200).optional().describe('One of GET /models; any other name means the default.'),
  timezone: z.string().max(64).optional().describe('IANA zone; else the header x-timezone.'),
  multitask: z
    .enum(['enqueue', 'interrupt'])
    .default('enqueue')
    .describe('What happens to an own run that works in this session: this message waits for its end, or stops it and is answered next.'),
  cancelOnDisconnect: z
    .boolean()
    .default(false)
    .describe('true: when the last reader of this run leaves before its end, the run is stopped as by POST /messages/abort.'),
  homeServer: short,
  metadata: z
    .strictObject({ editorRoomId: short, spaceId: short, currentEntityDid: short, sessionRunId: short })
    .optional()
    .describe("Taken for compatibility; reaches no model until the user's context does."),
  tools: notYet,
  agActions: notYet,
  attachments: notYet,
  mcpInvocations: z.record(z.string(), z.unknown()).optional().describe('Not available yet: anything but {} is answered with 501.'),
});
export type NewMessage = z.infer<typeof newMessage>;

export const historyMessage = z.object({
  id: z.string(),
  type: z.enum(['ai', 'human']),
  content: z.string(),
  toolCalls: z
    .array(
      z.object({
        id: z.string(),
        name: z.string(),
        args: z.record(z.string(), z.unknown()),
        status: z.enum(['done', 'error']),
        output: z.string().optional(),
      }),
    )
    .optional(),
  isComplete: z.boolean(),
  isReasoning: z.boolean(),
});
export type HistoryMessage = z.infer<typeof historyMessage>;
export const messageReply = z.object({
  message: z.object({ type: z.literal('ai'), content: z.string(), id: z.string() }),
  sessionId,
  runId,
  messages: z.array(historyMessage).optional(),
});
export type MessageReply = z.infer<typeof messageReply>;
export const historyQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(LIMITS.historyPage).default(LIMITS.historyPage),
  before: z.coerce.number().int().min(1).optional().describe('`before` of the page read last: the page that stands in front of it.'),
});
export const history = z.object({ messages: z.array(historyMessage), before: z.number().int().nullable() });

export const abort = z.strictObject({ sessionId });
export const aborted = z.object({ success: z.boolean().describe('false: nothing was running.') });

const capability = z.object({ can: z.string(), with: z.string(), nb: z.record(z.string(), z.unknown()).optional() });
const expiresAt = z.number().int().describe('Milliseconds since the epoch; the earliest end of its chain.');
export const newDelegation = z.strictObject({
  raw: z
    .string()
    .min(1)
    .max(LIMITS.delegationBytes * 2)
    .describe('The delegation as CAR, in base64 or unpadded base64url.'),
  issuer: z.string().max(1_024).optional().describe('Taken for compatibility; what counts stands in `raw`.'),
  audience: z.string().max(1_024).optional(),
  expiration: z.number().optional(),
});
export const delegationStored = z.object({
  ok: z.literal(true),
  expiration: z.number().int().describe('Seconds since the epoch.'),
  token_id: z.string(),
  kind: z.enum(['acting', 'session']),
  expires_at: expiresAt,
  capabilities: z.array(capability),
  pending: z.boolean().describe('true: it counts for the Matrix account once that account has sent `!authorise confirm`.'),
});
export const delegations = z.object({
  authorized: z.boolean().describe('An acting grant counts now.'),
  expiration: z.number().int().optional().describe('Of the newest acting grant, in seconds since the epoch.'),
  capabilities: z.array(capability).optional(),
  grants: z.array(
    z.object({
      token_id: z.string(),
      kind: z.enum(['acting', 'session']),
      audience: z.string(),
      capabilities: z.array(z.object({ can: z.string(), with: z.string() })),
      expires_at: expiresAt,
      source: z.string(),
      revoked: z.boolean(),
      pending: z.boolean(),
    }),
  ),
  matrix_user_id: z.string().describe('The account that Matrix proved for this DID; a change names it as `nb.sender`.'),
  room_id: z.string().nullable().describe('Its direct room, which a change names as `nb.room`; null before there is one.'),
});
export const revocation = z.strictObject({ token_id: z.string().min(1).max(100).optional().describe('Left out: all.') }).nullish();
export const delegationDeleted = z.object({ ok: z.literal(true), revoked: z.array(z.string()) });

export const runParams = z.strictObject({ runId });
export const runQuery = z.strictObject({
  after: z.string().max(20).optional().describe('Id of the last event already seen; the header Last-Event-ID counts more.'),
  ticket: z
    .string()
    .max(64)
    .optional()
    .describe('Of POST /runs/{runId}/ticket; takes the place of the header Authorization, once. Not looked at beside that header.'),
});
const STATUSES = ['queued', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'interrupted', 'expired'] as const;
export const runSummary = z.object({
  runId,
  sessionId,
  status: z.enum(STATUSES),
  attempt: z.number().int(),
  createdAt: z.string(),
  startedAt: z.string().nullable(),
  endedAt: z.string().nullable(),
  usage: z.object({ inputTokens: z.number(), outputTokens: z.number() }).nullable(),
  errorCode: z.string().nullable().describe('One of docs/errors.md.'),
  pruned: z.boolean().describe('true: its events are no longer kept, and GET /runs/{runId} answers 410.'),
});
export type RunReply = z.infer<typeof runSummary>;
export const runsQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(LIMITS.runsPage).default(20),
  status: z.enum(STATUSES).optional(),
  before: z.string().max(26).optional().describe('`before` of the page read last.'),
});
export const runsPage = z.object({
  runs: z.array(runSummary),
  before: z.string().nullable().describe('Where the next, older page begins; with `status` a page may be short or empty and not the last.'),
});
export const newTicket = z.strictObject({}).nullish();
export const ticketIssued = z.object({
  ticket: z.string().describe('For GET /runs/{runId}?ticket=, once. Whoever has it reads this run: keep it out of logs.'),
  expiresInMs: z.number().int(),
});
