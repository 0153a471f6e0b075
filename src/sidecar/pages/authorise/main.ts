/**
 * Starts the page: what it needs of the browser, the nonce out of the address bar, and the first screen. The nonce is in the fragment, which no server
 * sees; it goes out of the bar at once, so that neither history nor a picture of the screen keeps it.
 */
import { knowsEd25519 } from './account.ts';
import { createApi } from './api.ts';
import { createPageClock } from './clock.ts';
import { createFlow } from './flow.ts';
import { createAccountStore } from './store.ts';
import { createShell, problem, quiet, text } from './view/dom.ts';

const NONCE = /^#([A-Za-z0-9_-]{22})$/u;

/** `''`: something is there that is no nonce, such as half a link. */
function takeNonce(): string | null {
  const { hash, pathname } = location;
  if (hash === '' || hash === '#') return null;
  history.replaceState(null, '', pathname);
  return NONCE.exec(hash)?.[1] ?? '';
}

async function main(): Promise<void> {
  const shell = createShell();
  if (window.top !== window.self) {
    return shell.show(
      'This page cannot be shown here',
      problem('Another page shows this one inside itself. Open the link from your chat by itself.'),
    );
  }
  if (!isSecureContext || crypto.subtle === undefined) {
    return shell.show(
      'This page needs a secure connection',
      problem('It makes keys, and browsers allow that only over https (or on localhost). Nothing was signed and nothing was sent.'),
      text(
        'Open the link with https:// at its beginning. If it has none, tell the operator of this oracle: its PUBLIC_URL must be an https address.',
      ),
    );
  }
  if (!(await knowsEd25519())) {
    return shell.show(
      'This browser is too old for this page',
      problem('It cannot sign with Ed25519 keys.'),
      text(
        'Use Chrome or Edge 137 or newer, Firefox 129 or newer, or Safari 17 or newer, and open the link there. On an iPhone or iPad update to iOS 17.',
      ),
      quiet('Nothing was signed and nothing was sent.'),
    );
  }
  // biome-ignore lint/style/noRestrictedGlobals: the one place of the page that reads the device's clock
  const device = Date;
  const clock = createPageClock(
    () => device.now(),
    (header) => device.parse(header),
  );
  const flow = createFlow({ shell, api: createApi((path, init) => fetch(path, init), clock), store: createAccountStore(), clock });
  // A second link opened in this tab changes nothing but the fragment.
  addEventListener('hashchange', () => {
    const nonce = takeNonce();
    if (nonce !== null) void flow.start(nonce);
  });
  // Left and come back to, the page would stand as it was, words included.
  addEventListener('pagehide', () => shell.show('Permissions'));
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) location.reload();
  });
  await flow.start(takeNonce());
}

void main();
