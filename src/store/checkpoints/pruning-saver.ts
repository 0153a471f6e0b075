/**
 * The library's saver keeps every checkpoint for ever: 300 turns were 98 MB. Version 4 checkpoints need nothing older than the parent of
 * the newest, so the rest goes with the insert that makes it old, in the same transaction (one fsync). That costs time travel, which nobody uses.
 * `owner_seq` numbers the rows of one owner's file: later, segments of a file can be copied elsewhere without asking what changed.
 */
import type { RunnableConfig } from '@langchain/core/runnables';
import { type Checkpoint, type CheckpointMetadata, type CheckpointTuple, copyCheckpoint } from '@langchain/langgraph-checkpoint';
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite';
import type { Database } from 'better-sqlite3';

export class PruningSaver extends SqliteSaver {
  readonly #database: Database;
  #commit: ((row: readonly unknown[], prune: readonly [string, string, string] | null) => void) | undefined;

  readonly #onUnreadable: (error: unknown) => void;

  /** @param onUnreadable hears of a row whose content no longer parses; it then counts as absent, so that the turn proceeds. */
  constructor(database: Database, onUnreadable: (error: unknown) => void = () => undefined) {
    super(database);
    this.#database = database;
    this.#onUnreadable = onUnreadable;
  }

  protected override setup(): void {
    if (this.isSetup) return;
    super.setup();
    // SqliteSaver sets WAL; FULL is set per connection and must be ours (G5: the answer of a finished turn survives a power cut).
    this.#database.pragma('synchronous = FULL');
    const columns = this.#database.prepare(`SELECT name FROM pragma_table_info('checkpoints')`).pluck().all() as string[];
    if (!columns.includes('owner_seq')) this.#database.exec('ALTER TABLE checkpoints ADD COLUMN owner_seq INTEGER');
    this.#database.exec(`CREATE TABLE IF NOT EXISTS owner_sequence (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
      INSERT OR IGNORE INTO owner_sequence (id, last) VALUES (1, 0);`);
    const next = this.#database.prepare('UPDATE owner_sequence SET last = last + 1 WHERE id = 1');
    const insert = this.#database.prepare(
      `INSERT OR REPLACE INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata, owner_seq)
       VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT last FROM owner_sequence WHERE id = 1))`,
    );
    const pruneWrites = this.#database.prepare('DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?');
    const pruneCheckpoints = this.#database.prepare(
      'DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id < ?',
    );
    this.#commit = this.#database.transaction((row: readonly unknown[], prune: readonly [string, string, string] | null) => {
      next.run();
      insert.run(...row);
      if (prune === null) return;
      pruneWrites.run(...prune);
      pruneCheckpoints.run(...prune);
    });
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    try {
      return await super.getTuple(config);
    } catch (error) {
      if (isDatabaseError(error)) throw error;
      this.#onUnreadable(error);
      return undefined;
    }
  }

  /** Same contract as the library's, which would need a transaction of its own for the pruning. */
  override async put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata): Promise<RunnableConfig> {
    this.setup();
    const thread = config.configurable?.['thread_id'] as string | undefined;
    if (!thread) throw new Error('a checkpoint needs a thread_id');
    const namespace = (config.configurable?.['checkpoint_ns'] as string | undefined) ?? '';
    const parent = config.configurable?.['checkpoint_id'] as string | undefined;
    const [[type, data], [metadataType, metadataData]] = await Promise.all([
      this.serde.dumpsTyped(copyCheckpoint(checkpoint)),
      this.serde.dumpsTyped(metadata),
    ]);
    if (type !== metadataType) throw new Error('checkpoint and metadata must be serialized alike');
    const row = [thread, namespace, checkpoint.id, parent ?? null, type, data, metadataData];
    this.#commit?.(row, parent === undefined ? null : [thread, namespace, parent]);
    return { configurable: { thread_id: thread, checkpoint_ns: namespace, checkpoint_id: checkpoint.id } };
  }
}

const isDatabaseError = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('SQLITE_');
