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
      return found.flat();
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
  return tools
    .filter(({ name }) => allow === undefined || allow.includes(name))
    .flatMap((tool) => {
      const built = buildTool(server, tool);
      if (built === null) logger.warn('a tool of an MCP server cannot be used', { reason: `${server.name}: ${tool.name.slice(0, 80)}` });
      return built === null ? [] : [built];
    });
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
  if (JSON.stringify(schema).length > MAX_SCHEMA_CHARS) return null;
  try {
    const read = z.fromJSONSchema({ ...schema, type: 'object' } as never);
    return read instanceof z.ZodObject ? read : null;
  } catch {
    return null;
  }
}

const nameOf = (error: unknown): string => (error instanceof Error ? error.message.slice(0, 150) : 'unknown error');
