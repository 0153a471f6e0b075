/** The texts of all generated files. Pure but for reading sources whose comments are shown, and docs/security.md, of which one part is made. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buildRegistration, registrationYaml } from '../appservice/registration.ts';
import { type ConfigRow, describeConfig, SAMPLE_TOKENS } from '../src/config.ts';
import { ERRORS, type ErrorSpec } from '../src/errors.ts';
import { LIMITS } from '../src/limits.ts';
import { describeMetrics } from '../src/observe/metrics.ts';
import { AUTHORITY_CODES } from '../src/ucan/codes.ts';
import { buildPluginApiPage } from './plugin-api-page.ts';

export interface GeneratedFile {
  /** From the root of the repository. */
  readonly path: string;
  readonly text: string;
}

export async function generatedFiles(root: string): Promise<readonly GeneratedFile[]> {
  return [
    { path: 'docs/configuration.md', text: buildConfigurationPage() },
    { path: '.env.example', text: buildEnvExample() },
    { path: 'docs/errors.md', text: buildErrorsPage() },
    { path: 'docs/limits.md', text: buildLimitsPage(await readFile(join(root, 'src/limits.ts'), 'utf8')) },
    { path: 'docs/security.md', text: buildSecurityPage(await readFile(join(root, 'docs/security.md'), 'utf8')) },
    { path: 'docs/metrics.md', text: buildMetricsPage() },
    { path: 'docs/plugin-api.md', text: await buildPluginApiPage(root) },
    { path: 'docs/bundled-plugins.md', text: await buildBundledPluginsPage(root) },
    { path: 'registration.yaml', text: buildSampleRegistration() },
  ];
}

const generatedFrom = (source: string): string => `<!-- Generated from ${source} by \`npm run generate\`. Do not edit. -->`;
const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.map(cell).join(' | ')} |`).join('\n');

function byGroup(): Map<string, ConfigRow[]> {
  return Map.groupBy(describeConfig(), (row) => row.group);
}

function buildConfigurationPage(): string {
  const sections = [...byGroup()].map(([group, rows]) => {
    const lines = rows.map((row) => [`\`${row.name}\`${row.secret ? ' 🔒' : ''}`, row.description, buildDefault(row)]);
    return `## ${group}\n\n${table(['Name', 'Meaning', 'Left out'], lines)}\n`;
  });
  return `${generatedFrom('src/config/fields.ts')}
# Configuration

Every setting is an environment variable; \`.env\` in the working directory (or \`--settings\`) is read too, and the environment wins over it.
What \`MATRIX_REGISTRATION_FILE\` and the key file say counts where a variable is left out; a variable that contradicts them stops the start.

- A bad value stops the start. All faults are named at once, each with its remedy; a bad value never becomes the default.
- An empty value is a fault, except for lists (comma-separated), where it is the empty list.
- Flags are exactly \`true\` or \`false\`. Numbers are decimal digits.
- An unknown \`ORACLE_…\` or \`MATRIX_…\` variable is ignored with a warning that names the nearest known one.
- 🔒 marks secrets: they print as \`[secret]\` wherever they might be printed.
- \`LANGSMITH_…\` and \`LANGCHAIN_…\` variables are removed at start: nothing of the agent library sends prompts elsewhere.
- The tokens of the sample \`registration.yaml\` are refused unless \`MATRIX_BASE_URL\` and \`APPSERVICE_HOST\` are both loopback.

${sections.join('\n')}`;
}

function buildDefault(row: ConfigRow): string {
  if (row.default !== undefined) return row.default === '' ? 'empty' : `\`${row.default}\``;
  return row.leftOut ?? '**must be set**';
}

function buildEnvExample(): string {
  const sections = [...byGroup()].map(([group, rows]) => `## ${group}\n\n${rows.map(buildEnvLines).join('\n')}`);
  return `# Generated from src/config/fields.ts by \`npm run generate\`. Copy to .env, or have \`matrix-oracle init\` write one.\n\n${sections.join('\n')}`;
}

function buildEnvLines(row: ConfigRow): string {
  const value = row.secret ? '' : (row.default ?? row.example ?? '');
  const note = row.default === undefined && row.leftOut !== undefined ? `\n# Left out: ${row.leftOut}.` : '';
  return `# ${row.description}${note}\n${row.required ? '' : '# '}${row.name}=${value}\n`;
}

function buildErrorsPage(): string {
  const rows = Object.entries<ErrorSpec>(ERRORS).map(([code, spec]) => [
    `\`${code}\``,
    String(spec.status),
    spec.retryable ? 'yes' : 'no',
    spec.message,
    spec.hint,
  ]);
  return `${generatedFrom('src/errors.ts')}
# Errors

One code means the same in a room (\`ixo.oracle.error\`), over HTTP (\`{statusCode, code, message, requestId}\`), in an SSE \`error\` frame, in the
log (\`code\`) and in \`matrix_oracle_errors_total{code}\`. "Again" says whether sending the same thing once more can help.

${table(['Code', 'Status', 'Again', 'Said to the person', 'For the operator'], rows)}
`;
}

const CODES_BEGIN = '<!-- Generated from src/ucan/codes.ts by `npm run generate`: begin. Do not edit. -->';
const CODES_END = '<!-- Generated from src/ucan/codes.ts: end. -->';

/** The page is written by hand around one table. Without its marks the table would go stale unseen, so that is a fault. */
function buildSecurityPage(page: string): string {
  const [before, made, ...more] = page.split(CODES_BEGIN);
  const after = made?.split(CODES_END)[1];
  if (before === undefined || after === undefined || more.length > 0)
    throw new Error(`docs/security.md needs each of these lines once: ${CODES_BEGIN} ${CODES_END}`);
  const rows = Object.entries<ErrorSpec>(AUTHORITY_CODES).map(([code, { status, message, hint }]) => [
    `\`${code}\``,
    String(status),
    message,
    hint,
  ]);
  return `${before}${CODES_BEGIN}\n\n${table(['Code', 'Status', 'Said to the person', 'For the operator'], rows)}\n\n${CODES_END}${after}`;
}

/** The pages that lie beside the plugins are not in the package; this one is. */
async function buildBundledPluginsPage(root: string): Promise<string> {
  const names = (await readdir(join(root, 'plugins'))).filter((name) => name !== 'template').sort();
  const pages = await Promise.all(names.map((name) => readFile(join(root, 'plugins', name, 'README.md'), 'utf8')));
  return `${generatedFrom('plugins/*/README.md')}
# Bundled plugins

What comes with the package. \`matrix-oracle plugins\` says which of them are loaded here and why; \`FEATURES=<name>=off\` switches one off.
How to write one: [plugins.md](plugins.md).

${pages.map((page) => page.replaceAll(/^#/gmu, '##').trimEnd()).join('\n\n')}
`;
}

/** Headings are the comments of the table in src/limits.ts. */
function buildLimitsPage(source: string): string {
  const lines = source.slice(source.indexOf('export const LIMITS')).split('\n');
  const sections: { heading: string; rows: string[][] }[] = [];
  for (const line of lines) {
    const comment = /^\s+\/\/ (?<text>.+)$/u.exec(line)?.groups?.['text'];
    if (comment !== undefined) sections.push({ heading: comment, rows: [] });
    const name = /^\s+(?<name>\w+):/u.exec(line)?.groups?.['name'];
    if (name !== undefined) sections.at(-1)?.rows.push([`\`${name}\``, buildQuantity(name, LIMITS[name as keyof typeof LIMITS])]);
  }
  const text = sections.map(({ heading, rows }) => {
    const [title = '', ...rest] = heading.split(/(?<=\.) /u);
    const note = rest.length === 0 ? '' : `${rest.join(' ').replace(/ \(research\/[^)]*\)/u, '')}\n\n`;
    return `## ${capitalised(title.replace(/\.$/u, ''))}\n\n${note}${table(['Limit', 'Value'], rows)}\n`;
  });
  return `${generatedFrom('src/limits.ts')}
# Limits

Every bound on what a stranger can choose (G14). Past a limit comes a clear error or a logged reason, never a hang. What an operator may change is in
[configuration.md](configuration.md).

${text.join('\n')}`;
}

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function buildQuantity(name: string, value: number): string {
  if (name.endsWith('Bytes')) return value % 1024 === 0 ? buildBinary(value) : `${value} bytes`;
  if (name.endsWith('Ms')) return buildDuration(value);
  if (name.endsWith('S')) return `${value} s`;
  return name.endsWith('Chars') ? `${value} characters` : String(value);
}
const buildBinary = (bytes: number): string => (bytes % 1024 ** 2 === 0 ? `${bytes / 1024 ** 2} MiB` : `${bytes / 1024} KiB`);
function buildDuration(ms: number): string {
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000} h`;
  if (ms % 60_000 === 0) return `${ms / 60_000} min`;
  return ms % 1_000 === 0 ? `${ms / 1_000} s` : `${ms} ms`;
}

function buildMetricsPage(): string {
  const rows = describeMetrics().map(({ name, kind, labels, help }) => [
    `\`${name}\``,
    kind,
    labels.map((label) => `\`${label}\``).join(' '),
    help,
  ]);
  return `${generatedFrom('src/observe/metrics.ts')}
# Metrics

Prometheus text at \`http://127.0.0.1:<METRICS_PORT>/metrics\`, on loopback only. Labels come from closed lists in code; no user, room, token or text
is ever one. Depths are read from the database when scraped: a database that cannot be read makes the scrape fail with 503.

${table(['Name', 'Kind', 'Labels', 'Meaning'], rows)}
`;
}

function buildSampleRegistration(): string {
  const registration = buildRegistration({
    url: 'http://127.0.0.1:9993',
    asToken: SAMPLE_TOKENS.asToken,
    hsToken: SAMPLE_TOKENS.hsToken,
    serverName: 'example.org',
  });
  return `# A sample, to see what a registration is. \`matrix-oracle init\` writes a real one with random tokens into the data folder; these tokens
# are refused unless homeserver and listener are both on loopback. Generated by \`npm run generate\`.
${registrationYaml(registration)}`;
}
