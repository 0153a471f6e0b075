/** The model and the way people reach the sidecar. Each asks one cheap question; no prompt is sent, nothing is charged. */
import { connect } from 'node:net';
import { z } from 'zod';
import type { Config } from '../../../config.ts';
import { printable } from '../open-database.ts';
import { type Check, failed, passed, skipped, warned } from './check.ts';

const TIMEOUT_MS = 10_000;
/** The longest list of models known is about 1 MiB. */
const MAX_BODY_BYTES = 8 * 1024 * 1024;

export async function checkModel(config: Pick<Config, 'openaiBaseUrl' | 'openaiApiKey' | 'modelMain'>): Promise<Check> {
  const name = 'model';
  const authorization = config.openaiApiKey === undefined ? {} : { authorization: `Bearer ${config.openaiApiKey.reveal()}` };
  const response = await get(`${config.openaiBaseUrl}/models`, authorization);
  if (response === undefined)
    return failed(name, `${config.openaiBaseUrl} does not answer`, 'Start the model server, or correct OPENAI_BASE_URL.');
  if (response.status === 401 || response.status === 403) {
    return failed(
      name,
      `${config.openaiBaseUrl} refuses the key (HTTP ${response.status})`,
      'Set OPENAI_API_KEY to a valid key of that provider.',
    );
  }
  if (response.status === 404 || response.status === 405) {
    return skipped(name, `${config.openaiBaseUrl} answers but lists no models, so ${config.modelMain} cannot be checked`);
  }
  if (response.status !== 200)
    return failed(
      name,
      `${config.openaiBaseUrl} answers HTTP ${response.status}`,
      'Correct OPENAI_BASE_URL, or see the status page of the provider.',
    );
  const models = readModelIds(response.text);
  if (models === undefined)
    return failed(
      name,
      `${config.openaiBaseUrl}/models is no list of models`,
      'Set OPENAI_BASE_URL to an OpenAI-compatible address, up to and with its /v1.',
    );
  if (models.includes(config.modelMain)) return passed(name, `${config.modelMain} at ${config.openaiBaseUrl}`);
  return failed(
    name,
    `${config.openaiBaseUrl} has no model ${config.modelMain}`,
    `Set MODEL_MAIN to one that it lists${models.length === 0 ? '' : `, such as ${models.slice(0, 3).join(', ')}`}.`,
  );
}

function readModelIds(text: string): string[] | undefined {
  try {
    const { data } = JSON.parse(text) as { data?: unknown };
    return Array.isArray(data) ? data.map((model) => String((model as { id?: unknown } | null)?.id)) : undefined;
  } catch {
    return undefined;
  }
}

export async function checkPublicUrl({ publicUrl, host, port }: Pick<Config, 'publicUrl' | 'host' | 'port'>): Promise<Check> {
  const name = 'PUBLIC_URL';
  if (publicUrl === undefined) {
    return failed(
      name,
      'not set, so people with ordinary clients get no link to authorise the oracle with',
      'Set PUBLIC_URL to where people reach the sidecar, such as https://oracle.example.org.',
    );
  }
  const insecure = warned(
    name,
    `${publicUrl} is not https, so nobody can sign on the authorise page: browsers offer no keys there`,
    'Put a proxy with a certificate in front of the sidecar and set PUBLIC_URL to its https:// address.',
  );
  const secure = publicUrl.startsWith('https:') || isThisMachine(publicUrl);
  if (!(await isListening(host, port))) {
    return secure
      ? skipped(name, `not tried, because the oracle is not running at http://${host}:${port}; start it and run doctor again`)
      : insecure;
  }
  const response = await get(`${publicUrl}/health`);
  const remedy = `Have the proxy at ${publicUrl} pass everything to http://${host}:${port}.`;
  if (response === undefined) return failed(name, `${publicUrl} does not answer`, remedy);
  if (!response.text.includes('"live"')) return failed(name, `${publicUrl}/health is not the oracle's (HTTP ${response.status})`, remedy);
  return secure ? passed(name, `${publicUrl} leads to the sidecar`) : insecure;
}

/** Where browsers treat http as secure. */
function isThisMachine(url: string): boolean {
  const { hostname = '' } = URL.parse(url) ?? {};
  return hostname === 'localhost' || hostname.endsWith('.localhost') || hostname === '[::1]' || /^127(?:\.\d{1,3}){3}$/u.test(hostname);
}

/** What the running oracle says of a part of itself; null when it does not answer. */
export async function readHealthPart({ host, port }: Pick<Config, 'host' | 'port'>, name: string): Promise<HealthPart | null> {
  const address = reachable(host);
  const response = await get(`http://${address.includes(':') ? `[${address}]` : address}:${port}/health`);
  const parsed = response === undefined ? null : Health.safeParse(readJson(response.text));
  return parsed?.data?.parts.find((part) => part.name === name) ?? null;
}
export type HealthPart = z.infer<typeof Part>;
const Part = z.object({ name: z.string(), ok: z.boolean(), detail: z.string().max(2_000).transform(printable).optional() });
const Health = z.object({ parts: z.array(Part) });

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function get(url: string, headers: Record<string, string> = {}): Promise<{ status: number; text: string } | undefined> {
  try {
    const response = await fetch(url, { headers, redirect: 'manual', signal: AbortSignal.timeout(TIMEOUT_MS) });
    return { status: response.status, text: await readBounded(response) };
  } catch {
    return undefined;
  }
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > MAX_BODY_BYTES) throw new Error('the answer is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** An address that means "every one" is tried on loopback. */
const reachable = (host: string): string => (host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host);

/** Whether something takes connections there. */
export function isListening(host: string, port: number): Promise<boolean> {
  const target = reachable(host);
  return new Promise((resolve) => {
    const socket = connect({ host: target, port, timeout: 2_000 });
    const done = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
    socket.once('timeout', () => done(false));
  });
}
