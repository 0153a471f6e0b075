/**
 * Log lines are read by people under stress and by programs: the message is a constant, facts are fields from one list (`LogFields`), and
 * nothing that could hold a token, a prompt or an answer has a field at all (G12). Redaction by path is the second line of defence.
 */
import { type Logger as PinoLogger, pino } from 'pino';

/** The only fields a log line may have (STYLE §2 "Logs"). */
export interface LogFields {
  event_id?: string;
  room_id?: string;
  thread_id?: string;
  session_id?: string;
  run_id?: string;
  txn_id?: string;
  request_id?: string;
  user_id?: string;
  plugin?: string;
  tool?: string;
  code?: string;
  reason?: string;
  attempt?: number;
  duration_ms?: number;
  count?: number;
  status?: number;
  instance_id?: string;
  type?: string;
  path?: string;
  port?: number;
  model?: string;
  err?: unknown;
}
export interface Logger {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
  child(fields: LogFields): Logger;
}

const REDACTED = [
  '*.access_token',
  '*.as_token',
  '*.hs_token',
  '*.authorization',
  '*.inv',
  '*.dlg',
  '*.content',
  '*.body',
  'err.config',
  'err.request',
  'err.response',
  'err.options',
  'err.body',
  'err.headers',
];

export interface LoggerOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** `pretty` is for a person at a terminal; it costs a worker thread. */
  readonly format: 'json' | 'pretty';
  readonly destination?: { write(line: string): void };
}

export function createLogger({ level, format, destination }: LoggerOptions): Logger {
  const options = { level, base: null, serializers: { err: buildErrorFields }, redact: { paths: REDACTED, censor: '[secret]' } };
  if (destination !== undefined) return wrap(pino(options, destination));
  return wrap(
    format === 'pretty' ? pino({ ...options, transport: { target: 'pino-pretty', options: { ignore: 'pid,hostname' } } }) : pino(options),
  );
}

const MAX_CAUSES = 5;
const MAX_MESSAGE_CHARS = 500;
const MAX_STACK_CHARS = 4_000;

/**
 * What hangs on an error is whatever its library put there: prompts, headers, the answer so far. Only what says where it happened is taken;
 * the parser's own words quote what it could not parse.
 */
function buildErrorFields(error: unknown, depth = 1): unknown {
  if (!(error instanceof Error)) return { type: typeof error };
  const { name, message, stack = '', cause } = error;
  const code = (error as { code?: unknown }).code;
  return {
    type: name.slice(0, 100),
    message: error instanceof SyntaxError && /JSON/u.test(message) ? 'JSON that cannot be read' : message.slice(0, MAX_MESSAGE_CHARS),
    ...(typeof code === 'string' || typeof code === 'number' ? { code: String(code).slice(0, 64) } : {}),
    stack: stack.slice(Math.max(0, stack.search(/^ {4}at /mu)), MAX_STACK_CHARS),
    ...(cause === undefined || depth >= MAX_CAUSES ? {} : { cause: buildErrorFields(cause, depth + 1) }),
  };
}

function wrap(logger: PinoLogger): Logger {
  return {
    debug: (fields, message) => logger.debug(fields, message),
    info: (fields, message) => logger.info(fields, message),
    warn: (fields, message) => logger.warn(fields, message),
    error: (fields, message) => logger.error(fields, message),
    child: (fields) => wrap(logger.child(fields)),
  };
}
