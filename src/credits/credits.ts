/**
 * Who pays for a run (DESIGN §4 G8, G10): credits are set aside when it opens, used up by its model calls, and what is left comes back with its end.
 * A run that has no hold yet (it follows another, or is older than the plugin) gets one before its first model call; the end is settled by a
 * trigger of migration 008, whoever ends it. Without a policy nothing costs anything and nothing is written.
 * Cost: two updates per run, and one per model call.
 */
import type { PrincipalId, RunId, UserId } from '../ids.ts';
import type { CreditPolicy } from '../plugin-api/define-oracle-plugin.ts';
import type { Store, Tx } from '../store/store.ts';
import { type Accounts, createAccounts, MAX_CREDITS } from './accounts.ts';

export interface SpentOn {
  readonly model: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
}
interface Payer {
  readonly id: RunId;
  readonly principalId: PrincipalId;
  readonly matrixUserId: UserId;
}
export interface Credits {
  readonly accounts: Accounts;
  /** False while no plugin brings a price: then everything else here answers "yes" and writes nothing. */
  isActive(): boolean;
  /** Whether a further run can be begun. */
  canBegin(who: { readonly id: PrincipalId; readonly matrixUserId: UserId }): boolean;
  /** Sets aside what a run needs, in the transaction that opens it. False: there is not enough. */
  hold(tx: Tx, run: Payer, now: number): boolean;
  /** Before each model call: whether the run may spend more; takes more from the account when its hold is used up. */
  maySpend(run: Payer, now: number): Promise<boolean>;
  /** After each model call. What goes beyond the hold is taken from the account as far as it reaches, and never further. */
  spend(run: Payer, on: SpentOn): Promise<void>;
  /** The same for what has a price of its own: a tool that is billed. */
  bill(run: Payer, credits: number): Promise<void>;
}

export interface CreditsOptions {
  readonly store: Store;
  /** Asked each time: the plugins are loaded after the first messages are there. */
  readonly policy: () => CreditPolicy | null;
}

export function createCredits({ store, policy }: CreditsOptions): Credits {
  const { sql } = store;
  const accounts = createAccounts({ store, initial: () => wholeCredits(policy()?.initial ?? 0) });
  const holdOf = (tx: Tx, run: RunId) => tx.get(sql.selectFrom('credit_holds').select(['amount', 'spent']).where('run_id', '=', run));
  const isOver = (tx: Tx, run: RunId): boolean =>
    tx.get(sql.selectFrom('runs').select('ended_at').where('run_id', '=', run))?.ended_at != null;

  /** Takes as much of `wanted` as there is. @returns whether it was anything. */
  function raise(tx: Tx, run: Payer, wanted: number): boolean {
    const more = Math.min(Math.max(0, wanted), accounts.balance(tx, run.principalId, run.matrixUserId));
    if (more === 0 || !accounts.take(tx, run.principalId, more)) return false;
    add(tx, run.id, 'amount', more);
    return true;
  }
  function add(tx: Tx, run: RunId, column: 'amount' | 'spent', by: number): void {
    tx.run(
      sql
        .updateTable('credit_holds')
        .set((eb) => ({ [column]: eb(column, '+', by) }))
        .where('run_id', '=', run),
    );
  }

  async function charge(run: Payer, amount: number): Promise<void> {
    const price = wholeCredits(amount);
    if (price === 0) return;
    await store.write((tx) => {
      const held = holdOf(tx, run.id);
      if (held === undefined) return;
      raise(tx, run, held.spent + price - held.amount);
      add(tx, run.id, 'spent', price);
    });
  }

  const credits: Credits = {
    accounts,
    isActive: () => policy() !== null,
    canBegin({ id, matrixUserId }) {
      const rules = policy();
      return rules === null || accounts.balance(store.read, id, matrixUserId) >= holdFor(rules);
    },
    hold(tx, run, now) {
      const rules = policy();
      if (rules === null || holdOf(tx, run.id) !== undefined) return true;
      accounts.open(tx, run.principalId, { user: run.matrixUserId, now });
      const amount = holdFor(rules);
      if (!accounts.take(tx, run.principalId, amount)) return false;
      tx.run(sql.insertInto('credit_holds').values({ run_id: run.id, principal_id: run.principalId, amount, created_at: now }));
      return true;
    },
    async maySpend(run, now) {
      const rules = policy();
      if (rules === null) return true;
      const held = holdOf(store.read, run.id);
      if (held !== undefined && held.spent < held.amount) return true;
      return store.write((tx) => {
        // It may have ended meanwhile: a hold that nobody settles would keep the money.
        if (isOver(tx, run.id)) return false;
        return holdOf(tx, run.id) === undefined ? credits.hold(tx, run, now) : raise(tx, run, holdFor(rules));
      });
    },
    spend: (run, on) => charge(run, policy()?.priceOf(on) ?? 0),
    bill: (run, amount) => charge(run, policy() === null ? 0 : amount),
  };
  return credits;
}

/** A plugin's arithmetic may be anything: a broken price is no price, and parts of a credit count as a whole one. */
const wholeCredits = (value: number): number => (Number.isFinite(value) && value > 0 ? Math.min(Math.ceil(value), MAX_CREDITS) : 0);
/** Nobody begins with nothing. */
const holdFor = (rules: CreditPolicy): number => Math.max(1, wholeCredits(rules.hold));
