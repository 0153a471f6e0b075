/**
 * Reads a chat completion request as strictly as the strictest provider does. A server that forgives lets a broken history pass here
 * and fail at the customer's: a dangling tool call, a tool result without its call, or a part that is not text is a 400.
 * Sentences follow OpenAI's, because the agent library recognises some of them.
 */
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import { err, ok, type Result } from '../../src/result.ts';

export interface ChatToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model wrote it. */
  readonly arguments: string;
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  /** Text parts joined; empty where an assistant message only calls tools. */
  readonly text: string;
  readonly name?: string;
  readonly toolCalls: readonly ChatToolCall[];
  /** Only in tool messages. */
  readonly toolCallId?: string;
}

export interface ChatTool {
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonObject;
}

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ChatTool[];
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Text of the last user message, or the empty string. */
  readonly lastUserText: string;
  /** The body as it came, for assertions on anything else. */
  readonly body: JsonObject;
}

/** What goes into `{"error": …}`. */
export interface ApiError {
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;
}

const invalid = (message: string, param: string | null, code: string | null = null): Result<never, ApiError> =>
  err({ message, type: 'invalid_request_error', param, code });

export function readChatRequest(body: JsonValue): Result<ChatRequest, ApiError> {
  if (!isJsonObject(body)) return invalid('The body must be a JSON object.', null);
  if (typeof body['model'] !== 'string' || body['model'] === '') return invalid('you must provide a model parameter', 'model');
  if (!Array.isArray(body['messages'])) return invalid("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  if (body['messages'].length === 0) {
    return invalid(
      "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
      'messages',
      'empty_array',
    );
  }
  const messages: ChatMessage[] = [];
  for (const [index, raw] of body['messages'].entries()) {
    const message = readMessage(raw, `messages[${index}]`);
    if (!message.ok) return message;
    messages.push(message.value);
  }
  const order = checkToolOrder(messages);
  if (!order.ok) return order;
  const tools = readTools(body['tools']);
  if (!tools.ok) return tools;
  const options = body['stream_options'];
  const stream = body['stream'] === true;
  if (options !== undefined && options !== null && !stream) {
    return invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", 'stream_options');
  }
  return ok({
    model: body['model'],
    messages,
    tools: tools.value,
    stream,
    includeUsage: isJsonObject(options) && options['include_usage'] === true,
    lastUserText: messages.findLast((message) => message.role === 'user')?.text ?? '',
    body,
  });
}

function readMessage(raw: JsonValue, path: string): Result<ChatMessage, ApiError> {
  if (!isJsonObject(raw)) return invalid(`Invalid type for '${path}': expected an object.`, path, 'invalid_type');
  const role = raw['role'] === 'developer' ? 'system' : raw['role'];
  if (role !== 'system' && role !== 'user' && role !== 'assistant' && role !== 'tool') {
    return invalid(
      `Invalid value for '${path}.role'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.`,
      `${path}.role`,
      'invalid_value',
    );
  }
  const toolCalls = readToolCalls(raw['tool_calls'], `${path}.tool_calls`);
  if (!toolCalls.ok) return toolCalls;
  if (toolCalls.value.length > 0 && role !== 'assistant')
    return invalid(`'tool_calls' belong to assistant messages only.`, `${path}.tool_calls`);
  const mayBeEmpty = role === 'assistant' && toolCalls.value.length > 0;
  const text = readContent(raw['content'], { path: `${path}.content`, mayBeEmpty });
  if (!text.ok) return text;
  const toolCallId = raw['tool_call_id'];
  if (role === 'tool' && typeof toolCallId !== 'string') {
    return invalid(`Missing required parameter: '${path}.tool_call_id'.`, `${path}.tool_call_id`, 'missing_required_parameter');
  }
  return ok({
    role,
    text: text.value,
    toolCalls: toolCalls.value,
    ...(typeof raw['name'] === 'string' ? { name: raw['name'] } : {}),
    ...(role === 'tool' && typeof toolCallId === 'string' ? { toolCallId } : {}),
  });
}

function readContent(
  content: JsonValue | undefined,
  { path, mayBeEmpty }: { path: string; mayBeEmpty: boolean },
): Result<string, ApiError> {
  if (typeof content === 'string') return ok(content);
  if ((content === undefined || content === null) && mayBeEmpty) return ok('');
  if (!Array.isArray(content) || content.length === 0) {
    return invalid(`Invalid value for '${path}': expected a string or an array of text parts.`, path, 'invalid_type');
  }
  let text = '';
  for (const part of content) {
    if (!isJsonObject(part) || part['type'] !== 'text' || typeof part['text'] !== 'string') {
      return invalid(`Invalid content part in '${path}': this model takes text parts only.`, path, 'invalid_value');
    }
    text += part['text'];
  }
  return ok(text);
}

function readToolCalls(raw: JsonValue | undefined, path: string): Result<ChatToolCall[], ApiError> {
  if (raw === undefined || raw === null) return ok([]);
  if (!Array.isArray(raw) || raw.length === 0) return invalid(`Invalid '${path}': expected a non-empty array.`, path, 'invalid_type');
  const calls: ChatToolCall[] = [];
  for (const call of raw) {
    const fn = isJsonObject(call) ? call['function'] : undefined;
    if (!isJsonObject(call) || typeof call['id'] !== 'string' || call['type'] !== 'function' || !isJsonObject(fn)) {
      return invalid(`Invalid tool call in '${path}': 'id', 'type' and 'function' are required.`, path, 'invalid_type');
    }
    if (typeof fn['name'] !== 'string' || typeof fn['arguments'] !== 'string') {
      return invalid(`Invalid tool call in '${path}': 'function.name' and 'function.arguments' must be strings.`, path, 'invalid_type');
    }
    calls.push({ id: call['id'], name: fn['name'], arguments: fn['arguments'] });
  }
  return ok(calls);
}

/** Every call has its result directly behind the assistant message, every result its call in front, each exactly once. */
function checkToolOrder(messages: readonly ChatMessage[]): Result<void, ApiError> {
  let open = new Set<string>();
  for (const [index, message] of messages.entries()) {
    if (message.role === 'tool') {
      if (!open.delete(message.toolCallId ?? '')) {
        return invalid(
          "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
          `messages.[${index}].role`,
        );
      }
      continue;
    }
    if (open.size > 0) return dangling(open, index);
    open = new Set(message.toolCalls.map((call) => call.id));
  }
  return open.size > 0 ? dangling(open, messages.length) : ok(undefined);
}

const dangling = (open: ReadonlySet<string>, index: number): Result<never, ApiError> =>
  invalid(
    `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${[...open].join(', ')}`,
    `messages.[${index}].role`,
  );

function readTools(raw: JsonValue | undefined): Result<ChatTool[], ApiError> {
  if (raw === undefined || raw === null) return ok([]);
  if (!Array.isArray(raw) || raw.length === 0) {
    return invalid("Invalid 'tools': empty array. Expected an array with minimum length 1.", 'tools', 'empty_array');
  }
  const tools: ChatTool[] = [];
  for (const [index, tool] of raw.entries()) {
    const fn = isJsonObject(tool) && tool['type'] === 'function' ? tool['function'] : undefined;
    if (!isJsonObject(fn))
      return invalid(`Invalid 'tools[${index}]': only tools of type 'function' are supported.`, `tools[${index}]`, 'invalid_value');
    const name = fn['name'];
    if (typeof name !== 'string' || !/^[a-zA-Z0-9_-]{1,64}$/.test(name)) {
      return invalid(
        `Invalid 'tools[${index}].function.name': expected a name that matches ^[a-zA-Z0-9_-]{1,64}$.`,
        `tools[${index}].function.name`,
        'invalid_value',
      );
    }
    tools.push({
      name,
      description: typeof fn['description'] === 'string' ? fn['description'] : '',
      parameters: isJsonObject(fn['parameters']) ? fn['parameters'] : {},
    });
  }
  return ok(tools);
}
