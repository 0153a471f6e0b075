/**
 * Plugins and the agent ask for a role, never for a provider: keys, addresses, timeouts, stand-ins and the watched fetch are decided here once.
 * The library's own retries are off (up to seven tries that ignore an abort), and `streaming: true` is never set: with it the library
 * downloads a tokenizer and hangs for seconds where the network is closed.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { ChatOpenAIFields } from '@langchain/openai';
import type { Secret } from '../config/secret.ts';
import type { Logger } from '../observe/logger.ts';
import type { Clock } from '../time.ts';
import { type CallHooks, type CallUsage, ChatModel } from './chat-model.ts';
import { createModelFetch } from './model-fetch.ts';
import { readModelError } from './read-model-error.ts';
import { readModelName } from './read-model-name.ts';

export type { CallHooks, CallUsage };
export type ModelRole = 'main' | 'subagent' | 'utility' | (string & {});

/** A server with OpenAI's chat completions. */
export interface ModelProvider {
  /** Up to and with its version; absent: OpenAI's. */
  readonly baseUrl?: string;
  /** Absent where none is needed. */
  readonly apiKey?: Secret | string;
}
/** What the operator decides (`readModelSettings`). */
export interface ModelSettings extends ModelProvider {
  /** By the prefix of a model's name; the provider of names without one stands in the fields above. */
  readonly providers?: Readonly<Record<string, ModelProvider>>;
  /** Model by role, as `[provider:]model`; `main` is what every role without an own entry gets. */
  readonly roles: Readonly<Record<string, string>> & { readonly main: string };
  /** Asked instead, in order, when the model of the role fails before its answer began. */
  readonly fallbacks?: Readonly<Record<string, readonly string[]>>;
  /** Most tokens of one answer, by role; nobody who asks can raise it. */
  readonly maxTokens?: Readonly<Record<string, number>>;
  /** Further models that a turn may ask for by its hint. */
  readonly selectable?: readonly string[];
}
export interface ModelsOptions extends ModelSettings {
  readonly clock: Clock;
  readonly idleTimeoutMs: number;
  readonly logger?: Logger;
}
export interface ModelInfo {
  readonly id: string;
  readonly isDefault: boolean;
}
export interface Models {
  /** The model of a role. Without `params` and `hooks` the same instance each time. */
  get(role: ModelRole, params?: ChatOpenAIFields, hooks?: CallHooks): BaseChatModel;
  /** Name behind a role. */
  nameOf(role: ModelRole): string;
  /** What `get('main', { model })` may be asked for by a turn hint. */
  listModels(): readonly ModelInfo[];
  close(): Promise<void>;
}

/** Of a request: `modelKwargs` would be laid over what the host has decided. */
const DECIDED_HERE: ReadonlySet<string> = new Set(['model', 'messages', 'max_tokens', 'max_completion_tokens', 'stream', 'stream_options']);
/** Some clients insist on a key; servers that need none ignore it. */
const NO_KEY = 'none';

export function createModels(options: ModelsOptions): Models {
  const { clock, roles, fallbacks = {}, maxTokens = {}, selectable = [], providers = {}, idleTimeoutMs, logger } = options;
  const modelFetch = createModelFetch({ clock, idleTimeoutMs });
  const shared = new Map<string, BaseChatModel>();
  const nameOf = (role: ModelRole): string => own(roles, keyOf(role)) ?? roles.main;

  function build(name: string, fields: ChatOpenAIFields, more: { hooks?: CallHooks; standIns?: readonly ChatModel[] } = {}): ChatModel {
    const { provider, model } = readModelName(name, providers);
    const { baseUrl, apiKey } = provider === null ? options : (providers[provider] ?? options);
    return new ChatModel({
      ...fields,
      model,
      knownAs: name,
      apiKey: apiKey === undefined ? NO_KEY : typeof apiKey === 'string' ? apiKey : apiKey.reveal(),
      maxRetries: 0,
      configuration: { ...(baseUrl === undefined ? {} : { baseURL: baseUrl }), fetch: modelFetch.fetch, maxRetries: 0 },
      fallbacks: more.standIns ?? [],
      ...(more.hooks === undefined ? {} : { hooks: more.hooks }),
      onFallback: ({ from, to, error }) =>
        logger?.warn(
          { model: from, code: readModelError(error).code, reason: to },
          'a model failed before its answer; another one is asked',
        ),
    });
  }

  /** `streaming` is left away whatever was asked: true downloads a tokenizer, false turns `stream()` off. */
  function buildRole(role: ModelRole, { streaming: _, modelKwargs, ...params }: ChatOpenAIFields, hooks?: CallHooks): ChatModel {
    const most = own(maxTokens, keyOf(role));
    const wanted = params.maxTokens ?? most;
    const limit = most === undefined || wanted === undefined ? wanted : wanted > 0 ? Math.min(wanted, most) : most;
    const further = Object.fromEntries(Object.entries(modelKwargs ?? {}).filter(([name]) => !DECIDED_HERE.has(name)));
    const fields = { ...params, modelKwargs: further, ...(limit === undefined ? {} : { maxTokens: limit }) };
    const name = params.model ?? nameOf(role);
    const others = (own(fallbacks, keyOf(role)) ?? []).filter((other) => other !== name);
    const standIns = others.map((other) => build(other, fields));
    return build(name, fields, { standIns, ...(hooks === undefined ? {} : { hooks }) });
  }

  return {
    get(role, params, hooks) {
      if (params !== undefined || hooks !== undefined) return buildRole(role, params ?? {}, hooks);
      // Roles of one model may have other stand-ins and limits.
      const known = shared.get(instanceOf(role)) ?? buildRole(role, {});
      shared.set(instanceOf(role), known);
      return known;
    },
    nameOf,
    listModels: () => [roles.main, ...selectable.filter((name) => name !== roles.main)].map((id) => ({ id, isDefault: id === roles.main })),
    close: () => modelFetch.close(),
  };

  function instanceOf(role: ModelRole): string {
    const key = keyOf(role);
    return JSON.stringify([nameOf(role), own(fallbacks, key) ?? [], own(maxTokens, key) ?? null]);
  }
}

/** Roles come from plugins, settings from variables: `deep-think` is MODEL_DEEP_THINK. */
const keyOf = (role: ModelRole): string => role.toLowerCase().replaceAll('-', '_');
const own = <T>(table: Readonly<Record<string, T>>, key: string): T | undefined => (Object.hasOwn(table, key) ? table[key] : undefined);
