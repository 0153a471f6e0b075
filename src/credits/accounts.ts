/**
 * Balances and the entries that explain them, inside a caller's transaction. An account cannot fall below zero: every taking is one conditional
 * update, and a CHECK of the table stands behind it (G8). The sum of an account's entries is its balance and what runs hold of it.
 */
import { type PrincipalId, type RunId, type UserId, unsignedPrincipalId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';

export interface CreditEntry {
  readonly at: number;
  readonly kind: 'grant' | 'settle';
  readonly amount: number;
  readonly balanceAfter: number;
  readonly runId: RunId | null;
  readonly reason: string | null;
}
export interface Accounts {
  /** What is there to spend, without what runs hold. @param user whose first credits it may be given. */
  balance(tx: Tx, principal: PrincipalId, user?: UserId): number;
  /** Makes the account when it is new, with its first credits: once for each account in Matrix, because identities cost nothing. */
  open(tx: Tx, principal: PrincipalId, more: { readonly user?: UserId | undefined; readonly now: number }): void;
  /** @returns false when there is less. */
  take(tx: Tx, principal: PrincipalId, amount: number): boolean;
  /** By the operator; negative takes back. @returns the balance then, or null when it would fall below zero or beyond what is exact. */
  grant(tx: Tx, principal: PrincipalId, amount: number, more: { readonly reason: string | null; readonly now: number }): number | null;
  /** Newest first. */
  entries(principal: PrincipalId, limit: number): readonly CreditEntry[];
}

/** Reason of the first credits of an account; nobody else's entries carry it. */
const INITIAL = 'initial';
/** A sum that no number can hold exactly would not be a sum. */
export const MAX_CREDITS = 2 ** 50;

export interface AccountsOptions {
  readonly store: Pick<Store, 'sql' | 'read'>;
  /** What an account is given once. */
  readonly initial: () => number;
}

export function createAccounts({ store: { sql, read }, initial }: AccountsOptions): Accounts {
  const balanceIn = (tx: Tx, principal: PrincipalId): number =>
    tx.get(sql.selectFrom('credit_accounts').select('balance').where('principal_id', '=', principal))?.balance ?? 0;

  const wasGiven = (tx: Tx, principal: PrincipalId): boolean =>
    tx.get(sql.selectFrom('credit_entries').select('id').where('principal_id', '=', principal).where('reason', '=', INITIAL).limit(1)) !==
    undefined;

  /**
   * Also an account that an operator filled before its owner ever came gets its first credits. The account in Matrix is asked first: what it was given
   * stands at its beginning, and the entries of an identity that was given nothing would all be read, at every message (G16).
   */
  function initialDue(tx: Tx, principal: PrincipalId, user?: UserId): number {
    const due = initial();
    if (due === 0 || (user !== undefined && wasGiven(tx, unsignedPrincipalId(user)))) return 0;
    return wasGiven(tx, principal) ? 0 : due;
  }
  function add(tx: Tx, principal: PrincipalId, { amount, reason, now }: { amount: number; reason: string | null; now: number }): void {
    tx.run(
      sql
        .updateTable('credit_accounts')
        .set((eb) => ({ balance: eb('balance', '+', amount) }))
        .where('principal_id', '=', principal),
    );
    const balance_after = balanceIn(tx, principal);
    tx.run(
      sql
        .insertInto('credit_entries')
        .values({ principal_id: principal, run_id: null, kind: 'grant', amount, balance_after, reason, at: now }),
    );
  }

  const accounts: Accounts = {
    balance: (tx, principal, user) => balanceIn(tx, principal) + initialDue(tx, principal, user),
    open(tx, principal, { user, now }) {
      const account = sql.insertInto('credit_accounts').values({ principal_id: principal, balance: 0 });
      tx.run(account.onConflict((oc) => oc.doNothing()));
      const amount = initialDue(tx, principal, user);
      if (amount === 0) return;
      add(tx, principal, { amount, reason: INITIAL, now });
      // An entry over nothing in the name of the account in Matrix: its next identity is given no more.
      const unsigned = user === undefined ? principal : unsignedPrincipalId(user);
      if (unsigned !== principal) add(tx, unsigned, { amount: 0, reason: INITIAL, now });
    },
    take: (tx, principal, amount) =>
      tx.run(
        sql
          .updateTable('credit_accounts')
          .set((eb) => ({ balance: eb('balance', '-', amount) }))
          .where('principal_id', '=', principal)
          .where('balance', '>=', amount),
      ) > 0,
    grant(tx, principal, amount, { reason, now }) {
      accounts.open(tx, principal, { now });
      const next = balanceIn(tx, principal) + amount;
      if (!Number.isSafeInteger(amount) || next < 0 || next > MAX_CREDITS) return null;
      add(tx, principal, { amount, reason: reason === INITIAL ? null : reason, now });
      return next;
    },
    entries: (principal, limit) =>
      read
        .all(
          sql
            .selectFrom('credit_entries')
            .select(['at', 'kind', 'amount', 'balance_after', 'run_id', 'reason'])
            .where('principal_id', '=', principal)
            .orderBy('id', 'desc')
            .limit(limit),
        )
        .map(({ at, kind, amount, balance_after: balanceAfter, run_id: runId, reason }) => ({
          at,
          kind,
          amount,
          balanceAfter,
          runId,
          reason,
        })),
  };
  return accounts;
}
