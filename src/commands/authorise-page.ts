/**
 * What a person is told who has to authorise the oracle, the same for a refusal and for `!authorise`: a fresh link to the page, or why there
 * is none. The nonce in the link goes to one account in its own direct room, so only who reads that room can make a grant for it (DESIGN §5).
 */
import type { RoomId, UserId } from '../ids.ts';
import type { Tx } from '../store/store.ts';
import type { AuthoriseLinks } from '../ucan/authorise-links.ts';
import type { Grants } from '../ucan/grants.ts';

export type PageOffer =
  | { readonly kind: 'link'; readonly url: string }
  /** One was sent a moment ago and still counts. */
  | { readonly kind: 'just_sent' }
  /** Made already: it waits for `!authorise`. */
  | { readonly kind: 'pending' }
  | { readonly kind: 'no_page' };

export interface AuthorisePage {
  offer(tx: Tx, whom: { user: UserId; room: RoomId }, now: number): PageOffer;
}

/** `publicUrl` is the operator's PUBLIC_URL; null when it is not set. */
export function createAuthorisePage({
  publicUrl,
  links,
  grants,
}: {
  publicUrl: string | null;
  links: Pick<AuthoriseLinks, 'issue'>;
  grants: Pick<Grants, 'pendingOf'>;
}): AuthorisePage {
  return {
    offer(tx, whom, now) {
      if (grants.pendingOf(whom.user, now) !== undefined) return { kind: 'pending' };
      if (publicUrl === null) return { kind: 'no_page' };
      const nonce = links.issue(tx, whom, now);
      // In the fragment: it reaches neither a proxy's log nor a Referer header.
      return nonce === null ? { kind: 'just_sent' } : { kind: 'link', url: `${publicUrl.replace(/\/+$/u, '')}/authorise#${nonce}` };
    },
  };
}

/** How to go on from here; markdown, ends without the link itself. */
export function describeOffer(offer: PageOffer): string {
  switch (offer.kind) {
    case 'link':
      return 'Open this page within 15 minutes, authorise me there, then send `!authorise` here. The link is for you alone:';
    case 'just_sent':
      return 'I sent you a link less than a minute ago: open that one, or send `!authorise` in a minute for another.';
    case 'pending':
      return 'Something you made on my page waits for you: send `!authorise` here to see it.';
    case 'no_page':
      return 'There is no page where you could authorise me: ask the operator to set PUBLIC_URL.';
  }
}
