/**
 * One server: connected when it is first needed, again after it went away, closed with the oracle. Everything that it sends is bounded in time and
 * size, because it is another program's word. Processes and sockets are the adapters' library's; a call goes to the protocol's own client, whose
 * result says plainly whether it failed.
 */
import type { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { isHttp, type McpServer } from './settings.ts';

export interface McpTool {
  readonly name: string;
  readonly description: string;
  /** JSON schema of the arguments. */
  readonly inputSchema: Record<string, unknown>;
}
export interface McpConnection {
  /** @throws Error when it cannot be reached in time. */
  listTools(): Promise<readonly McpTool[]>;
  /** @throws Error with what the server said, or that it did not answer. */
  callTool(
    name: string,
    args: Record<string, unknown>,
    more: { readonly signal: AbortSignal; readonly headers?: Record<string, string> },
  ): Promise<string>;
  close(): Promise<void>;
}

const MAX_TOOLS = 500;
const MAX_PAGES = 20;
const CONNECT_TIMEOUT_MS = 10_000;

type Client = NonNullable<Awaited<ReturnType<MultiServerMCPClient['getClient']>>>;

export function createMcpConnection(name: string, server: McpServer): McpConnection {
  let adapters: Promise<MultiServerMCPClient> | null = null;

  async function build(headers: Record<string, string> = {}): Promise<MultiServerMCPClient> {
    // Who has no server does not pay for the library.
    const { MultiServerMCPClient: Adapters } = await import('@langchain/mcp-adapters');
    const connection = isHttp(server)
      ? {
          transport: 'http' as const,
          url: server.url,
          headers: { ...server.headers, ...headers },
          automaticSSEFallback: false,
          reconnect: { enabled: false },
        }
      : {
          transport: 'stdio' as const,
          command: server.command,
          args: server.args,
          ...(server.env === undefined ? {} : { env: server.env }),
          ...(server.cwd === undefined ? {} : { cwd: server.cwd }),
          // What it prints is not ours to show: it may hold what people said.
          stderr: 'ignore' as const,
          restart: { enabled: false },
        };
    return new Adapters({ mcpServers: { [name]: connection }, prefixToolNameWithServerName: false });
  }
  async function connect(to: MultiServerMCPClient): Promise<Client> {
    const client = await within(CONNECT_TIMEOUT_MS, to.getClient(name));
    if (client === undefined) throw new Error(`${name} cannot be reached`);
    return client;
  }
  const close = (old: MultiServerMCPClient): Promise<void> => old.close().catch(() => undefined);

  async function connected<T>(work: (client: Client) => Promise<T>, signal?: AbortSignal): Promise<T> {
    adapters ??= build();
    const used = adapters;
    try {
      return await work(await connect(await used));
    } catch (error) {
      // Who cancels a call leaves the others alone. The next use connects anew.
      if (signal?.aborted !== true && isGone(error) && adapters === used) {
        adapters = null;
        await close(await used);
      }
      throw error;
    }
  }
  /** A signed request is good for one call: its connection ends with it, or there would be one more with every call. */
  async function once<T>(headers: Record<string, string>, work: (client: Client) => Promise<T>): Promise<T> {
    const own = await build(headers);
    try {
      return await work(await connect(own));
    } finally {
      await close(own);
    }
  }

  return {
    listTools: () =>
      connected(async (client) => {
        const tools: McpTool[] = [];
        let cursor: string | undefined;
        for (let page = 0; page < MAX_PAGES && tools.length < MAX_TOOLS; page += 1) {
          const answer = await client.listTools(cursor === undefined ? {} : { cursor }, { timeout: CONNECT_TIMEOUT_MS });
          for (const { name: tool, description = '', inputSchema } of answer.tools) tools.push({ name: tool, description, inputSchema });
          cursor = answer.nextCursor;
          if (cursor === undefined) break;
        }
        return tools.slice(0, MAX_TOOLS);
      }),
    async callTool(tool, args, { signal, headers }) {
      const limits = { signal, timeout: server.timeoutMs, maxTotalTimeout: server.timeoutMs };
      const ask = (client: Client) => client.callTool({ name: tool, arguments: args }, undefined, limits);
      const result = await (headers === undefined ? connected(ask, signal) : once(headers, ask));
      const text = readContent(result.content, server.maxResultChars);
      if (result.isError === true) throw new Error(text === '' ? 'the server gave no reason' : text);
      return text;
    },
    close: async () => (await adapters)?.close(),
  };
}

/** Pure: what a model can read of a result; anything else is named and left out. */
export function readContent(content: unknown, maxChars: number): string {
  if (!Array.isArray(content)) return '';
  const parts: string[] = [];
  let left = maxChars;
  for (const block of content as readonly Record<string, unknown>[]) {
    const text = readBlock(block);
    parts.push(text.slice(0, left));
    left -= text.length + 1;
    if (left <= 0) {
      parts.push(`[cut: a result may have ${maxChars} characters]`);
      break;
    }
  }
  return parts.join('\n').toWellFormed();
}

function readBlock(block: Record<string, unknown> | null): string {
  if (typeof block !== 'object' || block === null) return '';
  const { type, text, resource } = block as { type?: unknown; text?: unknown; resource?: { text?: unknown; uri?: unknown } };
  if (type === 'text' && typeof text === 'string') return text;
  if (type === 'resource' && typeof resource?.text === 'string') return resource.text;
  if (type === 'resource_link' && typeof block['uri'] === 'string') return `[link: ${block['uri'].slice(0, 500)}]`;
  return `[${typeof type === 'string' ? type.slice(0, 40) : 'something'} left out]`;
}

/** The protocol's own refusals and its time-outs have lower numbers; whatever has none says that nobody was there. */
const CLOSED = -32_000;
const isGone = (error: unknown): boolean =>
  !(error instanceof Error && 'code' in error && typeof error.code === 'number' && error.code < CLOSED);

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const timeUp = AbortSignal.timeout(ms);
  const late = new Promise<never>((_, reject) => {
    timeUp.addEventListener('abort', () => reject(new Error(`no answer within ${ms / 1_000} s`)), { once: true });
  });
  work.catch(() => undefined);
  return Promise.race([work, late]);
}
