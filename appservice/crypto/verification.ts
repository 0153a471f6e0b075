/**
 * Lets people verify the oracle from their own client, by emoji, in a room or by to-device messages. It is their proof, not ours: a program compares
 * nothing, so it agrees to whatever both sides computed, and says the emoji, in the room and in the log, where the person (or the operator) looks. So
 * nothing is ever decided on "the oracle verified them" (trust.ts). Its own account is left out: a device that is verified there may ask for its secrets.
 * A verification lives in memory: a restart ends it, and the person begins again.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import { LRUCache } from 'lru-cache';
import { type EventId, noticeTxnId, parseUserId, type RoomId, readVerifyTxnId, type UserId } from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import { buildNotice } from '../content/build-notice.ts';
import { isMatrixError } from '../matrix-api.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { Engine, ReceivedToDevice } from './engine.ts';
import { findDevices } from './find-devices.ts';
import { createLock } from './lock.ts';
import type { Outgoing } from './outgoing.ts';
import { advanceVerifications, type Flow } from './verification-advance.ts';
import { type PostVerification, readFlow, type VerificationMailbox } from './verification-mailbox.ts';

export interface VerificationOptions {
  readonly engine: Pick<Engine, 'userId' | 'call' | 'markSent' | 'outgoing' | 'receive' | 'trackUsers'>;
  readonly outgoing: Outgoing;
  readonly post: PostVerification;
  readonly mailbox: Pick<VerificationMailbox, 'release'>;
  /** Whether requests of this account by to-device are answered. */
  readonly mayVerify: (user: UserId) => Promise<boolean>;
  readonly logger: Logger;
}
export interface Verification {
  /** An event of a room, decrypted if it was encrypted. Never rejects. */
  receive(event: JsonObject, room: RoomId, by: { readonly user: UserId; readonly mayVerify: boolean }): Promise<void>;
  /** To-device events that the engine has seen already. Never rejects. */
  received(events: readonly ReceivedToDevice[]): Promise<void>;
  /** What was posted has become an event. Never rejects. */
  sent(txnId: string, eventId: EventId): Promise<void>;
}

/** People in the middle of a verification; each takes a minute, and the engine forgets it after ten. */
const PEOPLE = 200;

export function createVerification({ engine, outgoing, post, mailbox, mayVerify, logger }: VerificationOptions): Verification {
  const lock = createLock();
  /** People with a verification that is not over, and whether they may. */
  const active = new LRUCache<UserId, boolean>({ max: PEOPLE });
  const told = new LRUCache<string, 'shown' | 'done'>({ max: PEOPLE });
  /** Person and verification, where they have confirmed. */
  const confirmed = new LRUCache<string, true>({ max: PEOPLE });

  /** Every step that is ours to take with this person, until nothing is left to do but wait. */
  async function drive(user: UserId, may: boolean): Promise<void> {
    if (user === engine.userId) return;
    const theyConfirmed = (flow: string): boolean => confirmed.has(`${user} ${flow}`);
    const { requests, flows } = await engine.call('verify', (machine) => advanceVerifications(machine, user, { may, theyConfirmed }));
    if (flows.every(({ isOver }) => isOver)) active.delete(user);
    else active.set(user, may);
    for (const flow of flows) await tell(user, flow);
    for (const request of requests) await outgoing.send(request);
    // The engine's own part: its key, its "done", and the signature.
    await outgoing.flush();
  }

  async function driveByToDevice(user: UserId): Promise<void> {
    const may = await mayVerify(user);
    // The engine dropped a request of a device that it did not know; asked now, it takes the next.
    if (may && user !== engine.userId) await findDevices([user], { engine, outgoing });
    await drive(user, may);
  }
  function noteConfirmation({ type, sender, content }: JsonObject): void {
    const flow = type === 'm.key.verification.mac' && isJsonObject(content) ? readFlow(content) : null;
    if (flow !== null) confirmed.set(`${String(sender)} ${flow}`, true);
  }

  async function tell(user: UserId, { id, room, emoji, isDone }: Flow): Promise<void> {
    const place = room === null ? {} : { room_id: room };
    if (isDone) {
      mailbox.release(id);
      if (told.get(id) === 'shown') logger.info({ user_id: user, ...place }, 'a person has verified the oracle');
      told.set(id, 'done');
      return;
    }
    if (emoji === null || told.has(id)) return;
    told.set(id, 'shown');
    logger.info({ user_id: user, ...place, reason: emoji }, 'a verification shows these emoji');
    if (room === null) return;
    const text = `Your client should show the same as mine: ${emoji}. If it does not, cancel the verification there and do not trust this chat.`;
    await post({ txnId: noticeTxnId('emoji', id), roomId: room, type: 'm.room.message', content: buildNotice({ text }) });
  }

  /** A stranger's event and a homeserver that is away are both no reason to fail whoever handed it to us. */
  const guarded = (work: () => Promise<void>, user: UserId | null): Promise<void> =>
    lock(async () => {
      try {
        await work();
      } catch (error) {
        const code = isMatrixError(error) ? error.errcode : error instanceof CryptoUnavailable ? 'CRYPTO_UNAVAILABLE' : 'INTERNAL';
        const fields = { code, ...(user === null ? {} : { user_id: user }), ...(code === 'INTERNAL' ? { err: error } : {}) };
        logger.warn(fields, 'a step of a verification failed');
      }
    });

  return {
    receive: (event, room, { user, mayVerify: may }) =>
      guarded(async () => {
        // The engine drops a request of a device that it does not know.
        if (may && event['type'] === 'm.room.message') await findDevices([user], { engine, outgoing });
        // Forgets verifications that are over: the engine takes one of them for another one that is going on, and cancels both.
        await engine.receive(NOTHING);
        await engine.call('receive_verification', (machine) =>
          machine.receiveVerificationEvent(JSON.stringify(event), new wasm.RoomId(room)),
        );
        noteConfirmation(event);
        await drive(user, may);
      }, user),
    async received(events) {
      const own = events.filter(isVerification).map(({ event }) => event);
      for (const event of own) noteConfirmation(event);
      for (const user of readSenders(own)) await guarded(() => driveByToDevice(user), user);
    },
    async sent(txnId, eventId) {
      const id = readVerifyTxnId(txnId);
      if (id === null) return;
      await guarded(async () => {
        await engine.markSent(
          { kind: 'room_message', id, roomId: '' as RoomId, eventType: '', txnId: id, body: '' },
          JSON.stringify({ event_id: eventId }),
        );
        for (const [user, may] of [...active.entries()]) await drive(user, may);
      }, null);
    },
  };
}

const NOTHING = { events: [], changed: [], left: [], oneTimeKeys: null, unusedFallback: null } as const;

function isVerification({ kind, event: { type } }: ReceivedToDevice): boolean {
  const isReadable = kind === 'plain' || kind === 'decrypted';
  return isReadable && typeof type === 'string' && type.startsWith('m.key.verification.');
}
function readSenders(events: readonly JsonObject[]): Set<UserId> {
  return new Set(
    events.flatMap(({ sender }) => {
      const user = parseUserId(sender);
      return user.ok ? [user.value] : [];
    }),
  );
}
