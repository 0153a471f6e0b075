/**
 * The model server as a program of its own: for the demo, for the bench (which must not share its event loop with the model it
 * measures) and for whoever wants to point another client at it. `node synapse-dev/model/main.ts --port 4010`.
 * It ends on SIGINT and SIGTERM, and with `--until-stdin-ends` also when the process that started it is gone, so that none is left over.
 */
import { parseArgs } from 'node:util';
import type { Pace } from './reply.ts';
import { ModelServerError, startModelServer } from './server.ts';

const USAGE = `usage: node synapse-dev/model/main.ts [options]
  --port <n>            port on 127.0.0.1 (4010; 0 for a free one)
  --pace <p>            tokens per second, or "instant" (60)
  --answer-tokens <n>   answer everything with a text of n tokens instead of the persona
  --until-stdin-ends    stop when standard input ends`;

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '4010' },
    pace: { type: 'string' },
    'answer-tokens': { type: 'string' },
    'until-stdin-ends': { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function readNumber(name: string, text: string, { min, max }: { min: number; max: number }): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value) && value >= min && value <= max) return value;
  console.error(`--${name} must be a number from ${min} to ${max}, not "${text}"\n${USAGE}`);
  process.exit(2);
}

if (values.help) {
  console.log(USAGE);
  process.exit(0);
}
const port = Math.floor(readNumber('port', values.port, { min: 0, max: 65_535 }));
const pace: Pace | undefined =
  values.pace === undefined
    ? undefined
    : values.pace === 'instant'
      ? 'instant'
      : { tokensPerSecond: readNumber('pace', values.pace, { min: 0.1, max: 100_000 }) };
const answerTokens = values['answer-tokens'];

try {
  const server = await startModelServer({ port, keepRequests: 0, ...(pace === undefined ? {} : { pace }) });
  if (answerTokens !== undefined) {
    const count = Math.floor(readNumber('answer-tokens', answerTokens, { min: 1, max: 1_000_000 }));
    const text = Array.from({ length: count }, (_, index) => (index === 0 ? 'word' : index % 12 === 0 ? '\nword' : ' word'));
    server.respond(() => ({ kind: 'text', text }));
  }
  const stop = () => {
    void server.close().then(() => process.exit(0));
  };
  process.once('SIGINT', stop);
  process.once('SIGTERM', stop);
  if (values['until-stdin-ends']) process.stdin.once('end', stop).once('error', stop).resume();
  console.log(`model server: ${server.baseUrl}`);
} catch (error) {
  if (!(error instanceof ModelServerError)) throw error;
  console.error(`${error.code}: ${error.message}`);
  process.exit(3);
}
