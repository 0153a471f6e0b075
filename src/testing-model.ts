/** A chat model that says what a test wrote down, in that order, and keeps what it was asked. Loaded only when a test of a plugin asks for one. */
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, type BaseMessage } from '@langchain/core/messages';
import type { ChatResult } from '@langchain/core/outputs';
import type { CallHooks, Models } from './models/models.ts';
import { estimateTokens } from './models/usage.ts';
import type { TestPrompt, TestReply } from './testing.ts';

export interface ScriptedModelsOptions {
  readonly replies: readonly TestReply[];
  /** Hears what was asked, as it would have left the process. */
  readonly onPrompt: (prompt: TestPrompt) => void;
}

/** One script for all roles: a plugin's calls are answered in the order in which it makes them. */
export function createScriptedModels({ replies, onPrompt }: ScriptedModelsOptions): Pick<Models, 'get'> {
  let at = 0;
  const next = (): TestReply => {
    const reply = replies[at];
    at += 1;
    if (reply === undefined) throw new Error(`the test has ${replies.length} replies, and a model is asked once more`);
    return reply;
  };
  return { get: (role, _params, hooks = {}) => new ScriptedModel({ role, hooks, next, onPrompt }) };
}

interface ScriptedModelFields {
  readonly role: string;
  readonly hooks: CallHooks;
  readonly next: () => TestReply;
  readonly onPrompt: (prompt: TestPrompt) => void;
}

class ScriptedModel extends BaseChatModel {
  readonly #fields: ScriptedModelFields;

  constructor(fields: ScriptedModelFields) {
    super({ maxRetries: 0 });
    this.#fields = fields;
  }

  override _llmType(): string {
    return 'scripted';
  }

  override bindTools(): this {
    return this;
  }

  override async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    const { role, hooks, next, onPrompt } = this.#fields;
    const { beforeCall, onUsage, clean = (value) => value } = hooks;
    await beforeCall?.();
    const said = clean(messages.map((message) => ({ role: message.getType(), text: message.text })));
    onPrompt({ role, messages: said });
    const reply = next();
    const { text = '', toolCalls = [] } = typeof reply === 'string' ? { text: reply } : reply;
    const inputTokens = estimateTokens(said.reduce((sum, message) => sum + message.text.length, 0));
    await onUsage?.({ model: role, inputTokens, outputTokens: estimateTokens(text.length), estimated: true });
    const message = new AIMessage({
      content: text,
      tool_calls: toolCalls.map(({ name, args }, index) => ({ id: `call_${index}`, name, args: { ...args }, type: 'tool_call' as const })),
    });
    return { generations: [{ text, message }] };
  }
}
