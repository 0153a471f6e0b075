/**
 * What admission asks of the transport about an encrypted event, when its row is claimed: receiving never decrypts, so a slow or missing key
 * costs no transaction its 200 (G1), and the flood guard stands before any cryptography (G14). A closed answer: whatever a hostile ciphertext
 * does, the row ends with a reason (G17) or waits for its key.
 */
import type { MegolmSessionId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { JsonObject } from '../json.ts';
import type { SenderTrust } from '../turn/principal.ts';

/** Why an encrypted event is refused for good. `unreadable`: the key is there and does not fit (a MAC, a damaged plaintext, another room). */
export type RevealRefusal = 'malformed' | 'unknown_algorithm' | 'forged_sender' | 'unreadable' | 'withheld';

export type Revealed =
  | {
      readonly kind: 'clear';
      /** The event as if it had been sent in the clear: identity, time and relation from outside, type and everything else from inside. */
      readonly event: JsonObject;
      readonly trust: Exclude<SenderTrust, 'clear'>;
      /** Device that sent it, as far as the engine knows it. */
      readonly device: string | null;
      /** Together they name a ciphertext: it counts under one event id only. */
      readonly session: MegolmSessionId;
      readonly index: number;
    }
  /** `indexTooOld`: the key begins later than this message; only its sender can send an older one. */
  | { readonly kind: 'missing_key'; readonly session: MegolmSessionId; readonly indexTooOld: boolean }
  | { readonly kind: 'refused'; readonly reason: RevealRefusal };

/** @throws Unavailable when the engine is not open (yet): the row waits. */
export type Reveal = (row: Pick<InboxRow, 'event' | 'eventId' | 'roomId'>) => Promise<Revealed>;
