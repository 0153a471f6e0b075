/**
 * The servers that an operator names, in the file format that clients of this protocol share (`mcpServers`), with what an oracle must know besides:
 * which tools may be used at all, which only read, and whose rights a call carries. A server's own hints about its tools are never asked: a tool is
 * a write with external effect unless the operator says that it reads.
 */
import { z } from 'zod';

const MAX_SERVERS = 20;
const MAX_NAMED_TOOLS = 200;
const NAME = /^[a-z][a-z0-9-]{0,31}$/u;
const toolNames = z.array(z.string().min(1).max(128)).max(MAX_NAMED_TOOLS);

const common = {
  /** Left out: all of them. */
  allow: toolNames.optional(),
  /** Tools that change nothing anywhere. They still count as reading what strangers wrote. */
  read: toolNames.default([]),
  timeoutMs: z.int().min(100).max(120_000).default(30_000),
  /** Of a result, in characters; the rest is cut off. */
  maxResultChars: z.int().min(1_000).max(200_000).default(50_000),
};
const stdio = z.strictObject({
  ...common,
  command: z.string().min(1),
  args: z.array(z.string()).default([]),
  env: z.record(z.string(), z.string()).optional(),
  cwd: z.string().optional(),
});
const http = z.strictObject({
  ...common,
  url: z.url({ protocol: /^https?$/u }),
  headers: z.record(z.string(), z.string()).default({}),
  /** A signed request in the name of whoever asks goes into this header of each call. */
  invocation: z
    .strictObject({
      /** `<ability> <resource>`, or a resource on which the person granted exactly one ability. */
      capability: z.string().min(3).max(400),
      /** Left out: the did:web that the server's host publishes. */
      did: z.string().startsWith('did:').optional(),
      header: z
        .string()
        .regex(/^[A-Za-z0-9-]{1,64}$/u)
        .default('Authorization'),
    })
    .optional(),
});
export type StdioServer = z.output<typeof stdio>;
export type HttpServer = z.output<typeof http>;
export type McpServer = StdioServer | HttpServer;
export const isHttp = (server: McpServer): server is HttpServer => 'url' in server;

const file = z.strictObject({
  mcpServers: z
    .record(z.string(), z.unknown())
    .refine((servers) => Object.keys(servers).length <= MAX_SERVERS, `there may be at most ${MAX_SERVERS} servers`),
});

/** @throws Error that names the file, the server and what is wrong with it; never a value, which may be a key. */
export function readServers(text: string, path: string): ReadonlyMap<string, McpServer> {
  const parsed = file.safeParse(readJson(text, path));
  if (!parsed.success) throw new Error(`${path}: ${describe(parsed.error)}`);
  const servers = new Map<string, McpServer>();
  for (const [name, value] of Object.entries(parsed.data.mcpServers)) {
    if (!NAME.test(name))
      throw new Error(`${path}: server ${JSON.stringify(name.slice(0, 80))}: a name has lower case letters, digits and -`);
    const kind = typeof value === 'object' && value !== null && 'url' in value ? http : stdio;
    const server = kind.safeParse(value);
    if (!server.success) throw new Error(`${path}: server ${name}: ${describe(server.error)}`);
    servers.set(name, server.data);
  }
  return servers;
}

function readJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${path} is not JSON`);
  }
}
const describe = ({ issues }: z.ZodError): string =>
  issues
    .slice(0, 5)
    .map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`)
    .join('; ');
