/**
 * How the text of an environment variable becomes a value. Strict on purpose: `yes`, `08`, `1e3` or an empty value are somebody's mistake, and
 * a mistake that turns into a default is found weeks later. A message never quotes a value: nobody can tell whether a secret went astray into it.
 */
import { isIP } from 'node:net';
import { z } from 'zod';
import { type DeviceId, type Did, parseDid } from '../ids.ts';
import { Secret } from './secret.ts';

const MAX_VALUE_CHARS = 16_384;
const raw = z.string().min(1, 'is empty').max(MAX_VALUE_CHARS, 'is too long');

export const text = (maxChars = 255) =>
  raw
    .trim()
    .min(1, 'is empty')
    .max(maxChars, `is longer than ${maxChars} characters`)
    .regex(/^[^\u0000-\u001f\u007f]*$/u, 'holds a control character');

export const matching = (pattern: RegExp, fault: string) => raw.regex(pattern, fault);

export const integer = (min: number, max: number) =>
  raw
    .regex(/^(0|[1-9]\d{0,11})$/u, 'is not a whole number')
    .transform(Number)
    .refine((value) => value >= min && value <= max, `is not between ${min} and ${max}`);

export const port = () => integer(0, 65_535);

export const flag = () => z.enum(['true', 'false'], 'is neither true nor false').transform((value) => value === 'true');

export const choice = <const T extends readonly [string, ...string[]]>(values: T) => z.enum(values, `is none of: ${values.join(', ')}`);

export const access = () => choice(['own-server', 'allowed', 'granted', 'open']);
export const cryptoTrust = () => choice(['any', 'cross-signed']);
export const cryptoTransport = () => choice(['sync', 'appservice']);
export const onOff = () => choice(['auto', 'off']);

/** Words of a mnemonic, or any text that was used as one: the key is derived from exactly this text, trimmed. */
export const mnemonic = () =>
  raw
    .max(1_024, 'is longer than 1024 characters')
    .transform((value) => value.trim())
    .refine((value) => value.length >= 16, 'is shorter than 16 characters')
    .transform((value) => new Secret(value));

const ABILITY_ON = /^[a-z0-9_-]{1,64}(?:\/[a-z0-9_-]{1,64}){0,4}(?:\/\*)? [a-z][a-z0-9+.-]{0,31}:[A-Za-z0-9._~:/@!$&'()*+;=%-]{1,255}$/u;
/** `<can> <with>` pairs: what the authorise page asks people to grant. */
export const abilities = () => list(z.string().regex(ABILITY_ON, 'has an entry that is not `<ability> <resource>`'), 20);
export const dids = () =>
  list(
    z.string().refine((value) => parseDid(value).ok, 'has an entry that is not a DID'),
    100,
  ).transform((values) => values as Did[]);

/** Without a trailing slash, so that paths can be appended. */
export const httpUrl = () =>
  raw
    .max(2_048, 'is too long')
    .refine(isHttpUrl, 'is not an http:// or https:// address without user name, query and fragment')
    .transform((value) => value.replace(/\/+$/u, ''));

function isHttpUrl(value: string): boolean {
  const url = URL.parse(value);
  if (url === null || !/^https?:$/u.test(url.protocol) || /[\s\\]/u.test(value)) return false;
  return url.username === '' && url.password === '' && !value.includes('?') && !value.includes('#');
}

/** Comma-separated; an empty value is the empty list, which is not the same as leaving the variable out. */
const list = <T extends z.ZodType<string, string>>(item: T, maxItems = 1_000) =>
  z
    .string()
    .max(MAX_VALUE_CHARS, 'is too long')
    .transform((value) => (value.trim() === '' ? [] : value.split(',').map((entry) => entry.trim())))
    .pipe(z.array(item).max(maxItems, `has more than ${maxItems} entries`));

/** Spec v1.19, appendices, "Server name": host name, IPv4 or bracketed IPv6, and a port. */
const SERVER_NAME = /^(?:[a-z0-9.-]{1,230}|\[[0-9a-f:.]{2,45}\])(?::\d{1,5})?$/u;
const serverNameText = z.string().toLowerCase().regex(SERVER_NAME, 'is not the name of a homeserver');
export const serverName = () => raw.pipe(serverNameText);
/** Names, each at most 200 characters. */
export const names = () => list(z.string().max(200, 'has an entry longer than 200 characters'));

export const serverNames = () => list(z.string().toLowerCase().regex(SERVER_NAME, 'has an entry that is not the name of a homeserver'));

/**
 * `@name:server` with `*` and `?` in the name only: `@*:*.example.org` would also let in whoever registers `evil.example.org`,
 * and `@*:*` the whole federation.
 */
export const userGlobs = () =>
  list(
    z
      .string()
      .max(255, 'has an entry that is too long')
      .refine((glob) => /^@[^:\s]+:\S+$/u.test(glob), 'has an entry that is not @name:server')
      .refine((glob) => !/[*?]/u.test(serverPart(glob)), 'has an entry with a wildcard in its server part')
      .transform((glob) => `${glob.slice(0, glob.indexOf(':'))}:${serverPart(glob).toLowerCase()}`)
      .refine(
        (glob) => /[*?]/u.test(serverPart(glob)) || SERVER_NAME.test(serverPart(glob)),
        'has an entry whose server part is not a server name',
      ),
  );
const serverPart = (glob: string): string => glob.slice(glob.indexOf(':') + 1);

/** IP addresses, or ranges such as 10.0.0.0/8. */
export const addressRanges = () => list(z.string().refine(isAddressRange, 'has an entry that is neither an IP address nor a range'), 100);
function isAddressRange(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const family = isIP(address);
  if (family === 0 || more.length > 0) return false;
  return bits === undefined || (/^[1-9]\d{0,2}$/u.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

/** Origins as browsers send them; `*` is every origin. */
export const origins = () =>
  list(z.string().refine(isOrigin, 'has an entry that is neither * nor an origin such as https://portal.example.org'), 100);
const isOrigin = (value: string): boolean => value === '*' || (isHttpUrl(value) && URL.parse(value)?.origin === value);

const MIN_TOKEN_CHARS = 16;
export const token = () =>
  raw
    .min(MIN_TOKEN_CHARS, `is shorter than ${MIN_TOKEN_CHARS} characters`)
    .max(1_024, 'is longer than 1024 characters')
    .regex(/^[\u0021-\u007e]+$/u, 'holds a blank or a character outside ASCII')
    .transform((value) => new Secret(value));
export const apiKey = () =>
  raw
    .max(1_024, 'is longer than 1024 characters')
    .regex(/^[\u0021-\u007e]+$/u, 'holds a blank or a character outside ASCII')
    .transform((value) => new Secret(value));

export const did = () =>
  raw.transform((value, context): Did => {
    const parsed = parseDid(value);
    if (parsed.ok) return parsed.value;
    context.addIssue({ code: 'custom', message: 'is not a DID' });
    return z.NEVER;
  });

/** Spec v1.19, appendices, "User Identifiers": what a new localpart may hold. */
export const localpart = () => matching(/^[a-z0-9._=/+-]{1,128}$/u, 'is not the local part of a Matrix user id');
/** `<id>R` is the second device, the one that reconciles. */
export const deviceId = () => matching(/^[A-Za-z0-9_-]{1,60}$/u, 'is not a device id').transform((value) => value as DeviceId);
