/**
 * Puts the groups of a turn's context together. It is built per tool call, because the call decides what may be written and when it is over;
 * everything in it comes from the run row and from ports, nothing from what the model said.
 */
import type { BaseMessage } from '@langchain/core/messages';
import type { Models } from '../models/models.ts';
import type { LogFields, Logger } from '../observe/logger.ts';
import type { ToolCapability } from '../plugin-api/define-tool.ts';
import type { FrameData, Run } from '../runs/run.ts';
import type { RunOutput } from '../runs/runner.ts';
import type { Downstream } from '../ucan/downstream.ts';
import type { StoredGrant } from '../ucan/grants.ts';
import { buildEmitGroup } from './emit-group.ts';
import { buildFilesGroup } from './files-group.ts';
import { guardContext } from './guard-context.ts';
import { buildHistoryGroup } from './history-group.ts';
import type { MatrixAccess } from './matrix-access.ts';
import { buildMatrixGroup, buildPost } from './matrix-group.ts';
import { buildBlobStoreGroup, buildSecretsGroup, buildSharedGroup } from './missing-groups.ts';
import type { MergedConfig, PluginLogger, RuntimeContext } from './runtime-context.ts';
import { buildUcanGroup } from './ucan-group.ts';
import { buildSessionGroup, buildUserGroup } from './user-group.ts';

export interface RuntimeContextSources {
  readonly run: Run;
  readonly now: () => number;
  readonly models: Models;
  readonly matrix: MatrixAccess;
  readonly config: MergedConfig;
  readonly plugins: ReadonlySet<string>;
  readonly logger: Logger;
  readonly readMessages: () => readonly BaseMessage[];
  readonly sendToolCall: (data: FrameData['tool_call']) => void;
  readonly emit: RunOutput['emit'];
  readonly signal: AbortSignal;
  /** Acting grants of the run's principal that count now; asked at each use. */
  readonly actingGrants: () => readonly StoredGrant[];
  readonly downstream: Downstream;
  /** Whether the model has read text that its principal did not write. */
  readonly isTainted: () => boolean;
  /** True from the moment the turn, or the tool call, is over. */
  readonly isOver: () => boolean;
  readonly plugin: string;
  readonly call?: {
    readonly id: string;
    readonly tool: string;
    readonly mayWriteExternally: boolean;
    readonly capability?: ToolCapability | undefined;
  };
}

export function buildRuntimeContext(sources: RuntimeContextSources): RuntimeContext {
  const { run, call, signal } = sources;
  const post = buildPost({ run, access: sources.matrix, signal, ...(call === undefined ? {} : { call }) });
  const context: RuntimeContext = {
    user: buildUserGroup(sources),
    session: buildSessionGroup(run),
    history: buildHistoryGroup({ readMessages: sources.readMessages, loadedPlugins: sources.plugins }),
    config: Object.freeze({ ...sources.config }),
    availablePlugins: new Set(sources.plugins),
    // Every plugin is loaded from the start until loading on demand exists.
    loadedPlugins: new Set(sources.plugins),
    secrets: buildSecretsGroup(),
    blobStore: buildBlobStoreGroup(),
    matrix: buildMatrixGroup({ run, access: sources.matrix, post }),
    files: buildFilesGroup({ run, access: sources.matrix, post, signal }),
    ucan: buildUcanGroup({
      did: run.principalId,
      tier: run.tier,
      actingGrants: sources.actingGrants,
      downstream: sources.downstream,
      isTainted: sources.isTainted,
      declared: call?.capability,
    }),
    llm: { get: (role, params) => sources.models.get(role, params) },
    emit: buildEmitGroup(sources),
    logger: buildPluginLogger(sources.logger.child({ plugin: sources.plugin, ...(call === undefined ? {} : { tool: call.tool }) })),
    abortSignal: signal,
    shared: buildSharedGroup(),
    ...(call === undefined ? {} : { toolCallId: call.id }),
  };
  return guardContext(context, sources.isOver);
}

/** A plugin's facts are reduced to fields that log lines may have: it must not be able to write content into a log (G12). */
function buildPluginLogger(logger: Logger): PluginLogger {
  const fields = (facts: Readonly<Record<string, string | number | boolean>> = {}): LogFields => ({
    ...(typeof facts['code'] === 'string' ? { code: facts['code'].slice(0, 64) } : {}),
    ...(typeof facts['reason'] === 'string' ? { reason: facts['reason'].slice(0, 200) } : {}),
    ...(typeof facts['status'] === 'number' ? { status: facts['status'] } : {}),
    ...(typeof facts['count'] === 'number' ? { count: facts['count'] } : {}),
    ...(typeof facts['duration_ms'] === 'number' ? { duration_ms: facts['duration_ms'] } : {}),
  });
  return {
    debug: (message, facts) => logger.debug(fields(facts), message.slice(0, 200)),
    info: (message, facts) => logger.info(fields(facts), message.slice(0, 200)),
    warn: (message, facts) => logger.warn(fields(facts), message.slice(0, 200)),
    error: (message, facts) => logger.error(fields(facts), message.slice(0, 200)),
  };
}
