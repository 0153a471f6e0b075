/**
 * The one place where a plugin's context is made: for a tool call, and for the hooks that are asked around model calls. What it reads belongs to the
 * turn and to this plugin; what strangers wrote, or what a tainted run left behind, taints when it is read.
 */
import type { BaseMessage } from '@langchain/core/messages';
import { OracleError, refusal } from '../errors.ts';
import type { ToolDefinition } from '../plugin-api/define-tool.ts';
import { buildRuntimeContext } from '../runtime-context/build-runtime-context.ts';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';
import { type Loop, rootOf } from './loop.ts';
import { charge, requireModel, type Turn, taintTurn } from './turn.ts';

export interface ContextAsked {
  readonly plugin: string;
  /** The loop in which it is asked; absent before there is one. */
  readonly loop?: Loop;
  /** Before there is one: what it will begin with. */
  readonly shown?: readonly BaseMessage[];
  /** The call it is made for; absent for hooks. */
  readonly call?: { readonly id: string; readonly key: string; readonly name: string };
  readonly tool?: Pick<ToolDefinition, 'effect' | 'reach' | 'capability' | 'untrusted'>;
  readonly signal?: AbortSignal;
  readonly isOver?: () => boolean;
  /** Hears that the plugin was given text of strangers by the host. Default: the turn is tainted. */
  readonly readsForeign?: () => void;
}

export function buildContext(turn: Turn, asked: ContextAsked): RuntimeContext {
  const { run, parts, job } = turn;
  const { options, clock } = parts;
  const { plugin, loop, call, tool } = asked;
  const readsForeign = asked.readsForeign ?? (() => taintTurn(turn));
  return buildRuntimeContext({
    run,
    now: () => clock.now(),
    services: options.services,
    models: options.models,
    matrix: options.matrix,
    downstream: options.downstream,
    actingGrants: () => options.authority.actingGrants(run, clock.now()),
    isTainted: () => turn.taint.isOn,
    readsForeign,
    redactor: turn.redactor,
    // A handler may ask a model as well.
    requireAuthority: () => requireModel(turn),
    onUsage: (usage) => charge(turn, usage),
    loadedPlugins: () => loadedPlugins(turn),
    readUserContext: () => turn.userContext,
    stateOf: (owner) => ({
      get: () => turn.thread.stateOf(owner),
      update(patch) {
        if (loop === undefined || call === undefined)
          throw new OracleError(refusal('NOT_ALLOWED', { message: 'Only a tool call may change the state.' }));
        turn.thread.patch(owner, patch, rootOf(loop, call.key));
      },
    }),
    logger: turn.logger,
    readMessages: () => (loop === undefined ? (asked.shown ?? []) : [...loop.window, ...loop.messages]),
    sendToolCall: (data) => job.output.toolCall(data),
    emit: (kind, data) => job.output.emit(kind, data),
    signal: asked.signal ?? turn.stop.signal,
    isOver: () => turn.over || asked.isOver?.() === true,
    plugin,
    ...(call === undefined
      ? {}
      : {
          call: {
            id: call.key,
            tool: call.name,
            mayWriteExternally: tool?.effect === 'write' && tool.reach === 'external',
            capability: tool?.capability,
            untrusted: tool?.untrusted,
          },
        }),
  });
}

/** As plugins see it: those that always are, and those of this thread. */
function loadedPlugins({ host, thread }: Turn): ReadonlySet<string> {
  return new Set([...host.names].filter((name) => host.visibilityOf(name) !== 'on-demand' || thread.loadedPlugins.has(name)));
}
