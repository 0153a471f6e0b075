/**
 * What authority costs: a two-link token beside stock ucanto in the same run, the worst hostile token that is known, the longest time that nothing else runs
 * while one transaction brings 200 hostile events, and a replay mark among 100,000. Times of hostile input are the median of several tries, because
 * the question is what the input does and not what else the machine did.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTask } from 'node:timers/promises';
import { Delegation } from '@ucanto/core';
import { Verifier } from '@ucanto/principal';
import { access, capability, Schema } from '@ucanto/validator';
import type { Compilable } from 'kysely';
import { createRunIds, type Did, type EventId, type RoomId, type TokenId, type UserId } from '../../src/ids.ts';
import { createDispatcher } from '../../src/inbox/dispatcher.ts';
import type { IncomingEvent } from '../../src/inbox/inbox.ts';
import { err } from '../../src/result.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { bindToEvent } from '../../src/ucan/bind-event.ts';
import { createVerifier } from '../../src/ucan/chain.ts';
import { contentHash } from '../../src/ucan/content-hash.ts';
import { gateDelegation, gateInvocation } from '../../src/ucan/gate.ts';
import { mintGrant, mintMessageInvocation, newNonce } from '../../src/ucan/mint.ts';
import { spend } from '../../src/ucan/replay.ts';
import { generateKey } from '../../src/ucan/signing-key.ts';
import { buildCore } from '../fakes/core.ts';
import { fakeClock } from '../fakes/fake-clock.ts';
import type { Vector } from '../vectors/ucan/cast.ts';
import { readVectors, runVector } from '../vectors/ucan/run.ts';
import { median, quantile, round } from './measure.ts';

export async function benchUcan(onProgress: (line: string) => void): Promise<Record<string, number>> {
  onProgress('two-link tokens, ours and stock ucanto in turn');
  const verify = await benchVerify();
  onProgress('every hostile vector');
  const hostile = await benchHostile();
  onProgress('transactions of 200 hostile events');
  const loop = await benchLoop(hostile.worst);
  onProgress('replay marks');
  const replay = await benchReplay();
  return { ...verify, ...hostile.figures, ...loop, ...replay };
}

// A message of a session key, its grant in the file

const WARM_UP = 100;
const TOKENS = 500;
const CONTENT = { msgtype: 'm.text', body: 'What is on my list for today, and what of it is urgent?' };

async function benchVerify(): Promise<Record<string, number>> {
  const now = Date.now();
  const [user, session, oracle] = [generateKey(), generateKey(), generateKey()];
  const event = { roomId: '!dm:example.org' as RoomId, sender: '@alice:example.org' as UserId, type: 'm.room.message' };
  const mint = (): string => {
    const grant = gateDelegation(
      mintGrant({
        ...{ key: user, audience: session.did, capabilities: [{ can: 'oracle/message', with: user.did }] },
        ...{ expiresAt: now + 3_600_000, nonce: newNonce() },
      }),
    );
    if (!grant.ok) throw new Error(grant.error);
    const { roomId: room, sender, type } = event;
    return mintMessageInvocation({
      ...{ key: session, as: user.did, proofs: [grant.value], audience: oracle.did, room, sender, type, content: CONTENT },
      ...{ ts: now, nonce: newNonce() },
    });
  };

  const verifier = createVerifier({
    findToken: () => undefined,
    keysOf: async () => err('DID_NOT_RESOLVED'),
    isRevoked: () => false,
    now: Date.now,
  });
  async function ours(inv: string): Promise<void> {
    const gated = gateInvocation(inv);
    if (!gated.ok) throw new Error(gated.error);
    const verified = await verifier.invocation(gated.value);
    if (!verified.ok) throw new Error(verified.error);
    const facts = { ...event, content: CONTENT, originServerTs: now };
    const bound = bindToEvent(verified.value, facts, { oracleDid: oracle.did as Did, now: Date.now(), maxLatenessMs: 900_000 });
    if (!bound.ok) throw new Error(bound.error);
  }

  const Message = capability({ can: 'oracle/message', with: Schema.did(), nb: Schema.unknown() as never });
  const rules = {
    ...{ capability: Message as never, authority: Verifier.parse(oracle.did as `did:key:${string}`), principal: Verifier },
    validateAuthorization: () => ({ ok: {} }),
    resolveDIDKey: () => ({ error: new Error('none') }) as never,
  };
  async function stock(inv: string): Promise<void> {
    const extracted = await Delegation.extract(Buffer.from(inv, 'base64url'));
    if (extracted.ok === undefined) throw new Error('stock ucanto cannot read what we mint');
    contentHash(CONTENT);
    const allowed = await access(extracted.ok as never, rules);
    if (allowed.ok === undefined) throw new Error('stock ucanto refuses what we mint');
  }

  const times: [ours: number[], stock: number[]] = [[], []];
  for (let n = 0; n < WARM_UP + TOKENS; n += 1) {
    const inv = mint();
    for (const [which, verifyOne] of [ours, stock].entries()) {
      const before = performance.now();
      await verifyOne(inv);
      if (n >= WARM_UP) times[which]?.push(performance.now() - before);
    }
  }
  const [mine, theirs] = times.map(median) as [number, number];
  return {
    verify_p50_ms: round(mine, 3),
    verify_p95_ms: round(quantile(times[0], 0.95), 3),
    verify_stock_p50_ms: round(theirs, 3),
    verify_speedup: round(theirs / mine),
  };
}

// Hostile tokens

const TRIES = 9;
const MESSAGE_BYTES = 4 * 1024;

async function benchHostile() {
  const hostile = readVectors().filter(({ expect }) => expect !== 'ok');
  // Once for the compiler, and again to measure.
  for (const vector of hostile) await runVector(vector);
  const measured: { vector: Vector; ms: number; bytes: number }[] = [];
  for (const vector of hostile) {
    const tries: number[] = [];
    for (let n = 0; n < TRIES; n += 1) {
      const before = performance.now();
      await runVector(vector);
      tries.push(performance.now() - before);
    }
    const bytes = [vector.token, ...(vector.beside ?? [])].reduce((sum, text) => sum + Buffer.byteLength(text, 'base64url'), 0);
    measured.push({ vector, ms: median(tries), bytes });
  }
  const worstOf = (some: typeof measured): number => round(Math.max(...some.map(({ ms }) => ms)), 2);
  const events = measured.filter(({ vector }) => vector.as === 'event').sort((a, b) => b.ms - a.ms);
  return {
    worst: events.slice(0, 20).map(({ vector }) => vector),
    figures: {
      hostile_max_ms: worstOf(measured.filter(({ bytes }) => bytes <= MESSAGE_BYTES)),
      hostile_16k_max_ms: worstOf(measured),
      hostile_vectors: hostile.length,
    },
  };
}

// One transaction

const EVENTS = 200;
const ROUNDS = 5;

async function benchLoop(worst: readonly Vector[]): Promise<Record<string, number>> {
  const blocks: number[] = [];
  const perRooms = new Map<number, number[]>([
    [1, []],
    [EVENTS, []],
  ]);
  for (let n = 0; n <= ROUNDS; n += 1) {
    for (const [rooms, some] of perRooms) {
      const block = await measureTransaction(worst, rooms);
      if (n > 0) some.push(block); // the first is for the compiler
    }
  }
  for (const some of perRooms.values()) blocks.push(median(some));
  return {
    loop_block_max_ms: round(Math.max(...blocks)),
    loop_block_one_room_ms: round(blocks[0] ?? Number.NaN),
    loop_block_200_rooms_ms: round(blocks[1] ?? Number.NaN),
  };
}

/** The longest time between two turns of the event loop, from the bytes of the transaction to the last refusal. */
async function measureTransaction(worst: readonly Vector[], rooms: number): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-bench-'));
  const context = (worst[0] as Vector).context;
  const clock = fakeClock(context.now);
  const store = openStore({ path: join(folder, 'oracle.db'), now: clock.now() });
  try {
    const core = buildCore({ store, clock });
    const roomOf = (n: number): RoomId => `!bench${n % rooms}:example.org` as RoomId;
    for (let n = 0; n < rooms; n += 1) await core.joinDirect(roomOf(n));
    let left = EVENTS;
    let done = (): void => undefined;
    const finished = new Promise<void>((resolve) => {
      done = resolve;
    });
    const dispatcher = createDispatcher({
      ...{
        inbox: core.inbox,
        store,
        clock,
        logger: core.logger,
        giveUp: (row) => core.admit.giveUp(row),
        heldUntil: () => null,
        maxRooms: 64,
      },
      handle: async (row) => {
        await core.admit.handle(row);
        left -= 1;
        if (left === 0) done();
      },
    });
    dispatcher.start();
    const transaction = JSON.stringify({
      events: Array.from({ length: EVENTS }, (_, n) => buildEvent(worst[n % worst.length] as Vector, n, roomOf(n))),
    });
    await nextTask();
    const longest = watchLoop();
    const { events } = JSON.parse(transaction) as { events: Record<string, any>[] };
    await core.inbox.receive(events.map(readEvent));
    await finished;
    await nextTask();
    const block = longest();
    await dispatcher.stop();
    const refused = core.admitted.filter((outcome) => outcome.startsWith('refuse')).length;
    if (core.count('runs') > 0 || core.admitted.length !== EVENTS)
      throw new Error(`a hostile event was not refused: ${core.admitted.length}, ${refused}`);
    return block;
  } finally {
    store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** 200 people, so that nobody is stopped for writing too much. */
const buildEvent = ({ token, beside, context }: Vector, n: number, room: RoomId) => ({
  event_id: `$bench${n}`,
  room_id: room,
  sender: `@u${n}:example.org`,
  type: 'm.room.message',
  origin_server_ts: context.event?.originServerTs,
  content: {
    msgtype: 'm.text',
    body: 'hello',
    'ixo.oracle.ucan': { v: 1, inv: token || 'A', ...(beside === undefined ? {} : { dlg: beside }) },
  },
});
const readEvent = (event: Record<string, any>): IncomingEvent => ({
  ...{ eventId: event['event_id'] as EventId, roomId: event['room_id'] as RoomId, sender: event['sender'] as string },
  ...{ type: event['type'] as string, ageMs: 0, source: 'push', event: event as IncomingEvent['event'] },
});

function watchLoop(): () => number {
  let last = performance.now();
  let longest = 0;
  let watching = true;
  const turn = (): void => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    if (watching) setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    watching = false;
    return longest;
  };
}

// Replay marks

const MARKS = 100_000;
const BATCH = 5_000;
const INSERTS = 1_000;

async function benchReplay(): Promise<Record<string, number>> {
  const folder = mkdtempSync(join(tmpdir(), 'matrix-oracle-bench-'));
  const store = openStore({ path: join(folder, 'oracle.db'), now: Date.now() });
  try {
    const newRunId = createRunIds();
    const id = (bytes: number): string => randomBytes(bytes).toString('base64url');
    const insert = (tx: Parameters<typeof spend>[1], n: number): void => {
      const token = { tokenId: id(32) as TokenId, keepUntil: Date.now() + n, bodyHash: id(32) };
      spend(store, tx, token, { promptId: `$${id(32)}`, runId: newRunId(Date.now()) });
    };
    const before = sizeOf(store);
    for (let from = 0; from < MARKS; from += BATCH) {
      await store.write((tx) => {
        for (let n = from; n < from + BATCH; n += 1) insert(tx, n);
      });
    }
    const bytes = sizeOf(store) - before;
    const times: number[] = [];
    for (let n = 0; n < INSERTS; n += 1) {
      // One in a commit of its own each, as a turn does; only the statement is measured.
      await store.write((tx) => {
        const start = performance.now();
        insert(tx, n);
        times.push(performance.now() - start);
      });
    }
    return { replay_insert_p50_ms_100k: round(median(times), 3), replay_marks_100k_bytes: bytes };
  } finally {
    store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function sizeOf(store: Store): number {
  const pragma = (name: string): number => {
    const query = { compile: () => ({ sql: `PRAGMA ${name}`, parameters: [] }) } as unknown as Compilable<Record<string, number>>;
    return Object.values(store.read.get(query) ?? {})[0] ?? Number.NaN;
  };
  return pragma('page_count') * pragma('page_size');
}
