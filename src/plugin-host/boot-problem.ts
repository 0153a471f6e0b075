/**
 * Why the plugins of this process cannot be started together. An operator sees all of it at once and no stack: each problem names the plugin and
 * says what to do, because whoever fixes one fault per restart gives up. Values of settings are never quoted (G12).
 */
export type BootCode =
  | 'boot.plugin.env_missing'
  | 'boot.plugin.env_invalid'
  | 'boot.plugin.dep_missing'
  | 'boot.plugin.cycle'
  | 'boot.plugin.duplicate'
  | 'boot.plugin.collision'
  | 'boot.plugin.manifest_invalid'
  /** What a plugin consists of has not the form that it must have. */
  | 'boot.plugin.invalid'
  /** A hook threw in whose place nothing else can be done. */
  | 'boot.plugin.hook_failed'
  /** A setting names a plugin that is not there. */
  | 'boot.plugin.unknown'
  | 'boot.plugin.not_found';

export interface BootProblem {
  readonly code: BootCode;
  /** Null: no single one. */
  readonly plugin: string | null;
  /** One or two sentences: what is wrong, what to do. */
  readonly message: string;
}
/** Odd, but no reason not to start. */
export interface BootWarning {
  readonly code: 'boot.plugin.cascaded_off' | 'boot.plugin.soft_gap' | 'boot.plugin.manifest' | 'boot.plugin.shared_variable';
  readonly plugin: string;
  readonly message: string;
}

const MAX_SHOWN = 50;

/** What stops the start: the code is the one by which a failed start shows its message instead of a stack (src/app/cli/describe-start-error.ts). */
export class BootRefused extends Error {
  override readonly name = 'BootRefused';
  readonly code = 'START_REFUSED';
  readonly problems: readonly BootProblem[];
  constructor(problems: readonly BootProblem[]) {
    super(describeProblems(problems));
    this.problems = problems;
  }
}

function describeProblems(problems: readonly BootProblem[]): string {
  const lines = problems.slice(0, MAX_SHOWN).map(({ code, message }) => `  ✗ ${message} (${code})`);
  const rest = problems.length > MAX_SHOWN ? [`  … and ${problems.length - MAX_SHOWN} more`] : [];
  const head = problems.length === 1 ? 'one plugin problem' : `${problems.length} plugin problems`;
  return [`${head}:`, ...lines, ...rest].join('\n');
}
