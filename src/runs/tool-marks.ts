/**
 * A write tool runs at most once (G6): the mark `started` is on disk before the effect, `finished` with the result after it. What a crash
 * leaves as `started` alone is "outcome unknown" and is never run again.
 */
import { LRUCache } from 'lru-cache';
import type { RunId } from '../ids.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';

export interface ToolCallKey {
  readonly runId: RunId;
  readonly toolCallId: string;
  readonly tool: string;
  /** base64url SHA-256 of the canonical arguments. */
  readonly argsHash: string;
}
export type MarkDecision =
  | { readonly kind: 'run' }
  | { readonly kind: 'stored'; readonly result: string }
  | { readonly kind: 'unknown_outcome' };

export interface ToolMarks {
  /**
   * Marks the call started, or says what an earlier attempt left. Resolves when the mark is on disk.
   * @param knownCalls ids of the calls in the checkpoint: their marks are no orphans, so asking for the same again is a new call.
   */
  begin(key: ToolCallKey, attempt: number, knownCalls?: ReadonlySet<string>): Promise<MarkDecision>;
  finish(key: ToolCallKey, result: string): Promise<void>;
}

/** In the id of a mark that the run took over from the one it replaces; the ids that providers give to calls have none. */
export const INHERITED = ' of ';

/** Far more than run at once; what is dropped only makes a repeated call wait for its own mark. */
const MAX_RUNS_KEPT = 1_000;

type Mark = { tool_call_id: string; tool: string; args_hash: string; state: 'started' | 'finished'; result: string | null };

/**
 * A mark of an earlier attempt whose call is not in the checkpoint is an orphan: the provider gives the repeated call a new id, so it is met
 * once by a call with the same tool and arguments. So is each mark of a run that this one replaces. `adopted` are the marks that are no orphans (any more).
 */
export function decideMark(
  key: ToolCallKey,
  marks: readonly Mark[],
  { resumed, adopted }: { resumed: boolean; adopted: ReadonlySet<string> },
): { decision: MarkDecision; adopts?: string } {
  const own = marks.find((mark) => mark.tool_call_id === key.toolCallId);
  const orphan =
    own === undefined
      ? marks.find(
          (mark) =>
            (resumed || mark.tool_call_id.includes(INHERITED)) &&
            !adopted.has(mark.tool_call_id) &&
            mark.tool === key.tool &&
            mark.args_hash === key.argsHash,
        )
      : undefined;
  const mark = own ?? orphan;
  if (mark === undefined) return { decision: { kind: 'run' } };
  const decision: MarkDecision = mark.state === 'finished' ? { kind: 'stored', result: mark.result ?? '' } : { kind: 'unknown_outcome' };
  return orphan === undefined ? { decision } : { decision, adopts: orphan.tool_call_id };
}

export function createToolMarks({ store, clock }: { store: Store; clock: Clock }): ToolMarks {
  /** Orphans met and marks written by one attempt. A later one starts afresh, also in this process (a run that a full disk put off). */
  const adoptedBy = new LRUCache<string, Set<string>>({ max: MAX_RUNS_KEPT });
  return {
    begin: (key, attempt, knownCalls) =>
      store.write((tx) => {
        const marks = tx.all(
          store.sql
            .selectFrom('tool_marks')
            .select(['tool_call_id', 'tool', 'args_hash', 'state', 'result'])
            .where('run_id', '=', key.runId),
        );
        const adopted = adoptedBy.get(`${key.runId}.${attempt}`) ?? new Set<string>();
        adoptedBy.set(`${key.runId}.${attempt}`, adopted);
        const { decision, adopts } = decideMark(key, marks, {
          resumed: attempt > 1,
          adopted: knownCalls === undefined ? adopted : new Set([...adopted, ...knownCalls]),
        });
        if (adopts !== undefined) {
          adopted.add(adopts);
          // It is the mark of this call from now on, also after a crash.
          tx.run(
            store.sql
              .updateTable('tool_marks')
              .set({ tool_call_id: key.toolCallId })
              .where('run_id', '=', key.runId)
              .where('tool_call_id', '=', adopts),
          );
        }
        adopted.add(key.toolCallId);
        if (decision.kind === 'run') {
          tx.run(
            store.sql.insertInto('tool_marks').values({
              run_id: key.runId,
              tool_call_id: key.toolCallId,
              tool: key.tool,
              args_hash: key.argsHash,
              state: 'started',
              result: null,
              at: clock.now(),
            }),
          );
        }
        return decision;
      }),
    finish: (key, result) =>
      store.write((tx) => {
        tx.run(
          store.sql
            .updateTable('tool_marks')
            .set({ state: 'finished', result, at: clock.now() })
            .where('run_id', '=', key.runId)
            .where('tool_call_id', '=', key.toolCallId),
        );
      }),
  };
}
