/**
 * Plugins and the agent ask for a role, never for a provider: keys, base URL, timeouts and the watched fetch are decided here once.
 * The library's own retries are off (up to seven tries that ignore an abort), and `streaming: true` is never set: with it the library
 * downloads a tokenizer and hangs for seconds where the network is closed.
 */
import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { ChatOpenAIFields } from '@langchain/openai';
import type { Clock } from '../time.ts';
import { ChatModel } from './chat-model.ts';
import { createModelFetch } from './model-fetch.ts';

export type ModelRole = 'main' | 'subagent' | 'utility' | (string & {});

export interface ModelsOptions {
  readonly clock: Clock;
  /** With `/v1`; absent: OpenAI's. */
  readonly baseUrl?: string;
  readonly apiKey: string;
  /** Model name by role; `main` is what every role without an own entry gets. */
  readonly roles: Readonly<Record<string, string>> & { readonly main: string };
  /** Further names that a turn may ask for by its hint. */
  readonly selectable?: readonly string[];
  readonly idleTimeoutMs: number;
}
export interface ModelInfo {
  readonly id: string;
  readonly isDefault: boolean;
}
export interface Models {
  /** The model of a role. Without `params` the same instance each time. */
  get(role: ModelRole, params?: ChatOpenAIFields): BaseChatModel;
  /** Name behind a role. */
  nameOf(role: ModelRole): string;
  /** What `get('main', { model })` may be asked for by a turn hint. */
  listModels(): readonly ModelInfo[];
  close(): Promise<void>;
}

export function createModels({ clock, baseUrl, apiKey, roles, selectable = [], idleTimeoutMs }: ModelsOptions): Models {
  const modelFetch = createModelFetch({ clock, idleTimeoutMs });
  const shared = new Map<string, BaseChatModel>();
  const nameOf = (role: ModelRole): string => (Object.hasOwn(roles, role) ? (roles[role] ?? roles.main) : roles.main);
  // `streaming` is left away whatever was asked: true downloads a tokenizer, false turns `stream()` off.
  const build = (model: string, { streaming: _, ...params }: ChatOpenAIFields): BaseChatModel =>
    new ChatModel({
      ...params,
      model: params.model ?? model,
      apiKey,
      maxRetries: 0,
      configuration: { ...(baseUrl === undefined ? {} : { baseURL: baseUrl }), fetch: modelFetch.fetch, maxRetries: 0 },
    });
  return {
    get(role, params) {
      const name = nameOf(role);
      if (params !== undefined) return build(name, params);
      const known = shared.get(name) ?? build(name, {});
      shared.set(name, known);
      return known;
    },
    nameOf,
    listModels: () => [roles.main, ...selectable.filter((name) => name !== roles.main)].map((id) => ({ id, isDefault: id === roles.main })),
    close: () => modelFetch.close(),
  };
}
