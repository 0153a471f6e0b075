/**
 * The registration file is the contract between homeserver and oracle: who may call whom with which token, and which accounts are ours.
 * `init`, the demo and the tests all build it here, because one wrong flag fails silently: without `receive_ephemeral` no key
 * ever arrives in a transaction, and with the oracle as `sender_localpart` Synapse answers its `/sync` with 500, so nothing that a push lost is found (G1).
 */
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { err, ok, type Result } from '../src/result.ts';

/** Field names are those of the file (Matrix spec v1.19, "Application Service API", Registration; MSC4190, MSC3202 under their unstable names). */
export interface Registration {
  readonly id: string;
  readonly url: string;
  readonly as_token: string;
  readonly hs_token: string;
  readonly sender_localpart: string;
  readonly rate_limited: boolean;
  readonly receive_ephemeral: boolean;
  readonly 'io.element.msc4190': boolean;
  readonly 'org.matrix.msc3202': boolean;
  readonly namespaces: {
    readonly users: readonly Namespace[];
    readonly aliases: readonly Namespace[];
    readonly rooms: readonly Namespace[];
  };
}
export interface Namespace {
  readonly exclusive: boolean;
  readonly regex: string;
}

export interface RegistrationOptions {
  /** Where the homeserver reaches our transaction listener, without a trailing slash. */
  readonly url: string;
  /** Random, at least 32 characters; chance is the caller's. */
  readonly asToken: string;
  readonly hsToken: string;
  readonly serverName: string;
  /** Name in the URL of a ping; unique on the homeserver. */
  readonly id?: string;
  /** The oracle's own account; its ghosts are `<localpart>_…`. */
  readonly localpart?: string;
  /** An account that nobody uses: the spec demands one, Synapse refuses it `/sync`. It must lie outside the namespace. */
  readonly senderLocalpart?: string;
  /** How keys of encrypted rooms arrive (CRYPTO_TRANSPORT). In transactions they come only with two flags more, and presence and typing with them. */
  readonly keys?: 'sync' | 'appservice';
}

export const DEFAULT_REGISTRATION_ID = 'matrix-oracle';

export function buildRegistration(options: RegistrationOptions): Registration {
  const keysInTransactions = options.keys === 'appservice';
  const localpart = options.localpart ?? 'oracle';
  return {
    id: options.id ?? DEFAULT_REGISTRATION_ID,
    url: options.url,
    as_token: options.asToken,
    hs_token: options.hsToken,
    sender_localpart: options.senderLocalpart ?? '_oracle_as',
    rate_limited: false,
    receive_ephemeral: keysInTransactions,
    'io.element.msc4190': true,
    'org.matrix.msc3202': keysInTransactions,
    namespaces: {
      // Anchored, because Synapse only anchors the start: `@oracle:example.org.evil.net` would be ours otherwise.
      users: [{ exclusive: true, regex: `^@${escapeRegex(localpart)}(_.*)?:${escapeRegex(options.serverName)}$` }],
      aliases: [],
      rooms: [],
    },
  };
}

/** The `.` of a server name would match any character, and an IPv6 literal's brackets would be a class. */
const escapeRegex = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/gu, '\\$&');

export const registrationYaml = (registration: Registration): string => stringify(registration, { lineWidth: 0 });

const MAX_BYTES = 64 * 1024;
const token = z.string().min(1).max(1_024).regex(/^\S+$/u, 'has white space');
const namespace = z.object({ exclusive: z.boolean(), regex: z.string().min(1).max(1_024) });
const namespaces = z
  .array(namespace)
  .max(100)
  .nullish()
  .transform((list) => list ?? []);

/** Unknown fields are ignored: an operator may keep settings of other homeservers in the same file. */
const Registration = z.object({
  id: z.string().min(1).max(255),
  url: z.url({ protocol: /^https?$/u }),
  as_token: token,
  hs_token: token,
  sender_localpart: z.string().min(1).max(255),
  rate_limited: z.boolean().default(true),
  receive_ephemeral: z.boolean().default(false),
  'io.element.msc4190': z.boolean().default(false),
  'org.matrix.msc3202': z.boolean().default(false),
  namespaces: z.object({ users: namespaces, aliases: namespaces, rooms: namespaces }),
});

export interface RegistrationProblem {
  readonly code: 'BAD_REGISTRATION';
  /** One sentence per fault, each naming its field; never a token. */
  readonly faults: readonly string[];
}

export function readRegistration(text: string): Result<Registration, RegistrationProblem> {
  if (Buffer.byteLength(text) > MAX_BYTES) return broken(['the file is larger than 64 KiB']);
  const document = readYaml(text);
  if (!document.ok) return broken([document.error]);
  const parsed = Registration.safeParse(document.value);
  if (parsed.success) return ok(parsed.data);
  return broken(parsed.error.issues.map((issue) => `${issue.path.join('.') || 'the file'}: ${issue.message}`));
}

function readYaml(text: string): Result<unknown, string> {
  try {
    return ok(parse(text, { maxAliasCount: 0, logLevel: 'error' }));
  } catch {
    // The parser quotes the offending line, which may hold a token (G12).
    return err('it is not valid YAML');
  }
}

const broken = (faults: readonly string[]): Result<never, RegistrationProblem> => err({ code: 'BAD_REGISTRATION', faults });
