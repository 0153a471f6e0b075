/** The browser that Debian packages; nothing is downloaded for it. `CHROMIUM` names another one. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

export function launchChromium(args: readonly string[] = []): Promise<Browser> {
  // Without a sandbox: containers have none to give, and it opens our own page only.
  return chromium.launch({ executablePath: findChromium(), args: ['--no-sandbox', ...args] });
}

function findChromium(): string {
  const { CHROMIUM, PATH = '' } = process.env;
  const candidates =
    CHROMIUM === undefined ? PATH.split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name))) : [CHROMIUM];
  const found = candidates.find(isExecutable);
  if (found === undefined)
    throw new Error('No Chromium in PATH: install it (on Debian: apt-get install chromium), or name one in CHROMIUM.');
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
