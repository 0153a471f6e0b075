/**
 * Runs the oracle until a signal. SIGTERM and Ctrl-C let runs reach a checkpoint (G5), a second one exits at once, because an operator who asks
 * twice means it; nothing acknowledged is lost either way (G1). What stops the start is one sentence: which setting, which port, which file.
 */
import { readEnvironment } from '../../config.ts';
import { createLogger } from '../../observe/logger.ts';
import { systemClock } from '../../system-clock.ts';
import { loadConfig } from '../load-config.ts';
import { CliError, configError } from './cli-error.ts';
import { describeStartError } from './describe-start-error.ts';
import { runUntilSignal } from './run-until-signal.ts';
import { settleMemory } from './settle-memory.ts';

export async function runStart({ settings }: { readonly settings?: string }): Promise<void> {
  const loaded = await loadConfig({ environment: readEnvironment(), settings });
  if (!loaded.ok) throw configError(loaded.error);
  const { config, environment, warnings } = loaded.value;
  const pretty = config.logFormat === 'pretty' || (config.logFormat === 'auto' && process.stdout.isTTY);
  const logger = createLogger({ level: config.logLevel, format: pretty ? 'pretty' : 'json' });
  for (const { message, remedy } of warnings) logger.warn({ reason: `${message} ${remedy}` }, 'setting without effect');
  // A plugin's promise that nobody waits for must not end everybody's answers; an engine that panicked must (src/app/main.ts, onFatal).
  process.on('unhandledRejection', (error) => {
    logger.error({ err: error }, 'something failed that nobody waits for');
    if (error instanceof Error && error.name === 'RuntimeError') process.exit(1);
  });
  try {
    await runUntilSignal({
      clock: systemClock,
      signals: process,
      exit: (code) => process.exit(code),
      start: async () => {
        const oracle = await (await import('../main.ts')).startOracle({ config, environment, logger, clock: systemClock });
        // A start that fails is told by who waits for `ready`.
        oracle.ready.then(settleMemory, () => undefined);
        return oracle;
      },
    });
  } catch (error) {
    const sentence = describeStartError(error, config);
    if (sentence === undefined) throw error;
    throw new CliError(sentence, { cause: error });
  }
}
