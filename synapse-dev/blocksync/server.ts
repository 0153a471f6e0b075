/**
 * The Blocksync indexer for people and tests who have no chain: the one GraphQL query that did:ixo identities are looked up with, over documents
 * that the caller sets. As strict as the real one (an unknown field is an error, not a null) and as rude as any server can be.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { JsonValue } from '../../src/json.ts';

export interface IxoDocument {
  readonly verificationMethod: JsonValue;
  readonly service?: JsonValue;
}
/** What it does instead of answering; `silent` takes the request and says nothing. */
export type BlocksyncFault = 'silent' | 'cut' | { readonly status: number; readonly text: string };

export interface BlocksyncOptions {
  /** False: the indexer is of before it had the field. */
  readonly knowsService?: boolean;
  /** JSON columns as text, as PostGraphile without `dynamicJson` shows them. */
  readonly jsonAsText?: boolean;
}
export interface BlocksyncServer {
  readonly url: string;
  /** DIDs in the order they were asked for, one for each request. */
  readonly asked: readonly string[];
  /** Requests that wait for an answer. */
  readonly open: number;
  put(did: string, document: IxoDocument): void;
  remove(did: string): void;
  /** Until it is called again with undefined. */
  fail(fault: BlocksyncFault | undefined): void;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 64 * 1024;
const FIELDS = ['id', 'verificationMethod', 'service'] as const;

export async function startBlocksync({ knowsService = true, jsonAsText = false }: BlocksyncOptions = {}): Promise<BlocksyncServer> {
  const documents = new Map<string, IxoDocument>();
  const asked: string[] = [];
  let open = 0;
  let fault: BlocksyncFault | undefined;

  const show = (value: JsonValue): JsonValue => (jsonAsText ? JSON.stringify(value) : value);
  const refuse = (response: ServerResponse, message: string) => send(response, 400, { errors: [{ message }] });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { query, id } = await readQuery(request);
    if (request.method !== 'POST' || query === undefined) return refuse(response, 'Must provide a query string.');
    if (id === undefined) return refuse(response, 'Variable "$id" of required type "String!" was not provided.');
    asked.push(id);
    if (fault === 'silent') return;
    if (fault === 'cut') return void response.destroy();
    if (fault !== undefined) return void response.writeHead(fault.status, { 'content-type': 'application/json' }).end(fault.text);
    const fields = /\biids\s*\(\s*filter:\s*\{\s*id:\s*\{\s*equalTo:\s*\$id\s*\}\s*\}\s*\)\s*\{\s*nodes\s*\{(?<fields>[^}]*)\}/u
      .exec(query)
      ?.groups?.['fields']?.trim()
      .split(/\s+/u);
    if (fields === undefined) return refuse(response, 'Syntax Error: not the query that this server knows.');
    const unknown = fields.find((field) => !(FIELDS as readonly string[]).includes(field) || (field === 'service' && !knowsService));
    if (unknown !== undefined) return refuse(response, `Cannot query field "${unknown}" on type "Iid".`);
    const document = documents.get(id);
    const node = document && { id, verificationMethod: show(document.verificationMethod), service: show(document.service ?? []) };
    const shown = node && Object.fromEntries(Object.entries(node).filter(([name]) => fields.includes(name)));
    return send(response, 200, { data: { iids: { nodes: shown === undefined ? [] : [shown] } } });
  }

  const server = createServer((request, response) => {
    open += 1;
    response.once('close', () => {
      open -= 1;
    });
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/graphql`,
    asked,
    get open() {
      return open;
    },
    put: (did, document) => void documents.set(did, document),
    remove: (did) => void documents.delete(did),
    fail: (next) => {
      fault = next;
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The document of somebody who signs with these did:key keys, as IXO writes it. */
export function buildIxoDocument({ keys, homeserver }: { readonly keys: readonly string[]; readonly homeserver?: string }): IxoDocument {
  return {
    verificationMethod: keys.map((key, index) => ({
      id: `#signing-${index}`,
      type: 'Ed25519VerificationKey2020',
      controller: '',
      publicKeyMultibase: key.replace(/^did:key:/u, ''),
    })),
    service: homeserver === undefined ? [] : [{ id: '#matrix', type: 'MatrixHomeServer', serviceEndpoint: homeserver }],
  };
}

function send(response: ServerResponse, status: number, value: JsonValue): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

async function readQuery(request: IncomingMessage): Promise<{ query?: string; id?: string }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw new Error('the body is too large');
    chunks.push(chunk);
  }
  try {
    const { query, variables } = JSON.parse(Buffer.concat(chunks).toString('utf8')) as { query?: unknown; variables?: { id?: unknown } };
    return {
      ...(typeof query === 'string' ? { query } : {}),
      ...(typeof variables?.id === 'string' ? { id: variables.id } : {}),
    };
  } catch {
    return {};
  }
}
