/**
 * `matrix-oracle forget` beside a running oracle: their runs are stopped first, and what these last said goes out, so that no message in a room stays
 * half written; then everything goes. An order that waits for that is looked at again every second, and after half a minute waits no longer.
 */
import { sql as raw } from 'kysely';
import { type Did, parseDid, parseUserId, type UserId } from '../ids.ts';
import type { Runs } from '../runs/ledger.ts';
import type { Scheduler } from '../runs/scheduler.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { type ForgetOptions, forgetPerson, type Known, ofPerson, type Person, readPerson } from './forget-person.ts';
import type { Order } from './obey-control.ts';

export const FORGET_ORDER = 'person.forget';

export interface ForgetOrderOptions extends ForgetOptions {
  readonly store: Store;
  readonly runs: Pick<Runs, 'askStop'>;
  readonly scheduler: Pick<Scheduler, 'cancel' | 'wake'>;
  readonly clock: Clock;
}

const GRACE_MS = 30_000;

export function createForgetOrder(options: ForgetOrderOptions): Order {
  const { store, clock } = options;
  const { sql } = store;
  const since = new Map<string, number>();
  return async (argument, done) => {
    const named = readNamed(argument);
    if (named === null) return store.write((tx) => done(tx, 'neither an account nor a DID'));
    const begun = since.get(argument) ?? clock.monotonic();
    since.set(argument, begun);
    const person = readPerson(store, named);
    await stopRuns(person, options);
    if (isUnderWay(store, person) && clock.monotonic() - begun < GRACE_MS) return;
    const known = await forgetPerson(person, options);
    since.delete(argument);
    await store.write((tx) => {
      done(tx, describeForgotten(known));
      // The order names them as well.
      tx.run(sql.updateTable('control').set({ argument: '' }).where('kind', '=', FORGET_ORDER).where('argument', '=', argument));
    });
  };
}

export function readNamed(text: string): UserId | Did | null {
  const account = parseUserId(text);
  if (account.ok) return account.value;
  const did = parseDid(text);
  return did.ok ? did.value : null;
}

export const describeForgotten = ({ runs, messages, conversations, grants }: Known): string =>
  `forgotten: ${runs} runs, ${messages} messages, ${conversations} conversations, ${grants} grants`;

async function stopRuns(person: Person, { store, runs, scheduler, clock }: ForgetOrderOptions): Promise<void> {
  const { sql } = store;
  const working = await store.write((tx) => {
    tx.run(
      sql
        .updateTable('runs')
        .set({ status: 'cancelled', ended_at: clock.now() })
        .where('status', '=', raw.lit('queued'))
        .where('attempt', '=', 0)
        .where(ofPerson(person)),
    );
    const rows = tx.all(
      sql
        .selectFrom('runs')
        .select(['run_id', 'session_id'])
        .where(raw<boolean>`status in ('queued', 'running', 'waiting')`)
        .where(ofPerson(person)),
    );
    for (const { run_id } of rows) runs.askStop(tx, run_id, 'RUN_CANCELLED');
    return rows;
  });
  for (const { run_id, session_id } of working) scheduler.cancel(session_id, run_id);
  if (working.length > 0) scheduler.wake();
}

function isUnderWay({ sql, read }: Store, person: Person): boolean {
  const working = sql
    .selectFrom('runs')
    .select('run_id')
    .where(raw<boolean>`status in ('queued', 'running', 'waiting')`)
    .where(ofPerson(person))
    .limit(1);
  const unsent = sql
    .selectFrom('outbox as o')
    .innerJoin('runs as r', 'r.run_id', 'o.run_id')
    .select('o.seq')
    .where('o.state', '=', raw.lit('ready'))
    .where(ofPerson(person))
    .limit(1);
  return read.get(working) !== undefined || read.get(unsent) !== undefined;
}
