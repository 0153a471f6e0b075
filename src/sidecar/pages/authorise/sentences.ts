/** What went wrong, in words and with what to do next. A code that is not here is said with the oracle's own sentence. */
import { type Failure, UNREACHABLE } from './api.ts';

const NEW_LINK = 'Go back to your chat with the oracle and send !authorise to get a new link.';
const CLOCK = 'Check that date and time of this device are right, then load this page again from the link in your chat.';

const SENTENCES: Readonly<Record<string, string>> = {
  BAD_LINK: `This link does not work any more: it was used, is older than 15 minutes, or was copied only in part. ${NEW_LINK}`,
  [UNREACHABLE]: 'The oracle did not answer. Check your connection and try again.',
  RATE_LIMITED: 'Too many requests came from your network. Wait a minute and try again.',
  LINKED_TO_ANOTHER:
    'Your Matrix account already acts with another account. Send !revoke all to the oracle first, then !authorise to get a new link.',
  GRANT_EXPIRED: `The time of this permission is over before it began. ${CLOCK}`,
  GRANT_NOT_YET_VALID: CLOCK,
  GRANT_LIVES_TOO_LONG: `This permission would last longer than the oracle accepts. ${CLOCK}`,
  GRANT_TOO_WIDE: 'The oracle refuses permissions that are this wide. Choose fewer and try again.',
  TOKEN_EXPIRED: CLOCK,
  TOKEN_NOT_YET_VALID: CLOCK,
  TOKEN_LIVES_TOO_LONG: CLOCK,
  WRONG_TIME: CLOCK,
  REVOKED: 'This browser was signed out: what it may do for your account was taken back. Enter your words to go on.',
  NOT_LINKED:
    'The oracle does not know yet that this account is yours. In your chat with it send !authorise, look at its answer, and send !authorise confirm. Then come back here.',
  NOT_FOUND: 'The oracle does not have this permission any more.',
  NOT_ALLOWED: 'You may not use this oracle. Ask its operator.',
  SHUTTING_DOWN: 'The oracle is being restarted. Try again in a minute.',
  STORAGE_UNAVAILABLE: 'The oracle cannot store anything at the moment. Try again in a minute.',
};

export function sayFailure({ code, message, requestId }: Failure): string {
  const known = Object.hasOwn(SENTENCES, code) ? SENTENCES[code] : undefined;
  if (known !== undefined) return known;
  const said = message === '' ? 'Something went wrong at the oracle. Try again in a minute.' : message;
  return requestId === '' ? `${said} (${code})` : `${said} (${code}, request ${requestId})`;
}

/** The answer to a first attempt was lost, and the second is told that the link is used up: then the first one arrived, most likely. */
export const MAYBE_ARRIVED =
  'Your permission seems to have arrived at the first try. Send !authorise to the oracle: if it shows your permission, go on with !authorise confirm.';
