import { statSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { EventId, RunId, TokenId } from '../../../src/ids.ts';
import { sha256Base64Url } from '../../../src/json.ts';
import type { Paced } from '../../../src/turn/throttle.ts';
import { newNonce, signContent } from '../../../src/ucan/mint.ts';
import { findSpent, isSpentOnAnother, pruneSpent, spend } from '../../../src/ucan/replay.ts';
import { ALICE_KEY, buildCore, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, eventId, incoming, ROOM } from '../../fakes/events.ts';
import { fileStore, memoryStore, settle } from '../../fakes/memory-store.ts';

const tokenOf = (name: string) => ({ tokenId: sha256Base64Url(name) as TokenId, keepUntil: 1_000, bodyHash: null });

test('a token is spent on one prompt: the same prompt again is a redelivery, another a replay', async () => {
  const store = memoryStore();
  const token = tokenOf('a');
  const prompt = { promptId: '$a', runId: 'run' as RunId };

  await store.write((tx) => spend(store, tx, token, prompt));
  await store.write((tx) => spend(store, tx, token, { promptId: '$b', runId: null }));

  expect(isSpentOnAnother(store, store.read, token.tokenId, '$a')).toBe(false);
  expect(isSpentOnAnother(store, store.read, token.tokenId, '$b')).toBe(true);
  expect(isSpentOnAnother(store, store.read, tokenOf('b').tokenId, '$b')).toBe(false);
  expect(findSpent(store, token.tokenId)).toEqual({ runId: 'run', bodyHash: null });
});

test('a mark is kept until its moment and forgotten after it, however many there are', async () => {
  const store = memoryStore();
  await store.write((tx) => {
    for (let n = 0; n < 6_000; n += 1) spend(store, tx, tokenOf(`${n}`), { promptId: `$${n}`, runId: null });
    spend(store, tx, { ...tokenOf('later'), keepUntil: 1_001 }, { promptId: '$later', runId: null });
  });

  expect(await pruneSpent(store, 1_000)).toBe(0);
  expect(await pruneSpent(store, 1_001)).toBe(5_000);
  expect(await pruneSpent(store, 1_001)).toBe(1_000);
  expect(findSpent(store, tokenOf('later').tokenId)).toBeDefined();
});

/** A signed message as far as the checks take it; `open` decides. */
async function pacedMessage(core: ReturnType<typeof buildCore>): Promise<Paced> {
  const content = signContent(
    {
      ...{ key: ALICE_KEY, audience: ORACLE_KEY.did, room: ROOM, sender: ALICE },
      ...{ type: 'm.room.message', ts: core.clock.now(), nonce: newNonce() },
    },
    { msgtype: 'm.text', body: 'once' },
  );
  let seen: Paced | undefined;
  const { throttle } = core.checks;
  const spy = {
    ...core.checks,
    throttle: async (funded: Parameters<typeof throttle>[0]) => {
      const paced = await throttle(funded);
      if (paced.ok) seen = paced.value;
      return paced;
    },
  };
  Object.assign(core.checks, spy);
  await core.joinDirect();
  core.execute = null;
  await core.take(incoming('first', { content }));
  await settle();
  if (seen === undefined) throw new Error('the message was refused');
  return seen;
}

test('of twenty concurrent uses of one token exactly one opens a run', async () => {
  const core = buildCore();
  const paced = await pacedMessage(core);
  const token = { ...paced.token, tokenId: sha256Base64Url('fresh') as TokenId } as NonNullable<Paced['token']>;
  const before = core.count('pending_inputs');

  const opened = await Promise.all(
    Array.from({ length: 20 }, (_, n) => {
      const promptId: EventId = eventId(`copy${n}`);
      const message = { ...paced.incoming, eventId: promptId, alongside: () => undefined } as Paced['incoming'];
      return core.checks.open({ ...paced, incoming: message, token, promptId });
    }),
  );

  expect(opened.filter(({ ok }) => ok)).toHaveLength(1);
  expect(opened.filter((one) => !one.ok && one.error.code === 'REPLAY')).toHaveLength(19);
  expect(core.count('pending_inputs')).toBe(before + 1);
});

test('a mark outlives every moment at which its token could still be valid: expiry, skew and lateness', async () => {
  const core = buildCore();
  const paced = await pacedMessage(core);
  const expiresAt = Math.floor(core.clock.now() / 1_000 + 300) * 1_000;

  expect(paced.token?.keepUntil).toBe(expiresAt + 60_000 + 15 * 60_000);
});

test('100,000 live marks take at most 64 MiB on disk', async () => {
  const { path, open } = fileStore();
  const store = open();
  for (let from = 0; from < 100_000; from += 10_000) {
    await store.write((tx) => {
      for (let n = from; n < from + 10_000; n += 1) {
        const tokenId = sha256Base64Url(`${n}`) as TokenId;
        // Over HTTP, where a mark is longest: the prompt is named after the token, and the body's hash stands beside it.
        const token = { tokenId, keepUntil: 1_900_000_000_000 + n, bodyHash: tokenId };
        spend(store, tx, token, { promptId: `http:${tokenId}`, runId: '01JDZZZZZZZZZZZZZZZZZZZZZZ' as RunId });
      }
    });
  }
  store.close();

  expect(statSync(path).size).toBeLessThanOrEqual(64 * 1024 * 1024);
});
