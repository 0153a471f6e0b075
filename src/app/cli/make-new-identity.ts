/** Opens the key store once with the wish for a new identity, and closes it. The one command that starts the engine, so it is loaded only for that. */
import { randomBytes } from 'node:crypto';
import { openCrypto } from '../../../appservice/crypto/open-crypto.ts';
import type { MatrixConnection } from '../../../appservice/matrix-api.ts';
import type { Config } from '../../config.ts';
import { createLogger } from '../../observe/logger.ts';
import { systemClock } from '../../system-clock.ts';
import { cryptoFiles } from '../data-paths.ts';
import { CliError } from './cli-error.ts';

const WITHIN_MS = 60_000;

/** @throws CliError with what stands in the way: a running oracle, a homeserver that is away or refuses. */
export async function makeNewIdentity({ connection, config }: { readonly connection: MatrixConnection; readonly config: Config }): Promise<{
  readonly masterKey: string;
  readonly deviceId: string;
}> {
  let waitsFor: string | null = null;
  let fatal: string | null = null;
  const ending = new AbortController();
  const timer = systemClock.after(WITHIN_MS, () => ending.abort(new Error('it took too long')));
  try {
    const opened = await openCrypto({
      connection,
      userId: config.oracleUserId,
      sendingDevice: config.matrixDeviceId,
      name: config.oracleName,
      files: cryptoFiles(config),
      transport: config.cryptoTransport,
      // Nobody is verified while nobody can see it.
      mayVerify: async () => false,
      postVerification: async () => undefined,
      clock: systemClock,
      logger: createLogger({ level: 'silent', format: 'json' }),
      newId: () => randomBytes(12).toString('base64url'),
      onFatal: (reason) => {
        fatal = reason;
        ending.abort(new Error(reason));
      },
      onWaiting: ({ errcode, status }) => {
        waitsFor = `${errcode}, HTTP ${status}`;
      },
      signal: ending.signal,
      newIdentity: true,
    });
    if (!opened.ok) throw new CliError(opened.error.remedy, { cause: opened.error.cause });
    const { masterKey, deviceId } = await opened.value.status();
    await opened.value.stop();
    return { masterKey: masterKey ?? '', deviceId };
  } catch (error) {
    if (!ending.signal.aborted) throw error;
    if (fatal !== null) throw new CliError(`the key store failed: ${fatal}. Run it again.`, { cause: error });
    throw new CliError(`the homeserver did not answer within a minute${waitsFor === null ? '' : ` (${waitsFor})`}. Run it again.`, {
      cause: error,
    });
  } finally {
    timer.cancel();
  }
}
