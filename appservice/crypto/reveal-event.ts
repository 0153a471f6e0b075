/**
 * Turns an encrypted event into the event it stands for (admission/reveal.ts). Of the outside only what the homeserver has a say in is taken: identity,
 * time, and the relation, which clients leave in the clear for servers to follow. Type and content come from inside, never a state key and never a type
 * that carries authority on the server: a homeserver judged no redaction, no membership and no power level in there. The sender inside is the owner
 * of the device that made the session; somebody else's name on the outside is a homeserver's forgery.
 */
import type { Reveal, Revealed } from '../../src/admission/reveal.ts';
import type { RoomId, UserId } from '../../src/ids.ts';
import { Unavailable } from '../../src/inbox/unavailable.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import { assertNever } from '../../src/result.ts';
import { isMatrixError, isOutage } from '../matrix-api.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { Decrypted, DecryptProblem, Engine } from './engine.ts';
import { findDevices } from './find-devices.ts';
import type { Outgoing } from './outgoing.ts';
import { type CiphertextName, readCiphertext } from './read-ciphertext.ts';
import { decideSenderTrust, mayImprove } from './trust.ts';

export interface RevealOptions {
  readonly engine: Pick<Engine, 'decrypt' | 'trackUsers' | 'outgoing'>;
  readonly outgoing: Pick<Outgoing, 'askForDevices'>;
}

/** The homeserver's word on an event; everything else of the outside is left out. */
const OUTSIDE = ['event_id', 'room_id', 'sender', 'origin_server_ts', 'unsigned'] as const;

export function createReveal({ engine, outgoing }: RevealOptions): {
  reveal: Reveal;
  read: (event: JsonObject, room: RoomId) => Promise<JsonObject | null>;
} {
  async function reveal(event: JsonObject, room: RoomId): Promise<Revealed> {
    const name = readCiphertext(event['content']);
    if (!name.ok) return { kind: 'refused', reason: name.error };
    const outer: JsonObject = { ...event, room_id: room };
    const result = await engine.decrypt(outer, room);
    if (!result.ok) return decideProblem(result.error, name.value);
    const first = result.value;
    const isWorthAsking = first.sender === outer['sender'] && mayImprove(first.shield);
    return decideRevealed({ outer, name: name.value, decrypted: isWorthAsking ? await lookAgain(outer, room, first) : first });
  }

  /** The sender's devices are asked for when that was not done since they changed; otherwise this costs no request. */
  async function lookAgain(outer: JsonObject, room: RoomId, first: Decrypted): Promise<Decrypted> {
    try {
      await findDevices([first.sender as UserId], { engine, outgoing });
    } catch (error) {
      // Another server's devices: the message must not wait for them. Our own homeserver comes back.
      if (!isMatrixError(error)) throw error;
      if (isOutage(error)) throw new Unavailable('the devices of the sender cannot be asked for', { cause: error });
    }
    const again = await engine.decrypt(outer, room);
    return again.ok ? again.value : first;
  }

  return {
    async reveal({ event, roomId }) {
      try {
        return await reveal(event, roomId);
      } catch (error) {
        if (error instanceof CryptoUnavailable) throw new Unavailable(error.message, { cause: error });
        throw error;
      }
    },
    async read(event, room) {
      const name = readCiphertext(event['content']);
      if (!name.ok) return null;
      const outer: JsonObject = { ...event, room_id: room };
      const result = await engine.decrypt(outer, room);
      if (!result.ok) return null;
      const revealed = decideRevealed({ outer, name: name.value, decrypted: result.value });
      return revealed.kind === 'clear' ? revealed.event : null;
    },
  };
}

/** Codes of `m.room_key.withheld` after which the sender may still send the key: there was no secure channel to us at that moment. */
const PASSING = new Set(['m.no_olm', 'm.unavailable']);

export function decideProblem(problem: DecryptProblem, { session }: CiphertextName): Revealed {
  switch (problem.code) {
    case 'missing_key':
    case 'index_too_old':
      if (problem.withheld !== null && !PASSING.has(problem.withheld)) return { kind: 'refused', reason: 'withheld' };
      return { kind: 'missing_key', session, indexTooOld: problem.code === 'index_too_old' };
    case 'mismatched_sender':
      return { kind: 'refused', reason: 'forged_sender' };
    case 'unreadable':
      return { kind: 'refused', reason: 'unreadable' };
    default:
      return assertNever(problem);
  }
}

export interface RevealedFacts {
  /** As it came. */
  readonly outer: JsonObject;
  readonly name: CiphertextName;
  readonly decrypted: Decrypted;
}

export function decideRevealed({ outer, name, decrypted }: RevealedFacts): Revealed {
  const { event: inner, sender, senderDevice, shield } = decrypted;
  if (sender !== outer['sender'] || shield === 'mismatched_sender') return { kind: 'refused', reason: 'forged_sender' };
  const { type, content } = inner;
  // The room stands inside as well, because whoever may send the key into one room could send the ciphertext into another.
  if (inner['room_id'] !== outer['room_id']) return { kind: 'refused', reason: 'unreadable' };
  if (typeof type !== 'string' || !isJsonObject(content) || !mayBeEncrypted(type)) return { kind: 'refused', reason: 'unreadable' };
  const outside = Object.fromEntries(OUTSIDE.flatMap((key) => (outer[key] === undefined ? [] : [[key, outer[key]]])));
  return {
    kind: 'clear',
    event: { ...outside, type, content: buildContent(content, outer['content']) } as JsonObject,
    trust: decideSenderTrust(shield),
    device: senderDevice,
    ...name,
  };
}

/** State and redactions need a homeserver that judged them; and a ciphertext in a ciphertext is nobody's message. */
const mayBeEncrypted = (type: string): boolean =>
  type !== '' && type.length <= 255 && (!type.startsWith('m.room.') || type === 'm.room.message');

/** The relation that servers follow is the one that counts: another one inside would let a message be two things. */
function buildContent({ 'm.relates_to': _inside, ...content }: JsonObject, outer: unknown): JsonObject {
  const relation = isJsonObject(outer) ? outer['m.relates_to'] : undefined;
  return relation === undefined ? content : { ...content, 'm.relates_to': relation };
}
