/**
 * Who pays for a run (DESIGN §4 G8, G10): credits are set aside when it opens, used up by its model calls, and what is left comes back with its end.
 * An account cannot go below zero, whatever runs side by side: every taking is one conditional update, and the database checks it again. A run that
 * has no hold yet (it follows another, or is older than the plugin) gets one before its first model call; the end is settled by a trigger of
 * migration 008. Without a policy nothing costs anything and nothing is written.
 * Cost: two updates per run, and one per model call.
 */
import type { PrincipalId, RunId } from '../ids.ts';
import type { CreditPolicy } from '../plugin-api/define-oracle-plugin.ts';
import type { Store, Tx } from '../store/store.ts';

export interface SpentOn {
  readonly model: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
}
export interface CreditEntry {
  readonly at: number;
  readonly kind: 'grant' | 'settle';
  readonly amount: number;
  readonly balanceAfter: number;
  readonly runId: RunId | null;
  readonly reason: string | null;
}
interface Payer {
  readonly id: RunId;
  readonly principalId: PrincipalId;
}
export interface Credits {
  /** False while no plugin brings a price: then everything else here answers "yes" and writes nothing. */
  isActive(): boolean;
  /** What is there to spend, without what runs hold. */
  balance(principal: PrincipalId): number;
  /** Whether a further run can be begun. */
  canBegin(principal: PrincipalId): boolean;
  /** Sets aside what a run needs, in the transaction that opens it. False: there is not enough. */
  hold(tx: Tx, run: Payer, now: number): boolean;
  /** Before each model call: whether the run may spend more; takes more from the account when its hold is used up. */
  maySpend(run: Payer, now: number): Promise<boolean>;
  /** After each model call. What goes beyond the hold is taken from the account as far as it reaches, and never further. */
  spend(run: Payer, on: SpentOn): Promise<void>;
  /** By the operator; negative takes back. @returns the balance then, or null when it would fall below zero. */
  grant(tx: Tx, principal: PrincipalId, amount: number, more: { readonly reason: string | null; readonly now: number }): number | null;
  /** Newest first. */
  entries(principal: PrincipalId, limit: number): readonly CreditEntry[];
}

/** A price that no number can hold exactly would be a sum that is not exact. */
const MAX_CREDITS = 2 ** 50;

export interface CreditsOptions {
  readonly store: Store;
  /** Asked each time: the plugins are loaded after the first messages are there. */
  readonly policy: () => CreditPolicy | null;
}

export function createCredits({ store, policy }: CreditsOptions): Credits {
  const { sql } = store;
  const balanceIn = (tx: Tx, principal: PrincipalId): number | undefined =>
    tx.get(sql.selectFrom('credit_accounts').select('balance').where('principal_id', '=', principal))?.balance;
  const holdOf = (tx: Tx, run: RunId) => tx.get(sql.selectFrom('credit_holds').select(['amount', 'spent']).where('run_id', '=', run));

  function open(tx: Tx, principal: PrincipalId, now: number): void {
    const present = balanceIn(tx, principal);
    if (present !== undefined) return;
    const initial = wholeCredits(policy()?.initial ?? 0);
    tx.run(sql.insertInto('credit_accounts').values({ principal_id: principal, balance: initial }));
    if (initial > 0) note(tx, principal, { kind: 'grant', amount: initial, reason: 'initial', runId: null, now });
  }
  function take(tx: Tx, principal: PrincipalId, amount: number): boolean {
    return (
      tx.run(
        sql
          .updateTable('credit_accounts')
          .set((eb) => ({ balance: eb('balance', '-', amount) }))
          .where('principal_id', '=', principal)
          .where('balance', '>=', amount),
      ) > 0
    );
  }
  function raise(tx: Tx, run: Payer, by: number): void {
    tx.run(
      sql
        .updateTable('credit_holds')
        .set((eb) => ({ amount: eb('amount', '+', by) }))
        .where('run_id', '=', run.id),
    );
  }
  function note(
    tx: Tx,
    principal: PrincipalId,
    {
      kind,
      amount,
      reason,
      runId,
      now,
    }: { kind: CreditEntry['kind']; amount: number; reason: string | null; runId: RunId | null; now: number },
  ): void {
    tx.run(
      sql.insertInto('credit_entries').values({
        principal_id: principal,
        run_id: runId,
        kind,
        amount,
        balance_after: balanceIn(tx, principal) ?? 0,
        reason,
        at: now,
      }),
    );
  }
  const isOver = (tx: Tx, run: RunId): boolean =>
    tx.get(sql.selectFrom('runs').select('ended_at').where('run_id', '=', run))?.ended_at != null;

  const credits: Credits = {
    isActive: () => policy() !== null,
    balance: (principal) => balanceIn(store.read, principal) ?? wholeCredits(policy()?.initial ?? 0),
    canBegin(principal) {
      const rules = policy();
      return rules === null || credits.balance(principal) >= holdFor(rules);
    },
    hold(tx, run, now) {
      const rules = policy();
      if (rules === null || holdOf(tx, run.id) !== undefined) return true;
      open(tx, run.principalId, now);
      const amount = holdFor(rules);
      if (!take(tx, run.principalId, amount)) return false;
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
        if (holdOf(tx, run.id) === undefined) return credits.hold(tx, run, now);
        const more = Math.min(holdFor(rules), balanceIn(tx, run.principalId) ?? 0);
        if (more <= 0 || !take(tx, run.principalId, more)) return false;
        raise(tx, run, more);
        return true;
      });
    },
    async spend(run, on) {
      const rules = policy();
      if (rules === null) return;
      const price = wholeCredits(rules.priceOf(on));
      if (price === 0) return;
      await store.write((tx) => {
        const held = holdOf(tx, run.id);
        if (held === undefined) return;
        const missing = held.spent + price - held.amount;
        const more = Math.min(Math.max(0, missing), balanceIn(tx, run.principalId) ?? 0);
        if (more > 0 && take(tx, run.principalId, more)) raise(tx, run, more);
        tx.run(
          sql
            .updateTable('credit_holds')
            .set((eb) => ({ spent: eb('spent', '+', price) }))
            .where('run_id', '=', run.id),
        );
      });
    },
    grant(tx, principal, amount, { reason, now }) {
      open(tx, principal, now);
      const present = balanceIn(tx, principal) ?? 0;
      const next = present + amount;
      if (!Number.isSafeInteger(amount) || next < 0 || next > MAX_CREDITS) return null;
      tx.run(sql.updateTable('credit_accounts').set({ balance: next }).where('principal_id', '=', principal));
      note(tx, principal, { kind: 'grant', amount, reason, runId: null, now });
      return next;
    },
    entries: (principal, limit) =>
      store.read
        .all(
          sql
            .selectFrom('credit_entries')
            .select(['at', 'kind', 'amount', 'balance_after', 'run_id', 'reason'])
            .where('principal_id', '=', principal)
            .orderBy('id', 'desc')
            .limit(limit),
        )
        .map((row) => ({
          at: row.at,
          kind: row.kind,
          amount: row.amount,
          balanceAfter: row.balance_after,
          runId: row.run_id,
          reason: row.reason,
        })),
  };
  return credits;
}

/** A plugin's arithmetic may be anything: a broken price is no price, and parts of a credit count as a whole one. */
const wholeCredits = (value: number): number => (Number.isFinite(value) && value > 0 ? Math.min(Math.ceil(value), MAX_CREDITS) : 0);
/** Nobody begins with nothing. */
const holdFor = (rules: CreditPolicy): number => Math.max(1, wholeCredits(rules.hold));
