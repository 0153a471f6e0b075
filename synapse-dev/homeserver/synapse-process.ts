/**
 * One running Synapse, whichever way it came here. It must never outlive the process that started it: a forgotten homeserver keeps a port,
 * 120 MB and, worse, goes on pushing to whatever listens on the application service's port next.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { DIE_WITH_PARENT } from './install-venv.ts';

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface SynapseProcess {
  readonly baseUrl: string;
  /** Of the present process on this machine; undefined in Docker. */
  readonly pid: number | undefined;
  /** How it ended, when it did. */
  exit(): Exit | undefined;
  /** What it printed, the last part. */
  output(): string;
  /** Sends the signal and waits until it is gone. */
  end(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): Promise<Exit>;
  /** Again, after it ended. */
  start(): Promise<void>;
  /** Gives back what an ended one still holds. */
  dispose(): Promise<void>;
}

const KEPT_CHARS = 32 * 1024;
/** Synapse was seen to stop within 0.2 s; past this it hangs. */
const STOPS_WITHIN_MS = 10_000;

export function createVenvProcess(options: { python: string; dir: string; port: number }): SynapseProcess {
  let child: ChildProcess;
  let printed = '';
  let exit: Exit | undefined;
  let gone: Promise<Exit>;
  const killAtExit = () => {
    child.kill('SIGKILL');
  };

  function launch(): void {
    exit = undefined;
    const launched = spawn(
      options.python,
      [DIE_WITH_PARENT, String(process.pid), 'synapse.app.homeserver', '-c', `${options.dir}/homeserver.yaml`],
      {
        cwd: options.dir,
        // A session of its own: Ctrl-C in the terminal is for us, who stop the oracle first and then the homeserver it speaks to.
        detached: true,
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    child = launched;
    const take = (chunk: string) => {
      printed = (printed + chunk).slice(-KEPT_CHARS);
    };
    launched.stdout.setEncoding('utf8').on('data', take);
    launched.stderr.setEncoding('utf8').on('data', take);
    gone = new Promise((resolve) => {
      const finish = (ended: Exit) => {
        exit ??= ended;
        process.removeListener('exit', killAtExit);
        resolve(exit);
      };
      launched.on('error', (error) => {
        take(error.message);
        if (launched.pid === undefined) finish({ code: null, signal: null });
      });
      // Not `close`: that waits for the pipes too, which a grandchild could hold.
      launched.on('exit', (code, signal) => finish({ code, signal }));
    });
    process.on('exit', killAtExit);
  }

  launch();
  return {
    baseUrl: `http://127.0.0.1:${options.port}`,
    get pid() {
      return exit === undefined ? child.pid : undefined;
    },
    exit: () => exit,
    output: () => printed,
    async end(signal) {
      if (exit !== undefined) return exit;
      child.kill(signal);
      const hard = setTimeout(() => child.kill('SIGKILL'), STOPS_WITHIN_MS);
      try {
        return await gone;
      } finally {
        clearTimeout(hard);
      }
    },
    async start() {
      if (exit !== undefined) launch();
    },
    async dispose() {},
  };
}
