/**
 * Orders from the command line: there is no admin over HTTP, the CLI writes a row and the running process executes it, so that two
 * programs never change the same state at once. Looked at every second; an order given while no process runs is carried out at the next start.
 * Each kind of order is one function in a table, so that a further one needs no change here.
 */
import type { EventId, RoomId } from '../ids.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Logger } from '../observe/logger.ts';
import { StorageError, type Store, type Tx } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { repeat } from './repeat.ts';

/**
 * Carries out one order. It says how that went with `done`, in the transaction that does it (its last, if it takes several): after a crash an order
 * is carried out either never, and then again, or once. It may throw, and is tried again only when the disk failed it, or when it returned without
 * having said how it went: it waits for something.
 */
export type Order = (argument: string, done: (tx: Tx, outcome: string) => void) => Promise<void>;

export interface ControlOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nudge: (room: RoomId) => void;
  /** By `control.kind`, beside those of the inbox. */
  readonly orders?: Readonly<Record<string, Order>>;
}
const POLL_MS = 1_000;
const BATCH = 100;

export function obeyControl({ store, inbox, clock, logger, nudge, orders = {} }: ControlOptions): { stop(): void } {
  const { sql } = store;
  const known = new Map<string, Order>(Object.entries({ 'inbox.requeue': requeue, ...orders }));

  async function requeue(argument: string, done: Parameters<Order>[1]): Promise<void> {
    const room = await store.write((tx) => {
      const row = tx.get(
        sql
          .selectFrom('inbox')
          .select(['id', 'room_id'])
          .where('event_id', '=', argument as EventId),
      );
      const isBack = row !== undefined && inbox.requeue(tx, row.id);
      done(tx, isBack ? 'requeued' : 'not found among the dead rows');
      return isBack ? row.room_id : null;
    });
    if (room !== null) nudge(room);
  }

  async function carryOut({ id, kind, argument }: { id: number; kind: string; argument: string }): Promise<void> {
    let isDone = false;
    const done = (tx: Tx, outcome: string): void => {
      isDone = true;
      tx.run(sql.updateTable('control').set({ done_at: clock.now(), outcome }).where('id', '=', id));
    };
    const order = known.get(kind);
    try {
      if (order === undefined) await store.write((tx) => done(tx, 'unknown order'));
      else await order(argument, done);
    } catch (error) {
      if (error instanceof StorageError) throw error;
      // A bug: tried every second for ever it would keep every later order from being carried out.
      logger.error({ reason: kind, err: error }, 'an order of the command line failed');
      await store.write((tx) => done(tx, 'failed: see the log'));
    }
    // One that waits for something says nothing yet, and is looked at again.
    if (isDone) logger.info({ reason: kind }, 'an order of the command line was carried out');
  }

  async function look(): Promise<void> {
    const waiting = store.read.all(
      sql.selectFrom('control').select(['id', 'kind', 'argument']).where('done_at', 'is', null).orderBy('id').limit(BATCH),
    );
    for (const order of waiting) await carryOut(order);
  }
  return repeat(look, {
    clock,
    pauseMs: POLL_MS,
    onError: (error) => logger.warn({ err: error }, 'orders of the command line could not be read'),
  });
}
