/**
 * What tests of plugins import: contexts with the real rules of the host, over a Matrix room and models that only do what the test says. Importing it
 * loads neither the agent library nor a database, so a plugin's tests start at once.
 */
import type { BaseMessage } from '@langchain/core/messages';
import type { z } from 'zod';
import { NotAvailableError, OracleError, refusal } from './errors.ts';
import { type EventId, type PrincipalId, type RoomId, type RunId, type SessionId, type UserId, unsignedPrincipalId } from './ids.ts';
import type { JsonObject } from './json.ts';
import type { Models } from './models/models.ts';
import type { LogFields, Logger } from './observe/logger.ts';
import type { AnyOraclePlugin, PluginEnvironment } from './plugin-api/define-oracle-plugin.ts';
import type { ToolDefinition } from './plugin-api/define-tool.ts';
import type { Run } from './runs/run.ts';
import { buildRuntimeContext } from './runtime-context/build-runtime-context.ts';
import type { MatrixAccess, SharedFile } from './runtime-context/matrix-access.ts';
import type { RuntimeContext, UserContextData } from './runtime-context/runtime-context.ts';
import { mergePluginState, type PluginStatePort, type StoredPluginState } from './runtime-context/state-group.ts';
import { createRedactor } from './secrets/redactor.ts';
import { createTestAuthority, TEST_USER } from './testing-authority.ts';
import type { TestWorld } from './testing-world.ts';
import { NO_GRANTS } from './turn/principal.ts';

/** What a model answers next: text, or calls of tools. */
export type TestReply =
  | string
  | { readonly text?: string; readonly toolCalls?: readonly { readonly name: string; readonly args: Readonly<Record<string, unknown>> }[] };
/** What a model was asked. */
export interface TestPrompt {
  readonly role: string;
  readonly messages: readonly { readonly role: string; readonly text: string }[];
}
export interface TestRuntimeOptions {
  /** Wall clock ms at the start; `advance` moves it. */
  readonly now: number;
  /** The plugin under test: its name, configuration and state are those of every context. */
  readonly plugin?: AnyOraclePlugin;
  /** Plugins beside it, whose shared state it may read. */
  readonly neighbours?: readonly AnyOraclePlugin[];
  /** What the plugins' `configSchema`s read. */
  readonly env?: PluginEnvironment;
  readonly timezone?: string;
  readonly tier?: 'signed' | 'sender-bound' | 'listed';
  readonly direct?: boolean;
  /** Whether the user's own power level allows what a tool sends. */
  readonly mayUserSend?: boolean;
  /** Rooms besides the conversation's own that both the user and the oracle have joined. */
  readonly rooms?: readonly string[];
  /** What the user has granted the oracle; counts for tier `signed` only. */
  readonly granted?: readonly { readonly can: string; readonly with: string }[];
  /** Whether the oracle has a signing key. */
  readonly canSign?: boolean;
  /** Whether the model has read text that the user did not write. */
  readonly tainted?: boolean;
  /** Files of the room, by the id of the event that shows them. */
  readonly files?: Readonly<Record<string, SharedFile>>;
  /** Secrets that the user has put into the room. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** The conversation so far, oldest first. */
  readonly history?: readonly { readonly role: 'human' | 'ai'; readonly text: string }[];
  readonly userContext?: UserContextData;
  /** What models of any role answer, in order. */
  readonly replies?: readonly TestReply[];
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
  /** Frames of `emit`, in order. */
  readonly emitted: readonly { readonly kind: string; readonly data: unknown }[];
  /** Lines of `logger`, in order, with the facts that a log takes. */
  readonly logged: readonly { readonly level: string; readonly message: string; readonly facts: LogFields }[];
  /** What models were asked, in order, with secrets masked. */
  readonly prompts: readonly TestPrompt[];
  /** Checks the arguments with the tool's schema and calls its handler with a context of its own, as the host does; secrets in the result are masked. */
  call<Schema extends z.ZodObject>(
    // biome-ignore lint/suspicious/noExplicitAny: the runtime gives it the configuration and state of its own plugin
    tool: ToolDefinition<Schema, any, any>,
    args: z.input<Schema>,
    options?: { readonly signal?: AbortSignal },
  ): Promise<unknown>;
  /** A context outside any tool call, for the other hooks of a plugin; over when `use` is. */
  // biome-ignore lint/suspicious/noExplicitAny: likewise
  with<T>(use: (ctx: RuntimeContext<any, any>) => T | Promise<T>): Promise<T>;
  /** The context of the last call; over by then. */
  readonly lastContext: RuntimeContext | undefined;
  /** Whether the last call was given text of strangers by the host: then its result taints the run. */
  readonly lastReadForeign: boolean;
  advance(ms: number): void;
  /** The same world with somebody else in a direct room of their own: nothing of the first one may be seen there. */
  as(name: string): TestRuntime;
}

interface Person {
  readonly run: Run;
  readonly state: Map<string, PluginStatePort>;
}

const noModels: Pick<Models, 'get'> = {
  get: () => {
    throw new NotAvailableError('llm.get in a test runtime without `replies`');
  },
};

export function createTestRuntime(options: TestRuntimeOptions): TestRuntime {
  let { now } = options;
  const { tier = 'signed', tainted = false, mayUserSend = true, rooms = [], canSign = true, plugin, neighbours = [] } = options;
  const authority = createTestAuthority({ granted: tier === 'signed' ? (options.granted ?? []) : [], canSign, now: () => now });
  const sent: SentEvent[] = [];
  const sentFiles: SharedFile[] = [];
  const emitted: { kind: string; data: unknown }[] = [];
  const logged: { level: string; message: string; facts: LogFields }[] = [];
  const prompts: TestPrompt[] = [];
  const logger = recordingLogger(logged);
  const redactor = createRedactor();
  const user = buildRun(options, { principal: null, user: USER, room: ROOM });
  let calls = 0;
  let lastContext: RuntimeContext | undefined;
  let lastReadForeign = false;

  const openWorld = once(async (): Promise<TestWorld> => {
    const { openTestWorld } = await import('./testing-world.ts');
    return openTestWorld({
      now: () => now,
      logger,
      plugins: plugin === undefined ? neighbours : [plugin, ...neighbours],
      env: options.env ?? {},
      secrets: options.secrets ?? {},
      history: options.history ?? [],
      owner: { principal: user.principalId, user: USER, room: ROOM, direct: user.direct },
    });
  });
  const openModels = once(async (): Promise<Pick<Models, 'get'>> => {
    if (options.replies === undefined) return noModels;
    const { createScriptedModels } = await import('./testing-model.ts');
    return createScriptedModels({ replies: options.replies, onPrompt: (prompt) => prompts.push(prompt) });
  });
  const openMessages = once(() => buildMessages(options.history ?? []));
  const matrixOf = ({ roomState }: TestWorld): MatrixAccess => ({
    send: async ({ roomId, txnId, eventType, stateKey, content }) => {
      sent.push({ roomId, txnId, type: eventType, content, ...(stateKey === undefined ? {} : { stateKey }) });
      return `$sent${sent.length}` as EventId;
    },
    roomState,
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
    areJoined: async (_user, room) => rooms.includes(room),
  });

  async function use<T>(
    { run, state }: Person,
    asked: {
      readonly tool?: ToolDefinition;
      readonly signal?: AbortSignal | undefined;
      readonly handle: (ctx: RuntimeContext) => T | Promise<T>;
    },
  ): Promise<T> {
    const opened = await openWorld();
    const answering = await openModels();
    const said = run === user ? await openMessages() : [];
    const { tool } = asked;
    let over = false;
    lastReadForeign = false;
    const stateOf = (name: string): PluginStatePort => {
      const port = state.get(name) ?? memoryState();
      state.set(name, port);
      return port;
    };
    lastContext = buildRuntimeContext({
      run,
      now: () => now,
      services: opened.services,
      models: answering,
      matrix: matrixOf(opened),
      logger,
      readMessages: () => said,
      readUserContext: () => options.userContext ?? {},
      stateOf,
      sendToolCall: (data) => emitted.push({ kind: 'tool_call', data }),
      emit: (kind, data) => emitted.push({ kind, data }),
      actingGrants: () => (run === user ? authority.grants : []),
      downstream: authority.downstream,
      isTainted: () => tainted,
      readsForeign: () => {
        lastReadForeign = true;
      },
      redactor,
      signal: asked.signal ?? new AbortController().signal,
      isOver: () => over,
      plugin: plugin?.name ?? 'test',
      ...(tool === undefined
        ? {}
        : {
            call: {
              id: `call${calls}`,
              tool: tool.name,
              mayWriteExternally: tool.effect === 'write' && tool.reach === 'external',
              capability: tool.capability,
              untrusted: tool.untrusted,
            },
          }),
    });
    try {
      return await asked.handle(lastContext);
    } finally {
      over = true;
    }
  }

  const runtimeOf = (person: Person): TestRuntime => ({
    ...{ sent, sentFiles, emitted, logged, prompts },
    get lastContext() {
      return lastContext;
    },
    get lastReadForeign() {
      return lastReadForeign;
    },
    async call(tool, args, { signal } = {}) {
      const parsed = tool.schema.parse(args);
      calls += 1;
      const definition = tool as unknown as ToolDefinition;
      return redactor.cleanJson(await use(person, { tool: definition, signal, handle: (ctx) => tool.handler(parsed, ctx) }));
    },
    with: (handle) => use(person, { handle }),
    advance(ms) {
      now += ms;
    },
    as(name) {
      const somebody = {
        principal: `did:example:${name}` as PrincipalId,
        user: `@${name}:example.org` as UserId,
        room: `!${name}:example.org` as RoomId,
      };
      return runtimeOf({ run: buildRun(options, somebody), state: new Map() });
    },
  });
  return runtimeOf({ run: user, state: new Map() });
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

const ROOM = '!room:example.org' as RoomId;
const USER = '@user:example.org' as UserId;

/** @param person a null principal is the user of the options, whose tier says how they are known. */
function buildRun(
  { now, timezone, tier = 'signed', direct = true, tainted = false }: TestRuntimeOptions,
  person: { readonly principal: PrincipalId | null; readonly user: UserId; readonly room: RoomId },
): Run {
  const did = tier === 'listed' ? null : person.principal === null ? TEST_USER : null;
  const principalId = person.principal ?? did ?? unsignedPrincipalId(person.user);
  return {
    id: '01J00000000000000000000000' as RunId,
    sessionId: '$session' as SessionId,
    roomId: person.room,
    threadRoot: null,
    owner: principalId,
    principalId,
    did,
    matrixUserId: person.user,
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
}

function recordingLogger(lines: { level: string; message: string; facts: LogFields }[]): Logger {
  const line =
    (level: string) =>
    (facts: LogFields, message: string): void => {
      lines.push({ level, message, facts });
    };
  const logger: Logger = { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error'), child: () => logger };
  return logger;
}

/** Messages are the agent library's: it is loaded only for a test that has some. */
async function buildMessages(
  history: readonly { readonly role: 'human' | 'ai'; readonly text: string }[],
): Promise<readonly BaseMessage[]> {
  if (history.length === 0) return [];
  const { AIMessage, HumanMessage } = await import('@langchain/core/messages');
  return history.map(({ role, text }) => (role === 'human' ? new HumanMessage(text) : new AIMessage(text)));
}

function memoryState(): PluginStatePort {
  let stored: StoredPluginState | undefined;
  return {
    get: () => stored,
    update(patch) {
      stored = mergePluginState(stored, patch);
    },
  };
}
