/**
 * Encrypted rooms, opened beside everything else: the engine and its keys take a moment and a homeserver that answers, and meanwhile the oracle must
 * neither lose an event nor say a word in the clear (G1, G11). Until it is open, whatever needs it waits and is tried again; nothing is refused.
 */
import type { Attachments } from '../../appservice/crypto/attachments.ts';
import { type CryptoStatus, CryptoUnavailable, type RoomEncryption } from '../../appservice/crypto/crypto-service.ts';
import type { OpenCrypto } from '../../appservice/crypto/open-crypto.ts';
import type { MatrixConnection } from '../../appservice/matrix-api.ts';
import type { Transaction } from '../../appservice/wire/read-transaction.ts';
import { type AccessRules, mayUse } from '../admission/access.ts';
import type { DeviceOptions } from '../admission/admit-device.ts';
import type { Reveal } from '../admission/reveal.ts';
import type { Config } from '../config.ts';
import type { EventId, MegolmSessionId, RoomId, UserId } from '../ids.ts';
import { Unavailable } from '../inbox/unavailable.ts';
import type { JsonObject } from '../json.ts';
import type { Logger } from '../observe/logger.ts';
import type { Outbox } from '../outbox/outbox.ts';
import type { Store } from '../store/store.ts';
import { type Clock, sleep } from '../time.ts';
import { cryptoFiles } from './data-paths.ts';
import type { EncryptionHealth } from './observe-work.ts';
import { StartRefused } from './start-refused.ts';

export interface EncryptionOptions {
  readonly config: Config;
  readonly connection: MatrixConnection;
  readonly store: Store;
  readonly outbox: Outbox;
  readonly rules: AccessRules;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly newId: () => string;
  /** The process must end now: a ratchet whose state is in doubt must not encrypt again. */
  readonly onFatal: (reason: string) => void;
}
export interface Encryption extends DeviceOptions {
  /** Waits for the homeserver. Rejects with `StartRefused` when an operator must repair something. */
  open(signal: AbortSignal): Promise<void>;
  readonly reveal: Reveal;
  seal(event: { readonly type: string; readonly content: JsonObject }, room: RoomEncryption): Promise<JsonObject>;
  read(event: JsonObject, room: RoomId): Promise<JsonObject | null>;
  onKeys(listener: (sessions: readonly MegolmSessionId[]) => void): void;
  keysSyncedSince(at: number): boolean;
  /** An event of ours is on the homeserver. */
  sent(txnId: string, eventId: EventId): void;
  /** With CRYPTO_TRANSPORT=appservice: resolves when the keys of a transaction are on disk. */
  receiveKeys(transaction: Transaction): Promise<void>;
  readonly attachments: Attachments;
  /** Null until it is open. */
  status(): Promise<CryptoStatus> | null;
  health(): EncryptionHealth;
  stop(): Promise<void>;
}

/** A transaction waits for the key store no longer than the homeserver waits for its answer. */
const OPEN_WITHIN_MS = 30_000;
const OPEN_POLL_MS = 50;
/** Of the steps of a verification, which are notices in the outbox. */
const VERIFICATION = 'verify.';

export function createEncryption(options: EncryptionOptions): Encryption {
  const { config, connection, store, outbox, rules, clock, logger, newId, onFatal } = options;
  const listeners: ((sessions: readonly MegolmSessionId[]) => void)[] = [];
  let crypto: OpenCrypto | null = null;
  let attachments: Promise<Attachments> | null = null;

  const answersVerification = config.cryptoVerify === 'auto';
  const loadAttachments = (): Promise<Attachments> => {
    attachments ??= import('../../appservice/crypto/attachments.ts').then(({ createAttachments }) => createAttachments({ onFatal }));
    return attachments;
  };

  return {
    async open(signal) {
      const { openCrypto } = await import('../../appservice/crypto/open-crypto.ts');
      const opened = await openCrypto({
        connection,
        userId: config.oracleUserId,
        sendingDevice: config.matrixDeviceId,
        name: config.oracleName,
        files: cryptoFiles(config),
        transport: config.cryptoTransport,
        mayVerify: async (user: UserId) => answersVerification && mayUse(user, rules),
        postVerification: async ({ txnId, roomId, type, content }) => {
          await store.write((tx) => {
            outbox.insert(tx, { txnId, lane: `verify.${roomId}`, roomId, kind: 'notice', eventType: type, content }, clock.now());
          });
          outbox.wake();
        },
        clock,
        logger,
        newId,
        onFatal,
        onWaiting: ({ errcode, status }, attempt) => logger.warn({ code: errcode, status, attempt }, 'encryption waits for the homeserver'),
        signal,
      });
      if (!opened.ok) throw new StartRefused(opened.error.remedy, { cause: opened.error.cause });
      crypto = opened.value;
      crypto.onKeys((sessions) => {
        for (const listener of listeners) listener(sessions);
      });
    },
    async reveal(row) {
      if (crypto === null) throw new Unavailable('encryption is not open yet');
      return crypto.reveal(row);
    },
    async seal(event, room) {
      if (crypto === null) throw new CryptoUnavailable('encryption is not open yet');
      return crypto.seal(event, room);
    },
    async read(event, room) {
      // "Cannot be read" would be believed: what another database answered would be answered again (DESIGN §2).
      if (crypto === null) throw new CryptoUnavailable('encryption is not open yet');
      return crypto.read(event, room);
    },
    onKeys: (listener) => void listeners.push(listener),
    keysSyncedSince: (at) => crypto?.syncedSince(at) ?? false,
    sent(txnId, eventId) {
      if (txnId.startsWith(VERIFICATION)) void crypto?.verificationSent(txnId, eventId);
    },
    async receiveKeys(transaction) {
      if (config.cryptoTransport !== 'appservice') return;
      for (let waited = 0; crypto === null; waited += OPEN_POLL_MS) {
        if (waited >= OPEN_WITHIN_MS) throw new CryptoUnavailable('encryption is not open yet');
        await sleep(clock, OPEN_POLL_MS);
      }
      await crypto.receiveTransaction?.(transaction);
    },
    attachments: {
      encrypt: async (bytes) => (await loadAttachments()).encrypt(bytes),
      decrypt: async (bytes, key) => (await loadAttachments()).decrypt(bytes, key),
    },
    verification: {
      receive: async (event, room, { user, mayVerify }) =>
        crypto?.receiveVerification(event, room, { user, mayVerify: mayVerify && answersVerification }),
    },
    async fingerprint() {
      if (crypto === null) return null;
      const { deviceId, fingerprint } = await crypto.status();
      return { userId: config.oracleUserId, deviceId, fingerprint };
    },
    status: () => crypto?.status() ?? null,
    health: () => ({ isOpen: crypto !== null, trouble: crypto?.trouble() ?? null }),
    stop: async () => crypto?.stop(),
  };
}
