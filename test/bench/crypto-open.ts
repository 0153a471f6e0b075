/** Opens one key store as the oracle does at its start, in a process of its own: what that takes, and what the process weighs then. For crypto.ts. */
import { openCryptoDb } from '../../appservice/crypto/crypto-db.ts';
import { openEngine } from '../../appservice/crypto/engine.ts';
import type { DeviceId, UserId } from '../../src/ids.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { systemClock } from '../../src/system-clock.ts';

export interface Opening {
  readonly openMs: number;
  readonly rssMib: number;
  readonly roomKeys: number;
}

const [path = '', userId = '', deviceId = '', storeKey = ''] = process.argv.slice(2);
const from = performance.now();
const db = openCryptoDb(path);
if (!db.ok) throw new Error(db.error.code);
const engine = await openEngine({
  userId: userId as UserId,
  deviceId: deviceId as DeviceId,
  db: db.value,
  storeKey: Buffer.from(storeKey, 'base64'),
  clock: systemClock,
  logger: createLogger({ level: 'error', format: 'json' }),
  onFatal: (reason) => {
    throw new Error(reason);
  },
});
if (!engine.ok) throw new Error(engine.error.code);
const openMs = performance.now() - from;
const rssMib = process.memoryUsage.rss() / 1024 / 1024;
const opening: Opening = { openMs, rssMib, roomKeys: await engine.value.roomKeys() };
console.log(JSON.stringify(opening));
await engine.value.close();
db.value.close();
