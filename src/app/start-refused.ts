/** What stops a start and is no bug: one sentence with its remedy, shown without a stack (src/app/cli/describe-start-error.ts). */
export class StartRefused extends Error {
  override readonly name = 'StartRefused';
  readonly code = 'START_REFUSED';
}
