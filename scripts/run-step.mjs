/**
 * Runs one program of node_modules/.bin with the Node of this process first in PATH, whatever Node the machine has, and shows its output as it comes.
 * A signal to us is passed on: a test run that is stopped must still get to stop its homeserver.
 */
import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');

/** Resolves with the exit status; 1 when a signal ended the program or it could not be started. */
export function runStep(program, args) {
  const path = [dirname(process.execPath), join(ROOT, 'node_modules', '.bin'), process.env.PATH].join(':');
  const child = spawn(program, args, { cwd: ROOT, env: { ...process.env, PATH: path }, stdio: ['ignore', 'inherit', 'inherit'] });
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  const pass = (signal) => child.kill(signal);
  for (const signal of signals) process.on(signal, pass);
  return new Promise((resolve) => {
    const done = (status) => {
      for (const signal of signals) process.off(signal, pass);
      resolve(status);
    };
    child.on('error', (error) => {
      process.stderr.write(`${program} cannot be started (${error.message}): run \`npm ci\` first.\n`);
      done(1);
    });
    child.on('close', (status) => done(status ?? 1));
  });
}
