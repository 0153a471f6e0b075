/**
 * Puts the groups of a turn's context together. It is built per plugin and tool call, because the call decides what may be written and when it is
 * over; everything in it comes from the run row and from ports, nothing from what the model said, and nothing is global: what two runs share
 * (storage, blobs, secrets, models) is asked with this run's principal, room and plugin, which the host fills in (G13).
 */
import type { BaseMessage } from '@langchain/core/messages';
import type { Blobs } from '../blob-store/blobs.ts';
import { NotAvailableError, OracleError, refusal } from '../errors.ts';
import type { CallUsage, Models } from '../models/models.ts';
import type { Logger } from '../observe/logger.ts';
import type { ToolCapability } from '../plugin-api/define-tool.ts';
import type { PluginHost } from '../plugin-host/plugin-host.ts';
import { createPluginLogger } from '../plugin-host/plugin-logger.ts';
import type { PluginStore } from '../plugin-storage/plugin-store.ts';
import type { FrameData, Run } from '../runs/run.ts';
import type { RunOutput } from '../runs/runner.ts';
import { createRedactor, type SecretRedactor } from '../secrets/redactor.ts';
import type { Secrets } from '../secrets/secrets.ts';
import type { TranscriptSearch } from '../sessions/search-transcript.ts';
import type { Downstream } from '../ucan/downstream.ts';
import type { StoredGrant } from '../ucan/grants.ts';
import { buildBlobStoreGroup } from './blob-store-group.ts';
import { buildEmitGroup } from './emit-group.ts';
import { buildFilesGroup } from './files-group.ts';
import { guardContext } from './guard-context.ts';
import { buildHistoryGroup } from './history-group.ts';
import { buildLlmGroup } from './llm-group.ts';
import type { MatrixAccess } from './matrix-access.ts';
import { buildMatrixGroup, buildPost } from './matrix-group.ts';
import { MISSING_BLOBS, MISSING_SECRETS, MISSING_SHARED, MISSING_STORAGE } from './missing-groups.ts';
import type { MergedConfig, RuntimeContext, UserContextData } from './runtime-context.ts';
import { buildSecretsGroup } from './secrets-group.ts';
import { buildSharedGroup } from './shared-group.ts';
import { buildStateGroup, type PluginStatePort } from './state-group.ts';
import { buildPluginStorage } from './storage-group.ts';
import { buildUcanGroup } from './ucan-group.ts';
import { buildSessionGroup, buildUserGroup } from './user-group.ts';

/** What every context is built over; made once, at the start. */
export interface ContextServices {
  readonly host: Pick<PluginHost, 'names' | 'plugins' | 'shared' | 'configOf'>;
  readonly storage: PluginStore;
  readonly blobs: Blobs;
  readonly secrets: Secrets;
  readonly search: TranscriptSearch;
}

export interface RuntimeContextSources {
  readonly run: Run;
  readonly now: () => number;
  readonly services?: ContextServices;
  readonly models: Pick<Models, 'get'>;
  readonly matrix: MatrixAccess;
  /** Without `services`. */
  readonly config?: MergedConfig;
  /** Without `services`. */
  readonly plugins?: ReadonlySet<string>;
  /** Loaded in this thread by now, those that always are included; asked at each look. Left out: all. */
  readonly loadedPlugins?: () => ReadonlySet<string>;
  readonly logger: Logger;
  readonly readMessages: () => readonly BaseMessage[];
  /** What plugins know of the person (`getUserContext`), gathered once per turn. */
  readonly readUserContext?: () => UserContextData;
  /** A plugin's place in the graph's state. */
  readonly stateOf?: (plugin: string) => PluginStatePort;
  readonly sendToolCall: (data: FrameData['tool_call']) => void;
  readonly emit: RunOutput['emit'];
  readonly signal: AbortSignal;
  /** Acting grants of the run's principal that count now; asked at each use. */
  readonly actingGrants: () => readonly StoredGrant[];
  readonly downstream: Downstream;
  /** Whether the model has read text that its principal did not write. */
  readonly isTainted: () => boolean;
  /** Hears that the plugin was given text of strangers: what it returns is then as untrusted as a web page. */
  readonly readsForeign?: () => void;
  /** One for the whole run (`createRedactor(services.secrets.known(run.roomId))`), so that what one tool was given is masked in what another says. */
  readonly redactor?: SecretRedactor;
  /** Throws when the run has lost its authority (G8) or has nothing left to spend; asked before each call of a model by a plugin. */
  readonly requireAuthority?: () => void | Promise<void>;
  /** A plugin has asked a model: to be counted and charged. Its answer ends when this is done. */
  readonly onUsage?: (usage: CallUsage) => void | Promise<void>;
  /** True from the moment the turn, or the tool call, is over. */
  readonly isOver: () => boolean;
  readonly plugin: string;
  readonly call?: {
    readonly id: string;
    readonly tool: string;
    readonly mayWriteExternally: boolean;
    readonly capability?: ToolCapability | undefined;
    /** What it reads was written by strangers: so is what it keeps. */
    readonly untrusted?: boolean | undefined;
  };
}

/** A shared accessor may read another one; two that read each other must come to an end. */
const MAX_SHARED_DEPTH = 4;

export const buildRuntimeContext = (sources: RuntimeContextSources): RuntimeContext => build(withDoubt(sources), 0);

interface Doubted extends RuntimeContextSources {
  readonly readsForeign: () => void;
  /** What the plugin keeps now may be words of strangers: the run is tainted, or it was given some in this very call. */
  readonly keepsForeign: () => boolean;
  /** Of the context in which a neighbour is read: what that one may still emit and ask is all there is. */
  readonly counted?: Pick<RuntimeContext, 'emit' | 'llm'>;
}

/** The run's taint is about what its model was shown; what a handler was given and keeps at once has not been shown to any. */
function withDoubt({ readsForeign = NOTHING, ...sources }: RuntimeContextSources): Doubted {
  let wasGiven = sources.call?.untrusted === true;
  return {
    ...sources,
    keepsForeign: () => wasGiven || sources.isTainted(),
    readsForeign() {
      wasGiven = true;
      readsForeign();
    },
  };
}

function build(sources: Doubted, depth: number): RuntimeContext {
  const { run, call, signal, services, plugin, isTainted, readsForeign, keepsForeign } = sources;
  const { redactor = createRedactor(), readUserContext = () => NO_USER_CONTEXT } = sources;
  const available = services?.host.names ?? sources.plugins ?? NO_PLUGINS;
  const loadedPlugins = sources.loadedPlugins ?? (() => available);
  const requireLive = (): void => {
    if (sources.isOver()) throw new OracleError(refusal('STALE_CONTEXT'));
  };
  const post = buildPost({ run, access: sources.matrix, signal, ...(call === undefined ? {} : { call }) });
  const context: RuntimeContext = {
    user: buildUserGroup(sources),
    session: buildSessionGroup(run),
    history: buildHistoryGroup({
      run,
      readMessages: sources.readMessages,
      loadedPlugins,
      readUserContext,
      search: services?.search ?? NO_SEARCH,
      readsForeign,
    }),
    config: Object.freeze({ ...(services?.host.configOf(plugin) ?? sources.config) }),
    availablePlugins: new Set(available),
    get loadedPlugins() {
      return new Set(loadedPlugins());
    },
    storage:
      services === undefined
        ? MISSING_STORAGE
        : buildPluginStorage({
            store: services.storage,
            owner: { plugin, principal: run.principalId },
            isTainted: keepsForeign,
            readsForeign,
            redactor,
          }),
    state: buildStateGroup({
      port: sources.stateOf?.(plugin) ?? NO_STATE,
      schema: services?.host.plugins.find(({ name }) => name === plugin)?.plugin.stateSchema,
      isTainted: keepsForeign,
      readsForeign,
      redactor,
    }),
    secrets: services === undefined ? MISSING_SECRETS : buildSecretsGroup({ run, secrets: services.secrets, redactor }),
    blobStore:
      services === undefined
        ? MISSING_BLOBS
        : buildBlobStoreGroup({ blobs: services.blobs, principal: run.principalId, plugin, isTainted: keepsForeign, readsForeign }),
    matrix: buildMatrixGroup({ run, access: sources.matrix, post, isTainted, readsForeign, redactor }),
    files: buildFilesGroup({ run, access: guardFiles(sources.matrix, { readsForeign, redactor }), post, signal }),
    ucan: buildUcanGroup({
      did: run.principalId,
      tier: run.tier,
      actingGrants: sources.actingGrants,
      downstream: sources.downstream,
      isTainted,
      declared: call?.capability,
    }),
    llm:
      sources.counted?.llm ??
      buildLlmGroup({
        models: sources.models,
        redactor,
        signal,
        requireAuthority: () => {
          requireLive();
          return sources.requireAuthority?.();
        },
        onUsage: sources.onUsage ?? NOTHING,
      }),
    emit:
      sources.counted?.emit ??
      buildEmitGroup({
        sendToolCall: sources.sendToolCall,
        emit: sources.emit,
        redactor,
        ...(call === undefined ? {} : { callId: call.id }),
      }),
    logger: createPluginLogger(sources.logger.child({ plugin, ...(call === undefined ? {} : { tool: call.tool }) }), redactor.clean),
    abortSignal: signal,
    shared:
      services === undefined
        ? MISSING_SHARED
        : buildSharedGroup({
            readers: depth < MAX_SHARED_DEPTH ? services.host.shared : NO_READERS,
            readState: () => context.history.state,
            // Of no tool call: reading a neighbour's state is no reason for that neighbour to act.
            contextOf: (owner) => build({ ...withoutCall(sources, owner), counted: context }, depth + 1),
            logger: sources.logger,
            requireLive,
          }),
    ...(call === undefined ? {} : { toolCallId: call.id }),
  };
  return guardContext(context, sources.isOver);
}

const NOTHING = (): void => undefined;
const NO_USER_CONTEXT: UserContextData = Object.freeze({});
const NO_PLUGINS: ReadonlySet<string> = new Set();
const NO_READERS: PluginHost['shared'] = new Map();
const NO_SEARCH: TranscriptSearch = {
  find: () => {
    throw new NotAvailableError('history.search');
  },
};
const NO_STATE: PluginStatePort = {
  get: () => undefined,
  update: () => {
    throw new NotAvailableError('state.update');
  },
};

/** A file was written by whoever shared it; and one that is sent is read by everybody in the room. */
const guardFiles = (
  matrix: MatrixAccess,
  { readsForeign, redactor }: { readsForeign: () => void; redactor: Pick<SecretRedactor, 'holds'> },
): MatrixAccess => ({
  ...matrix,
  readFile(room, event, signal) {
    readsForeign();
    return matrix.readFile(room, event, signal);
  },
  async uploadFile(place, file, signal) {
    if (redactor.holds(Buffer.from(file.bytes).toString('utf8')))
      throw new OracleError(refusal('BAD_REQUEST', { message: 'This file holds a secret.' }));
    return matrix.uploadFile(place, file, signal);
  },
});

function withoutCall({ call: _, ...sources }: Doubted, plugin: string): Doubted {
  return { ...sources, plugin };
}
