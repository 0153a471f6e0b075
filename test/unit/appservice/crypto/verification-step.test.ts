import { expect, test } from 'vitest';
import { decideVerificationStep, type VerificationFacts } from '../../../../appservice/crypto/verification-step.ts';

const REQUESTED: VerificationFacts = {
  mayVerify: true,
  isOver: false,
  isRequested: true,
  offersEmoji: true,
  method: 'none',
  isAccepted: false,
  canBeShown: false,
  theyConfirmed: false,
  isConfirmed: false,
};
const STARTED: VerificationFacts = { ...REQUESTED, isRequested: false, method: 'emoji' };
const SHOWN: VerificationFacts = { ...STARTED, isAccepted: true, canBeShown: true };

test.each<[string, VerificationFacts, string]>([
  ['a request is accepted', REQUESTED, 'accept_request'],
  ['a request of somebody who may not verify is declined, not left waiting', { ...REQUESTED, mayVerify: false }, 'cancel'],
  ['a request without emoji is declined', { ...REQUESTED, offersEmoji: false }, 'cancel'],
  ['between accepting and their start there is nothing to do', { ...STARTED, method: 'none' }, 'wait'],
  ['their start is accepted', STARTED, 'accept_emoji'],
  ['a code instead of emoji is declined', { ...STARTED, method: 'other' }, 'cancel'],
  ['before both keys are here there is nothing to confirm', { ...STARTED, isAccepted: true }, 'wait'],
  ['the person confirms first', SHOWN, 'wait'],
  ['then it is confirmed', { ...SHOWN, theyConfirmed: true }, 'confirm'],
  ['it is confirmed once', { ...SHOWN, theyConfirmed: true, isConfirmed: true }, 'wait'],
  ['a confirmation before the keys is none', { ...SHOWN, canBeShown: false, theyConfirmed: true }, 'wait'],
  ['who lost the right in between is declined', { ...SHOWN, theyConfirmed: true, mayVerify: false }, 'cancel'],
  ['what is over is left alone', { ...REQUESTED, mayVerify: false, isOver: true }, 'wait'],
])('%s', (_name, facts, step) => {
  expect(decideVerificationStep(facts)).toBe(step);
});
