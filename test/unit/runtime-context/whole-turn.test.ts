/** The groups inside whole turns: what a model, a viewer and a log are shown of what plugins were given. */
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { CompactEncrypt } from 'jose';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import type { MainRunnerOptions } from '../../../src/agent/agent-parts.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { defineOraclePlugin } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';
import type { RunOutcome } from '../../../src/runs/runner.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { textReply, toolCallsReply } from '../../../synapse-dev/model/reply.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { hostOf } from '../../fakes/plugin-host.ts';
import { type Bench, fakeRun, resultsOf, startBench, tool } from '../agent/turn-fixture.ts';

const PROBE = toolCallsReply({ name: 'probe', args: {} });
const benches: Bench[] = [];
afterEach(async () => {
  for (const bench of benches.splice(0)) await bench.close();
});

const VALUE = 'ghp_very_secret_token';
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const value = await new CompactEncrypt(Buffer.from(VALUE))
  .setProtectedHeader({ alg: 'ECDH-ES+A256KW', enc: 'A256GCM' })
  .encrypt(createPublicKey(privateKey));
const secrets = {
  key: privateKey,
  matrix: {
    roomState: async () => [{ type: 'ixo.room.secret.index', stateKey: 'GITHUB', sender: '@alice:test', content: { eventId: '$v' } }],
    event: async () => ({ type: 'ixo.room.secret', sender: '@alice:test', content: { value } }),
  },
};
const readSecret = async ({ secrets: group }: RuntimeContext): Promise<string> => (await group.getValues(['GITHUB']))['GITHUB'] ?? 'none';

async function start(use: (ctx: RuntimeContext) => unknown, plugin: Partial<Parameters<typeof defineOraclePlugin>[0]> = {}) {
  const lines: string[] = [];
  const probe = defineTool({ name: 'probe', description: 'p', schema: z.object({}), effect: 'read', handler: (_args, ctx) => use(ctx) });
  const test = defineOraclePlugin({
    ...{ name: 'probing', version: '1.0.0', manifest: { title: 'P', summary: 'p', whenToUse: ['x'], visibility: 'always' } },
    getTools: () => [tool(probe)],
    ...plugin,
  });
  const host = await hostOf([test]);
  const options: Partial<MainRunnerOptions> = {
    host,
    services: { ...fakeServices({ secrets }), host },
    logger: createLogger({ level: 'debug', format: 'json', destination: { write: (line) => lines.push(line) } }),
  };
  const bench = await startBench({ options });
  benches.push(bench);
  bench.server.enqueue(PROBE, textReply('done'));
  return { bench, lines };
}
const outputTokens = (outcome: RunOutcome): number => (outcome.kind === 'suspended' ? 0 : (outcome.usage?.outputTokens ?? 0));
const asText = (bench: Bench): string => JSON.stringify(bench.server.requests.map(({ body }) => body));

test('what a tool returns, logs, shows and throws holds no secret, for the model, viewers, the log and the conversation (G12)', async () => {
  const { bench, lines } = await start(async (ctx) => {
    const secret = await readSecret(ctx);
    ctx.logger.info(`asking with ${secret}`);
    ctx.emit.router({ step: `with ${secret}` });
    return { secret, url: `https://example.org/?token=${secret}` };
  });

  const { outcome, output } = await bench.execute();

  expect(resultsOf(outcome)).toEqual(['{"secret":"[secret]","url":"https://example.org/?token=[secret]"}']);
  expect(asText(bench)).toContain('token=[secret]');
  for (const seen of [asText(bench), JSON.stringify(outcome), JSON.stringify(output), lines.join()]) expect(seen).not.toContain(VALUE);
});

test('nor does an error', async () => {
  const { bench, lines } = await start(async (ctx) => {
    throw new Error(`401 for ${await readSecret(ctx)}`);
  });

  const { outcome } = await bench.execute();

  expect(resultsOf(outcome)).toEqual(['The tool failed: 401 for [secret]']);
  expect(`${asText(bench)}${lines.join()}`).not.toContain(VALUE);
});

test('a secret at the place where a long result is cut leaves no half of itself (G12)', async () => {
  const { bench } = await start(async (ctx) => `${'x'.repeat(14_340)}${'y'.repeat(5_605)}${await readSecret(ctx)}${'z'.repeat(20_000)}`);

  const { outcome } = await bench.execute();

  expect(resultsOf(outcome)[0]).not.toContain('ghp_');
});

test('what a plugin writes into the prompt holds none either (G12)', async () => {
  const { bench } = await start(() => 'ok', {
    getPromptContribution: async (ctx) => `The token is ${await readSecret(ctx)}.`,
    getUserContext: async (ctx) => ({ token: await readSecret(ctx) }),
  });

  await bench.execute();

  expect(asText(bench)).toContain('The token is [secret].');
  expect(asText(bench)).not.toContain(VALUE);
});

test("a plugin's own model calls are calls of the run: they are counted with it", async () => {
  const { bench } = await start(async ({ llm }) => (await llm.get('utility').invoke('sum it up')).text);
  bench.server.reset();
  bench.server.enqueue(PROBE, textReply('the sum'), textReply('done'));
  const control = await start(() => 'the sum');

  const [asking, silent] = [await bench.execute(), await control.bench.execute()];

  expect([resultsOf(asking.outcome), resultsOf(silent.outcome)]).toEqual([['the sum'], ['the sum']]);
  expect(bench.server.requests).toHaveLength(3);
  expect(outputTokens(asking.outcome)).toBeGreaterThan(outputTokens(silent.outcome));
});

test('what one person keeps is not there for the next one in the same process (G13)', async () => {
  const { bench } = await start(async ({ storage }) => {
    const before = await storage.list();
    await storage.put('k', 'mine');
    return before;
  });
  await bench.execute();
  bench.server.enqueue(PROBE, textReply('done'));
  bench.server.enqueue(PROBE, textReply('done'));

  const again = await bench.execute();
  const bob = {
    principalId: 'did:key:zBob',
    owner: 'did:key:zBob',
    did: 'did:key:zBob',
    matrixUserId: '@bob:test',
    sessionId: '$bob',
  } as never;
  const other = await bench.execute({ run: fakeRun(bob) });

  expect(resultsOf(again.outcome)).toEqual(['[{"key":"k","value":"mine"}]']);
  expect(resultsOf(other.outcome)).toEqual(['[]']);
});
