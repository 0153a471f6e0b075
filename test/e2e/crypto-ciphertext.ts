/** Which message of its session a ciphertext is, read from its bytes: a message index that two different ciphertexts share gives both away. */
import type { MatrixEvent } from '../../synapse-dev/homeserver/user-client.ts';
import { isSealed } from './crypto-world.ts';

export interface CipherPosition {
  readonly session: string;
  readonly index: number;
}

const VERSION = 3;
const INDEX_TAG = 0x08;

export function positionOf({ content }: MatrixEvent): CipherPosition {
  const bytes = Buffer.from(String(content['ciphertext']), 'base64');
  if (bytes[0] !== VERSION || bytes[1] !== INDEX_TAG) throw new Error('this is no Megolm message');
  let index = 0;
  for (let at = 2, shift = 0; ; at += 1, shift += 7) {
    const byte = bytes[at] ?? 0;
    index += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return { session: String(content['session_id']), index };
  }
}

export const positionsOf = (history: readonly MatrixEvent[], sender: string): CipherPosition[] =>
  history.filter((event) => event.sender === sender && isSealed(event)).map(positionOf);
