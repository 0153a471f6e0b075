/**
 * `matrix-oracle start` with two additions: a plugin whose effect is counted outside the process (a line in a file), and points at which the process
 * kills itself with SIGKILL, right after something cannot be taken back any more: a commit of the database, a checkpoint, an effect of a tool, a
 * request that the homeserver has answered. A test orders a kill by a file; without one this is an ordinary oracle.
 * Nothing of the program is replaced: the database driver and the HTTP client below it are watched.
 */

import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync, readFileSync, unlinkSync, writeFileSync, writeSync } from 'node:fs';
import Sqlite, { type Database, type Statement } from 'better-sqlite3';
import { z } from 'zod';
import { startOracle } from '../../src/app/main.ts';
import { readConfig, readEnvironment } from '../../src/config.ts';
import { createLogger } from '../../src/observe/logger.ts';
import { defineOraclePlugin } from '../../src/plugin-api/define-oracle-plugin.ts';
import { defineTool } from '../../src/plugin-api/define-tool.ts';
import { systemClock } from '../../src/system-clock.ts';

const ORDER = process.env['KILL_ORDER'] ?? '';
const EFFECTS = process.env['EFFECTS'] ?? '';

/** Something is on disk or done. Steps have the name of what was changed: `commit: insert into frames, update runs`. */
function passed(step: string): void {
  const order = readOrder();
  if (order === null || !new RegExp(order.fits, 'u').test(step)) return;
  if (order.left > 1) {
    writeFileSync(ORDER, JSON.stringify({ ...order, left: order.left - 1 }));
    return;
  }
  unlinkSync(ORDER);
  writeSync(1, `${JSON.stringify({ level: 30, msg: 'killed', step })}\n`);
  process.kill(process.pid, 'SIGKILL');
  // Nothing may happen until the signal arrives.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
function readOrder(): { readonly fits: string; readonly left: number } | null {
  try {
    return JSON.parse(readFileSync(ORDER, 'utf8'));
  } catch {
    return null;
  }
}

/** What the transaction that is open in each database has changed so far. */
const changed = new WeakMap<Database, Set<string>>();
const { prepare } = Sqlite.prototype as Database;
Sqlite.prototype.prepare = function (this: Database, text: string): Statement {
  const statement = prepare.call(this, text) as Statement;
  const change = /^(insert(?: or \w+)? into|update|delete from) "?(\w+)"?/iu.exec(text);
  if (change === null && text !== 'COMMIT') return statement;
  const { run } = statement;
  statement.run = (...values: unknown[]) => {
    const outcome = run.apply(statement, values);
    const changes = changed.get(this) ?? new Set();
    changed.set(this, changes);
    // Checkpoints are committed by the driver's own transactions, below.
    if (change !== null) changes.add(`${change[1]?.toLowerCase().replace(/ or \w+/u, '')} ${change[2]}`);
    else {
      changed.delete(this);
      passed(`commit: ${[...changes].join(', ')}`);
    }
    return outcome;
  };
  return statement;
} as typeof prepare;

const { transaction } = Sqlite.prototype as Database;
Sqlite.prototype.transaction = function (this: Database, work: (...values: never[]) => unknown) {
  const inner = transaction.call(this, work);
  const watch =
    (run: (...values: never[]) => unknown) =>
    (...values: never[]) => {
      const outcome = run(...values);
      const changes = changed.get(this) ?? new Set();
      changed.delete(this);
      if (changes.size > 0) passed(`commit: ${[...changes].join(', ')}`);
      return outcome;
    };
  return Object.assign(watch(inner), {
    deferred: watch(inner.deferred),
    immediate: watch(inner.immediate),
    exclusive: watch(inner.exclusive),
    database: this,
  });
} as unknown as typeof transaction;

subscribe('undici:request:trailers', (message) => {
  const { request } = message as { request: { method: string; path: string } };
  const action = /^\/_matrix\/client\/v3\/(?:rooms\/[^/]+\/(\w+)|(sendToDevice))\/?([\w.]*)/u.exec(request.path);
  if (request.method !== 'GET' && action !== null) passed(`homeserver: ${action[1] ?? action[2]} ${action[3]}`);
});

const notes = defineOraclePlugin({
  name: 'notes',
  version: '1.0.0',
  manifest: { title: 'Notes', summary: 'Writes notes.', whenToUse: ['The user wants something noted.'], visibility: 'always' },
  getTools: () => [
    defineTool({
      name: 'write_note',
      description: 'Writes a note down.',
      schema: z.object({ note: z.string() }),
      effect: 'write',
      reach: 'own',
      handler: async ({ note }) => {
        appendFileSync(EFFECTS, `${note}\n`);
        passed('effect of a tool');
        return 'written';
      },
    }),
  ],
});

const environment = readEnvironment();
const config = readConfig(environment);
if (!config.ok) throw new Error(config.error.map(({ message }) => message).join('\n'));
const logger = createLogger({ level: config.value.logLevel, format: 'json' });
const oracle = await startOracle({ config: config.value, environment, logger, clock: systemClock, plugins: [notes] });
process.once('SIGTERM', () => void oracle.stop().then(() => process.exit(0)));
await oracle.ready;
