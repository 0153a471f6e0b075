/**
 * The authorise page as `npm run build:pages` left it, read once at the start. A clone that was installed without its scripts has none: then the
 * sidecar says so instead of serving half a page. Nobody's data is in it, and its headers let nothing in but its own files.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface PageFile {
  readonly type: string;
  readonly body: Buffer;
}
export interface AuthorisePage {
  readonly html: PageFile;
  readonly script: PageFile;
  readonly style: PageFile;
}

/** The same three folders up from here and from the published build, whose code lies as deep (scripts/build.mjs). */
export const PAGE_FOLDER = join(import.meta.dirname, '../../../dist/pages/authorise');

/** Null when a file is missing. */
export function readAuthorisePage(folder: string = PAGE_FOLDER): AuthorisePage | null {
  const read = (name: string, type: string): PageFile => ({ type, body: readFileSync(join(folder, name)) });
  try {
    return {
      html: read('index.html', 'text/html; charset=utf-8'),
      script: read('app.js', 'text/javascript; charset=utf-8'),
      style: read('app.css', 'text/css; charset=utf-8'),
    };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/**
 * No script but ours, no other origin, no frame around it: a page that makes keys is worth being attacked. `no-store` keeps it, and with it the
 * words on it, out of the browser's caches.
 */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy':
    'camera=(), microphone=(), geolocation=(), payment=(), usb=(), bluetooth=(), serial=(), hid=(), display-capture=(), clipboard-read=(), clipboard-write=(self)',
  'cache-control': 'no-store',
};

export const PAGE_MISSING =
  'The authorise page is not built. The operator of this oracle has to run `npm run build:pages` and start it again.\n';
