/** What commonly stops a start, as one sentence with its remedy; undefined for what is a bug and must show its stack. Pure. */
import type { Config } from '../../config.ts';

interface SystemError {
  readonly code?: unknown;
  readonly port?: unknown;
  readonly address?: unknown;
  readonly path?: unknown;
  readonly message?: unknown;
}

export function describeStartError(
  error: unknown,
  config: Pick<Config, 'appservicePort' | 'port' | 'metricsPort' | 'dataDir'>,
): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  const { code, port, address, path, message } = error as SystemError;
  switch (code) {
    case 'EADDRINUSE':
      return `port ${String(port)} is taken: stop the program that uses it, or set ${settingOf(Number(port), config)} to another port.`;
    case 'EADDRNOTAVAIL':
      return `this machine has no address ${String(address)}: set APPSERVICE_HOST or HOST to one that it has, such as 127.0.0.1.`;
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      return port === undefined
        ? `${String(path ?? config.dataDir)} cannot be written: give the user that runs the oracle the rights to DATA_DIR, or set DATA_DIR to another folder.`
        : `port ${String(port)} needs rights that this user has not: set ${settingOf(Number(port), config)} to a port above 1023.`;
    case 'ENOSPC':
      return `the disk of ${config.dataDir} is full: make room and start again.`;
    case 'SQLITE_CANTOPEN':
    case 'SQLITE_READONLY':
      return `the database in ${config.dataDir} cannot be opened for writing: check the rights on DATA_DIR and its files.`;
    case 'SQLITE_BUSY':
      return `the database in ${config.dataDir} is in use: stop the other process, or set DATA_DIR to another folder.`;
    case 'SQLITE_CORRUPT':
    case 'SQLITE_NOTADB':
      return `the database in ${config.dataDir} is damaged: restore a backup, or move it away to begin anew (nothing is answered twice).`;
    // Thrown by us with a whole sentence: the data folder is locked, the database is of a newer release.
    case 'START_REFUSED':
      return String(message);
    default:
      return undefined;
  }
}

function settingOf(port: number, config: Pick<Config, 'appservicePort' | 'port' | 'metricsPort'>): string {
  if (port === config.appservicePort) return 'APPSERVICE_PORT (and `url` in the registration)';
  return port === config.metricsPort ? 'METRICS_PORT' : 'PORT';
}
