/**
 * The oracle's encryption alone, as a process that a test kills: it seals message after message and reads what it is given. Its homeserver is the test,
 * at the other end of the channel.
 */
import { join } from 'node:path';
import { openCrypto } from '../../appservice/crypto/open-crypto.ts';
import { type MatrixApi, MatrixError, type MatrixIdentity, type MatrixRequest } from '../../appservice/matrix-api.ts';
import type { DeviceId, EventId, RoomId, UserId } from '../../src/ids.ts';
import type { JsonObject } from '../../src/json.ts';
import { systemClock } from '../../src/system-clock.ts';
import { fakeLogger } from '../fakes/fake-logger.ts';
import { encryptedRoom } from '../fakes/key-machine.ts';

/** To the test. */
export type FromOracle =
  | { kind: 'request'; id: number; identity: MatrixIdentity; method: string; path: string; query?: object; body?: unknown }
  | { kind: 'ready'; deviceId: string; fingerprint: string }
  | { kind: 'sealed'; content: JsonObject }
  | { kind: 'read'; eventId: string; body: unknown };
/** From the test. */
export type ToOracle =
  | { kind: 'answer'; id: number; answer?: object; error?: { errcode: string; status: number; certain: boolean } }
  | { kind: 'event'; event: JsonObject };

const [folder = '', user = '', reader = ''] = process.argv.slice(2);
const waiting = new Map<number, { resolve: (answer: never) => void; reject: (reason: unknown) => void }>();
const events: JsonObject[] = [];
let requests = 0;

const tell = (message: FromOracle): void => void process.send?.(message);
process.on('message', (message: ToOracle) => {
  if (message.kind === 'event') {
    events.push(message.event);
    return;
  }
  const call = waiting.get(message.id);
  waiting.delete(message.id);
  if (message.error !== undefined) call?.reject(new MatrixError({ retryAfterMs: null, ...message.error }));
  else call?.resolve(message.answer as never);
});
process.on('disconnect', () => process.exit(0));

const as = (identity: MatrixIdentity): MatrixApi => ({
  request: <T extends object>(method: string, path: string, { query, body }: MatrixRequest = {}) =>
    new Promise<T>((resolve, reject) => {
      requests += 1;
      waiting.set(requests, { resolve, reject });
      const sent = body === undefined ? {} : { body: Buffer.isBuffer(body) ? JSON.parse(body.toString()) : body };
      tell({ kind: 'request', id: requests, identity, method, path, ...(query === undefined ? {} : { query }), ...sent });
    }),
});

const opened = await openCrypto({
  connection: { as, bare: { request: () => Promise.reject(new Error('not of this test')) }, close: async () => undefined },
  userId: user as UserId,
  sendingDevice: 'ORACLE' as DeviceId,
  name: 'Oracle',
  files: { database: join(folder, 'crypto.db'), key: join(folder, 'crypto.key'), identity: join(folder, 'crypto-identity.json') },
  transport: 'sync',
  mayVerify: async () => false,
  postVerification: async () => undefined,
  clock: systemClock,
  logger: fakeLogger(),
  newId: () => 'id',
  onFatal: (reason) => {
    console.error(reason);
    process.exit(1);
  },
  onWaiting: () => undefined,
  signal: new AbortController().signal,
});
if (!opened.ok) {
  console.error(opened.error.code, opened.error.cause);
  process.exit(1);
}
const service = opened.value;
const { deviceId, fingerprint } = await service.status();
tell({ kind: 'ready', deviceId, fingerprint });

// A new key for every three messages: most kills fall near one.
const room = encryptedRoom([user, reader], { rotationPeriodMessages: 3 });
for (let count = 0; ; count += 1) {
  const content = await service.seal({ type: 'm.room.message', content: { msgtype: 'm.text', body: `message ${count}` } }, room);
  tell({ kind: 'sealed', content });
  for (const event of events) {
    const eventId = event['event_id'] as EventId;
    const revealed = await service.reveal({ event, eventId, roomId: room.roomId as RoomId });
    if (revealed.kind === 'missing_key') continue;
    tell({ kind: 'read', eventId, body: revealed.kind === 'clear' ? (revealed.event['content'] as JsonObject)['body'] : revealed.reason });
    events.splice(events.indexOf(event), 1);
    break;
  }
}
