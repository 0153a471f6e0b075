import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type McpConnection, type McpTool, readContent } from '../../../plugins/mcp/connection.ts';
import { createMcpPlugin } from '../../../plugins/mcp/plugin.ts';
import { readServers } from '../../../plugins/mcp/settings.ts';
import type { AnyTool } from '../../../src/plugin-api/define-tool.ts';
import { settle, tempFolder } from '../../fakes/memory-store.ts';

const tool = (
  name: string,
  inputSchema: Record<string, unknown> = { type: 'object', properties: { text: { type: 'string' } } },
): McpTool => ({
  name,
  description: `Does ${name}.`,
  inputSchema,
});

/** Each level refers to the next one twice. */
function folded(levels: number): Record<string, unknown> {
  const both = (n: number) => ({ type: 'object', properties: { a: { $ref: `#/$defs/d${n}` }, b: { $ref: `#/$defs/d${n}` } } });
  const $defs = Object.fromEntries(
    Array.from({ length: levels }, (_, n) => [`d${n}`, n === levels - 1 ? { type: 'string' } : both(n + 1)]),
  );
  return { ...both(0), $defs };
}

function world({
  tools = [tool('look'), tool('change')],
  server = {} as Record<string, unknown>,
  servers = {} as Record<string, unknown>,
  away = false,
} = {}) {
  const file = join(tempFolder(), 'servers.json');
  writeFileSync(file, JSON.stringify({ mcpServers: { notes: { command: 'x', ...server }, ...servers } }));
  const calls: { name: string; args: unknown; headers: unknown }[] = [];
  const state = { away, looks: 0 };
  const connection: McpConnection = {
    async listTools() {
      state.looks += 1;
      if (state.away) throw new Error('nobody there');
      return tools;
    },
    async callTool(name, args, { headers }) {
      calls.push({ name, args, headers });
      return 'done';
    },
    close: async () => undefined,
  };
  const logged: string[] = [];
  const log = (message: string): void => void logged.push(message);
  const logger = { debug: log, info: log, warn: log, error: log };
  const plugin = createMcpPlugin(() => connection);
  const context = {
    config: { MCP_CONFIG_FILE: file },
    logger,
    identity: { name: '', did: '', entityDid: null },
    availablePlugins: new Set<string>(),
  };
  const getTools = async (): Promise<readonly AnyTool[]> => (await plugin.getTools?.(context)) ?? [];
  /** Of a turn that is over at once, as contexts of turns are. */
  const over = {
    get logger(): never {
      throw new Error('the turn is over');
    },
  };
  const getRequestTools = async (): Promise<readonly AnyTool[]> => (await plugin.getRequestTools?.(over as never)) ?? [];
  return { plugin, getTools, getRequestTools, calls, state, logged };
}

describe('tools', () => {
  test('a tool is a write with external effect unless the operator says that it reads (G8)', async () => {
    const { getTools } = world({ server: { read: ['look'] } });

    expect((await getTools()).map(({ name, effect, reach, untrusted }) => ({ name, effect, reach, untrusted }))).toEqual([
      { name: 'notes_look', effect: 'read', reach: 'own', untrusted: true },
      { name: 'notes_change', effect: 'write', reach: 'external', untrusted: true },
    ]);
  });

  test('what is not on the list of allowed ones is not there', async () => {
    const { getTools } = world({ server: { allow: ['look'] } });

    expect((await getTools()).map(({ name }) => name)).toEqual(['notes_look']);
  });

  test('arguments are checked by the schema of the server, and called under its own name', async () => {
    const { getTools, calls } = world({ tools: [tool('Say-It')] });
    const [say] = await getTools();

    expect(say?.schema.safeParse({ text: 5 }).success).toBe(false);
    expect(await say?.handler({ text: 'hi' }, { abortSignal: new AbortController().signal } as never)).toBe('done');
    expect(calls).toEqual([{ name: 'Say-It', args: { text: 'hi' }, headers: undefined }]);
  });

  test.each([
    ['a schema that is too large', tool('big', { type: 'object', description: 'x'.repeat(20_000) })],
    ['a schema that is none', tool('odd', { type: 'object', properties: { a: { type: 'no-such-type' } } })],
    ['a schema that unfolds to more than anybody can read', tool('folded', folded(20))],
    ['a name that is too long', tool('n'.repeat(100))],
    ['a name that becomes one that is there', tool('look')],
    ['one that differs from it in what names of tools do not have', tool('LOOK')],
  ])('%s leaves that tool out and says so, the others are there (G14)', async (_case, bad) => {
    const { getTools, logged } = world({ tools: bad.name.toLowerCase() === 'look' ? [tool('look'), bad] : [bad, tool('look')] });

    expect((await getTools()).map(({ name }) => name)).toEqual(['notes_look']);
    expect(logged).toContain('a tool of an MCP server cannot be used');
  });

  test('a server cannot stop the start by a name of another server’s tool', async () => {
    const { getTools, logged } = world({ servers: { 'notes-x': { command: 'x' } }, tools: [tool('look'), tool('x_look')] });

    // Both servers have both tools here: `x_look` of notes, and `look` of notes-x.
    expect((await getTools()).map(({ name }) => name)).toEqual(['notes_look', 'notes_x_look', 'notes_x_x_look']);
    expect(logged).toContain('a tool of an MCP server cannot be used');
  });

  test('a pattern of a server is never run here: it could take for ever (G14)', async () => {
    const text = { type: 'string', pattern: '^(a+)+$' };
    const properties = { text, pattern: { type: 'string' }, list: { type: 'array', items: text } };
    const { getTools } = world({ tools: [tool('look', { type: 'object', properties })] });
    const [look] = await getTools();
    const evil = `${'a'.repeat(40)}!`;

    expect(look?.schema.safeParse({ text: evil, pattern: 'kept', list: [evil] }).data).toEqual({
      text: evil,
      pattern: 'kept',
      list: [evil],
    });
    expect(look?.schema.safeParse({ pattern: 5 }).success).toBe(false);
  });

  test('each call carries a signed request of the person who asks', async () => {
    const server = { command: undefined, url: 'https://crm.example.org/mcp', invocation: { capability: 'crm/use ixo:crm' } };
    const { getTools, calls } = world({ server });
    const [look] = await getTools();
    const ucan = { resolveServiceDid: async () => 'did:web:crm.example.org', mintInvocation: async () => 'signed' };

    await look?.handler({}, { ucan, abortSignal: new AbortController().signal } as never);

    expect(calls[0]?.headers).toEqual({ Authorization: 'Bearer signed' });
  });
});

describe('a server that is away at the start', () => {
  test('costs its tools and nothing else, and is there with the first turn after it is back', async () => {
    const { getTools, getRequestTools, state } = world({ away: true });

    expect(await getTools()).toEqual([]);
    expect(await getRequestTools()).toEqual([]);
    await settle();
    state.away = false;
    expect(await getRequestTools()).toEqual([]);
    await settle();

    expect((await getRequestTools()).map(({ name }) => name)).toEqual(['notes_look', 'notes_change']);
  });

  test('is looked for once at a time, however many turns there are', async () => {
    const { getTools, getRequestTools, state } = world({ away: true });
    await getTools();
    state.looks = 0;

    await Promise.all([getRequestTools(), getRequestTools(), getRequestTools()]);

    expect(state.looks).toBe(1);
  });
});

describe('the file', () => {
  test.each([
    ['no JSON', 'x', 'is not JSON'],
    ['no servers', '{}', 'mcpServers'],
    ['a name that no tool could begin with', '{"mcpServers":{"A B":{"command":"x"}}}', 'lower case'],
    ['an address that is no web address', '{"mcpServers":{"a":{"url":"file:///etc/passwd"}}}', 'server a'],
    ['a field that means nothing', '{"mcpServers":{"a":{"command":"x","reads":["y"]}}}', 'server a'],
  ])('%s stops the start with a sentence', (_case, text, said) => {
    expect(() => readServers(text, 'servers.json')).toThrow(said);
  });

  test('a fault in it never shows a value, which may be a key (G12)', () => {
    const text = JSON.stringify({ mcpServers: { a: { url: 'https://a.example', headers: { Authorization: ['secret-key'] } } } });

    expect(() => readServers(text, 'servers.json')).toThrow(/^(?!.*secret-key)/u);
  });
});

test('what a model cannot read is named and left out', () => {
  const content = [
    { type: 'text', text: 'one' },
    { type: 'image', data: 'xxxx', mimeType: 'image/png' },
    { type: 'resource', resource: { uri: 'a', text: 'two' } },
    { type: 'resource_link', uri: 'https://example.org/x' },
    null,
    { type: 5 },
  ];

  expect(readContent(content, 1_000)).toBe('one\n[image left out]\ntwo\n[link: https://example.org/x]\n\n[something left out]');
});
