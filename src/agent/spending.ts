/**
 * Who pays for a run, as the loop asks it: before each request whether there is something left, after each what it cost. Behind it stands the credit
 * ledger; the loop knows neither prices nor balances, so no way through it, sub-agents and summaries included, asks a model unseen.
 */
import type { Run } from '../runs/run.ts';

export interface SpentCall {
  readonly model: string;
  readonly inputTokens: number;
  readonly outputTokens: number;
}
export interface Spending {
  /** False: nothing is left, and the run ends OUT_OF_CREDITS. */
  maySpend(run: Pick<Run, 'id' | 'principalId' | 'matrixUserId'>, now: number): Promise<boolean>;
  spend(run: Pick<Run, 'id' | 'principalId' | 'matrixUserId'>, on: SpentCall): Promise<void>;
  /** A tool that has a price of its own has worked. */
  bill(run: Pick<Run, 'id' | 'principalId' | 'matrixUserId'>, credits: number): Promise<void>;
}

export const FREE: Spending = { maySpend: async () => true, spend: async () => undefined, bill: async () => undefined };
