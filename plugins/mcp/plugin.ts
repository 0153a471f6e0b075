/**
 * Tools of other programs (Model Context Protocol), over a pipe or HTTP. The operator names the servers and says which tools only read; every other
 * one is a write with external effect, and whatever comes back was written by strangers (DESIGN §5 "Taint"). A server that is away at the start
 * costs its tools and nothing else: it is looked for again with the next turn.
 */
import { readFile } from 'node:fs/promises';
import { type AnyTool, defineOraclePlugin, defineTool, type PluginLogger, type RuntimeContext } from 'matrix-oracle';
import { z } from 'zod';
import { createMcpConnection, type McpConnection, type McpTool } from './connection.ts';
import { isHttp, type McpServer, readServers } from './settings.ts';

export const configSchema = z.object({
  MCP_CONFIG_FILE: z.string().min(1).max(4_096).describe('JSON file with `mcpServers`, as other clients of the protocol read it.'),
});

const MAX_NAME_CHARS = 64;
const MAX_DESCRIPTION_CHARS = 2_000;
const MAX_SCHEMA_CHARS = 16_384;
/** With everything that it refers to in its place. */
const MAX_SCHEMA_PARTS = 2_000;

interface Server {
  readonly name: string;
  readonly settings: McpServer;
  readonly connection: McpConnection;
  /** Null until it was reached once. */
  tools: readonly AnyTool[] | null;
  /** It was away at the start: its tools come with each turn instead. */
  late: boolean;
  looking: boolean;
}

export function createMcpPlugin(connect: typeof createMcpConnection = createMcpConnection) {
  const servers: Server[] = [];
  /** Of the boot: a turn's own is over before a slow server answers. */
  let log: PluginLogger | null = null;

  async function look(server: Server, logger: PluginLogger): Promise<readonly AnyTool[]> {
    if (server.looking) return [];
    server.looking = true;
    try {
      server.tools = planTools(server, await server.connection.listTools(), logger);
      logger.info('the tools of an MCP server are there', { reason: server.name, count: server.tools.length });
      return server.tools;
    } catch (error) {
      logger.warn('an MCP server cannot be reached; it is tried again with the next turn', { reason: `${server.name}: ${nameOf(error)}` });
      return [];
    } finally {
      server.looking = false;
    }
  }

  return defineOraclePlugin({
    name: 'mcp',
    version: '1.0.0',
    manifest: {
      title: 'MCP servers',
      summary: 'Tools of other programs that the operator has connected.',
      whenToUse: ['The user asks for something that one of its tools does.'],
      visibility: 'on-demand',
      category: 'integration',
      stability: 'beta',
    },
    configSchema,
    autoDetect: (env) => (env['MCP_CONFIG_FILE'] ?? '') !== '',
    autoDetectHint: 'set MCP_CONFIG_FILE to a JSON file with `mcpServers`',
    async getTools({ config, logger }) {
      log = logger;
      const path = config.MCP_CONFIG_FILE;
      for (const [name, settings] of readServers(await readFile(path, 'utf8'), path))
        servers.push({ name, settings, connection: connect(name, settings), tools: null, late: false, looking: false });
      const found = await Promise.all(servers.map((server) => look(server, logger)));
      for (const server of servers) server.late = server.tools === null;
      // `a_b_c` is tool `b_c` of server `a` and tool `c` of server `a-b`: the first in the file has it.
      return found.flat().filter(({ name }, at, all) => {
        const isFirst = all.findIndex((other) => other.name === name) === at;
        if (!isFirst) logger.warn('a tool of an MCP server cannot be used', { reason: `another server has ${name}` });
        return isFirst;
      });
    },
    /** Of those that were away at the start, what has been found since. Nobody's turn waits for the others. */
    getRequestTools() {
      const late = servers.filter((server) => server.late);
      for (const server of late) if (server.tools === null && log !== null) void look(server, log);
      return late.flatMap(({ tools }) => tools ?? []);
    },
    async close() {
      await Promise.allSettled(servers.map(({ connection }) => connection.close()));
    },
  });
}

/** A tool that cannot be described in bounds is left out, and said. */
function planTools(server: Server, tools: readonly McpTool[], logger: PluginLogger): AnyTool[] {
  const { allow } = server.settings;
  const planned = new Map<string, AnyTool>();
  for (const tool of tools) {
    if (allow !== undefined && !allow.includes(tool.name)) continue;
    const built = buildTool(server, tool);
    // Two names of a server may become one of ours. A second tool of a name would stop the start, which is not a server's to do.
    if (built === null || planned.has(built.name))
      logger.warn('a tool of an MCP server cannot be used', { reason: `${server.name}: ${tool.name.slice(0, 80)}` });
    else planned.set(built.name, built);
  }
  return [...planned.values()];
}

function buildTool({ name, settings, connection }: Server, tool: McpTool): AnyTool | null {
  const schema = readSchema(tool.inputSchema);
  const toolName = `${name.replaceAll('-', '_')}_${tool.name.toLowerCase().replace(/[^a-z0-9]+/gu, '_')}`;
  if (schema === null || toolName.length > MAX_NAME_CHARS) return null;
  const reads = settings.read.includes(tool.name);
  return defineTool({
    name: toolName,
    description: (tool.description.trim() || tool.name).slice(0, MAX_DESCRIPTION_CHARS).toWellFormed(),
    schema,
    effect: reads ? 'read' : 'write',
    reach: reads ? 'own' : 'external',
    untrusted: true,
    handler: async (args, ctx) => connection.callTool(tool.name, args, { signal: ctx.abortSignal, ...(await buildHeaders(settings, ctx)) }),
  });
}

async function buildHeaders(server: McpServer, { ucan }: RuntimeContext): Promise<{ headers?: Record<string, string> }> {
  if (!isHttp(server) || server.invocation === undefined) return {};
  const { capability, header } = server.invocation;
  const did = server.invocation.did ?? (await ucan.resolveServiceDid(server.url));
  if (did === null) throw new Error('the service publishes no DID, so no request can be signed for it');
  return { headers: { [header]: `Bearer ${await ucan.mintInvocation({ did, capability })}` } };
}

function readSchema(schema: Record<string, unknown>): z.ZodObject | null {
  try {
    if (JSON.stringify(schema).length > MAX_SCHEMA_CHARS || countUnfolded(schema) > MAX_SCHEMA_PARTS) return null;
    const read = z.fromJSONSchema({ ...(withoutPatterns(schema) as object), type: 'object' } as never);
    return read instanceof z.ZodObject ? read : null;
  } catch {
    return null;
  }
}

/** How many parts a schema has once every `$ref` is what it refers to, as the model is shown it: a few lines of references can be gigabytes. */
function countUnfolded(schema: Record<string, unknown>): number {
  const known = new Map<string, number>();
  const count = (part: unknown): number => {
    if (typeof part !== 'object' || part === null) return 1;
    const { $ref: ref } = part as { $ref?: unknown };
    const own = Object.entries(part).reduce(
      (sum, [key, inner]) => (key === '$defs' || key === 'definitions' ? sum : sum + count(inner)),
      1,
    );
    if (typeof ref !== 'string') return own;
    const before = known.get(ref);
    if (before !== undefined) return own + before;
    // A reference to what it stands in: that one is not unfolded.
    known.set(ref, 0);
    const target = ref
      .split('/')
      .slice(1)
      .reduce<unknown>((at, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined), schema);
    const size = count(target);
    known.set(ref, size);
    return own + size;
  };
  return count(schema);
}

/** A regular expression of a stranger can take minutes over thirty characters, and nobody is answered meanwhile. The server checks its own. */
const withoutPatterns = (part: unknown): unknown => {
  if (typeof part !== 'object' || part === null) return part;
  if (Array.isArray(part)) return part.map(withoutPatterns);
  const isPattern = ([key, value]: [string, unknown]): boolean =>
    (key === 'pattern' && typeof value === 'string') || (key === 'patternProperties' && typeof value === 'object');
  return Object.fromEntries(
    Object.entries(part)
      .filter((entry) => !isPattern(entry))
      .map(([key, value]) => [key, withoutPatterns(value)]),
  );
};

const nameOf = (error: unknown): string => (error instanceof Error ? error.message.slice(0, 150) : 'unknown error');
