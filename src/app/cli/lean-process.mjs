/**
 * What the process itself can do about start and memory, before the first library is loaded. Measured (docs/architecture.md "Performance"):
 * compiled code kept on disk saves a third of the CPU of a start; a young generation that does not grow saves 80 MiB of an idle oracle and
 * costs no measurable CPU, because a turn's objects either die at once or live as long as the turn.
 */
import module from 'node:module';
import { join } from 'node:path';
import v8 from 'node:v8';

export function makeLean() {
  // A folder of our own: in the shared temporary folder another account could leave code for us. Where it cannot be written nothing is kept.
  module.enableCompileCache(join(import.meta.dirname, '..', '..', '..', 'node_modules', '.cache', 'matrix-oracle'));
  v8.setFlagsFromString('--semi-space-growth-factor=1');
}
