/** What `--json` says about one prompt: enough for a test or a script to judge the answer and how it grew. Pure. */
import type { SeenMessage } from '../../../../synapse-dev/homeserver/room-watch.ts';
import { isJsonObject, type JsonValue } from '../../../json.ts';

export interface AnswerReport {
  /** One per part of the answer. */
  readonly eventIds: readonly string[];
  /** In order of arrival. `atMs`: since just before the prompt was sent. */
  readonly versions: readonly { readonly text: string; readonly atMs: number; readonly part: number }[];
  readonly finalText: string;
  /** Null when no run answered but a notice did (a refusal). */
  readonly runId: string | null;
  /** `completed` when all is well; `refused` when no run was opened. */
  readonly status: string;
  /** Of docs/errors.md, when the answer is a notice. */
  readonly code?: string;
  readonly tools: readonly string[];
  /** Messages and edits together. */
  readonly events: number;
}
export interface PromptReport {
  readonly text: string;
  readonly eventId: string;
  readonly answer: AnswerReport;
}

/** `sentAt` by the clock of the versions. */
export function buildAnswerReport(parts: readonly SeenMessage[], sentAt: number): AnswerReport {
  const versions = parts
    .flatMap((message, index) => message.versions.map(({ at, text }) => ({ at, text, part: index + 1 })))
    .sort((a, b) => a.at - b.at)
    .map(({ at, text, part }) => ({ text, atMs: Math.round(at - sentAt), part }));
  const run = readRun(parts.at(-1));
  const error = parts.at(-1)?.content['ixo.oracle.error'];
  const { run_id: failedRun, code } = isJsonObject(error) ? error : {};
  const runId = run['run_id'] ?? failedRun;
  const tools = Array.isArray(run['tools']) ? run['tools'].filter((tool) => typeof tool === 'string') : [];
  return {
    eventIds: parts.map(({ eventId }) => eventId),
    versions,
    finalText: parts.map(({ text }) => text).join('\n\n'),
    runId: typeof runId === 'string' ? runId : null,
    status: typeof run['status'] === 'string' ? run['status'] : failedRun === undefined ? 'refused' : 'failed',
    ...(typeof code === 'string' ? { code } : {}),
    tools,
    events: versions.length,
  };
}

function readRun(message: SeenMessage | undefined): Record<string, JsonValue> {
  const run = message?.content['ixo.oracle.run'] ?? message?.versions[0]?.content['ixo.oracle.run'];
  return isJsonObject(run) ? run : {};
}
