/** `--say`: the demo without a person, for scripts and tests. One prompt after the other, each answered before the next is sent. */
import { setMaxListeners } from 'node:events';
import { CliError } from '../cli-error.ts';
import { buildAnswerReport, type PromptReport } from './answer-report.ts';
import { createDisplay, NO_INPUT } from './display.ts';
import { orAborted } from './or-aborted.ts';
import { ANSWER_WITHIN_MS, type Person } from './person.ts';
import { cleanForTerminal } from './region-rows.ts';

export interface SayOptions {
  readonly person: Person;
  readonly texts: readonly string[];
  /** No words on stdout: a JSON document follows. */
  readonly silent: boolean;
  readonly oracleLog: string;
  readonly signal: AbortSignal;
}

/** @throws CliError when an answer does not come. One that came but failed is in the report. */
export async function sayAll({ person, texts, silent, oracleLog, signal }: SayOptions): Promise<PromptReport[]> {
  setMaxListeners(0, signal);
  const display = silent ? undefined : createDisplay(person, NO_INPUT);
  const reports: PromptReport[] = [];
  try {
    for (const text of texts) {
      display?.settle();
      if (!silent) process.stdout.write(`you> ${cleanForTerminal(text)}\n`);
      const { eventId, at } = await person.say(text);
      const parts = await orAborted(person.watch.waitForAnswerTo(eventId, ANSWER_WITHIN_MS), signal).catch((cause: unknown) => {
        if (signal.aborted) throw cause;
        throw new CliError(`no answer to "${shorten(text)}" within ${ANSWER_WITHIN_MS / 1_000} s: ${oracleLog} may say why.`, { cause });
      });
      reports.push({ text, eventId, answer: buildAnswerReport(parts, at) });
    }
    return reports;
  } finally {
    display?.close();
  }
}

/** The first prompt whose answer is not whole, as a sentence. */
export function describeFailure(reports: readonly PromptReport[], oracleLog: string): string | undefined {
  const failed = reports.find(({ answer }) => answer.status !== 'completed');
  if (failed === undefined) return undefined;
  return `"${shorten(failed.text)}" was not answered as it should (${failed.answer.code ?? failed.answer.status}): ${oracleLog} may say why.`;
}

const shorten = (text: string): string => cleanForTerminal(text.length > 40 ? `${text.slice(0, 39)}…` : text).replaceAll('\n', ' ');
