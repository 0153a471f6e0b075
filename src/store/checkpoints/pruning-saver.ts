/**
 * The library's saver keeps every checkpoint for ever (300 turns were 98 MB) and commits each of the six writes of a short turn by itself. Version 4
 * checkpoints need nothing older than the parent of the newest, so the rest goes with the insert that makes it old. Writes are queued and committed
 * with the checkpoint they lead to, one fsync per step: the graph goes on only after that commit ("sync" durability waits for its promise),
 * except after the input, which is worth nothing without the step that follows it. That costs time travel, which nobody uses.
 * `owner_seq` numbers the rows of one owner's file: later, segments of a file can be copied elsewhere without asking what changed.
 */
import type { RunnableConfig } from '@langchain/core/runnables';
import {
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointTuple,
  copyCheckpoint,
  type PendingWrite,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint';
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite';
import type { Database } from 'better-sqlite3';

/** `user_version` of a file: stands in its header, where it can be read without opening the database. */
export const LASTING = 1;

interface Change {
  readonly apply: () => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

interface Changes {
  readonly addCheckpoint: (row: readonly unknown[], prune: readonly [string, string, string] | null) => void;
  readonly addWrites: (rows: readonly (readonly unknown[])[], replace: boolean) => void;
  /** Moves a thread's rows to where nobody looks for them. */
  readonly setAside: (thread: string, namespace: string) => void;
  /** All or nothing, in one transaction. */
  readonly commit: (changes: readonly Change[]) => void;
}

export class PruningSaver extends SqliteSaver {
  readonly #database: Database;
  readonly #onUnreadable: (error: unknown) => void;
  #changes: Changes | undefined;
  #queue: Change[] = [];
  /** Writes that are being serialized: a checkpoint that comes after them waits, or they would need a commit of their own. */
  readonly #pending = new Set<Promise<void>>();

  /**
   * @param onUnreadable hears of a row whose content does not parse. It will not parse the next time either, so it counts as absent and the turn
   * proceeds; the row is kept aside (`unreadable_checkpoints`), because the next checkpoint would prune it.
   */
  constructor(database: Database, onUnreadable: (error: unknown) => void = () => undefined) {
    super(database);
    this.#database = database;
    this.#onUnreadable = onUnreadable;
  }

  protected override setup(): void {
    if (this.isSetup) return;
    super.setup();
    this.#changes = prepareChanges(this.#database);
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    this.flush();
    try {
      return await super.getTuple(config);
    } catch (error) {
      // Busy, full, or damaged as a whole: what is there may be read again, or is the file's matter.
      if (isDatabaseError(error)) throw error;
      this.#changes?.setAside(readThread(config), (config.configurable?.['checkpoint_ns'] as string | undefined) ?? '');
      this.#onUnreadable(error);
      return undefined;
    }
  }

  override async *list(...args: Parameters<SqliteSaver['list']>): AsyncGenerator<CheckpointTuple> {
    this.flush();
    yield* super.list(...args);
  }

  override async deleteThread(threadId: string): Promise<void> {
    this.flush();
    await super.deleteThread(threadId);
  }

  override async put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata): Promise<RunnableConfig> {
    this.setup();
    const thread = readThread(config);
    const namespace = (config.configurable?.['checkpoint_ns'] as string | undefined) ?? '';
    const parent = config.configurable?.['checkpoint_id'] as string | undefined;
    const [[type, data], [metadataType, metadataData]] = await Promise.all([
      this.serde.dumpsTyped(copyCheckpoint(checkpoint)),
      this.serde.dumpsTyped(metadata),
    ]);
    if (type !== metadataType) throw new Error('checkpoint and metadata must be serialized alike');
    if (this.#pending.size > 0) await Promise.all(this.#pending);
    const row = [thread, namespace, checkpoint.id, parent ?? null, type, data, metadataData];
    const stored = this.#enqueue((changes) => changes.addCheckpoint(row, parent === undefined ? null : [thread, namespace, parent]));
    if (metadata.source === 'input') stored.catch(() => undefined);
    else {
      this.flush();
      await stored;
    }
    return { configurable: { thread_id: thread, checkpoint_ns: namespace, checkpoint_id: checkpoint.id } };
  }

  override async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string): Promise<void> {
    this.setup();
    const thread = readThread(config);
    const namespace = config.configurable?.['checkpoint_ns'] as string | undefined;
    const checkpointId = config.configurable?.['checkpoint_id'] as string | undefined;
    if (checkpointId === undefined) throw new Error('Missing checkpoint_id field in config.configurable.');
    const replace = writes.every(([channel]) => channel in WRITES_IDX_MAP);
    const queued = Promise.withResolvers<void>();
    this.#pending.add(queued.promise);
    let stored: Promise<void>;
    try {
      const rows = await Promise.all(
        writes.map(async ([channel, value], at) => {
          const [type, data] = await this.serde.dumpsTyped(value);
          return [thread, namespace, checkpointId, taskId, WRITES_IDX_MAP[channel] ?? at, channel, type, data];
        }),
      );
      stored = this.#enqueue((changes) => changes.addWrites(rows, replace));
    } finally {
      this.#pending.delete(queued.promise);
      queued.resolve();
    }
    await stored;
  }

  /** The file holds what outlives a turn (loaded plugins, their fields), so it is kept for longer than one that does not. */
  markLasting(): void {
    if (this.#database.pragma('user_version', { simple: true }) === LASTING) return;
    this.#database.pragma(`user_version = ${LASTING}`);
    // Out of the log and into the header, once per file: that is where it is looked for.
    this.#database.pragma('wal_checkpoint(PASSIVE)');
  }

  /** Commits what waits, now. */
  flush(): void {
    const queue = this.#queue;
    if (queue.length === 0) return;
    this.#queue = [];
    try {
      this.#changes?.commit(queue);
    } catch (error) {
      for (const { reject } of queue) reject(error);
      return;
    }
    for (const { resolve } of queue) resolve();
  }

  /** The commit comes with the next checkpoint, at the latest when this turn of the event loop is over. */
  #enqueue(apply: (changes: Changes) => void): Promise<void> {
    const changes = this.#changes;
    if (changes === undefined) throw new Error('the saver is not set up');
    return new Promise((resolve, reject) => {
      if (this.#queue.push({ apply: () => apply(changes), resolve, reject }) === 1) setImmediate(() => this.flush());
    });
  }
}

function prepareChanges(database: Database): Changes {
  // SqliteSaver sets WAL; FULL is set per connection and must be ours (G5: what a finished step did survives a power cut).
  database.pragma('synchronous = FULL');
  const columns = database.prepare(`SELECT name FROM pragma_table_info('checkpoints')`).pluck().all() as string[];
  if (!columns.includes('owner_seq')) database.exec('ALTER TABLE checkpoints ADD COLUMN owner_seq INTEGER');
  database.exec(`CREATE TABLE IF NOT EXISTS owner_sequence (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
    INSERT OR IGNORE INTO owner_sequence (id, last) VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS unreadable_checkpoints (
      id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
      source TEXT NOT NULL, type TEXT, data BLOB, metadata BLOB);`);
  const next = database.prepare('UPDATE owner_sequence SET last = last + 1 WHERE id = 1');
  const insertCheckpoint = database.prepare(
    `INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata, owner_seq)
     VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT last FROM owner_sequence WHERE id = 1))`,
  );
  const insertWrite = (verb: string) =>
    database.prepare(
      `INSERT ${verb} INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
    );
  const replaceWrite = insertWrite('OR REPLACE');
  const addWrite = insertWrite('OR IGNORE');
  const pruneWrites = database.prepare('DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?');
  const pruneCheckpoints = database.prepare('DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?');
  const keepAside = [
    `INSERT INTO unreadable_checkpoints (thread_id, checkpoint_ns, checkpoint_id, source, type, data, metadata)
     SELECT thread_id, checkpoint_ns, checkpoint_id, 'checkpoints', type, checkpoint, metadata FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?`,
    `INSERT INTO unreadable_checkpoints (thread_id, checkpoint_ns, checkpoint_id, source, type, data)
     SELECT thread_id, checkpoint_ns, checkpoint_id, 'writes:' || channel, type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = ?`,
    'DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ?',
    'DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?',
  ].map((sql) => database.prepare(sql));
  const forgetOldest = database.prepare('DELETE FROM unreadable_checkpoints WHERE id <= (SELECT max(id) FROM unreadable_checkpoints) - ?');
  return {
    setAside: database.transaction((thread: string, namespace: string) => {
      for (const statement of keepAside) statement.run(thread, namespace);
      forgetOldest.run(MAX_KEPT_ASIDE);
    }),
    addCheckpoint(row, prune) {
      next.run();
      insertCheckpoint.run(...row);
      if (prune === null) return;
      pruneWrites.run(...prune);
      pruneCheckpoints.run(...prune);
    },
    addWrites(rows, replace) {
      for (const row of rows) (replace ? replaceWrite : addWrite).run(...row);
    },
    commit: database.transaction((changes: readonly Change[]) => {
      for (const { apply } of changes) apply();
    }),
  };
}

/** Rows of one file; more are a sign of something that repeats, and the newest tell it (G14). */
const MAX_KEPT_ASIDE = 100;

function readThread(config: RunnableConfig): string {
  if (!config.configurable) throw new Error('Empty configuration supplied.');
  const thread = config.configurable['thread_id'] as string | undefined;
  if (!thread) throw new Error('Missing thread_id field in config.configurable.');
  return thread;
}

const isDatabaseError = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('SQLITE_');
