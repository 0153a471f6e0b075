/**
 * The part of a homeserver that encryption uses, in memory, never kinder than Synapse 1.163.2 as research measured it: a one-time key that exists with
 * another value is a 400, each is given out once and then the fallback, signatures that do not verify are failures in a 200, a device that does not exist
 * may not act, a message to a device stays until a `/sync` with a later position, at most a hundred come at once, and a transaction id counts once.
 * Everybody shares a room with everybody.
 */
import { createPublicKey, verify } from 'node:crypto';
import {
  type MatrixApi,
  type MatrixConnection,
  MatrixError,
  type MatrixIdentity,
  type MatrixMethod,
  type MatrixRequest,
} from '../../appservice/matrix-api.ts';
import { canonicalJson, isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Clock } from '../../src/time.ts';

interface Device {
  readonly name: string;
  keys: JsonObject | null;
  /** In the order of upload. */
  readonly oneTime: Map<string, JsonObject>;
  readonly fallback: Map<string, { readonly id: string; readonly key: JsonObject; used: boolean }>;
  inbox: { readonly at: number; readonly event: JsonObject }[];
}
interface User {
  readonly devices: Map<string, Device>;
  readonly crossSigning: { master: JsonObject | null; self: JsonObject | null; user: JsonObject | null };
}
export interface KeyServerCall {
  readonly method: MatrixMethod;
  readonly path: string;
  readonly user: string;
  readonly device: string | null;
  readonly body: JsonObject;
}

export interface FakeKeyServer {
  /** Every request it saw, in order. */
  readonly calls: KeyServerCall[];
  connection(): MatrixConnection;
  api(identity: MatrixIdentity): MatrixApi;
  addDevice(user: string, device: string): void;
  deleteDevice(user: string, device: string): void;
  devicesOf(user: string): string[];
  /** One-time keys left, and whether the fallback was used. */
  oneTimeKeys(user: string, device: string): { readonly left: number; readonly fallbackUsed: boolean };
  /** Public cross-signing keys as they stand; null: none. */
  masterKey(user: string): string | null;
  /** Signed by the owner's self-signing key, verified. */
  isSigned(user: string, device: string): boolean;
  /** As if another device of the account had done it. */
  forgetIdentity(user: string): void;
  /** Waiting for the device. */
  inbox(user: string, device: string): JsonObject[];
  /** Without a sending device. */
  sendToDevice(sender: string, type: string, to: { readonly user: string; readonly device: string }, content: JsonObject): void;
  /** Before a call is handled: throw, wait, or let it pass. `lose` handles it and then loses the answer. */
  trouble: (call: KeyServerCall) => Promise<'lose' | undefined> | 'lose' | undefined;
}

const MAX_TO_DEVICE = 100;

export function fakeKeyServer({ clock }: { clock: Clock }): FakeKeyServer {
  const users = new Map<string, User>();
  const calls: KeyServerCall[] = [];
  const sent = new Map<string, JsonObject>();
  /** Whose devices changed when. */
  const changes: { readonly at: number; readonly user: string }[] = [];
  let position = 1;
  let waiting: (() => void)[] = [];

  function move(): number {
    position += 1;
    const woken = waiting;
    waiting = [];
    for (const wake of woken) wake();
    return position;
  }
  const changed = (user: string): void => void changes.push({ at: move(), user });
  function userOf(id: string): User {
    const user = users.get(id) ?? { devices: new Map(), crossSigning: { master: null, self: null, user: null } };
    users.set(id, user);
    return user;
  }
  function addDevice(user: string, device: string, name = device): void {
    if (userOf(user).devices.has(device)) return;
    userOf(user).devices.set(device, { name, keys: null, oneTime: new Map(), fallback: new Map(), inbox: [] });
  }
  function put(sender: string, type: string, content: JsonObject, target: Device): void {
    target.inbox.push({ at: move(), event: { type, sender, content } });
  }

  function upload(device: Device, user: string, body: JsonObject): JsonObject {
    const oneTime = Object.entries(object(body['one_time_keys']));
    for (const [id, key] of oneTime) {
      const known = device.oneTime.get(id);
      if (known !== undefined && text(known) !== text(key)) refuse(400, 'M_UNKNOWN');
    }
    for (const [id, key] of oneTime) device.oneTime.set(id, object(key));
    for (const [id, key] of Object.entries(object(body['fallback_keys']))) {
      const algorithm = id.split(':', 1)[0] ?? '';
      device.fallback.set(algorithm, { id, key: object(key), used: false });
    }
    if (isJsonObject(body['device_keys'])) {
      device.keys = body['device_keys'];
      changed(user);
    }
    return { one_time_key_counts: countsOf(device) };
  }

  function query(asker: string, body: JsonObject): JsonObject {
    const answer = { device_keys: {}, master_keys: {}, self_signing_keys: {}, user_signing_keys: {}, failures: {} } as Record<
      string,
      JsonObject
    >;
    for (const id of Object.keys(object(body['device_keys']))) {
      const user = userOf(id);
      const keys = [...user.devices].flatMap(([device, { keys: deviceKeys, name }]) =>
        deviceKeys === null ? [] : [[device, { ...deviceKeys, unsigned: { device_display_name: name } }]],
      );
      answer['device_keys']![id] = Object.fromEntries(keys);
      if (user.crossSigning.master !== null) answer['master_keys']![id] = user.crossSigning.master;
      if (user.crossSigning.self !== null) answer['self_signing_keys']![id] = user.crossSigning.self;
      if (user.crossSigning.user !== null && asker === id) answer['user_signing_keys']![id] = user.crossSigning.user;
    }
    return answer;
  }

  function claim(body: JsonObject): JsonObject {
    const given: Record<string, JsonObject> = {};
    for (const [id, devices] of Object.entries(object(body['one_time_keys'])))
      for (const [deviceId, algorithm] of Object.entries(object(devices))) {
        const device = users.get(id)?.devices.get(deviceId);
        const key = device === undefined ? null : takeKey(device, String(algorithm));
        if (key !== null) given[id] = { ...given[id], [deviceId]: key };
      }
    return { one_time_keys: given, failures: {} };
  }

  function takeKey(device: Device, algorithm: string): JsonObject | null {
    for (const [id, key] of device.oneTime)
      if (id.startsWith(`${algorithm}:`)) {
        device.oneTime.delete(id);
        move();
        return { [id]: key };
      }
    const fallback = device.fallback.get(algorithm);
    if (fallback === undefined) return null;
    fallback.used = true;
    move();
    return { [fallback.id]: fallback.key };
  }

  function uploadIdentity(id: string, body: JsonObject): JsonObject {
    const { crossSigning } = userOf(id);
    const master = isJsonObject(body['master_key']) ? body['master_key'] : crossSigning.master;
    if (master === null) refuse(400, 'M_MISSING_PARAM');
    for (const part of ['self_signing_key', 'user_signing_key'])
      if (isJsonObject(body[part]) && !isSignedBy(body[part], id, keyOf(master))) refuse(400, 'M_INVALID_SIGNATURE');
    crossSigning.master = master;
    if (isJsonObject(body['self_signing_key'])) crossSigning.self = body['self_signing_key'];
    if (isJsonObject(body['user_signing_key'])) crossSigning.user = body['user_signing_key'];
    changed(id);
    return {};
  }

  function uploadSignatures(signer: string, body: JsonObject): JsonObject {
    const failures: Record<string, JsonObject> = {};
    for (const [id, objects] of Object.entries(body))
      for (const [name, signed] of Object.entries(object(objects)))
        if (!addSignature(signer, id, name, object(signed)))
          failures[id] = { ...failures[id], [name]: { errcode: 'M_INVALID_SIGNATURE', error: 'no' } };
    return { failures };
  }

  function addSignature(signer: string, id: string, name: string, signed: JsonObject): boolean {
    const { devices, crossSigning } = userOf(id);
    const device = devices.get(name);
    const target = device?.keys ?? (crossSigning.master !== null && keyOf(crossSigning.master) === name ? crossSigning.master : null);
    if (target === null || target === undefined) return false;
    const added = object(object(signed['signatures'])[signer]);
    const { self, user } = userOf(signer).crossSigning;
    const allowed = [self, user]
      .flatMap((key) => (key === null ? [] : [keyOf(key)]))
      .concat([...userOf(signer).devices].flatMap(([, own]) => deviceKeyOf(own)));
    for (const keyId of Object.keys(added)) {
      const known = allowed.find((key) => isSignedBy({ ...target, signatures: { [signer]: added } }, signer, key, keyId));
      if (known === undefined) return false;
    }
    const signatures = object(target['signatures']);
    target['signatures'] = { ...signatures, [signer]: { ...object(signatures[signer]), ...added } };
    changed(id);
    return true;
  }

  function sendMessages(caller: { user: string; device: string }, [type = '', txn = '']: string[], body: JsonObject): JsonObject {
    const key = `${caller.user}|${caller.device}|${txn}`;
    if (sent.has(key)) return {};
    sent.set(key, body);
    for (const [id, devices] of Object.entries(object(body['messages'])))
      for (const [device, content] of Object.entries(object(devices))) {
        const targets = device === '*' ? [...userOf(id).devices.values()] : [userOf(id).devices.get(device)];
        for (const target of targets) if (target !== undefined) put(caller.user, type, object(content), target);
      }
    return {};
  }

  async function sync(device: Device, query: MatrixRequest['query'], signal?: AbortSignal): Promise<JsonObject> {
    const since = query?.['since'] === undefined ? 0 : Number(query['since']);
    if (!Number.isSafeInteger(since)) refuse(400, 'M_UNKNOWN');
    device.inbox = device.inbox.filter(({ at }) => at > since);
    const timeoutMs = Number(query?.['timeout'] ?? 0);
    // The first answer comes at once, as Synapse does it.
    if (since > 0 && timeoutMs > 0 && position <= since) await wait(timeoutMs, signal);
    const now = position;
    const due = device.inbox.slice(0, MAX_TO_DEVICE);
    const end = due.length < device.inbox.length ? (due.at(-1)?.at ?? now) : now;
    const lists = since === 0 ? [] : changes.filter(({ at }) => at > since && at <= end).map(({ user }) => user);
    return {
      next_batch: String(end),
      to_device: { events: due.map(({ event }) => event) },
      device_lists: { changed: [...new Set(lists)], left: [] },
      device_one_time_keys_count: countsOf(device),
      device_unused_fallback_key_types: [...device.fallback].flatMap(([algorithm, { used }]) => (used ? [] : [algorithm])),
    };
  }

  function wait(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = clock.after(timeoutMs, resolve);
      const wake = () => {
        timer.cancel();
        resolve();
      };
      waiting.push(wake);
      signal?.addEventListener('abort', () => {
        timer.cancel();
        waiting = waiting.filter((other) => other !== wake);
        reject(new MatrixError({ errcode: 'ABORTED', status: 0, retryAfterMs: null, certain: false, cause: signal.reason }));
      });
    });
  }

  function manageDevices(user: string, id: string | undefined, { method, body }: KeyServerCall): JsonObject {
    const { devices } = userOf(user);
    const list = [...devices].map(([device_id, { name }]) => ({ device_id, display_name: name, user_id: user }));
    if (id === undefined) return { devices: list };
    if (method === 'PUT') addDevice(user, id, String(body['display_name'] ?? id));
    const found = list.find(({ device_id }) => device_id === id);
    if (method === 'GET') return found ?? refuse(404, 'M_NOT_FOUND');
    if (method === 'DELETE' && devices.delete(id)) changed(user);
    return {};
  }

  async function handle(call: KeyServerCall, request: MatrixRequest): Promise<JsonObject> {
    const { user, device: deviceId, path, body } = call;
    const [area = '', ...rest] = path
      .replace(/^\/_matrix\/client\/v3\//u, '')
      .split('/')
      .map(decodeURIComponent);
    const device = deviceId === null ? undefined : userOf(user).devices.get(deviceId);
    if (deviceId !== null && device === undefined) refuse(400, 'M_UNKNOWN_DEVICE');
    if (area === 'devices') return manageDevices(user, rest[0], call);
    if (area === 'account') return { user_id: user, ...(deviceId === null ? {} : { device_id: deviceId }) };
    if (device === undefined || deviceId === null) return refuse(400, 'M_MISSING_PARAM');
    if (area === 'sync') return sync(device, request.query, request.signal);
    if (area === 'sendToDevice') return sendMessages({ user, device: deviceId }, rest, body);
    switch (`${area}/${rest.join('/')}`) {
      case 'keys/upload':
        return upload(device, user, body);
      case 'keys/query':
        return query(user, body);
      case 'keys/claim':
        return claim(body);
      case 'keys/device_signing/upload':
        return uploadIdentity(user, body);
      case 'keys/signatures/upload':
        return uploadSignatures(user, body);
      default:
        return refuse(404, 'M_UNRECOGNIZED');
    }
  }

  const server: FakeKeyServer = {
    calls,
    trouble: () => undefined,
    connection: () => ({
      as: (identity) => server.api(identity),
      bare: { request: () => Promise.reject(new Error('nobody asserted: not of this fake')) },
      close: async () => undefined,
    }),
    api: ({ userId, deviceId }) => ({
      async request<T extends object>(method: MatrixMethod, path: string, request: MatrixRequest = {}) {
        request.signal?.throwIfAborted();
        // A copy, as over the wire.
        const body =
          request.body === undefined
            ? {}
            : JSON.parse(Buffer.isBuffer(request.body) ? request.body.toString() : JSON.stringify(request.body));
        const call: KeyServerCall = { method, path, user: userId, device: deviceId ?? null, body };
        calls.push(call);
        const outcome = await server.trouble(call);
        const answer = structuredClone(await handle(call, request));
        if (outcome === 'lose') throw new MatrixError({ errcode: 'CONNECTION_LOST', status: 0, retryAfterMs: null, certain: false });
        return answer as T;
      },
    }),
    addDevice: (user, device) => addDevice(user, device),
    deleteDevice(user, device) {
      if (userOf(user).devices.delete(device)) changed(user);
    },
    devicesOf: (user) => [...userOf(user).devices.keys()],
    oneTimeKeys(user, device) {
      const { oneTime, fallback } = userOf(user).devices.get(device)!;
      return { left: oneTime.size, fallbackUsed: [...fallback.values()].some(({ used }) => used) };
    },
    masterKey(user) {
      const { master } = userOf(user).crossSigning;
      return master === null ? null : keyOf(master);
    },
    isSigned(user, device) {
      const { devices, crossSigning } = userOf(user);
      const keys = devices.get(device)?.keys ?? null;
      return keys !== null && crossSigning.self !== null && isSignedBy(keys, user, keyOf(crossSigning.self));
    },
    forgetIdentity(user) {
      Object.assign(userOf(user).crossSigning, { master: null, self: null, user: null });
      changed(user);
    },
    inbox: (user, device) =>
      userOf(user)
        .devices.get(device)!
        .inbox.map(({ event }) => event),
    sendToDevice(sender, type, { user, device }, content) {
      const target = userOf(user).devices.get(device);
      if (target === undefined) throw new Error(`no device ${device}`);
      put(sender, type, content, target);
    },
  };
  return server;
}

function refuse(status: number, errcode: string): never {
  throw new MatrixError({ errcode, status, retryAfterMs: null, certain: status < 500 });
}

const object = (value: unknown): JsonObject => (isJsonObject(value) ? value : {});
const text = (value: unknown): string => {
  const canonical = canonicalJson(value);
  if (!canonical.ok) throw new Error('no JSON');
  return canonical.value;
};
const keyOf = (crossSigning: JsonObject): string => String(Object.values(object(crossSigning['keys']))[0]);
const deviceKeyOf = ({ keys }: Device): string[] =>
  Object.entries(object(keys?.['keys'])).flatMap(([id, key]) => (id.startsWith('ed25519:') ? [String(key)] : []));

function countsOf({ oneTime }: Device): Record<string, number> {
  const counts: Record<string, number> = { signed_curve25519: 0 };
  for (const id of oneTime.keys()) {
    const algorithm = id.split(':', 1)[0] ?? '';
    counts[algorithm] = (counts[algorithm] ?? 0) + 1;
  }
  return counts;
}

/** Whether one of the user's signatures over the object verifies with this public key; `only` names the signature. */
function isSignedBy(signed: JsonObject, user: string, publicKey: string, only?: string): boolean {
  const { signatures, unsigned: _unsigned, ...rest } = signed;
  const x = Buffer.from(publicKey, 'base64').toString('base64url');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  return Object.entries(object(object(signatures)[user])).some(
    ([id, signature]) =>
      (only === undefined || id === only) && verify(null, Buffer.from(text(rest)), key, Buffer.from(String(signature), 'base64')),
  );
}
