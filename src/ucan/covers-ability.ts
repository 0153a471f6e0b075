/** Which granted ability covers which asked one (research/ixo.md §2.5): `*` all, an equal one itself, `seg/*` what lies below `seg`; a claim of `*` only `*`. */
export function coversAbility(granted: string, asked: string): boolean {
  if (granted === '*' || granted === asked) return true;
  // The slash stays: `memory/*` covers neither `memory` nor `memoryx/read`.
  return granted.endsWith('/*') && asked !== '*' && asked.startsWith(granted.slice(0, -1));
}
