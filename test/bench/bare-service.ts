/**
 * The baseline: the least that can answer, with nothing written down and nobody checked. `reply` asks the model without streaming and sends
 * one message; `stream` sends the first text at once and edits it every 1.5 s. What an oracle takes beyond it is the price of our guarantees.
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';

export interface BareServiceOptions {
  readonly kind: 'reply' | 'stream';
  readonly port: number;
  readonly homeserver: string;
  readonly asToken: string;
  readonly userId: string;
  /** With `/v1`. */
  readonly modelUrl: string;
}
const EDIT_EVERY_MS = 1_500;

export async function startBareService({
  kind,
  port,
  homeserver,
  asToken,
  userId,
  modelUrl,
}: BareServiceOptions): Promise<{ stop(): Promise<void> }> {
  const matrix = new Pool(homeserver, { connections: 32 });
  const model = new Pool(new URL(modelUrl).origin, { connections: 32 });
  const seen = new Set<string>();
  let txn = 0;

  async function matrixJson(method: 'PUT' | 'POST', path: string, body: object): Promise<Record<string, unknown>> {
    const answer = await matrix.request({
      method,
      path: `${path}${path.includes('?') ? '&' : '?'}user_id=${encodeURIComponent(userId)}`,
      headers: { authorization: `Bearer ${asToken}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return (await answer.body.json()) as Record<string, unknown>;
  }
  async function send(room: string, content: object): Promise<string> {
    txn += 1;
    const answer = await matrixJson('PUT', `/_matrix/client/v3/rooms/${encodeURIComponent(room)}/send/m.room.message/bare${txn}`, content);
    return String(answer['event_id']);
  }
  const ask = (text: string, stream: boolean) =>
    model.request({
      method: 'POST',
      path: '/v1/chat/completions',
      headers: { authorization: 'Bearer none', 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'bench', stream, messages: [{ role: 'user', content: text }] }),
    });

  async function reply(room: string, text: string, prompt: string): Promise<void> {
    const answer = (await (await ask(text, false)).body.json()) as { choices: { message: { content: string } }[] };
    await send(room, buildText(answer.choices[0]?.message.content ?? '', prompt));
  }
  async function stream(room: string, text: string, prompt: string): Promise<void> {
    let shown = '';
    let total = '';
    let original: Promise<string> | null = null;
    let lastAt = 0;
    const edit = async (target: string, body: string) =>
      send(room, {
        ...buildText(`* ${body}`, prompt),
        'm.new_content': buildText(body, prompt),
        'm.relates_to': { rel_type: 'm.replace', event_id: target },
      });
    let pending = '';
    for await (const chunk of (await ask(text, true)).body) {
      pending += String(chunk);
      const lines = pending.split('\n');
      pending = lines.pop() ?? '';
      for (const line of lines) {
        if (!line.startsWith('data: {')) continue;
        total += (JSON.parse(line.slice(6)) as { choices?: { delta?: { content?: string } }[] }).choices?.[0]?.delta?.content ?? '';
      }
      const now = performance.now();
      if (total !== '' && original === null) {
        shown = total;
        lastAt = now;
        original = send(room, buildText(total, prompt));
      } else if (original !== null && now - lastAt >= EDIT_EVERY_MS) {
        shown = total;
        lastAt = now;
        await edit(await original, total);
      }
    }
    if (original === null) await send(room, buildText(total, prompt));
    else if (shown !== total) await edit(await original, total);
  }

  async function take(event: Record<string, unknown>): Promise<void> {
    if (event['sender'] === userId || seen.has(String(event['event_id']))) return;
    seen.add(String(event['event_id']));
    const content = event['content'] as Record<string, unknown>;
    const room = String(event['room_id']);
    if (event['type'] === 'm.room.member' && content['membership'] === 'invite' && event['state_key'] === userId) {
      await matrixJson('POST', `/_matrix/client/v3/rooms/${encodeURIComponent(room)}/join`, {});
    }
    if (event['type'] !== 'm.room.message') return;
    await (kind === 'reply' ? reply : stream)(room, String(content['body']), String(event['event_id']));
  }

  const server = createServer((request, response) => {
    readBody(request).then((body) => {
      response.setHeader('content-type', 'application/json').end('{}');
      for (const event of (JSON.parse(body || '{}') as { events?: Record<string, unknown>[] }).events ?? []) {
        take(event).catch((error: unknown) => console.error('bare service:', error));
      }
    }, console.error);
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await matrixJson('POST', '/_matrix/client/v3/register', {
    type: 'm.login.application_service',
    username: userId.slice(1).split(':')[0],
    inhibit_login: true,
  });
  if ((server.address() as AddressInfo).port !== port) throw new Error('the bare service listens elsewhere');
  return {
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await Promise.all([matrix.close(), model.close()]);
    },
  };
}

/** Names the prompt as the oracle does, so that the bench finds both answers the same way. */
const buildText = (body: string, prompt: string) => ({
  msgtype: 'm.text',
  body,
  'ixo.oracle.run': { run_id: 'bare', session_id: prompt, prompts: [prompt], part: 1, seq: 1, status: 'completed' },
});

async function readBody(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return text;
}
