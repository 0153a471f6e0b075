/**
 * The composition root: wires every part and owns every listener. In the order that loses nothing: first the data folder, then the endpoint
 * that takes transactions into it (G1), and only then everything that works, because the homeserver must never wait for us while libraries
 * load. The end-to-end tests and the demo call this very function.
 */
import { createEndpoint } from '../../appservice/endpoint.ts';
import type { Config } from '../config.ts';
import type { UserId } from '../ids.ts';
import { createInbox } from '../inbox/inbox.ts';
import type { Logger } from '../observe/logger.ts';
import { createMetrics } from '../observe/metrics.ts';
import { type MetricsServer, startMetricsServer } from '../observe/metrics-server.ts';
import type { Clock } from '../time.ts';
import { dataPaths } from './data-paths.ts';
import { openData } from './open-data.ts';
import type { PluginOptions } from './plugin-options.ts';
import type { Work } from './work.ts';

export interface StartOptions extends PluginOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly clock: Clock;
  /** Something is in doubt that no running process may go on with (the keys of encrypted rooms): it must end, and is started anew. */
  readonly onFatal?: (reason: string) => void;
}
export interface Oracle {
  readonly userId: UserId;
  /** Where transactions are taken; with the port that a 0 became. */
  readonly appserviceUrl: string;
  /** Resolves with the sidecar's address once it listens. */
  readonly sidecarUrl: Promise<string>;
  readonly metricsUrl: string;
  /** Resolves when accounts exist, what the homeserver failed to push has been looked for, and the agent is loaded. Rejects with `StartRefused`. */
  readonly ready: Promise<void>;
  /** Takes no new work, lets runs reach a checkpoint within 10 s, and leaves the rest for the next start. */
  stop(): Promise<void>;
}

export async function startOracle({ config, logger, clock, onFatal = exitNow, ...more }: StartOptions): Promise<Oracle> {
  const data = openData(dataPaths(config.dataDir), clock.now());
  const opened: (() => Promise<void> | void)[] = [() => data.close()];
  /** Newest first: what was opened last stands on what was opened before. */
  async function closeAll(): Promise<void> {
    for (const close of opened.splice(0).reverse()) await close();
  }
  const end = (reason: string): void => {
    logger.error({ reason }, 'the process ends, to be started again');
    onFatal(reason);
  };
  try {
    const metrics = createMetrics();
    const inbox = createInbox({ store: data.store, clock, oracle: config.oracleUserId, fence: data.fence });
    let work: Work | null = null;
    const loaded = Promise.withResolvers<Work>();
    loaded.promise.catch(() => undefined);
    const endpoint = createEndpoint({
      hsToken: config.matrixHsToken.reveal(),
      receive: async (events) => {
        work?.arrived(events);
        await inbox.receive(events);
      },
      // The homeserver leaves keys out when it repeats a transaction: the first one waits until they can be taken.
      ...(config.cryptoTransport === 'sync' ? {} : { receiveKeys: async (transaction) => (await loaded.promise).receiveKeys(transaction) }),
      onPing: (id) => work?.pinged(id),
      onTransaction: () => work?.homeserverIsUp(),
      onAnswered: (status, durationMs) => metrics.transaction(status, durationMs),
      onSkipped: (reason) => metrics.admission('skipped', reason),
      logger,
    });
    const appserviceUrl = await endpoint.listen({ host: config.appserviceHost, port: config.appservicePort });
    opened.push(() => endpoint.close());
    const metricsServer: MetricsServer = await startMetricsServer({ registry: metrics.registry, port: config.metricsPort });
    opened.push(() => metricsServer.stop());
    logger.info({ port: portOf(appserviceUrl) }, 'listening for transactions');

    // Loaded now, not at import: from here on nothing that arrives is lost.
    const working = import('./work.ts').then(async ({ startWork }) => {
      work = await startWork({ ...more, config, logger, clock, data, inbox, metrics, appserviceUrl, onFatal: end });
      opened.push(() => work?.stop());
      return work;
    });
    working.then(loaded.resolve, loaded.reject);
    const ready = working.then((started) => started.ready);
    // The caller may not look at it; a start that fails later is logged by whoever waits for `ready`, and shown by /health.
    ready.catch(() => undefined);
    const sidecarUrl = working.then((started) => started.sidecarUrl);
    sidecarUrl.catch(() => undefined);
    return {
      userId: config.oracleUserId,
      appserviceUrl,
      sidecarUrl,
      metricsUrl: metricsServer.url,
      ready,
      async stop() {
        await working.catch(() => undefined);
        await closeAll();
        logger.info({}, 'stopped');
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

/** Nothing may be written any more, so nothing is stopped in order: whatever starts us finds everything on disk. */
const exitNow = (): void => process.exit(1);

const portOf = (url: string): number => Number(new URL(url).port);
