/**
 * A plugin's middleware as it runs here: its hooks fire where the library fires them, with a context of that plugin, and what goes wrong in one of them is
 * that plugin's alone. It is logged and its contribution left out, as if the hook were not there; an ending that is the host's passes, even
 * through a hook that catches everything. Hooks of nodes may end the loop, and change nothing else of the thread (research/ixo.md §3.1).
 */
import { AIMessage, ToolMessage } from '@langchain/core/messages';
import { type AgentMiddleware, createMiddleware, type ToolCallRequest } from 'langchain';
import { LIMITS } from '../../limits.ts';
import type { RuntimeContext } from '../../runtime-context/runtime-context.ts';
import { buildContext } from '../build-context.ts';
import type { Loop } from '../loop.ts';
import { isHostStop, nameOfError, unwrap } from '../stop-reason.ts';
import { hasText, textOf } from '../turn-messages.ts';

/** A hook's own time; what it waits for behind `handler` is not counted. */
const HOOK_TIMEOUT_MS = 10_000;
const NODE_HOOKS = ['beforeAgent', 'beforeModel', 'afterModel', 'afterAgent'] as const;
type NodeHook = (typeof NODE_HOOKS)[number];
type Hook = NodeHook | 'wrapModelCall' | 'wrapToolCall';

export interface PluginMiddleware {
  readonly plugin: string;
  readonly middleware: AgentMiddleware;
}

export function pluginMiddlewares(loop: Loop, all: readonly PluginMiddleware[]): AgentMiddleware[] {
  const names = new Set<string>();
  return all.map((one) => {
    const name = freeName(`${one.plugin}.${one.middleware.name}`.replaceAll(/[^\w.-]/gu, '_').slice(0, 100), names);
    return guard(loop, one, name);
  });
}

/** Part of checkpoints (nodes are named by it), so it depends on names alone. */
function freeName(name: string, taken: Set<string>): string {
  for (let count = 1; ; count += 1) {
    const free = count === 1 ? name : `${name}.${count}`;
    if (taken.has(free)) continue;
    taken.add(free);
    return free;
  }
}

function guard(loop: Loop, { plugin, middleware }: PluginMiddleware, name: string): AgentMiddleware {
  const { wrapModelCall, wrapToolCall } = middleware;
  const asked = { loop, plugin };
  let context: RuntimeContext | undefined;
  const withContext = <T extends { runtime: unknown; state: unknown }>(request: T): T => ({
    ...request,
    state: withOwnList(request.state),
    runtime: ownRuntime(request.runtime),
  });
  const ownRuntime = (runtime: unknown): object => {
    context ??= buildContext(loop.turn, { plugin, loop, signal: loop.signal });
    return { ...(runtime as object), context };
  };
  const nodes = NODE_HOOKS.flatMap((hook) => {
    const given = middleware[hook];
    if (given === undefined) return [];
    const call = typeof given === 'function' ? given : given.hook;
    const mayEnd = typeof given === 'object' && given.canJumpTo?.includes('end') === true;
    const run = async (state: unknown, runtime: unknown): Promise<unknown> => {
      if (hook === 'beforeAgent' && !isFirstTime(loop, name)) return undefined;
      const result = await throughNode({ ...asked, hook }, () => call(withOwnList(state) as never, ownRuntime(runtime) as never));
      return readNodeResult(result, mayEnd, { ...asked, hook });
    };
    return [[hook, mayEnd ? { canJumpTo: ['end'], hook: run } : run]];
  });
  return createMiddleware({
    name,
    ...Object.fromEntries(nodes),
    ...(wrapModelCall === undefined
      ? {}
      : {
          wrapModelCall: (request, handler) =>
            throughWrap(request, {
              ...asked,
              hook: 'wrapModelCall',
              call: (inner) => wrapModelCall(withContext(request), inner as never),
              // What a hook leaves out of the request it passes on is as it was.
              handler: async (changed) => handler({ ...request, ...changed }),
              isResult: AIMessage.isInstance,
            }),
        }),
    ...(wrapToolCall === undefined
      ? {}
      : {
          wrapToolCall: (request, handler) =>
            throughWrap(request, {
              ...asked,
              hook: 'wrapToolCall',
              call: (inner) => wrapToolCall(withContext({ ...request, tool: describeTool(loop, request.toolCall.name) }), inner as never),
              // What stands inside gives messages only; the frame alone makes commands. The id stays: by it a call is known after a crash (G6).
              handler: async (changed) =>
                (await handler({
                  ...request,
                  ...changed,
                  toolCall: { ...request.toolCall, ...changed?.toolCall, id: request.toolCall.id ?? '' },
                })) as ToolMessage,
              isResult: ToolMessage.isInstance,
            }),
        }),
  }) as AgentMiddleware;
}

/** Of the conversation a hook has a list of its own: what it takes out of it the model is shown all the same. */
function withOwnList<T>(state: T): T {
  const { messages } = (state ?? {}) as { messages?: unknown };
  return Array.isArray(messages) ? { ...state, messages: [...messages] } : state;
}

/** The library's own instance is missing, because the innermost call runs our tools; what a hook may want to know of one is here. */
function describeTool({ tools }: Loop, name: string): ToolCallRequest['tool'] {
  const tool = tools.all.get(name);
  if (tool === undefined) return undefined;
  const { description, schema, effect = 'read', reach = 'own' } = tool.definition;
  return { name, description, schema, metadata: { plugin: tool.plugin, effect, reach } };
}

/** What comes while the run works starts the graph again, and with it the hooks that stand at its beginning. */
function isFirstTime({ begun }: Loop, name: string): boolean {
  if (begun.has(name)) return false;
  begun.add(name);
  return true;
}

interface Asked {
  readonly loop: Loop;
  readonly plugin: string;
  readonly hook: Hook;
}

const skip = ({ loop, plugin, hook }: Asked, error: unknown): void =>
  loop.turn.logger.warn({ plugin, reason: `${hook}: ${nameOfError(error)}` }, 'a hook of a plugin failed; its contribution was left out');

async function throughNode(asked: Asked, call: () => unknown): Promise<unknown> {
  const { loop } = asked;
  const limit = startLimit(asked);
  try {
    return await Promise.race([call(), limit.expired]);
  } catch (error) {
    if (isHostStop(error, loop.signal)) throw error;
    skip(asked, error);
    return undefined;
  } finally {
    limit.pause();
  }
}

/** `jumpTo: 'end'`, with the text that is the answer then, or nothing. */
function readNodeResult(result: unknown, mayEnd: boolean, asked: Asked): unknown {
  if (typeof result !== 'object' || result === null) return undefined;
  const { jumpTo, messages, ...others } = result as { jumpTo?: unknown; messages?: unknown };
  const isEnd = jumpTo === 'end' && mayEnd;
  const last: unknown = isEnd && Array.isArray(messages) ? messages.at(-1) : undefined;
  const text = AIMessage.isInstance(last) ? textOf(last).slice(0, LIMITS.modelReplyChars) : '';
  if ((jumpTo !== undefined && !isEnd) || Object.keys(others).length > 0 || (messages !== undefined && !hasText(text)))
    skip(asked, new TypeError('a hook may return nothing, or jumpTo end with an answer'));
  if (!isEnd) return undefined;
  const { loop } = asked;
  const id = `${loop.id}.${loop.turn.run.attempt}.end${loop.messages.length}`;
  return hasText(text) ? { jumpTo: 'end', messages: [new AIMessage({ id, content: text })] } : { jumpTo: 'end' };
}

interface Wrap<Request, Result> extends Asked {
  readonly call: (handler: (request: Request) => Promise<Result>) => unknown;
  readonly handler: (request: Request) => Promise<Result>;
  readonly isResult: (value: unknown) => value is Result;
}

/** Whatever the hook does: the handler has run at least once unless the hook answered itself, and its host endings are not answered by anybody. */
async function throughWrap<Request, Result>(request: Request, wrap: Wrap<Request, Result>): Promise<Result> {
  const { handler, isResult, loop } = wrap;
  const limit = startLimit(wrap);
  let isOver = false;
  let last: { readonly pending: Promise<Result> } | undefined;
  const inner = async (changed: Request): Promise<Result> => {
    if (isOver) throw new Error('the hook was left behind');
    limit.pause();
    const pending = handler(changed);
    last = { pending };
    try {
      return await pending;
    } finally {
      limit.goOn();
    }
  };
  let answer: unknown;
  let thrown: { readonly error: unknown } | undefined;
  try {
    answer = await Promise.race([wrap.call(inner), limit.expired]);
  } catch (error) {
    thrown = { error };
  }
  isOver = true;
  limit.pause();
  const failed =
    last === undefined
      ? undefined
      : await last.pending.then(
          () => undefined,
          (error: unknown) => ({ error }),
        );
  if (failed !== undefined && isHostStop(failed.error, loop.signal)) throw failed.error;
  if (thrown === undefined && isResult(answer)) return answer;
  // The model's or the tool's own failure is no failure of the hook that let it pass.
  if (thrown !== undefined && failed !== undefined && unwrap(thrown.error) === unwrap(failed.error)) throw failed.error;
  if (thrown !== undefined && isHostStop(thrown.error, loop.signal)) throw thrown.error;
  skip(wrap, thrown?.error ?? new TypeError('a hook must return a message'));
  return last === undefined ? handler(request) : last.pending;
}

interface Limit {
  /** Rejects when the hook's own time is over. */
  readonly expired: Promise<never>;
  pause(): void;
  goOn(): void;
}
function startLimit({ loop }: Asked): Limit {
  const { clock } = loop.turn.parts;
  const { promise, reject } = Promise.withResolvers<never>();
  promise.catch(() => undefined);
  let timer: { cancel(): void } | undefined;
  const goOn = (): void => {
    timer?.cancel();
    timer = clock.after(HOOK_TIMEOUT_MS, () => reject(new Error(`the hook took longer than ${HOOK_TIMEOUT_MS / 1_000} s`)));
  };
  goOn();
  return { expired: promise, pause: () => timer?.cancel(), goOn };
}
