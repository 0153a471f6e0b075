/**
 * What the oracle does next in a verification that somebody started: pure, so that "it never answers whom it should not, and never shows anything but
 * emoji" can be read in one place. Whoever may not verify is told at once, or their client would wait for ten minutes. The person confirms first: our
 * agreement means nothing by itself, and a client that gets it together with our key loses one of the two (matrix-js-sdk 43, seen).
 */
export interface VerificationFacts {
  /** CRYPTO_VERIFY and the person's right to use the oracle. */
  readonly mayVerify: boolean;
  /** Done, cancelled, out of time, or answered by another device. */
  readonly isOver: boolean;
  /** They ask, and nobody has answered. */
  readonly isRequested: boolean;
  /** Their client can do it by emoji. */
  readonly offersEmoji: boolean;
  /** `other`: they scanned or showed a code. */
  readonly method: 'none' | 'emoji' | 'other';
  /** We have answered their start, or started ourselves. */
  readonly isAccepted: boolean;
  /** Both keys are here. */
  readonly canBeShown: boolean;
  /** Their MAC came. */
  readonly theyConfirmed: boolean;
  readonly isConfirmed: boolean;
}
export type VerificationStep = 'accept_request' | 'accept_emoji' | 'confirm' | 'cancel' | 'wait';

export function decideVerificationStep(facts: VerificationFacts): VerificationStep {
  if (facts.isOver) return 'wait';
  if (!facts.mayVerify || facts.method === 'other') return 'cancel';
  if (facts.isRequested) return facts.offersEmoji ? 'accept_request' : 'cancel';
  if (facts.method !== 'emoji') return 'wait';
  if (!facts.isAccepted) return 'accept_emoji';
  return facts.canBeShown && facts.theyConfirmed && !facts.isConfirmed ? 'confirm' : 'wait';
}
