/**
 * Which plugins `start` would load with these settings, in which order, and why the others are not: from the same function, so that it cannot say something
 * else. No plugin's hooks are run and no oracle need run; of the settings only those of plugins must be right.
 */
import { readEnvironment } from '../../config.ts';
import { BootRefused, type BootWarning } from '../../plugin-host/boot-problem.ts';
import type { PluginStatus } from '../../plugin-host/plugin-host.ts';
import { loadPluginSettings } from '../load-config.ts';
import { planPlugins } from '../load-plugins.ts';
import { CliError, configError } from './cli-error.ts';
import { printable } from './open-database.ts';

export async function runPlugins({ json, settings }: { readonly json: boolean; readonly settings?: string }): Promise<void> {
  const read = await loadPluginSettings({ environment: readEnvironment(), settings });
  if (!read.ok) throw configError(read.error);
  const { environment, ...config } = read.value;
  const plan = await planPlugins({ config, environment });
  if (!plan.ok && json) {
    process.stdout.write(`${JSON.stringify({ problems: plan.error }, null, 2)}\n`);
    process.exitCode = 1;
    return;
  }
  if (!plan.ok) throw new CliError(printableLines(new BootRefused(plan.error).message));
  const { status, warnings } = plan.value;
  process.stdout.write(json ? `${JSON.stringify({ ...status, warnings }, null, 2)}\n` : printableLines(buildReport(status, warnings)));
}

function buildReport({ loaded, excluded, softGaps }: PluginStatus, warnings: readonly BootWarning[]): string {
  // Gaps have a section of their own.
  const odd = warnings.filter(({ code }) => code !== 'boot.plugin.soft_gap');
  return [
    ...section(
      `Loaded, in this order (${loaded.length}):`,
      loaded.map(({ name, version, visibility, origin, because }) => [
        name,
        version,
        visibility,
        origin === 'given' ? `${because}; not one of the package` : because,
      ]),
    ),
    ...section(
      `Not loaded (${excluded.length}):`,
      excluded.map(({ name, reason }) => [name, reason]),
    ),
    ...section(
      'With less than they could do:',
      softGaps.map(({ plugin, missing }) => [plugin, `without ${missing}`]),
    ),
    ...section(
      'Odd:',
      odd.map(({ message, code }) => [`${message} (${code})`]),
    ),
  ].join('\n');
}

/** Columns as wide as their longest entry; the last one runs on. */
function section(title: string, rows: readonly (readonly string[])[]): string[] {
  if (rows.length === 0) return [];
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const lines = rows.map(
    (row) => `  ${row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join('  ')}`,
  );
  return [title, ...lines, ''];
}

/** Words of plugins come from other people's packages. */
const printableLines = (text: string): string => text.split('\n').map(printable).join('\n');
