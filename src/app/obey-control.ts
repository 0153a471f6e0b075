/**
 * Orders from the command line: there is no admin over HTTP, the CLI writes a row and the running process executes it, so that two
 * programs never change the same state at once. Looked at every second; an order given while no process runs is carried out at the next start.
 */
import type { RoomId } from '../ids.ts';
import type { Inbox } from '../inbox/inbox.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { repeat } from './repeat.ts';

export interface ControlOptions {
  readonly store: Store;
  readonly inbox: Inbox;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly nudge: (room: RoomId) => void;
}
const POLL_MS = 1_000;
const BATCH = 100;

export function obeyControl({ store, inbox, clock, logger, nudge }: ControlOptions): { stop(): void } {
  const { sql } = store;

  async function look(): Promise<void> {
    const orders = store.read.all(
      sql.selectFrom('control').select(['id', 'kind', 'argument']).where('done_at', 'is', null).orderBy('id').limit(BATCH),
    );
    for (const order of orders) {
      const room = await store.write((tx) => {
        const row = tx.get(
          sql
            .selectFrom('inbox')
            .select(['id', 'room_id'])
            .where('event_id', '=', order.argument as never),
        );
        const known = order.kind === 'inbox.requeue';
        const done = known && row !== undefined && inbox.requeue(tx, row.id);
        const outcome = known ? (done ? 'requeued' : 'not found among the dead rows') : 'unknown order';
        tx.run(sql.updateTable('control').set({ done_at: clock.now(), outcome }).where('id', '=', order.id));
        return done ? row.room_id : null;
      });
      logger.info({ reason: order.kind, count: room === null ? 0 : 1 }, 'an order of the command line was carried out');
      if (room !== null) nudge(room);
    }
  }
  return repeat(look, {
    clock,
    pauseMs: POLL_MS,
    onError: (error) => logger.warn({ err: error }, 'orders of the command line could not be read'),
  });
}
