/**
 * Which screen comes when. With a link: an account by its words, what it allows, one signature, one line to send. Without: what is granted, and taking
 * it back. The account's key is a local variable of the screens that need it and is gone with them; the store gets this browser's own key only.
 */
import type { Did } from '../../../ids.ts';
import { createSessionKey, openAccount, type Signer } from './account.ts';
import { type Api, type Failure, type LinkContext, type Oracle, UNREACHABLE } from './api.ts';
import type { PageClock } from './clock.ts';
import { type Asking, actingGrantEnd, newNonce, signActingGrant, signChange, signRead, signSessionGrant } from './grants.ts';
import { MAYBE_ARRIVED, sayFailure } from './sentences.ts';
import type { AccountStore, KnownAccount } from './store.ts';
import { button, code, el, facts, problem, quiet, type Shell, text } from './view/dom.ts';
import { askForGrant, type Choice, showDone } from './view/grant.ts';
import { showObstacle, showPermissions } from './view/permissions.ts';
import { askForTwoWords, askForWords, showNewWords } from './view/words.ts';
import { makeWords } from './words.ts';

export interface FlowPorts {
  readonly shell: Shell;
  readonly api: Api;
  readonly store: AccountStore;
  readonly clock: PageClock;
}

export interface Flow {
  start(nonce: string | null): Promise<void>;
}

/** A session that ends while a person reads a list is of no use. */
const SESSION_MARGIN_MS = 60_000;

export function createFlow({ shell, api, store, clock }: FlowPorts): Flow {
  /** Of this visit; the same as stored, and all there is where nothing can be stored. */
  let known: KnownAccount | null = null;

  // With a link

  async function openLink(nonce: string): Promise<void> {
    const context = await api.context(nonce);
    if (!context.ok) {
      const again = context.error.code === UNREACHABLE ? button('Try again', () => openLink(nonce), { main: true }) : null;
      return shell.show(
        'This link cannot be used',
        problem(sayFailure(context.error)),
        el('div', { className: 'buttons' }, again, button('Show my permissions', manage)),
      );
    }
    choose({ nonce, ...context.value });
  }

  type Link = LinkContext & { readonly nonce: string };

  function choose(link: Link): void {
    const { oracle, matrixUserId } = link;
    shell.show(
      `Let ${oracle.name} act for you`,
      text(
        'This link was sent to the Matrix account ',
        code(matrixUserId),
        '. If that is not yours, or somebody gave you the link, close this page.',
      ),
      facts(['Oracle', oracle.name], ['Identity of the oracle', code(oracle.did)], ['Matrix account', code(matrixUserId)]),
      text('To sign a permission you need an account. It is made of 12 words that only you have.'),
      known === null ? null : quiet('This browser knows the account ', code(known.did), '. To go on with it, choose “I have words”.'),
      el(
        'div',
        { className: 'buttons' },
        button('Make a new account', () => createAccount(link), { main: true }),
        button('I have words', () => restoreAccount(link)),
      ),
    );
  }

  function createAccount(link: Link): void {
    const words = makeWords();
    const show = () => showNewWords(shell, words, { next: check, back: () => choose(link) });
    const check = () => askForTwoWords(shell, words, { next: async () => grant(link, await openAccount(words.join(' '))), again: show });
    show();
  }

  function restoreAccount(link: Link): void {
    askForWords(shell, {
      title: 'Enter your words',
      before: [],
      submit: 'Go on',
      next: async (words) => grant(link, await openAccount(words)),
      back: { label: 'Back', act: () => choose(link) },
    });
  }

  function grant(link: Link, account: Signer): void {
    /** Sent again as it was when no answer came: signed anew it would be another permission. */
    let sent: { readonly choice: string; readonly raw: string } | null = null;
    let lost = false;
    const sign = async (choice: Choice): Promise<string | null> => {
      const wanted = JSON.stringify(choice);
      if (sent?.choice !== wanted) sent = { choice: wanted, raw: await signActingGrant({ ...actingGrantOf(link, account), ...choice }) };
      const handed = await api.handIn(sent.raw);
      if (!handed.ok) {
        if (handed.error.code === UNREACHABLE) lost = true;
        else if (lost && handed.error.code === 'BAD_LINK') return MAYBE_ARRIVED;
        return sayFailure(handed.error);
      }
      const kept = await remember(account, link.oracle, link);
      showDone(shell, { oracle: link.oracle, did: account.did, kept, manage });
      return null;
    };
    askForGrant(shell, {
      context: link,
      did: account.did,
      endsAt: (days) => actingGrantEnd(clock.now(), days),
      sign,
      back: () => choose(link),
    });
  }

  const actingGrantOf = ({ oracle, matrixUserId, nonce: link }: Link, account: Signer) => ({
    account,
    oracle: oracle.did as Did,
    matrixUserId,
    link,
    now: clock.now(),
    nonce: newNonce(),
  });

  /** This browser may read and take back for a day. @returns whether it will still know after this visit. */
  async function remember(account: Signer, oracle: Oracle, place: { matrixUserId: string; roomId: string } | null): Promise<boolean> {
    const session = await createSessionKey();
    const sessionGrant = await signSessionGrant({ account, session: session.did, now: clock.now(), nonce: newNonce() });
    const same = known?.did === account.did ? known : null;
    known = {
      did: account.did,
      sessionDid: session.did,
      sessionKey: session.privateKey,
      sessionGrant,
      oracleDid: oracle.did as Did,
      matrixUserId: place?.matrixUserId ?? same?.matrixUserId ?? null,
      roomId: place?.roomId ?? same?.roomId ?? null,
    };
    return store.write(known);
  }

  // Without a link

  async function manage(): Promise<void> {
    const oracle = await api.oracle();
    if (!oracle.ok) return obstacle(oracle.error);
    const account = known;
    const live =
      account !== null && account.oracleDid === oracle.value.did && account.sessionGrant.endsAt - SESSION_MARGIN_MS > clock.now();
    if (live) return list(account, oracle.value);
    unlock(oracle.value, account === null ? null : 'What this browser may do for your account has ended. Enter your words to go on.');
  }

  function unlock(oracle: Oracle, why: string | null): void {
    askForWords(shell, {
      title: 'Your permissions',
      before: [
        why === null ? null : text(why),
        text(`To see what you allowed ${oracle.name}, and to take it back, enter the words of your account.`),
        quiet('To give a permission, send ', code('!authorise'), ` to ${oracle.name} in Matrix and open the link it answers with.`),
      ],
      submit: 'Show my permissions',
      next: async (words) => {
        await remember(await openAccount(words), oracle, null);
        await manage();
      },
      back: null,
    });
  }

  async function list(account: KnownAccount, oracle: Oracle): Promise<void> {
    const answer = await api.list(await signRead(askingAs(account)));
    if (!answer.ok) {
      if (answer.error.code !== 'REVOKED' && answer.error.code !== 'GRANT_EXPIRED') return obstacle(answer.error);
      await forget();
      return unlock(oracle, sayFailure(answer.error));
    }
    const { grants, matrix_user_id: proven, room_id: room } = answer.value;
    const sender = proven ?? account.matrixUserId;
    showPermissions(shell, {
      oracleName: oracle.name,
      did: account.did,
      grants,
      revoke: async (tokenId) => {
        if (sender === null) return shell.say('The oracle did not say which Matrix account is yours. Send !revoke all to it in Matrix.');
        const body = JSON.stringify(tokenId === null ? {} : { token_id: tokenId });
        const change = { method: 'DELETE', path: '/delegation', body, sender, room: room ?? account.roomId } as const;
        const revoked = await api.revoke(await signChange(askingAs(account), change), body);
        if (!revoked.ok) return shell.say(sayFailure(revoked.error));
        await list(account, oracle);
        shell.say('Taken back.');
      },
      forget: async () => {
        await forget();
        unlock(oracle, 'This browser has forgotten your account.');
      },
    });
  }

  const askingAs = ({ did, sessionDid, sessionKey, sessionGrant, oracleDid }: KnownAccount): Asking => ({
    session: { did: sessionDid, privateKey: sessionKey },
    account: did,
    grant: sessionGrant,
    oracle: oracleDid,
    now: clock.now(),
    nonce: newNonce(),
  });

  async function forget(): Promise<void> {
    known = null;
    await store.forget();
  }

  function obstacle(error: Failure): void {
    showObstacle(shell, sayFailure(error), [
      button('Try again', manage, { main: true }),
      button('Forget my account here', async () => {
        await forget();
        await manage();
      }),
    ]);
  }

  return {
    async start(nonce) {
      known = await store.read();
      if (nonce === null) await manage();
      else await openLink(nonce);
    },
  };
}
