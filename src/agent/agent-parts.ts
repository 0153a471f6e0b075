/**
 * What the built-in runner is made of. Everything it may use is handed in here and nothing else is reachable from it: the loop of model and tools
 * knows no Matrix client, no HTTP and no table. Built once per process; what belongs to one execution is a `Turn`.
 */
import type { RoomId } from '../ids.ts';
import type { Models } from '../models/models.ts';
import type { Logger } from '../observe/logger.ts';
import type { PluginHost } from '../plugin-host/plugin-host.ts';
import type { ToolMarks } from '../runs/tool-marks.ts';
import type { ContextServices } from '../runtime-context/build-runtime-context.ts';
import type { MatrixAccess } from '../runtime-context/matrix-access.ts';
import type { Summaries } from '../sessions/summaries.ts';
import type { Transcript } from '../sessions/transcript.ts';
import type { Clock } from '../time.ts';
import type { AuditEntry } from '../turn/audit.ts';
import type { RunAuthority } from '../turn/run-authority.ts';
import type { Downstream } from '../ucan/downstream.ts';
import type { ContextBudget } from './context-budget.ts';
import type { Spending } from './spending.ts';
import type { ToolBinder, ToolSet } from './tool-set.ts';

export interface MainRunnerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transcript: Pick<Transcript, 'newest' | 'overheard'>;
  readonly marks: ToolMarks;
  readonly models: Models;
  /** What survived boot resolution. */
  readonly host: PluginHost;
  /** What contexts of plugins stand on. */
  readonly services: ContextServices;
  readonly matrix: MatrixAccess;
  readonly authority: Pick<RunAuthority, 'judge' | 'actingGrants'>;
  readonly downstream: Downstream;
  /** Writes a row of the audit log; resolves when it is on disk. */
  readonly audit: (entry: AuditEntry) => Promise<void>;
  /** Who pays for model calls; absent: nobody has to. */
  readonly spending?: Spending;
  /** Retell what long conversations said before their window; absent: it is left out. */
  readonly summaries?: Summaries;
  /** Folder of the checkpoint files. */
  readonly checkpointFolder: string;
  readonly oracleName: string;
  readonly contextMessages: number;
  readonly contextChars?: number;
  /** How much the main model can be shown at once. */
  readonly contextTokens?: number;
  /** Name of a room or of a speaker (principal id) when it is known at once; nothing is fetched during a turn. */
  readonly names?: { room(room: RoomId): string | null; speaker(principal: string): string | null };
  /** 0…1, spreads retries. */
  readonly chance?: () => number;
  /** How long a step may go on after a drain was asked for. */
  readonly drainGraceMs?: number;
  readonly maxOpenCheckpoints?: number;
}

/** The options with what is made of them once. */
export interface AgentParts {
  readonly options: MainRunnerOptions;
  readonly host: PluginHost;
  readonly clock: Clock;
  readonly spending: Spending;
  readonly budget: ContextBudget;
  readonly chance: () => number;
  /** Boot tools, sub-agents and meta tools. */
  readonly bootTools: ToolSet;
  readonly bindTools: ToolBinder;
  /** Names of models whose provider takes a conversation only when the roles take turns; learned from its refusal. */
  readonly takingTurns: Set<string>;
}
