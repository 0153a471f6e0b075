/**
 * What a command cannot do because of its surroundings, as a sentence with a remedy. Everything else that is thrown is a bug and shows its
 * stack; this never does, because an operator at three in the morning reads one sentence, not a call stack.
 */
import type { ConfigProblem } from '../../config.ts';

export class CliError extends Error {
  override readonly name = 'CliError';
}

/** All faults at once, each with its remedy. */
export function configError(problems: readonly ConfigProblem[]): CliError {
  const lines = problems.map(({ message, remedy }) => `  ✗ ${message}\n    ${remedy}`);
  const head = problems.length === 1 ? 'one setting is wrong' : `${problems.length} settings are wrong`;
  return new CliError(`${head}:\n${lines.join('\n')}\n${isNothingSet(problems) ? NEW_HERE : ''}All settings are in docs/configuration.md.`);
}

/** Not a list of slips, but the wrong folder or the first time. */
const isNothingSet = (problems: readonly ConfigProblem[]): boolean =>
  ['MATRIX_BASE_URL', 'MATRIX_SERVER_NAME', 'MATRIX_AS_TOKEN'].every((name) =>
    problems.some((problem) => problem.name === name && problem.message.endsWith('is not set.')),
  );
const NEW_HERE = "Run this where the oracle's .env is, or make one first: `matrix-oracle init --help`.\n";
