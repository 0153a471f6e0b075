/**
 * The life of a demo: start, chat or say, stop. However it ends (Ctrl-C, a signal, an error half-way, a closed terminal) everything that was started
 * is stopped again, newest first; a second Ctrl-C ends at once, and then the homeserver dies with this process.
 */
import { MatrixError } from '../../../../synapse-dev/homeserver/matrix-request.ts';
import { SetupError } from '../../../../synapse-dev/homeserver/setup-problem.ts';
import { ModelServerError } from '../../../../synapse-dev/model/server.ts';
import { systemClock } from '../../../system-clock.ts';
import type { Timer } from '../../../time.ts';
import { CliError } from '../cli-error.ts';
import type { DemoOptions } from '../demo.ts';
import { chat } from './chat.ts';
import { type DemoFolder, openDemoFolder } from './demo-folder.ts';
import { PERSON } from './person.ts';
import { describeFailure, sayAll } from './say.ts';
import { type Demo, type StartDemoOptions, startDemo } from './start-demo.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** The oracle gets 10 s for its runs, Synapse as much. */
const STOP_LIMIT_MS = 25_000;
const EXIT_BY_SIGINT = 130;
/** Ctrl-C reaches us from the terminal and once more from npm, which passes it on: that is one wish, not two. */
const ECHO_MS = 500;

export async function runDemoInClone(options: DemoOptions): Promise<void> {
  const stop = new AbortController();
  let askedAt: number | undefined;
  const onSignal = () => {
    const now = systemClock.monotonic();
    if (askedAt !== undefined && now - askedAt < ECHO_MS) return;
    if (askedAt !== undefined) process.exit(EXIT_BY_SIGINT);
    askedAt = now;
    stop.abort(new CliError('the demo was stopped before it was done.'));
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  // A reader that went away (`| head`) is an end like any other.
  process.stdout.on('error', onSignal);
  const parent = watchParent(onSignal);
  const cleanup = new AsyncDisposableStack();
  try {
    await run(options, { signal: stop.signal, cleanup, onFatal: (error) => stop.abort(error) });
    if (stop.signal.aborted && askedAt === undefined) throw stop.signal.reason;
  } catch (error) {
    const stoppedByPerson = askedAt !== undefined && options.say === undefined;
    if (!stoppedByPerson) throw explain(stop.signal.aborted ? stop.signal.reason : error);
  } finally {
    const limit = systemClock.after(STOP_LIMIT_MS, () => process.exit(1));
    await cleanup.disposeAsync();
    limit.cancel();
    for (const signal of SIGNALS) process.off(signal, onSignal);
    process.stdout.off('error', onSignal);
    parent.cancel();
  }
}

const LOOK_FOR_PARENT_MS = 300;

/** A signal for `npm run` ends npm's shell and never reaches us: without its parent the demo ends too. */
function watchParent(onGone: () => void): Timer {
  const parent = process.ppid;
  let timer: Timer;
  const look = () => {
    if (process.ppid !== parent) return onGone();
    timer = systemClock.after(LOOK_FOR_PARENT_MS, look);
  };
  timer = systemClock.after(LOOK_FOR_PARENT_MS, look);
  return { cancel: () => timer.cancel() };
}

type Life = Pick<StartDemoOptions, 'signal' | 'cleanup' | 'onFatal'>;

async function run(options: DemoOptions, { signal, cleanup, onFatal }: Life): Promise<void> {
  const progress = (line: string) => void process.stderr.write(`• ${line}\n`);
  const folder = await openDemoFolder(options.data);
  cleanup.defer(() => folder.release());
  const encrypted = options.unencrypted !== true;
  const demo = await startDemo({ folder, port: options.port, encrypted, progress, signal, cleanup, onFatal });
  progress(
    `ready after ${(demo.readyMs / 1_000).toFixed(1)} s; the conversation is ${encrypted ? 'end-to-end encrypted' : 'not encrypted'}`,
  );
  if (options.say !== undefined) return sayAndReport(options.say, { options, demo, folder, signal });
  process.stdout.write(buildIntroduction(demo, folder));
  await chat({ person: demo.person, signal, describe });
  progress('stopping; an answer that is being written gets up to 10 s to be saved (Ctrl-C again ends at once)');
}

interface SayParts {
  readonly options: DemoOptions;
  readonly demo: Demo;
  readonly folder: DemoFolder;
  readonly signal: AbortSignal;
}

async function sayAndReport(texts: readonly string[], { options, demo, folder, signal }: SayParts): Promise<void> {
  const { homeserver, oracle, person, model } = demo;
  const { oracleLog } = folder;
  const prompts = await sayAll({ person, texts, silent: options.json, oracleLog, signal });
  if (options.json) {
    const document = {
      v: 1,
      prompts,
      homeserver: { baseUrl: homeserver.baseUrl, serverName: homeserver.serverName },
      sidecar: { url: demo.sidecarUrl },
      metrics: { url: oracle.metricsUrl },
      oracle: { userId: oracle.userId, did: folder.oracleKey.did },
      user: { userId: person.userId, did: person.did },
      room: { roomId: person.roomId, encrypted: person.encrypted },
      model: { name: model.name, baseUrl: model.baseUrl },
      readyMs: demo.readyMs,
      dataDir: folder.dir,
      oracleLog,
    };
    process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
  }
  const failure = describeFailure(prompts, oracleLog);
  if (failure !== undefined) throw new CliError(failure);
}

function buildIntroduction({ homeserver, sidecarUrl, oracle, model, person }: Demo, folder: DemoFolder): string {
  const lines = [
    `You are talking to ${oracle.userId}. Each line is a signed Matrix message.`,
    ...(person.encrypted
      ? ['The conversation is end-to-end encrypted: the homeserver cannot read it.']
      : ['The conversation is not encrypted: the homeserver can read it.']),
    'Ctrl-C ends.',
    '',
    '  Element   the same chat in Element on this machine (Desktop, or Web in a',
    '            browser that may reach 127.0.0.1):',
    `            homeserver ${homeserver.baseUrl}`,
    `            user       ${PERSON}`,
    `            password   ${folder.state.password}`,
    ...(person.encrypted ? ['            It reads what is said after it has signed in.'] : []),
    `  Sidecar   ${sidecarUrl} (try ${sidecarUrl}/health)`,
    ...(model.own
      ? [
          '  Model     the demo model: fixed rules instead of thinking (for your own',
          '            set OPENAI_API_KEY, OPENAI_BASE_URL and MODEL_MAIN)',
        ]
      : [`  Model     ${model.name} at ${model.baseUrl}`]),
    `  Data      ${folder.dir} (delete it to begin anew)`,
    `  Log       ${folder.oracleLog}`,
    '',
    ...(model.own ? ['Try: hello', '     what time is it?', '     give me a long answer with code and a table', ''] : []),
  ];
  return `\n${lines.join('\n')}\n`;
}

/** What the surroundings caused, as a sentence; a bug stays what it is and shows its stack. */
function explain(error: unknown): unknown {
  if (error instanceof CliError) return error;
  if (error instanceof SetupError || error instanceof ModelServerError) return new CliError(error.message, { cause: error });
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'START_REFUSED') return new CliError(describe(error), { cause: error });
  if (code === 'EADDRINUSE') {
    const port = error instanceof Error && 'port' in error ? String(error.port) : 'one of its ports';
    return new CliError(`port ${port} was taken by another program while the demo started: start the demo again.`, { cause: error });
  }
  if (code === 'ENOSPC') return new CliError('the disk is full: make room and start again.', { cause: error });
  if (error instanceof MatrixError) return new CliError(`the homeserver refused a call of the demo: ${error.message}.`, { cause: error });
  return error;
}

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));
