/** Asks before what nothing brings back. Where nobody sits at a terminal the answer must be on the command line. */
import { createInterface } from 'node:readline/promises';
import { CliError } from './cli-error.ts';

/** `what` continues "give --yes to", and its question is asked as it is. */
export async function isSure({ question, what }: { readonly question: string; readonly what: string }): Promise<boolean> {
  if (!process.stdin.isTTY) throw new CliError(`nobody is there to be asked: give --yes to ${what}.`);
  const ask = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return (await ask.question(`${question} Type yes: `)).trim().toLowerCase() === 'yes';
  } finally {
    ask.close();
  }
}
