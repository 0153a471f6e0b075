/**
 * Lets people verify the oracle from their own client, by emoji, in a room or by to-device messages. It is their proof, not ours: a program compares
 * nothing, so it agrees to whatever both sides computed, and says the emoji, in the room and in the log, where the person (or the operator) looks. So
 * nothing is ever decided on "the oracle verified them" (trust.ts). Its own account is left out: a device that is verified there may ask for its secrets.
 * A verification lives in memory: a restart ends it, and the person begins again.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import { LRUCache } from 'lru-cache';
import {
  type EventId,
  noticeTxnId,
  type OutboxTxnId,
  parseUserId,
  type RoomId,
  readVerifyTxnId,
  type UserId,
  verifyTxnId,
} from '../../src/ids.ts';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import type { Clock, Timer } from '../../src/time.ts';
import { buildNotice } from '../content/build-notice.ts';
import { isMatrixError } from '../matrix-api.ts';
import { CryptoUnavailable } from './crypto-service.ts';
import type { Engine, ReceivedToDevice } from './engine.ts';
import { type OutgoingRequest, readRequest } from './engine-request.ts';
import { createLock } from './lock.ts';
import type { Outgoing } from './outgoing.ts';
import { decideVerificationStep, type VerificationFacts } from './verification-step.ts';

/** One event that a verification sends into a room. */
export interface VerificationMessage {
  readonly txnId: OutboxTxnId;
  readonly roomId: RoomId;
  readonly type: string;
  readonly content: JsonObject;
}
/** Writes it into the outbox as a notice; the same txn id again changes nothing. */
export type PostVerification = (message: VerificationMessage) => Promise<void>;

export interface VerificationOptions {
  readonly engine: Pick<Engine, 'userId' | 'call' | 'markSent' | 'receive' | 'trackUsers'>;
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

type RoomMessage = Extract<OutgoingRequest, { kind: 'room_message' }>;

/** Between the engine and the outbox. */
export interface VerificationMailbox {
  /** For `Outgoing.onRoomMessage`. */
  post(request: RoomMessage): Promise<void>;
  /** The other side has said that it is done with the verification of this request. */
  release(flow: string): void;
  /** What is held back then is never sent: the verification is over with the process. */
  stop(): void;
}

/**
 * Two messages that reach a client in one answer are handled side by side by matrix-js-sdk 43, which may drop the second, and then its verification never
 * ends (seen). So "done" waits for theirs, which says that our MAC was read, or for as long as this.
 */
const DONE_AFTER_MS = 5_000;

export interface VerificationMailboxOptions {
  readonly post: PostVerification;
  readonly clock: Clock;
  readonly logger: Logger;
}

export function createVerificationMailbox({ post, clock, logger }: VerificationMailboxOptions): VerificationMailbox {
  const held = new Map<string, { readonly message: VerificationMessage; readonly timer: Timer }>();
  const released = new LRUCache<string, true>({ max: PEOPLE });

  function release(flow: string): void {
    released.set(flow, true);
    const waiting = held.get(flow);
    if (waiting === undefined) return;
    held.delete(flow);
    waiting.timer.cancel();
    const { message } = waiting;
    // It stays among the engine's requests until it was sent, and each flush brings it again.
    post(message).catch((error: unknown) => logger.warn({ room_id: message.roomId, err: error }, 'a step of a verification failed'));
  }
  return {
    async post(request) {
      const message = buildVerificationMessage(request);
      const flow = readFlow(message.content);
      if (message.type !== 'm.key.verification.done' || flow === null || released.has(flow)) return post(message);
      if (!held.has(flow)) held.set(flow, { message, timer: clock.after(DONE_AFTER_MS, () => release(flow)) });
    },
    release,
    stop() {
      for (const { timer } of held.values()) timer.cancel();
      held.clear();
    },
  };
}

/** The id by which both sides call a verification: of its request in a room, of its own by to-device. */
function readFlow({ 'm.relates_to': relation, transaction_id: transaction }: JsonObject): string | null {
  if (isJsonObject(relation)) return typeof relation['event_id'] === 'string' ? relation['event_id'] : null;
  return typeof transaction === 'string' ? transaction : null;
}

const buildVerificationMessage = ({ id, roomId, eventType, body }: RoomMessage): VerificationMessage => ({
  txnId: verifyTxnId(id),
  roomId,
  type: eventType,
  content: JSON.parse(body) as JsonObject,
});

export function createVerification({ engine, outgoing, post, mailbox, mayVerify, logger }: VerificationOptions): Verification {
  const lock = createLock();
  const active = new LRUCache<UserId, boolean>({ max: PEOPLE });
  const told = new LRUCache<string, 'shown' | 'done'>({ max: PEOPLE });
  /** Verifications in which they have confirmed. */
  const confirmed = new LRUCache<string, true>({ max: PEOPLE });

  /** Every step that is ours to take with this person, until nothing is left to do but wait. */
  async function drive(user: UserId, may: boolean): Promise<void> {
    if (user === engine.userId) return;
    active.set(user, may);
    const theyConfirmed = (flow: string): boolean => confirmed.has(flow);
    const { requests, flows } = await engine.call('verify', (machine) => advance(machine, user, { may, theyConfirmed }));
    for (const flow of flows) await tell(user, flow);
    for (const request of requests) await outgoing.send(request);
    // The engine's own part: its key, its "done", and the signature.
    await outgoing.flush();
  }

  async function driveByToDevice(user: UserId): Promise<void> {
    const may = await mayVerify(user);
    // The engine dropped a request of a device that it did not know; asked now, it takes the next.
    if (may && user !== engine.userId) await learnDevices(user);
    await drive(user, may);
  }
  async function learnDevices(user: UserId): Promise<void> {
    await engine.trackUsers([user]);
    await outgoing.askForDevices();
  }
  function noteConfirmation({ type, content }: JsonObject): void {
    const flow = type === 'm.key.verification.mac' && isJsonObject(content) ? readFlow(content) : null;
    if (flow !== null) confirmed.set(flow, true);
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
        if (may && event['type'] === 'm.room.message') await learnDevices(user);
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

/** Of one verification, as far as it is to be told. */
interface Flow {
  readonly id: string;
  readonly room: RoomId | null;
  /** Once both sides can show them. */
  readonly emoji: string | null;
  readonly isDone: boolean;
}

/** Runs inside one call of the engine: its objects must not outlive it. */
async function advance(machine: wasm.OlmMachine, user: UserId, policy: Policy): Promise<{ requests: OutgoingRequest[]; flows: Flow[] }> {
  const requests: OutgoingRequest[] = [];
  const flows: Flow[] = [];
  for (const request of machine.getVerificationRequests(new wasm.UserId(user))) {
    const verification = request.getVerification();
    const sas = verification instanceof wasm.Sas ? verification : null;
    flows.push({
      id: request.flowId,
      room: (request.roomId?.toString() ?? null) as RoomId | null,
      emoji: policy.may && sas !== null ? describeSas(sas) : null,
      isDone: request.isDone(),
    });
    requests.push(...(await takeStep(request, sas, readFacts(request, { verification, sas, policy }))));
  }
  return { requests, flows };
}

interface Policy {
  readonly may: boolean;
  readonly theyConfirmed: (flow: string) => boolean;
}
interface Parts {
  readonly verification: wasm.Sas | wasm.Qr | undefined;
  readonly sas: wasm.Sas | null;
  readonly policy: Policy;
}
const readFacts = (request: wasm.VerificationRequest, { verification, sas, policy }: Parts): VerificationFacts => ({
  mayVerify: policy.may,
  isOver: request.isDone() || request.isCancelled() || request.timedOut() || request.isPassive(),
  isRequested: request.phase() === wasm.VerificationRequestPhase.Requested && !request.weStarted(),
  offersEmoji: request.theirSupportedMethods?.includes(wasm.VerificationMethod.SasV1) ?? false,
  method: verification === undefined ? 'none' : sas === null ? 'other' : 'emoji',
  isAccepted: sas !== null && (sas.weStarted() || sas.hasBeenAccepted()),
  canBeShown: sas?.canBePresented() ?? false,
  theyConfirmed: policy.theyConfirmed(request.flowId),
  isConfirmed: sas?.haveWeConfirmed() ?? false,
});

async function takeStep(request: wasm.VerificationRequest, sas: wasm.Sas | null, facts: VerificationFacts): Promise<OutgoingRequest[]> {
  switch (decideVerificationStep(facts)) {
    case 'accept_request':
      return present(request.acceptWithMethods([wasm.VerificationMethod.SasV1]));
    case 'cancel':
      return present(request.cancel());
    case 'accept_emoji':
      return present(sas?.accept());
    case 'confirm':
      return (await sas?.confirm())?.map(readRequest) ?? [];
    case 'wait':
      return [];
  }
}
const present = (raw: Parameters<typeof readRequest>[0] | undefined): OutgoingRequest[] => (raw === undefined ? [] : [readRequest(raw)]);

/** Seven emoji with their names; three numbers for a client that has none. */
function describeSas(sas: wasm.Sas): string | null {
  if (!sas.canBePresented()) return null;
  const emoji = sas.supportsEmoji() ? sas.emoji() : undefined;
  if (emoji !== undefined) return emoji.map(({ symbol, description }) => `${symbol} ${description}`).join(', ');
  const decimals = sas.decimals();
  return decimals === undefined ? null : [...decimals].join(' ');
}
