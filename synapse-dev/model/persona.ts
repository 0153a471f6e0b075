/**
 * What the demo model says when no script tells it: deterministic, so that a screenshot, a test and a person see the same, and honest:
 * it never makes up what a tool would have said. It shows that history, tools, follow-ups and long answers work, and names what it
 * cannot do. Every user message since its last answer gets its own reply, because a steered run brings several at once.
 */
import { isJsonObject, type JsonObject, type JsonValue } from '../../src/json.ts';
import type { ChatMessage, ChatTool } from './chat-request.ts';
import { buildLongAnswer, countAloud } from './persona-texts.ts';
import type { Reply, ScriptedToolCall } from './reply.ts';

/** What one user message asks for. */
export type Intent =
  | { readonly kind: 'call'; readonly tool: string; readonly args: JsonObject }
  /** A tool would be needed and is not offered, or a required argument is not known: the sentence says which. */
  | { readonly kind: 'cannot'; readonly why: string }
  | { readonly kind: 'greet' }
  | { readonly kind: 'count'; readonly to: number }
  | { readonly kind: 'long'; readonly size: 'long' | 'very long' }
  | { readonly kind: 'echo' };

interface Asked {
  readonly text: string;
  /** 1 for the first user message of the conversation as far as it was sent. */
  readonly number: number;
  readonly intent: Intent;
}

/** What the oracle shows of a group's talk before the mention (src/agent/plan-window.ts): said to others, so it is neither answered nor counted. */
const OVERHEARD = /^Said in the room before, not to you/;

export function decidePersonaReply(shown: readonly ChatMessage[], tools: readonly ChatTool[]): Reply {
  const messages = shown.filter(({ role, text }) => role !== 'user' || !OVERHEARD.test(text));
  const users = messages.filter((message) => message.role === 'user').map((message) => message.text.trim());
  const turn = messages.slice(messages.findLastIndex((message) => message.role === 'assistant' && message.toolCalls.length === 0) + 1);
  const newest = turn.filter((message) => message.role === 'user').length;
  const asked: Asked[] = users
    .map((text, index) => ({ text, number: index + 1, intent: readIntent(text, tools) }))
    .slice(users.length - newest);
  if (asked.length === 0) return { kind: 'text', text: 'There is no new message for me to answer.' };

  const results = readResults(turn);
  const missing = planCalls(asked, results);
  if (missing.length > 0) return { kind: 'toolCalls', calls: missing };
  const sections = asked.map((one) => buildSection(one, { users, results, tools }));
  if (sections.length === 1) return { kind: 'text', text: sections[0] ?? '' };
  const intro = `You sent ${asked.length} messages; here is an answer to each.`;
  return {
    kind: 'text',
    text: [intro, ...asked.map((one, index) => `**On “${shorten(one.text, 80)}”:** ${sections[index]}`)].join('\n\n'),
  };
}

/** Reads what a message asks for; tools decide what is possible. */
export function readIntent(text: string, tools: readonly ChatTool[]): Intent {
  const named = readNamedCall(text, tools);
  if (named !== undefined) return named;
  if (/\btopic\b/i.test(text) && /\b(set|change|make|update|put)\b/i.test(text)) return readTopicIntent(text, tools);
  if (
    /\bwhat('s| is)?( the)?( current)? time\b|\btime is it\b|\bcurrent time\b|\btell me the time\b|\bwhat('s| is)( the)? date\b|\bwhat day is\b/i.test(
      text,
    )
  ) {
    return readTimeIntent(tools);
  }
  const count = /\bcount\b.*\bto (\d{1,5})\b/i.exec(text)?.[1];
  if (count !== undefined) return { kind: 'count', to: Math.min(2_000, Math.max(1, Number(count))) };
  if (/\bvery,? (very,? )?long\b/i.test(text)) return { kind: 'long', size: 'very long' };
  if (/\b(long (answer|text|message|reply|story)|at length|in detail|markdown|essay|code|table)\b/i.test(text))
    return { kind: 'long', size: 'long' };
  const isShort = text.length <= 80;
  if (isShort && /\b(hi|hello|hey|hallo|moin|greetings|help|good (morning|afternoon|evening)|what can you do|who are you)\b/i.test(text)) {
    return { kind: 'greet' };
  }
  return { kind: 'echo' };
}

/** "call the tool some_tool with {…}": any offered tool can be tried by its name. */
function readNamedCall(text: string, tools: readonly ChatTool[]): Intent | undefined {
  const match = /\b(?:call|use|run)\s+(?:the\s+)?(?:tool\s+)?[`"']?([a-zA-Z0-9_-]{1,64})[`"']?/i.exec(text);
  const tool = tools.find((candidate) => candidate.name === match?.[1]);
  if (tool === undefined) return undefined;
  const from = text.indexOf('{');
  const to = text.lastIndexOf('}');
  const given = from >= 0 && to > from ? parseJson(text.slice(from, to + 1)) : {};
  if (!isJsonObject(given ?? null)) return { kind: 'cannot', why: `the arguments for \`${tool.name}\` are not a JSON object.` };
  return fitCall(tool, given as JsonObject);
}

function readTimeIntent(tools: readonly ChatTool[]): Intent {
  const tool =
    tools.find((candidate) => /(^|[_-])(time|clock|now|date)([_-]|$)|currentTime|getTime/i.test(candidate.name)) ??
    tools.find((candidate) => /time(?!out|line|r)|clock/i.test(candidate.name));
  if (tool === undefined) return { kind: 'cannot', why: 'I was given no clock tool, so I cannot know the time.' };
  return fitCall(tool, {});
}

function readTopicIntent(text: string, tools: readonly ChatTool[]): Intent {
  const tool = tools.find((candidate) => candidate.name === 'set_room_topic');
  if (tool === undefined) return { kind: 'cannot', why: 'I was not given the tool `set_room_topic`, so I cannot change the topic here.' };
  const quoted = /["“”«]([^"“”«»]{1,500})["“”»]/.exec(text)?.[1];
  const topic = (quoted ?? /\btopic\b[^\n]*?(?:\bto\b|:|=)\s*([^\n]{1,500})/i.exec(text)?.[1] ?? '').trim().replace(/^'(.*)'$/, '$1');
  if (topic === '') return { kind: 'cannot', why: 'I need to know the new topic. Say for example: set the topic to “Plans for spring”.' };
  const strings = Object.entries(readProperties(tool)).filter(([, schema]) => isJsonObject(schema) && schema['type'] === 'string');
  const key = strings.find(([name]) => /topic/i.test(name))?.[0] ?? strings[0]?.[0] ?? 'topic';
  return fitCall(tool, { [key]: topic });
}

/** A call whose required arguments are all known; the persona does not guess the others. */
function fitCall(tool: ChatTool, args: JsonObject): Intent {
  const required = Array.isArray(tool.parameters['required']) ? tool.parameters['required'] : [];
  const unknown = required.filter((name): name is string => typeof name === 'string' && !Object.hasOwn(args, name));
  if (unknown.length === 0) return { kind: 'call', tool: tool.name, args };
  return { kind: 'cannot', why: `\`${tool.name}\` needs ${unknown.map((name) => `\`${name}\``).join(', ')}, which you did not tell me.` };
}

const readProperties = (tool: ChatTool): JsonObject => {
  const properties = tool.parameters['properties'];
  return isJsonObject(properties ?? null) ? (properties as JsonObject) : {};
};

interface CallResult {
  readonly tool: string;
  /** Arguments as JSON text, as the model wrote them: with the name, what tells one call of a turn from another. */
  readonly args: string;
  readonly content: string;
}

function readResults(turn: readonly ChatMessage[]): CallResult[] {
  const calls = new Map(turn.flatMap((message) => message.toolCalls).map((call) => [call.id, call]));
  return turn.flatMap((message): CallResult[] => {
    const call = message.toolCallId === undefined ? undefined : calls.get(message.toolCallId);
    return call === undefined ? [] : [{ tool: call.name, args: call.arguments, content: message.text }];
  });
}

/** Calls that some message wants and that have no result in this turn; the same call is made once, whoever asked. */
function planCalls(asked: readonly Asked[], results: readonly CallResult[]): ScriptedToolCall[] {
  const planned = new Map<string, ScriptedToolCall>();
  for (const { intent } of asked) {
    if (intent.kind !== 'call' || findResult(intent, results) !== undefined) continue;
    planned.set(`${intent.tool} ${JSON.stringify(intent.args)}`, { name: intent.tool, args: intent.args });
  }
  return [...planned.values()];
}

const findResult = (call: Extract<Intent, { kind: 'call' }>, results: readonly CallResult[]): CallResult | undefined =>
  results.find((result) => result.tool === call.tool && sameArguments(result.args, call.args));

function sameArguments(text: string, args: JsonObject): boolean {
  const parsed = parseJson(text === '' ? '{}' : text);
  return JSON.stringify(parsed) === JSON.stringify(args);
}

interface Conversation {
  readonly users: readonly string[];
  readonly results: readonly CallResult[];
  readonly tools: readonly ChatTool[];
}

function buildSection({ text, number, intent }: Asked, { users, results, tools }: Conversation): string {
  switch (intent.kind) {
    case 'call':
      return buildResultSentence(findResult(intent, results), intent);
    case 'cannot':
      return `Sorry: ${intent.why}`;
    case 'greet':
      return buildGreeting(number, tools);
    case 'count':
      return countAloud(intent.to);
    case 'long':
      return buildLongAnswer(text, intent.size);
    case 'echo':
      return buildEcho(text, users.slice(0, number));
  }
}

function buildGreeting(number: number, tools: readonly ChatTool[]): string {
  const offered = tools.length === 0 ? 'none at the moment' : tools.map((tool) => `\`${tool.name}\``).join(', ');
  return [
    number === 1 ? 'Hello! I am the demo model of this oracle.' : `Hello again! This is message ${number} of our conversation.`,
    'I follow fixed rules instead of thinking, so that you can see the oracle itself at work. Try one of these:',
    [
      '- “What time is it?” – I call a clock tool, if there is one, and tell you what it said.',
      '- “Set the topic to “Plans for spring”” – I call a tool that changes something in the room.',
      '- “Give me a long answer with code and a table” – watch it stream; “very long” needs several messages.',
      '- “Count to 300” – slow enough to stop me on the way.',
      '- “Call <tool> with {"key": "value"}” – any tool that I am offered.',
      '- Anything else – I repeat it and say what you wrote before.',
    ].join('\n'),
    `Tools offered to me: ${offered}.`,
  ].join('\n\n');
}

/** Says what the tool said and nothing else. */
function buildResultSentence(result: CallResult | undefined, call: Extract<Intent, { kind: 'call' }>): string {
  if (result === undefined) return `I called \`${call.tool}\`, but have no result of it.`;
  const value = parseJson(result.content);
  const isFailure = /^\s*error\b/i.test(result.content) || isErrorValue(value);
  if (isFailure) return `\`${result.tool}\` did not work. It said: ${shorten(result.content.trim(), 500)}`;
  if (result.content.trim() === '') return `\`${result.tool}\` is done; it returned nothing.`;
  if (isTimeTool(result.tool)) return `According to \`${result.tool}\` it is ${describeValue(value, result.content)}.`;
  return `\`${result.tool}\` is done. It said: ${describeValue(value, result.content)}`;
}

/** `{"error": …}`, or a refusal of the oracle with its `code` in words. */
const isErrorValue = (value: JsonValue | undefined): boolean =>
  isJsonObject(value ?? null) && (Object.hasOwn(value as JsonObject, 'error') || typeof (value as JsonObject)['code'] === 'string');

const isTimeTool = (name: string): boolean => /time(?!out|line|r)|clock|now/i.test(name);

function describeValue(value: JsonValue | undefined, content: string): string {
  if (typeof value === 'string') return `**${shorten(value, 500)}**`;
  if (!isJsonObject(value ?? null)) return `**${shorten(content.trim(), 500)}**`;
  const fields = Object.entries(value as JsonObject).map(
    ([key, field]) => `${key} ${typeof field === 'string' ? field : JSON.stringify(field)}`,
  );
  return `**${shorten(fields.join(', '), 500)}**`;
}

function buildEcho(text: string, upToHere: readonly string[]): string {
  const before = upToHere.slice(0, -1);
  const here = `You said: “${shorten(text, 300)}”. This is message ${upToHere.length} of our conversation`;
  if (before.length === 0) return `${here}, and the first one that I see. Say “help” to learn what I can do.`;
  const said = before.slice(-3).map((earlier) => `“${shorten(earlier, 80)}”`);
  return `${here}; before that you said ${before.length > 3 ? 'lately ' : ''}${said.join(', then ')}.`;
}

function shorten(text: string, maxChars: number): string {
  const line = text.replace(/\s+/g, ' ').trim();
  const points = [...line];
  return points.length <= maxChars ? line : `${points.slice(0, maxChars - 1).join('')}…`;
}

function parseJson(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}
