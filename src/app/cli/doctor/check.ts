/** One line of `doctor`. A failed check and a warning always say what to do; a skipped one says why it could not be tried. Only a failure is status 1. */
export type Check =
  | { readonly name: string; readonly status: 'ok'; readonly detail: string }
  | { readonly name: string; readonly status: 'failed' | 'warning'; readonly detail: string; readonly remedy: string }
  | { readonly name: string; readonly status: 'skipped'; readonly detail: string };

export const passed = (name: string, detail: string): Check => ({ name, status: 'ok', detail });
export const failed = (name: string, detail: string, remedy: string): Check => ({ name, status: 'failed', detail, remedy });
export const warned = (name: string, detail: string, remedy: string): Check => ({ name, status: 'warning', detail, remedy });
export const skipped = (name: string, detail: string): Check => ({ name, status: 'skipped', detail });

const MARKS = { ok: '✓', failed: '✗', warning: '!', skipped: '–' } as const;
export const buildLine = (check: Check): string =>
  `${MARKS[check.status]} ${check.name}: ${check.detail}.${'remedy' in check ? ` ${check.remedy}` : ''}`;
