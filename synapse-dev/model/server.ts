/**
 * A language model for people and tests who have none: the same HTTP as OpenAI, on loopback, with answers that are scripted or come
 * from a small persona. Without it the demo would need a key, and no test could say what happens when a provider stalls, breaks off or
 * forgets `[DONE]`. It must stay as strict and as rude as real providers are, or the oracle is only tested against kindness.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { JsonValue } from '../../src/json.ts';
import { type ApiError, type ChatRequest, readChatRequest } from './chat-request.ts';
import { decidePersonaReply } from './persona.ts';
import { type AnswerFacts, planStream, statusError } from './plan-stream.ts';
import { planWhole } from './plan-whole.ts';
import { createExchange, type Ended, playSteps, sendError, sendJson } from './play.ts';
import { NATURAL_PACE, type Pace, type Reply, type ScriptedReply } from './reply.ts';

export interface ModelServerOptions {
  /** 0 or absent: a free one. */
  readonly port?: number;
  /** Loopback only: the server has no authentication. */
  readonly host?: '127.0.0.1';
  /** Replies in order, as with `enqueue`. */
  readonly script?: readonly ScriptedReply[];
  /** Pace of replies without their own. Absent: scripted replies are instant, the persona speaks at a natural pace. */
  readonly pace?: Pace;
  /** Newest requests kept in `requests`; older ones are dropped. 0 for long runs. */
  readonly keepRequests?: number;
  /** Model names in `/v1/models`; any name is accepted in requests. */
  readonly models?: readonly string[];
}

/** One chat completion request as a test looks at it. */
export interface RequestRecord {
  /** 1 for the first request since start or `reset`. */
  readonly number: number;
  /** Without `authorization`, which is reduced to the next field. */
  readonly headers: Readonly<IncomingHttpHeaders>;
  readonly hasAuthorization: boolean;
  readonly body: JsonValue;
  /** Absent when the request was refused as invalid. */
  readonly chat?: ChatRequest;
  /** Wall time in ms. */
  readonly at: number;
  /** Why the request was answered 400, when it was. */
  readonly refused?: ApiError;
  /** Absent while the answer is under way. */
  ended?: Ended;
  endedAt?: number;
  /** Pieces of the answer that were written. */
  pieces: number;
}

export interface ModelServer {
  /** With `/v1`, as OpenAI clients want it. */
  readonly baseUrl: string;
  readonly port: number;
  readonly requests: readonly RequestRecord[];
  /** Each reply answers one valid request, in order, before any rule. */
  enqueue(...replies: readonly ScriptedReply[]): void;
  /** Standing rule when nothing is queued; `undefined` from it leaves the request to the persona. */
  respond(rule: (request: ChatRequest) => Reply | undefined): void;
  /** Replies that no request has taken yet. */
  readonly queued: number;
  /** The n-th request (1 = first) or the first one, old or new, that fits; looked at again when a request arrives and when it ends. */
  waitForRequest(which: number | ((request: RequestRecord) => boolean), timeoutMs?: number): Promise<RequestRecord>;
  /** Forgets script, rule and records, and drops open answers. */
  reset(): void;
  close(): Promise<void>;
}

/** Starting failed for a reason that the caller can act on. */
export class ModelServerError extends Error {
  override readonly name = 'ModelServerError';
  readonly code: 'PORT_TAKEN' | 'NO_PERMISSION' | 'START_FAILED';
  constructor(code: ModelServerError['code'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

const MAX_BODY_BYTES = 32 * 1024 * 1024;

export async function startModelServer(options: ModelServerOptions = {}): Promise<ModelServer> {
  const keepRequests = options.keepRequests ?? 1_000;
  const models = options.models ?? ['demo'];
  /** Ids must differ from those of an earlier process too: checkpoints outlive this server. */
  const birth = randomUUID().replaceAll('-', '').slice(0, 12);
  let answers = 0;
  let calls = 0;
  let received = 0;
  let queue: ScriptedReply[] = [...(options.script ?? [])];
  let rule: ((request: ChatRequest) => Reply | undefined) | undefined;
  const requests: RequestRecord[] = [];
  const open = new Set<ServerResponse>();
  const watchers = new Set<() => void>();
  const changed = () => {
    for (const watcher of [...watchers]) watcher();
  };

  const decideReply = (chat: ChatRequest): { reply: Reply; pace: Pace } => {
    const queued = queue.shift();
    const scripted = typeof queued === 'function' ? queued(chat) : (queued ?? rule?.(chat));
    if (scripted !== undefined) return { reply: scripted, pace: options.pace ?? 'instant' };
    return { reply: decidePersonaReply(chat.messages, chat.tools), pace: options.pace ?? NATURAL_PACE };
  };

  const answerChat = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readBody(request);
    if (!body.ok) return sendError(response, { status: body.status, error: statusError(body) });
    const chat = readChatRequest(body.value);
    received += 1;
    const { authorization, ...headers } = request.headers;
    const record: RequestRecord = {
      number: received,
      headers,
      hasAuthorization: authorization !== undefined,
      body: body.value,
      at: Date.now(),
      pieces: 0,
      ...(chat.ok ? { chat: chat.value } : { refused: chat.error }),
    };
    requests.push(record);
    if (requests.length > keepRequests) requests.shift();
    const finish = (ended: Ended) => {
      record.ended ??= ended;
      record.endedAt ??= Date.now();
      changed();
    };
    changed();
    if (!chat.ok) {
      sendError(response, { status: 400, error: chat.error });
      return finish('completed');
    }
    const exchange = createExchange(response, record);
    open.add(response);
    try {
      const { reply, pace } = decideReply(chat.value);
      answers += 1;
      const facts: AnswerFacts = {
        id: `chatcmpl-${birth}${String(answers).padStart(8, '0')}`,
        created: Math.floor(record.at / 1_000),
        model: chat.value.model,
        promptTokens: countPromptTokens(chat.value),
        includeUsage: chat.value.includeUsage,
        pace,
        newCallId: () => `call_${birth}${String(++calls).padStart(8, '0')}`,
      };
      const steps = chat.value.stream ? planStream(reply, facts) : planWhole(reply, facts);
      const ended = await playSteps(exchange, steps);
      finish(dropped.has(response) ? 'cut' : ended);
    } catch (error) {
      // A script function of a test that throws: said on the wire, because the test looks there.
      if (!response.headersSent)
        sendError(response, { status: 500, error: { ...statusError({ status: 500 }), message: `The script failed: ${String(error)}` } });
      else response.destroy();
      finish('cut');
    } finally {
      open.delete(response);
    }
  };
  /** Responses that we destroyed ourselves. */
  const dropped = new WeakSet<ServerResponse>();
  const dropOpen = () => {
    for (const response of open) {
      dropped.add(response);
      response.destroy();
    }
  };

  const server = createServer({ noDelay: true, keepAlive: true }, (request, response) => {
    const path = (request.url ?? '').split('?')[0];
    if (request.method === 'POST' && path === '/v1/chat/completions') {
      answerChat(request, response).catch(() => response.destroy());
      return;
    }
    if (request.method === 'GET' && path === '/v1/models') {
      return sendJson(response, 200, {
        object: 'list',
        data: models.map((id) => ({ id, object: 'model', created: 0, owned_by: 'matrix-oracle' })),
      });
    }
    request.resume();
    const message = `Invalid URL (${request.method} ${path})`;
    return sendError(response, { status: 404, error: { message, type: 'invalid_request_error', param: null, code: null } });
  });
  const host = options.host ?? '127.0.0.1';
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(startError(error, `${host}:${options.port ?? 0}`)));
    server.listen(options.port ?? 0, host, resolve);
  });
  const { port } = server.address() as AddressInfo;

  return {
    baseUrl: `http://${host}:${port}/v1`,
    port,
    requests,
    enqueue: (...replies) => void queue.push(...replies),
    respond: (next) => {
      rule = next;
    },
    get queued() {
      return queue.length;
    },
    waitForRequest: (which, timeoutMs = 5_000) =>
      new Promise((resolve, reject) => {
        const fits = typeof which === 'number' ? (record: RequestRecord) => record.number === which : which;
        const look = () => {
          const found = requests.find(fits);
          if (found === undefined) return;
          stop();
          resolve(found);
        };
        const timer = setTimeout(() => {
          stop();
          const seen = requests.map((record) => `${record.number}:${record.ended ?? 'open'}`).join(' ');
          reject(new Error(`no such request within ${timeoutMs} ms; seen: ${seen === '' ? 'none' : seen}`));
        }, timeoutMs);
        const stop = () => {
          clearTimeout(timer);
          watchers.delete(look);
        };
        watchers.add(look);
        look();
      }),
    reset: () => {
      dropOpen();
      queue = [];
      rule = undefined;
      requests.length = 0;
      received = 0;
    },
    close: async () => {
      dropOpen();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

function startError(error: NodeJS.ErrnoException, address: string): ModelServerError {
  if (error.code === 'EADDRINUSE')
    return new ModelServerError('PORT_TAKEN', `${address} is taken by another program; choose another port or 0 for a free one`, error);
  if (error.code === 'EACCES')
    return new ModelServerError('NO_PERMISSION', `${address} may not be opened by this user; choose a port above 1023`, error);
  return new ModelServerError('START_FAILED', `the model server cannot listen on ${address}: ${error.message}`, error);
}

type Body = { ok: true; value: JsonValue } | { ok: false; status: 400 | 413; message: string };

async function readBody(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes <= MAX_BODY_BYTES) chunks.push(chunk);
  }
  if (bytes > MAX_BODY_BYTES) return { ok: false, status: 413, message: 'The request body is too large.' };
  try {
    return { ok: true, value: JSON.parse(Buffer.concat(chunks).toString('utf8')) as JsonValue };
  } catch {
    return { ok: false, status: 400, message: 'We could not parse the JSON body of your request.' };
  }
}

/** A quarter of the characters: stable and cheap. */
function countPromptTokens(chat: ChatRequest): number {
  let chars = 0;
  for (const message of chat.messages) chars += message.text.length + 12;
  return Math.ceil(chars / 4);
}
