/**
 * The one fetch for addresses that a stranger can influence, such as the did:web of a service. Without it a name could lead to the machine's own
 * ports or the metadata service of its cloud, say one address when it is checked and another when it is used, redirect there, answer for ever,
 * or unpack a kilobyte to a gigabyte (research/ucan.md §3.2 J). So: https on port 443 only, every address looked at where the socket is made and
 * again when it is connected, no redirect, no compression, no cookie or credential, 64 kB and 3 s over all (G14).
 * An address that the operator configured (Blocksync) may be http and private; everything else holds for it as well.
 * Names of strangers are asked of DNS alone (c-ares): no hosts file, no search domain, no thread of libuv that a slow DNS server could hold.
 */
import { Resolver } from 'node:dns/promises';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import { Agent, buildConnector, type Dispatcher } from 'undici';
import { LIMITS } from '../limits.ts';
import { err, ok, type Result } from '../result.ts';
import type { Clock } from '../time.ts';
import { isPublicAddress } from './public-address.ts';

/** `unreachable` holds everything the network can do: no such name, refused, certificate, cut. */
export type FetchProblem = 'bad_url' | 'refused_address' | 'unreachable' | 'timeout' | 'redirect' | 'compressed' | 'too_large' | 'busy';

export interface FetchAnswer {
  /** 200 to 299 or 400 to 599. */
  readonly status: number;
  readonly text: string;
}
export interface FetchOptions {
  /** Default `stranger`. `operator`: an address from the configuration, which may be http, private and on any port. */
  readonly chosenBy?: 'stranger' | 'operator';
  readonly maxBytes?: number;
  /** From the first look at the name to the last byte of the body. */
  readonly timeoutMs?: number;
}

export interface GuardedFetch {
  /** Never throws. */
  get(url: string, options?: FetchOptions): Promise<Result<FetchAnswer, FetchProblem>>;
  /** `body` is JSON. Never throws. */
  post(url: string, body: string, options?: FetchOptions): Promise<Result<FetchAnswer, FetchProblem>>;
  /** Ends what is under way as `unreachable` and closes kept connections. */
  close(): Promise<void>;
}

export interface GuardedFetchOptions {
  readonly clock: Clock;
  /** Lets a further address and port through, for tests and for services on an operator's own network. */
  readonly allow?: (address: string, port: number) => boolean;
  /** All addresses of a name. */
  readonly resolve?: (hostname: string) => Promise<readonly string[]>;
  /** PEM of the only certificates to trust, instead of the system's. */
  readonly ca?: string;
}

const HTTPS_PORT = 443;
/** Of each kind; callers bound themselves lower. */
const MAX_AT_ONCE = 64;
const MAX_ADDRESSES = 16;
const OPERATOR_KEEP_ALIVE_MS = 30_000;
/** As many as the look-ups of DIDs hold open, so that none of them waits here for others (src/ucan/did/look-up.ts). */
const OPERATOR_CONNECTIONS = 24;
const MAX_HEADER_BYTES = 16 * 1024;

class RefusedAddressError extends Error {
  override readonly name = 'RefusedAddressError';
}

export function createGuardedFetch(options: GuardedFetchOptions): GuardedFetch {
  const common = { allowH2: false, headersTimeout: 0, bodyTimeout: 0, maxHeaderSize: MAX_HEADER_BYTES };
  const agents = {
    stranger: new Agent({ ...common, connect: createCheckedConnect(options) }),
    operator: new Agent({
      ...common,
      connect: { timeout: LIMITS.didTimeoutMs },
      connections: OPERATOR_CONNECTIONS,
      keepAliveTimeout: OPERATOR_KEEP_ALIVE_MS,
    }),
  } as const;
  const underWay = { stranger: 0, operator: 0 };
  const stopped = new AbortController();

  async function request(url: string, body: string | null, limits: FetchOptions): Promise<Result<FetchAnswer, FetchProblem>> {
    const { chosenBy = 'stranger', maxBytes = LIMITS.didDocumentBytes, timeoutMs = LIMITS.didTimeoutMs } = limits;
    const target = readTarget(url, chosenBy);
    if (target === undefined) return err('bad_url');
    if (stopped.signal.aborted) return err('unreachable');
    if (underWay[chosenBy] >= MAX_AT_ONCE) return err('busy');
    underWay[chosenBy] += 1;
    const late = new AbortController();
    const timer = options.clock.after(timeoutMs, () => late.abort());
    try {
      const response = await agents[chosenBy].request({
        origin: target.origin,
        path: `${target.pathname}${target.search}`,
        method: body === null ? 'GET' : 'POST',
        headers: {
          accept: 'application/json, */*;q=0.5',
          'accept-encoding': 'identity',
          'user-agent': 'matrix-oracle',
          ...(body === null ? {} : { 'content-type': 'application/json' }),
        },
        body,
        signal: AbortSignal.any([late.signal, stopped.signal]),
        // A stranger's host is hardly asked twice; kept connections would be a stranger's to hold.
        reset: chosenBy === 'stranger',
      });
      return await readAnswer(response, maxBytes);
    } catch (error) {
      return err(late.signal.aborted ? 'timeout' : readProblem(error));
    } finally {
      timer.cancel();
      underWay[chosenBy] -= 1;
    }
  }

  return {
    get: (url, limits = {}) => request(url, null, limits),
    post: (url, body, limits = {}) => request(url, body, limits),
    async close() {
      stopped.abort();
      await Promise.all([agents.stranger.destroy(), agents.operator.destroy()]);
    },
  };
}

const MAX_URL_CHARS = 2_048;
function readTarget(text: string, chosenBy: 'stranger' | 'operator'): URL | undefined {
  const url = text.length > MAX_URL_CHARS ? null : URL.parse(text);
  if (url === null || url.hostname === '' || url.username !== '' || url.password !== '') return undefined;
  const plain = url.protocol === 'http:' && chosenBy === 'operator';
  return url.protocol === 'https:' || plain ? url : undefined;
}

/** A socket only to addresses that were looked at: what the name resolves to here is what is connected to, so a second answer of DNS is never used. */
function createCheckedConnect({ allow, resolve = resolveByDns, ca }: GuardedFetchOptions): buildConnector.connector {
  return (target, callback) => {
    const port = target.port === '' ? HTTPS_PORT : Number(target.port);
    const mayConnect = (address: string): boolean => (port === HTTPS_PORT && isPublicAddress(address)) || allow?.(address, port) === true;
    const refused = () => new RefusedAddressError('an address of this name is not on the public internet');

    // Node looks nothing up for a name that is an address.
    const literal = target.hostname.replace(/^\[|\]$/gu, '');
    if (isIP(literal) !== 0 && !mayConnect(literal)) return callback(refused(), null);

    const lookup: LookupFunction = (hostname, { all }, done) => {
      resolve(hostname).then(
        (addresses) => {
          const [first] = addresses;
          if (first === undefined) return done(new Error('this name has no address'), '');
          // One that is not public makes the name suspect as a whole.
          if (addresses.length > MAX_ADDRESSES || !addresses.every(mayConnect)) return done(refused(), '');
          if (all === true)
            return done(
              null,
              addresses.map((address) => ({ address, family: isIP(address) })),
            );
          return done(null, first, isIP(first));
        },
        (error: unknown) => done(error instanceof Error ? error : new Error('this name cannot be looked up'), ''),
      );
    };
    const connect = buildConnector({
      lookup,
      autoSelectFamily: true,
      allowH2: false,
      maxCachedSessions: 0,
      timeout: LIMITS.didTimeoutMs,
      // Said here, so that no variable of the environment can switch it off.
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca }),
    } as buildConnector.BuildOptions);
    // In spite of its types undici leaves the socket out when it reports an error.
    return connect(target, (error: Error | null, socket?: Socket | null) => {
      if (error !== null || socket == null) return callback(error ?? new Error('not connected'), null);
      if (socket.remoteAddress !== undefined && mayConnect(socket.remoteAddress)) return callback(null, socket);
      socket.destroy();
      return callback(refused(), null);
    });
  };
}

async function resolveByDns(hostname: string): Promise<string[]> {
  const resolver = new Resolver({ timeout: 1_000, tries: 2 });
  const answers = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)]);
  return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
}

async function readAnswer(
  { statusCode, headers, body }: Dispatcher.ResponseData,
  maxBytes: number,
): Promise<Result<FetchAnswer, FetchProblem>> {
  const giveUp = (problem: FetchProblem): Result<FetchAnswer, FetchProblem> => {
    body.on('error', () => undefined).destroy();
    return err(problem);
  };
  if (statusCode < 200 || (statusCode >= 300 && statusCode < 400)) return giveUp('redirect');
  // We asked for none; unpacking what comes anyway would need a second bound.
  if (![headers['content-encoding'] ?? 'identity'].flat().every((coding) => coding.trim().toLowerCase() === 'identity')) {
    return giveUp('compressed');
  }
  if (Number(headers['content-length'] ?? 0) > maxBytes) return giveUp('too_large');
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) return giveUp('too_large');
    chunks.push(chunk);
  }
  return ok({ status: statusCode, text: Buffer.concat(chunks).toString('utf8') });
}

/** Errors of sockets hold names and addresses; only their kind is kept. */
function readProblem(error: unknown): FetchProblem {
  if (error instanceof RefusedAddressError) return 'refused_address';
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return code === 'UND_ERR_CONNECT_TIMEOUT' ? 'timeout' : 'unreachable';
}
