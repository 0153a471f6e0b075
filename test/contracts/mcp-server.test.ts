/** The reference server of the protocol, as a process and over HTTP: what the mcp plugin's connection does with a real one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createMcpConnection, type McpConnection } from '../../plugins/mcp/connection.ts';
import { type McpServer, readServers } from '../../plugins/mcp/settings.ts';

const SERVER = fileURLToPath(new URL('../../node_modules/@modelcontextprotocol/server-everything/dist/index.js', import.meta.url));
const never = new AbortController().signal;

const settings = (server: Record<string, unknown>): McpServer => {
  const read = readServers(JSON.stringify({ mcpServers: { everything: server } }), 'servers.json').get('everything');
  if (read === undefined) throw new Error('no server');
  return read;
};
function connect(server: McpServer): McpConnection {
  const connection = createMcpConnection('everything', server);
  onTestFinished(() => connection.close());
  return connection;
}
const stdio = (more: Record<string, unknown> = {}): McpServer => settings({ command: process.execPath, args: [SERVER, 'stdio'], ...more });

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => void server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
async function startHttp(port: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, [SERVER, 'streamableHttp'], {
    env: { ...process.env, PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  await new Promise<void>((resolve, reject) => {
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    child.stderr?.on('data', (data: Buffer) => {
      if (data.toString().includes('listening')) resolve();
    });
  });
  return child;
}
const http = (port: number, more: Record<string, unknown> = {}): McpServer => settings({ url: `http://127.0.0.1:${port}/mcp`, ...more });

describe.each(['stdio', 'http'] as const)('over %s', (transport) => {
  const open = async (more: Record<string, unknown> = {}): Promise<McpConnection> => {
    if (transport === 'stdio') return connect(stdio(more));
    const port = await freePort();
    await startHttp(port);
    return connect(http(port, more));
  };

  test('its tools are listed with their schemas, and called', async () => {
    const connection = await open();

    const tools = await connection.listTools();
    const echo = tools.find(({ name }) => name === 'echo');

    expect(echo?.inputSchema).toMatchObject({ type: 'object', properties: { message: { type: 'string' } } });
    expect(await connection.callTool('echo', { message: 'hello' }, { signal: never })).toContain('hello');
  });

  test('what it refuses is an error that says why', async () => {
    const connection = await open();

    await expect(connection.callTool('no-such-tool', {}, { signal: never })).rejects.toThrow(/no-such-tool|not found/iu);
  });

  test('a tool that takes too long is given up, and the next call works', async () => {
    const connection = await open({ timeoutMs: 500 });
    await connection.listTools();

    await expect(connection.callTool('trigger-long-running-operation', { duration: 20, steps: 2 }, { signal: never })).rejects.toThrow();

    expect(await connection.callTool('echo', { message: 'again' }, { signal: never })).toContain('again');
  });

  test('who cancels a call ends only that one', async () => {
    const connection = await open();
    await connection.listTools();
    const cancel = new AbortController();

    const call = connection.callTool('trigger-long-running-operation', { duration: 20, steps: 2 }, { signal: cancel.signal });
    const other = connection.callTool('echo', { message: 'beside' }, { signal: never });
    cancel.abort(new Error('cancelled'));

    await expect(call).rejects.toThrow();
    expect(await other).toContain('beside');
  });

  test('a long result is cut, and says so', async () => {
    const connection = await open({ maxResultChars: 1_000 });

    const text = await connection.callTool('echo', { message: 'x'.repeat(5_000) }, { signal: never });

    expect(text.length).toBeLessThan(1_100);
    expect(text).toContain('[cut');
  });
});

test('a server over HTTP that was away is reached again when it is back', async () => {
  const port = await freePort();
  const connection = connect(http(port));
  await expect(connection.listTools()).rejects.toThrow();
  const first = await startHttp(port);
  expect(await connection.callTool('echo', { message: 'one' }, { signal: never })).toContain('one');
  const gone = new Promise((resolve) => void first.once('exit', resolve));
  first.kill('SIGKILL');
  await gone;

  await expect(connection.callTool('echo', { message: 'two' }, { signal: never })).rejects.toThrow();
  await startHttp(port);

  expect(await connection.callTool('echo', { message: 'three' }, { signal: never })).toContain('three');
});

test('the headers of a call go with that call', async () => {
  const port = await freePort();
  await startHttp(port);
  const connection = connect(http(port));

  const text = await connection.callTool('echo', { message: 'signed' }, { signal: never, headers: { Authorization: 'Bearer one' } });

  expect(text).toContain('signed');
});
