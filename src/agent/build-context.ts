/**
 * The one place where a plugin's context is made: for a tool call, and for the hooks that are asked around model calls. What it reads belongs to the
 * turn and to this plugin; what strangers wrote, or what a tainted run left behind, taints when it is read.
 */
import type { ToolDefinition } from '../plugin-api/define-tool.ts';
import { buildRuntimeContext } from '../runtime-context/build-runtime-context.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import type { RuntimeContext } from '../runtime-context/runtime-context.ts';
import type { Loop } from './loop.ts';
import { requireAuthority, type Turn, taintTurn } from './turn.ts';

export interface ContextAsked {
  readonly plugin: string;
  /** The loop in which it is asked; absent before there is one. */
  readonly loop?: Loop;
  /** The call it is made for; absent for hooks. */
  readonly call?: { readonly id: string; readonly key: string; readonly name: string };
  readonly tool?: Pick<ToolDefinition, 'effect' | 'reach' | 'capability'>;
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
    models: {
      ...options.models,
      // A handler may ask a model as well, and as often as it likes.
      get(role, more) {
        requireAuthority(turn);
        return options.models.get(role, more);
      },
    },
    matrix: reportReads(options.matrix, readsForeign),
    downstream: options.downstream,
    actingGrants: () => options.authority.actingGrants(run, clock.now()),
    isTainted: () => turn.taint.isOn,
    config: options.pluginConfig ?? {},
    plugins: turn.host.names,
    logger: turn.logger,
    readMessages: () => (loop === undefined ? [] : [...loop.window, ...loop.messages]),
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
          },
        }),
  });
}

/** What a handler reads from the room was written by whoever is in it: its result is as untrusted as a web page. */
const reportReads = (matrix: MatrixAccess, report: () => void): MatrixAccess => ({
  ...matrix,
  roomState(room) {
    report();
    return matrix.roomState(room);
  },
  event(room, event) {
    report();
    return matrix.event(room, event);
  },
  readFile(...file) {
    report();
    return matrix.readFile(...file);
  },
});
