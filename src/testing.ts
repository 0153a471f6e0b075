/**
 * What tests of plugins import: a context with the real rules of the host over a Matrix room that only remembers. It loads no agent library,
 * so a plugin's tests start at once.
 */
import type { z } from 'zod';
import { NotAvailableError, OracleError, refusal } from './errors.ts';
import { type EventId, type RoomId, type RunId, type SessionId, type UserId, unsignedPrincipalId } from './ids.ts';
import type { JsonObject } from './json.ts';
import type { Models } from './models/models.ts';
import type { Logger } from './observe/logger.ts';
import type { ToolDefinition } from './plugin-api/define-tool.ts';
import type { Run } from './runs/run.ts';
import { buildRuntimeContext } from './runtime-context/build-runtime-context.ts';
import type { SharedFile } from './runtime-context/matrix-access.ts';
import type { RuntimeContext } from './runtime-context/runtime-context.ts';
import { createTestAuthority, TEST_USER } from './testing-authority.ts';
import { NO_GRANTS } from './turn/principal.ts';

export interface TestRuntimeOptions {
  /** Wall clock ms. */
  readonly now: number;
  readonly timezone?: string;
  readonly tier?: 'signed' | 'sender-bound' | 'listed';
  readonly direct?: boolean;
  /** Whether the user's own power level allows what a tool sends. */
  readonly mayUserSend?: boolean;
  /** What the user has granted the oracle; counts for tier `signed` only. */
  readonly granted?: readonly { readonly can: string; readonly with: string }[];
  /** Whether the oracle has a signing key. */
  readonly canSign?: boolean;
  /** Whether the model has read text that the user did not write. */
  readonly tainted?: boolean;
  /** Files of the room, by the id of the event that shows them. */
  readonly files?: Readonly<Record<string, SharedFile>>;
}
export interface SentEvent {
  readonly roomId: string;
  readonly txnId: string;
  readonly type: string;
  readonly stateKey?: string;
  readonly content: JsonObject;
}
export interface TestRuntime {
  /** Events that tools have sent, in order. */
  readonly sent: readonly SentEvent[];
  /** Files that tools have sent, in order; the message that shows each is in `sent`. */
  readonly sentFiles: readonly SharedFile[];
  /** Checks the arguments with the tool's schema and calls its handler with a context of its own, as the host does. */
  call<Schema extends z.ZodObject>(tool: ToolDefinition<Schema>, args: z.input<Schema>): Promise<unknown>;
  /** The context of the last call; over by then. */
  readonly lastContext: RuntimeContext | undefined;
}

const ROOM = '!room:example.org' as RoomId;
const USER = '@user:example.org' as UserId;
const silent: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silent,
};
const noModels: Models = {
  get: () => {
    throw new NotAvailableError('llm.get in a test runtime');
  },
  nameOf: (role) => role,
  listModels: () => [],
  close: async () => undefined,
};

export function createTestRuntime(options: TestRuntimeOptions): TestRuntime {
  const { now, timezone, tier = 'signed', direct = true, mayUserSend = true, granted = [], canSign = true, tainted = false } = options;
  const authority = createTestAuthority({ granted: tier === 'signed' ? granted : [], canSign, now: () => now });
  const did = tier === 'listed' ? null : TEST_USER;
  const principalId = did ?? unsignedPrincipalId(USER);
  const sent: SentEvent[] = [];
  const sentFiles: SharedFile[] = [];
  let calls = 0;
  let lastContext: RuntimeContext | undefined;
  const run: Run = {
    id: '01J00000000000000000000000' as RunId,
    sessionId: '$session' as SessionId,
    roomId: ROOM,
    threadRoot: null,
    owner: principalId,
    principalId,
    did,
    matrixUserId: USER,
    tier,
    trust: null,
    grants: NO_GRANTS,
    tainted,
    client: 'matrix',
    requestId: 'test',
    hints: timezone === undefined ? {} : { timezone },
    direct,
    replaces: null,
    status: 'running',
    attempt: 1,
    createdAt: now,
    startedAt: now,
    deadlineAt: null,
    fence: 1,
    prompts: [],
  };
  return {
    sent,
    sentFiles,
    get lastContext() {
      return lastContext;
    },
    async call(tool, args) {
      const parsed = tool.schema.parse(args);
      calls += 1;
      let over = false;
      lastContext = buildRuntimeContext({
        run,
        now: () => now,
        models: noModels,
        matrix: {
          send: async ({ roomId, txnId, eventType, stateKey, content }) => {
            sent.push({ roomId, txnId, type: eventType, content, ...(stateKey === undefined ? {} : { stateKey }) });
            return `$sent${sent.length}` as EventId;
          },
          roomState: async () => [],
          event: async () => ({}),
          readFile: async (_room, event) => {
            const file = options.files?.[event];
            if (file === undefined) throw new OracleError(refusal('BAD_REQUEST', { message: 'This message shows no file.' }));
            return file;
          },
          uploadFile: async (_place, file) => {
            sentFiles.push(file);
            return { msgtype: 'm.file', body: file.name, url: `mxc://example.org/file${sentFiles.length}` };
          },
          mayUserSend: async () => mayUserSend,
        },
        config: {},
        plugins: new Set(),
        logger: silent,
        readMessages: () => [],
        sendToolCall: () => undefined,
        emit: () => undefined,
        actingGrants: () => authority.grants,
        downstream: authority.downstream,
        isTainted: () => tainted,
        signal: new AbortController().signal,
        isOver: () => over,
        plugin: 'test',
        call: {
          id: `call${calls}`,
          tool: tool.name,
          mayWriteExternally: tool.effect === 'write' && tool.reach === 'external',
          capability: tool.capability,
        },
      });
      try {
        return await tool.handler(parsed, lastContext);
      } finally {
        over = true;
      }
    },
  };
}
