/**
 * The command line. Each command is one file that is loaded when it is called: `--help` must answer at once, and `doctor` must work when the
 * agent library does not even load. Errors go to stderr; 2 means the command line is wrong, 1 that the command could not do it.
 */
import { readFileSync } from 'node:fs';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { CliError } from './cli-error.ts';

export async function main(args: readonly string[]): Promise<void> {
  try {
    await buildProgram().parseAsync([...args], { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError) {
      // Commander has printed the help, the version or the fault already.
      process.exitCode = error.exitCode === 0 ? 0 : 2;
      return;
    }
    process.stderr.write(
      error instanceof CliError ? `matrix-oracle: ${error.message}\n` : `matrix-oracle: a bug, please report it.\n${stackOf(error)}\n`,
    );
    process.exitCode = 1;
  }
}

const stackOf = (error: unknown): string => (error instanceof Error ? (error.stack ?? error.message) : String(error));
const example = (text: string): string => `\nExample:\n  $ matrix-oracle ${text}\n`;
// Not `--env-file`: Node takes that for itself, wherever it stands in the line.
const SETTINGS = ['--settings <path>', 'settings file (left out: .env in the working directory, if there is one)'] as const;

function buildProgram(): Command {
  const program = new Command('matrix-oracle')
    .description('An AI agent that lives in Matrix.')
    .version(readVersion(), '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help, with an example')
    .showHelpAfterError('(--help shows what there is)')
    .addHelpText('after', example('init --server-name example.org && matrix-oracle start'))
    .exitOverride()
    .hook('preAction', (_program, command) => {
      if (!RUNNING.has(command.name())) endWithReader();
    });
  addInit(program);
  addStart(program);
  addDoctor(program);
  addPlugins(program);
  addPlugin(program);
  addMint(program);
  addKey(program);
  addCrypto(program);
  addInbox(program);
  addRuns(program);
  addAudit(program);
  addForget(program);
  addGrantUse(program);
  addCredits(program);
  addDemo(program);
  return program;
}

/** They end by signals, and have something to close. */
const RUNNING: ReadonlySet<string> = new Set(['start', 'demo']);

/** `… | head`: whoever reads has seen enough, which is no fault of the command. */
function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit();
  });
}

function readVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest ? String(manifest.version) : 'unknown';
}

function addInit(program: Command): void {
  program
    .command('init')
    .description('write registration, settings and key for an own homeserver')
    .requiredOption('--server-name <name>', 'server_name of the homeserver')
    .option('--homeserver <url>', 'where the oracle reaches the homeserver', 'http://127.0.0.1:8008')
    .option('--url <url>', 'where the homeserver reaches the oracle', 'http://127.0.0.1:9993')
    .option('--data <dir>', 'data folder', './data')
    .option('--localpart <name>', "local part of the oracle's account", 'oracle')
    .option('--model <name>', 'model that answers (MODEL_MAIN)')
    .option('--model-url <url>', 'OpenAI-compatible address of the model (OPENAI_BASE_URL)')
    .addOption(
      new Option('--keys <way>', 'how keys of encrypted rooms arrive (CRYPTO_TRANSPORT); appservice only if the homeserver refuses /sync')
        .choices(['sync', 'appservice'])
        .default('sync'),
    )
    .option('--force', 'replace what is there; the old files are kept beside, with the ending .old', false)
    .addHelpText('after', example('init --server-name example.org --homeserver http://127.0.0.1:8008 --model gpt-5-mini'))
    .action(async (options) => (await import('./init.ts')).runInit(options));
}

function addStart(program: Command): void {
  program
    .command('start')
    .description('run the oracle until SIGTERM or Ctrl-C')
    .option(...SETTINGS)
    .addHelpText('after', example('start'))
    .action(async (options) => (await import('./start.ts')).runStart(options));
}

function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description('check settings, homeserver, database and model, each with a remedy')
    .option(...SETTINGS)
    .addHelpText('after', example('doctor'))
    .action(async (options) => (await import('./doctor.ts')).runDoctor(options));
}

function addPlugins(program: Command): void {
  program
    .command('plugins')
    .description('show which plugins are loaded, in which order, and why the others are not')
    .option('--json', 'print JSON', false)
    .option(...SETTINGS)
    .addHelpText('after', example('plugins'))
    .action(async (options) => (await import('./plugins.ts')).runPlugins(options));
}

function addPlugin(program: Command): void {
  const plugin = program.command('plugin').description('write plugins').addHelpText('after', example('plugin new shopping-list'));
  plugin
    .command('new')
    .description('make a plugin with a passing test: in a clone below plugins/, elsewhere as a package in a new folder')
    .argument('<name>', 'lower case, such as shopping-list')
    .addHelpText('after', example('plugin new shopping-list'))
    .action(async (name) => (await import('./plugin-new.ts')).runPluginNew(name));
}

function addMint(program: Command): void {
  const mint = program
    .command('mint')
    .description('make keys, grants and signed invocations for development')
    .addHelpText('after', example('mint key --out alice.key'));
  mint
    .command('key')
    .description('make an Ed25519 key and print its did:key')
    .option('--out <file>', 'write the key there (mode 0600) instead of printing it')
    .addHelpText('after', example('mint key --out alice.key'))
    .action(async (options) => (await import('./mint.ts')).runMintKey(options));
  addMintGrant(mint);
  mint
    .command('message')
    .description('print the content of a signed m.room.message')
    .requiredOption('--key <file>', "the speaker's key")
    .requiredOption('--room <id>', 'room it will be sent to')
    .requiredOption('--sender <id>', 'Matrix account that will send it')
    .requiredOption('--body <text>', 'what is said')
    .option('--thread <id>', 'root event of the thread')
    .option('--session-of <did>', 'whose the message is, when the key is a session key (left out: who issued --proof)')
    .option('--proof <file>', 'the grant that lets this key speak, from `mint grant`')
    .option('--audience <did>', 'DID of the oracle (left out: ORACLE_DID of the settings)')
    .option(...SETTINGS)
    .addHelpText('after', example("mint message --key alice.key --room '!r' --sender @alice:example.org --body hello"))
    .action(async (options) => (await import('./mint.ts')).runMintMessage(options));
  mint
    .command('request')
    .description('print the bearer token of one HTTP request to the sidecar')
    .requiredOption('--key <file>', "the speaker's key")
    .requiredOption('--sender <id>', "the speaker's Matrix account")
    .requiredOption('--path <path>', 'path of the request, without query')
    .option('--method <method>', 'HTTP method', 'GET')
    .option('--body <text>', 'request body, byte for byte')
    .option('--room <id>', 'direct room with the oracle')
    .option('--thread <id>', 'session that the path names')
    .option('--session-of <did>', 'whose the message is, when the key is a session key (left out: who issued --proof)')
    .option('--proof <file>', 'the grant that lets this key speak, from `mint grant`')
    .option('--audience <did>', 'DID of the oracle (left out: ORACLE_DID of the settings)')
    .option(...SETTINGS)
    .addHelpText('after', example('mint request --key alice.key --sender @alice:example.org --path /sessions'))
    .action(async (options) => (await import('./mint.ts')).runMintRequest(options));
}

function addMintGrant(mint: Command): void {
  mint
    .command('grant')
    .description('print a grant: to the oracle, or to a session key that then signs messages')
    .requiredOption('--key <file>', 'the key of whoever grants it')
    .requiredOption('--can <ability...>', 'what is granted, such as oracle/message or memory/read')
    .option('--with <resource>', "what it is granted on (left out: the granter's own DID)")
    .option('--days <n>', 'how long it counts: at most 1 for a session key, 30 for the oracle', '1')
    .option('--sender <id>', 'the one Matrix account it is for (nb.sender); that account may hand it in as ixo.oracle.grant')
    .option('--audience <did>', 'whom it is made out to (left out: ORACLE_DID of the settings)')
    .option(...SETTINGS)
    .addHelpText(
      'after',
      example(
        'mint grant --key alice.key --audience did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK --can oracle/message oracle/read',
      ),
    )
    .action(async (options) => (await import('./mint.ts')).runMintGrant(options));
}

function addKey(program: Command): void {
  const key = program.command('key').description("show and change the oracle's own key").addHelpText('after', example('key show'));
  key
    .command('show')
    .description('print the DID, the key that signs, and old DIDs that still count; never a secret')
    .option(...SETTINGS)
    .addHelpText('after', example('key show'))
    .action(async (options) => (await import('./key.ts')).runKeyShow(options));
  key
    .command('rotate')
    .description('sign with another key from the next start on; the old one keeps counting for 30 days')
    .option('--key <file>', 'the new key (left out: a fresh one; needed for a did:ixo)')
    .option(...SETTINGS)
    .addHelpText('after', example('key rotate'))
    .action(async (options) => (await import('./key.ts')).runKeyRotate(options));
}

function addCrypto(program: Command): void {
  const crypto = program
    .command('crypto')
    .description('keys of encrypted rooms: look, save the identity, begin anew')
    .addHelpText('after', example('crypto status'));
  crypto
    .command('status')
    .description('show identity, device, fingerprint and key store, and what the homeserver shows; never a secret')
    .option(...SETTINGS)
    .addHelpText('after', example('crypto status'))
    .action(async (options) => (await import('./crypto.ts')).runCryptoStatus(options));
  crypto
    .command('export')
    .description('write the identity, which people verify, into a file (mode 0600) to be kept offline')
    .argument('<file>', 'must not be there yet')
    .option(...SETTINGS)
    .addHelpText('after', example('crypto export oracle-identity.json'))
    .action(async (file, options) => (await import('./crypto.ts')).runCryptoExport(file, options));
  crypto
    .command('import')
    .description('bring a saved identity back; the next start uses it')
    .argument('<file>', 'from `crypto export`')
    .option(...SETTINGS)
    .addHelpText('after', example('crypto import oracle-identity.json'))
    .action(async (file, options) => (await import('./crypto.ts')).runCryptoImport(file, options));
  crypto
    .command('new-device')
    .description('have the next start make a new device under the same identity: for a key store that is lost, damaged or put back')
    .option(...SETTINGS)
    .addHelpText('after', example('crypto new-device'))
    .action(async (options) => (await import('./crypto.ts')).runCryptoNewDevice(options));
  crypto
    .command('new-identity')
    .description('replace the identity: everybody sees that it changed, and must verify the oracle again')
    .option('--yes', 'do not ask', false)
    .option(...SETTINGS)
    .addHelpText('after', example('crypto new-identity'))
    .action(async (options) => (await import('./crypto.ts')).runCryptoNewIdentity(options));
}

function addInbox(program: Command): void {
  const inbox = program
    .command('inbox')
    .description('look at events that could not be handled, and try them again')
    .addHelpText('after', example('inbox list'));
  inbox
    .command('list')
    .description('list events in the inbox; never their content')
    .option('--state <state>', 'dead, ready, parked (encrypted, its key is not here) or all', 'dead')
    .option('--limit <n>', 'at most so many rows', parseLimit, 100)
    .option('--json', 'print JSON', false)
    .option(...SETTINGS)
    .addHelpText('after', example('inbox list --state all'))
    .action(async (options) => (await import('./inbox.ts')).runInboxList(options));
  inbox
    .command('requeue')
    .description('have dead events handled again by the running oracle, or at its next start')
    .argument('[event...]', 'event ids')
    .option('--all', 'every dead event', false)
    .option(...SETTINGS)
    .addHelpText('after', example("inbox requeue '$event'"))
    .action(async (events, options) => (await import('./inbox.ts')).runInboxRequeue(events, options));
}

function addRuns(program: Command): void {
  const runs = program
    .command('runs')
    .description('look at answers that are being made or were made, end one, have a failed one made again')
    .addHelpText('after', example('runs list --status unfinished'));
  runs
    .command('list')
    .description('list runs, the newest first; never what was said')
    .option('--status <status>', 'a status, all, or unfinished', 'all')
    .option('--user <id>', 'of this Matrix account or DID')
    .option('--limit <n>', 'at most so many rows', parseLimit, 50)
    .option('--json', 'print JSON', false)
    .option(...SETTINGS)
    .addHelpText('after', example('runs list --status failed --user @alice:example.org'))
    .action(async (options) => (await import('./runs.ts')).runRunsList(options));
  runs
    .command('show')
    .description('show one run: record, times, frames by kind, tools, what was sent')
    .argument('<run>', 'run id')
    .option('--text', 'print prompt and answer as well', false)
    .option('--json', 'print JSON', false)
    .option(...SETTINGS)
    .addHelpText('after', example('runs show 01KB7Q3V5M8T2X4Z6A9C1E3G5J'))
    .action(async (run, options) => (await import('./runs.ts')).runRunsShow(run, options));
  runs
    .command('cancel')
    .description('end a run; what it said stays, with a marker')
    .argument('<run>', 'run id')
    .option(...SETTINGS)
    .addHelpText('after', example('runs cancel 01KB7Q3V5M8T2X4Z6A9C1E3G5J'))
    .action(async (run, options) => (await import('./runs.ts')).runRunsCancel(run, options));
  runs
    .command('retry')
    .description('have the prompts of a failed or interrupted run answered by a new run, under the same authority')
    .argument('<run>', 'run id')
    .option(...SETTINGS)
    .addHelpText('after', example('runs retry 01KB7Q3V5M8T2X4Z6A9C1E3G5J'))
    .action(async (run, options) => (await import('./runs.ts')).runRunsRetry(run, options));
}

function addAudit(program: Command): void {
  program
    .command('audit')
    .description('show who was let in or refused, for what and why; never tokens or content')
    .option('--user <id>', 'of this Matrix account or DID')
    .option('--run <id>', 'of this run')
    .option('--since <time>', 'not older than 30m, 2h, 3d, or an ISO date')
    .option('--limit <n>', 'at most so many rows, the newest', parseLimit, 100)
    .option('--json', 'print JSON', false)
    .option(...SETTINGS)
    .addHelpText('after', example('audit --user @alice:example.org --since 2h'))
    .action(async (options) => (await import('./audit.ts')).runAudit(options));
}

function addForget(program: Command): void {
  program
    .command('forget')
    .description('delete for good what is kept of one person; the audit log stays')
    .requiredOption('--user <id>', 'Matrix account or DID')
    .option('--yes', 'do not ask', false)
    .option(...SETTINGS)
    .addHelpText('after', example('forget --user @alice:example.org'))
    .action(async (options) => (await import('./forget.ts')).runForget(options));
}

function addGrantUse(program: Command): void {
  program
    .command('grant-use')
    .description('let a DID use the oracle when ACCESS=granted; takes effect at once')
    .argument('[did]', 'whom to let in')
    .option('--list', 'show who is let in', false)
    .option('--remove', 'take this DID off the list', false)
    .option(...SETTINGS)
    .addHelpText('after', example('grant-use did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK'))
    .action(async (did, options) => (await import('./grant-use.ts')).runGrantUse(did, options));
}

function addCredits(program: Command): void {
  const credits = program
    .command('credits')
    .description('what people may spend, where the plugin `credits` is loaded; works beside the running oracle')
    .addHelpText('after', example('credits list'));
  credits
    .command('grant')
    .description('give somebody credits, or take them back with a negative number')
    .argument('<who>', 'DID, or Matrix account')
    .argument('<credits>', 'whole number')
    .option('--reason <text>', 'stands in the entry, for whoever looks at it later')
    .option(...SETTINGS)
    .addHelpText('after', example('credits grant @alice:example.org 1000 --reason "December"'))
    .action(async (who, amount, options) => (await import('./credits.ts')).runCreditsGrant(who, amount, options));
  credits
    .command('show')
    .description('what somebody has, was given and spent; the newest first')
    .argument('<who>', 'DID, or Matrix account')
    .option(...SETTINGS)
    .addHelpText('after', example('credits show @alice:example.org'))
    .action(async (who, options) => (await import('./credits.ts')).runCreditsShow(who, options));
  credits
    .command('list')
    .description("everybody's balance, the largest first")
    .option(...SETTINGS)
    .addHelpText('after', example('credits list'))
    .action(async (options) => (await import('./credits.ts')).runCreditsList(options));
}

function parseLimit(text: string): number {
  if (/^[1-9]\d{0,4}$/u.test(text)) return Number(text);
  throw new InvalidArgumentError('It must be a whole number between 1 and 99999.');
}

function parsePort(text: string): number {
  if (/^[1-9]\d{0,4}$/u.test(text) && Number(text) <= 65_535) return Number(text);
  throw new InvalidArgumentError('It must be a port between 1 and 65535.');
}

function addDemo(program: Command): void {
  program
    .command('demo')
    .description('start a homeserver, a model and the oracle, and chat in the terminal (in a clone only)')
    .option('--say <text...>', 'say this instead of opening a chat, and exit')
    .option('--json', 'with --say: print one JSON document', false)
    .option('--data <dir>', 'folder of the demo: homeserver, keys, log', '.demo')
    .option('--unencrypted', 'a room in the clear instead of an encrypted one')
    .option('--port <n>', 'port of the homeserver (left out: a free one, which is kept)', parsePort)
    .addHelpText('after', example('demo --say "What time is it?" --json'))
    .action(async (options) => (await import('./demo.ts')).runDemo(options));
}
