/** What stands granted, and taking it back: one by one or all. */
import type { ListedGrant } from '../api.ts';
import { button, code, el, facts, problem, quiet, type Shell, text } from './dom.ts';
import { formatTime } from './grant.ts';

export interface Permissions {
  readonly oracleName: string;
  readonly did: string;
  readonly grants: readonly ListedGrant[];
  readonly revoke: (tokenId: string | null) => Promise<void>;
  readonly forget: () => Promise<void>;
}

export function showPermissions(shell: Shell, { oracleName, did, grants, revoke, forget }: Permissions): void {
  const live = grants.filter(({ revoked }) => revoked !== true);
  shell.show(
    'Your permissions',
    facts(['Oracle', oracleName], ['Your account', code(did)]),
    ...(live.length === 0 ? [text(`${oracleName} has no permission of yours.`)] : live.map((grant) => showGrant(grant, revoke))),
    live.length > 1
      ? el(
          'div',
          { className: 'buttons' },
          button('Take all back', () => revoke(null)),
        )
      : null,
    el('h2', {}, 'This browser'),
    quiet(
      'It may show and take back your permissions for a day after you entered your words. On a device that others use, make it forget your account now.',
    ),
    el('div', { className: 'buttons' }, button('Forget my account here', forget)),
    quiet('To give a new permission, send ', code('!authorise'), ` to ${oracleName} in Matrix and open the link it answers with.`),
  );
}

function showGrant({ token_id, kind, capabilities, expires_at, pending }: ListedGrant, revoke: Permissions['revoke']): HTMLElement {
  const ends = formatTime(expires_at);
  const title = kind === 'session' ? 'A key of one of your devices' : 'The oracle may';
  return el(
    'section',
    { className: 'grant', attributes: { 'aria-label': `${title}, until ${ends}` } },
    el('h2', {}, title),
    el('ul', {}, ...capabilities.map((capability) => el('li', {}, sayCapability(capability)))),
    text(`Until ${ends}.`, pending ? ' Not active yet: send !authorise, then !authorise confirm.' : null),
    el(
      'div',
      { className: 'buttons' },
      button('Take back', () => revoke(token_id), { describes: `${title}, until ${ends}` }),
    ),
  );
}

function sayCapability({ can, with: resource }: { can: string; with: string }): HTMLElement {
  if (can === 'oracle/chat') return el('span', {}, 'answer your messages in Matrix');
  if (can === 'oracle/message') return el('span', {}, 'sign messages in your name');
  if (can === 'oracle/read') return el('span', {}, 'read your conversations and permissions');
  return el('span', {}, 'use ', code(`${can} ${resource}`));
}

/** Something stands in the way of the list. */
export function showObstacle(shell: Shell, message: string, actions: readonly HTMLButtonElement[]): void {
  shell.show('Your permissions', problem(message), el('div', { className: 'buttons' }, ...actions));
}
