/**
 * A prompt that is taken back must be found nowhere any more (DESIGN §7): not where it was written, and not in what was made of it, the arguments
 * that the model put it into, what a tool answered, what was thought aloud. The answer itself stays, as it stays in the room; whoever may take that
 * back takes its event back. A run that still works goes on writing until it has heard of its end, so what it holds is erased when it is over:
 * `erasures` says so on disk, and src/app/erase-taken-back.ts does it, the checkpoint included.
 */
import type { RoomId, RunId } from '../ids.ts';
import { isJsonObject } from '../json.ts';
import { dropSummary } from '../sessions/summaries.ts';
import type { FramesTable } from '../store/schema.ts';
import type { Store, Tx } from '../store/store.ts';
import type { FrameData } from './run.ts';

export const REMOVED = '[removed]';

/** Blanks it where it was written, now. Its run's own writings are left to `askErasure`. */
export function blankPrompt(store: Store, tx: Tx, { promptId, roomId }: { promptId: string; roomId: RoomId }): void {
  const { sql } = store;
  const said = sql.selectFrom('transcript').select('session_id').where('event_id', '=', promptId).where('room_id', '=', roomId);
  // What retells the conversation is made anew without it.
  for (const { session_id } of tx.all(said)) if (session_id !== null) dropSummary(store, tx, session_id);
  tx.run(sql.updateTable('pending_inputs').set({ text: '' }).where('prompt_id', '=', promptId));
  tx.run(
    sql
      .updateTable('transcript')
      .set({ text: '', message: null, attachments: null, redacted: 1 })
      .where('event_id', '=', promptId)
      .where('room_id', '=', roomId),
  );
}

/** Its run, and those that answered the prompt as it was before it was edited. */
export function askErasure(store: Store, tx: Tx, run: RunId, now: number): void {
  const { sql } = store;
  for (let id: RunId | null = run, depth = 0; id !== null && depth < MAX_EDITS; depth += 1) {
    const added = tx.run(
      sql
        .insertInto('erasures')
        .values({ run_id: id, asked_at: now })
        .onConflict((oc) => oc.column('run_id').doNothing()),
    );
    if (added === 0) return;
    id = tx.get(sql.selectFrom('runs').select('replaces').where('run_id', '=', id))?.replaces ?? null;
  }
}
/** Nobody edits one message so often; it only guards against a circle in a damaged file. */
const MAX_EDITS = 10_000;

/** Kinds whose frames hold what a model or a tool made of the prompt. */
const TELLING = ['reasoning', 'tool_call', 'action_call', 'render_component', 'browser_tool_call', 'interaction', 'state'] as const;
type Telling = (typeof TELLING)[number];

/** What stays of such a frame: that it was there, and how it ended. */
const STAYS: { readonly [K in Telling]: (data: FrameData[K]) => FrameData[K] } = {
  reasoning: ({ isComplete }) => ({ reasoning: '', ...(isComplete === undefined ? {} : { isComplete }) }),
  tool_call: ({ id, name, status }) => ({ id, name, status }),
  action_call: ({ toolCallId, toolName, status }) => ({ toolCallId, toolName, ...(status === undefined ? {} : { status }) }),
  render_component: ({ componentName, status, eventId }) => ({
    componentName,
    ...(status === undefined ? {} : { status }),
    ...(eventId === undefined ? {} : { eventId }),
  }),
  browser_tool_call: ({ toolCallId, toolName }) => ({ toolCallId, toolName, args: {} }),
  interaction: ({ id, revision, status }) => ({ id, revision, status }),
  state: ({ key }) => ({ key, value: null }),
};

/** Erases what an ended run made of its prompts: in its log, its marks and the conversation. Never the text of its answer. */
export function blankRun(store: Store, tx: Tx, run: RunId): void {
  const { sql } = store;
  const frames = tx.all(sql.selectFrom('frames').select(['seq', 'kind', 'data']).where('run_id', '=', run).where('kind', 'in', TELLING));
  for (const frame of frames) {
    tx.run(
      sql
        .updateTable('frames')
        .set({ data: blankFrame(frame) })
        .where('run_id', '=', run)
        .where('seq', '=', frame.seq),
    );
  }
  tx.run(
    sql
      .updateTable('tool_marks')
      .set({ result: JSON.stringify({ v: 1, status: 'success', text: REMOVED }) })
      .where('run_id', '=', run)
      .where('result', 'is not', null),
  );
  // Short arguments can be guessed from their hash, and an ended run compares it with nothing.
  tx.run(sql.updateTable('tool_marks').set({ args_hash: '' }).where('run_id', '=', run));
  // Its rows of the conversation are not found by their run: read through the session.
  const session = tx.get(sql.selectFrom('runs').select('session_id').where('run_id', '=', run))?.session_id;
  if (session === undefined) return;
  dropSummary(store, tx, session);
  const said = tx.all(
    sql
      .selectFrom('transcript')
      .select(['id', 'role', 'message'])
      .where('session_id', '=', session)
      .where('run_id', '=', run)
      .where('role', 'in', ['ai', 'tool'])
      .where('message', 'is not', null),
  );
  for (const { id, role, message } of said) {
    const blank = { message: message === null ? null : blankMessage(message), ...(role === 'tool' ? { text: REMOVED } : {}) };
    tx.run(sql.updateTable('transcript').set(blank).where('id', '=', id));
  }
}

function blankFrame({ kind, data }: Pick<FramesTable, 'kind' | 'data'>): string {
  const stays = STAYS[kind as Telling] as (data: unknown) => unknown;
  return JSON.stringify(stays(JSON.parse(data)));
}

/** As src/agent/turn-messages.ts stores it: calls lose their arguments and stay calls, so that the conversation is valid for every provider (G15). */
function blankMessage(json: string): string {
  const message: unknown = JSON.parse(json);
  const calls = isJsonObject(message) ? message['toolCalls'] : undefined;
  if (!isJsonObject(message) || !Array.isArray(calls)) return json;
  return JSON.stringify({ ...message, toolCalls: calls.map((call) => (isJsonObject(call) ? { ...call, args: {} } : call)) });
}
