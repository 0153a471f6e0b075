/** The bundled plugins as people and operators meet them: on a real homeserver, over HTTP, with a real MCP server, and paid for. */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import type { JsonObject } from '../../src/json.ts';
import type { SigningKey } from '../../src/ucan/signing-key.ts';
import { findFreePort } from '../../synapse-dev/homeserver/ports.ts';
import type { ChatRequest } from '../../synapse-dev/model/chat-request.ts';
import { createGate, textReply, toolCallsReply } from '../../synapse-dev/model/reply.ts';
import { errorOf, eventually, type Person, type TestOracle, useWorld } from './harness.ts';
import { send } from './portal-client.ts';

const world = useWorld({ oracles: 10 });
const MCP_SERVER = fileURLToPath(new URL('../../node_modules/@modelcontextprotocol/server-everything/dist/index.js', import.meta.url));

const chats = (oracle: TestOracle): ChatRequest[] => oracle.model.requests.flatMap(({ chat }) => (chat === undefined ? [] : [chat]));
const systemOf = (request: ChatRequest | undefined): string => request?.messages.find(({ role }) => role === 'system')?.text ?? '';
const toolsOf = (request: ChatRequest | undefined): string[] => request?.tools.map(({ name }) => name) ?? [];
const resultsIn = (request: ChatRequest | undefined): string[] =>
  request?.messages.filter(({ role }) => role === 'tool').map(({ text }) => text) ?? [];

// Credits

/** A credit per token, so that what a run cost is what its record says. */
const PAID = { CREDITS_PRICES: '*=1000/1000', CREDITS_HOLD: '100', RATE_LIMIT: '1000' };

interface Books {
  readonly balance: number;
  readonly held: number;
  readonly granted: number;
  readonly spent: number;
  readonly tokens: number;
}
/** Of everybody together. `tokens` is what the records of the runs say, not what the books do. */
function readBooks(oracle: TestOracle): Books {
  const [books] = oracle.rows<Books & JsonObject>(`SELECT
    (SELECT coalesce(sum(balance), 0) FROM credit_accounts) AS balance,
    (SELECT coalesce(sum(amount), 0) FROM credit_holds) AS held,
    (SELECT coalesce(sum(amount), 0) FROM credit_entries WHERE kind = 'grant') AS granted,
    (SELECT coalesce(-sum(amount), 0) FROM credit_entries WHERE kind = 'settle') AS spent,
    (SELECT coalesce(sum(json_extract(usage, '$.inputTokens') + json_extract(usage, '$.outputTokens')), 0) FROM runs) AS tokens`);
  if (books === undefined) throw new Error('no books');
  return books;
}
const didOf = (person: Person): string => person.did();

test('without credits nobody is answered and no model is asked; with some an answer costs what its record says, and !balance tells the rest', async () => {
  const oracle = await world.oracle(PAID);
  await oracle.start();
  oracle.model.respond(() => textReply('That is worth its price.'));
  const person = await world.person();
  const talk = await person.direct(oracle);

  await talk.say('Am I answered?');
  const refused = await talk.notice('OUT_OF_CREDITS');
  const poor = await talk.ask('!balance');
  const granted = await oracle.cli('credits', 'grant', didOf(person), '1000', '--reason', 'December');
  const answered = await talk.ask('And now?');
  const rich = await talk.ask('!balance');

  expect(errorOf(refused.content)).toMatchObject({ code: 'OUT_OF_CREDITS' });
  expect(poor.text).toBe('You have no credits.');
  expect(granted).toContain('1000');
  expect(answered.text).toBe('That is worth its price.');
  expect(oracle.model.requests).toHaveLength(1);
  const { balance, held, spent, tokens } = readBooks(oracle);
  expect({ spent, held }).toEqual({ spent: tokens, held: 0 });
  expect(spent).toBeGreaterThan(0);
  expect(balance).toBe(1_000 - spent);
  expect(rich.text).toContain(String(balance));
  expect(await oracle.cli('credits', 'show', didOf(person))).toContain('December');

  await oracle.cli('credits', 'grant', '--', didOf(person), String(-balance));
  const path = `/messages/${encodeURIComponent(answered.prompt)}`;
  const call = { oracle, key: person.key as SigningKey, sender: person.userId, room: talk.roomId, path, thread: answered.prompt };
  const response = await send({ ...call, body: { message: 'And over HTTP?' } });
  expect([response.status, await response.json()]).toEqual([402, expect.objectContaining({ code: 'OUT_OF_CREDITS' })]);
  expect(oracle.model.requests).toHaveLength(1);
});

test('50 runs at once never overspend one account, and every credit is accounted for', async () => {
  const oracle = await world.oracle({ ...PAID, MAX_CONCURRENT_RUNS: '50' });
  await oracle.start();
  const person = await world.person();
  const talk = await person.group(oracle);
  // Holds for twenty; what the others are told is that there is no more.
  await oracle.cli('credits', 'grant', didOf(person), '2000');
  const gate = createGate();
  oracle.model.respond(() => textReply(['All ', 'at once.'], { holds: [{ gate, before: 1 }] }));
  const mention = { 'm.mentions': { user_ids: [oracle.userId] } };

  const prompts = await Promise.all(Array.from({ length: 50 }, (_, n) => talk.say(`Question ${n}`, mention)));
  await eventually(() => oracle.rows("SELECT run_id FROM runs WHERE status = 'running'").length === 20, 60_000);
  const during = readBooks(oracle);
  gate.release();
  await eventually(() => oracle.rows('SELECT run_id FROM runs WHERE ended_at IS NULL').length === 0, 60_000);

  expect(during).toMatchObject({ balance: 0, held: 2_000 });
  const { balance, held, spent, tokens } = readBooks(oracle);
  expect(held).toBe(0);
  expect(balance + spent).toBe(2_000);
  // A run may need more than there was left: then it ends, and what it had used is paid.
  expect(spent).toBeLessThanOrEqual(tokens);
  expect(oracle.rows('SELECT principal_id FROM credit_accounts WHERE balance < 0')).toEqual([]);
  const runs = oracle.rows<{ prompt_id: string }>('SELECT prompt_id FROM pending_inputs');
  expect(runs.length).toBeGreaterThanOrEqual(20);
  expect(runs.every(({ prompt_id }) => prompts.includes(prompt_id))).toBe(true);
  expect(oracle.model.requests.length).toBeLessThanOrEqual(runs.length);
});

// Memory and preferences

test('what was remembered in one conversation is known in the next one, and to nobody else (G13)', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const [person, other] = await Promise.all([world.person(), world.person()]);
  const first = await person.direct(oracle);
  const fact = 'The user is allergic to hazelnuts.';
  oracle.model.enqueue(toolCallsReply({ name: 'remember', args: { fact, subject: 'identity' } }), textReply('I will remember.'));
  await first.ask('Please remember that I am allergic to hazelnuts.');

  oracle.model.enqueue(textReply('Lentils, of course.'), textReply('Anything.'));
  const second = await person.direct(oracle);
  await second.ask('What shall I cook?');
  await (await other.direct(oracle)).ask('What shall I cook?');

  const [, , known, stranger] = chats(oracle);
  expect(systemOf(known)).toContain(fact);
  expect(systemOf(stranger)).not.toContain('hazelnuts');
});

test('preferences that a portal sets count in the room, and what is said in the room is shown to the portal', async () => {
  const oracle = await world.oracle();
  await oracle.start();
  const person = await world.person();
  if (person.key === null) throw new Error('this person signs');
  const talk = await person.direct(oracle);
  oracle.model.enqueue(textReply('Hello.'));
  await talk.ask('hello');
  const call = { oracle, key: person.key, sender: person.userId, room: talk.roomId, path: '/user-preferences' } as const;

  const put = await send({ ...call, method: 'PUT', body: { language: 'Portuguese', tone: 'friendly' } });
  const get = () => send({ ...call, method: 'GET' }).then((response) => response.json());
  const set = { name: 'set_user_preferences', args: { tone: 'dry', name: 'Ada' } };
  oracle.model.enqueue(toolCallsReply(set), textReply('Very well.'));
  await talk.ask('Be drier, and call me Ada.');

  expect([put.status, await put.json()]).toEqual([200, { language: 'Portuguese', tone: 'friendly' }]);
  expect(systemOf(chats(oracle)[0])).not.toContain('Portuguese');
  expect(systemOf(chats(oracle)[1])).toContain('Portuguese');
  expect(await get()).toEqual({ language: 'Portuguese', tone: 'dry', name: 'Ada' });
  expect((await fetch(`${oracle.sidecarUrl()}/user-preferences`)).status).toBe(401);
});

// MCP servers, and loading

async function startMcpServer(): Promise<string> {
  const port = await findFreePort();
  const child: ChildProcess = spawn(process.execPath, [MCP_SERVER, 'streamableHttp'], {
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
  return `http://127.0.0.1:${port}/mcp`;
}

test.each(['stdio', 'http'] as const)(
  'a tool of an MCP server over %s is loaded and used within one turn, and what it said taints the run',
  async (transport) => {
    const server = transport === 'stdio' ? { command: process.execPath, args: [MCP_SERVER, 'stdio'] } : { url: await startMcpServer() };
    const oracle = await world.oracle();
    const file = `${oracle.dataDir}-mcp.json`;
    writeFileSync(file, JSON.stringify({ mcpServers: { every: { ...server, read: ['echo'] } } }));
    await oracle.start({ MCP_CONFIG_FILE: file });
    const talk = await (await world.person()).direct(oracle);
    oracle.model.enqueue(
      toolCallsReply({ name: 'load_capability', args: { names: ['mcp'] } }),
      toolCallsReply({ name: 'every_echo', args: { message: 'from afar' } }),
      // A write with external effect, in a run that has read words of strangers.
      toolCallsReply({ name: 'every_get_sum', args: { a: 1, b: 2 } }),
      textReply('That is all.'),
      toolCallsReply({ name: 'every_echo', args: { message: 'once more' } }),
      textReply('It is still loaded.'),
    );

    const answer = await talk.ask('Ask the other program.');
    await talk.ask('Again.');

    const [before, loaded, echoed, refused, later] = chats(oracle);
    expect(answer.text).toBe('That is all.');
    expect(toolsOf(before)).toContain('load_capability');
    expect(toolsOf(before).filter((name) => name.startsWith('every_'))).toEqual([]);
    expect(toolsOf(loaded)).toEqual(expect.arrayContaining(['every_echo', 'every_get_sum']));
    expect(resultsIn(echoed).at(-1)).toContain('from afar');
    expect(resultsIn(refused).at(-1)).toMatch(/NEEDS_CONFIRMATION|confirm/iu);
    // Of the thread, not of the turn.
    expect(toolsOf(later)).toContain('every_echo');
    expect(oracle.rows('SELECT tainted FROM runs WHERE tainted = 1').length).toBeGreaterThan(0);
  },
);

test('`plugins --json` and /health say the same: what is loaded, and why the rest is not', async () => {
  const oracle = await world.oracle({ FEATURES: 'room=off' });
  await oracle.start();

  const { loaded, excluded } = JSON.parse(await oracle.cli('plugins', '--json'));
  const parts = (await oracle.health())['parts'] as { name: string; ok: boolean; detail: string }[];

  const names = loaded.map(({ name }: { name: string }) => name);
  expect(names).toEqual(['clock', 'memory', 'user-preferences']);
  expect(excluded).toContainEqual({ name: 'room', reason: 'switched off' });
  const plugins = parts.find(({ name }) => name === 'plugins');
  expect(plugins?.ok).toBe(true);
  for (const name of names) expect(plugins?.detail).toContain(name);
});
