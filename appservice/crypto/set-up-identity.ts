/**
 * Carries out what identity.ts decides, one step at a time, and looks again after each: a crash between two steps is then only another start. Private keys
 * are in the file before their public halves are on the homeserver, so no identity that people can see is ever without its keys.
 * Costs two requests when all is well.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import { isJsonObject, type JsonObject } from '../../src/json.ts';
import type { Logger } from '../../src/observe/logger.ts';
import { assertNever, err, ok, type Result } from '../../src/result.ts';
import { isMatrixError, type MatrixApi, type MatrixError } from '../matrix-api.ts';
import type { Engine } from './engine.ts';
import { readRequest } from './engine-request.ts';
import { decideIdentity, type IdentityFacts, type IdentityStep, type IdentityStop } from './identity.ts';
import { buildIdentityFile, buildPublicKeys, type Identity, publicKeyOf, readIdentity } from './identity-file.ts';
import type { Outgoing } from './outgoing.ts';
import { readPrivateFile, writePrivateFile } from './private-file.ts';

export interface SetUpIdentityOptions {
  readonly engine: Pick<Engine, 'userId' | 'deviceId' | 'call'>;
  readonly outgoing: Pick<Outgoing, 'flush' | 'send'>;
  /** As the key-holding device. */
  readonly api: MatrixApi;
  /** CRYPTO_IDENTITY_FILE. */
  readonly file: string;
  readonly logger: Logger;
  /** Replace what is there, on the homeserver too: everybody who verified the oracle is warned. */
  readonly wantsNew?: boolean;
  readonly signal?: AbortSignal;
}
export interface IdentityProblem {
  readonly code:
    | 'DEVICE_KEYS_REFUSED'
    | 'IDENTITY_UNKNOWN'
    | 'IDENTITY_CHANGED'
    | 'IDENTITY_FILE_DIFFERS'
    | 'IDENTITY_FILE_BROKEN'
    | 'IDENTITY_REFUSED';
  /** One sentence for the operator. */
  readonly remedy: string;
  readonly cause?: unknown;
}

/** create, write, publish, sign and done are five; anything more goes in circles. */
const MAX_STEPS = 8;

/** @returns the public master key. @throws MatrixError when the homeserver is away: trying again is safe. */
export async function setUpIdentity(options: SetUpIdentityOptions): Promise<Result<{ readonly masterKey: string }, IdentityProblem>> {
  const refusedKeys = await uploadKeys(options);
  if (refusedKeys !== null) return err(refusedKeys);
  let wantsNew = options.wantsNew ?? false;
  for (let step = 0; step < MAX_STEPS; step += 1) {
    options.signal?.throwIfAborted();
    const facts = await gather(options, wantsNew);
    if (!facts.ok) return facts;
    const next = decideIdentity(facts.value.facts);
    if (next.kind === 'stop') return err(explain(next.because, options.file));
    if (next.kind === 'done') return ok({ masterKey: facts.value.facts.onServer ?? '' });
    options.logger.info({ reason: next.kind }, 'setting up the identity for encryption');
    const problem = await take(next, options, facts.value.identity);
    if (problem !== null) return err(problem);
    wantsNew = false;
  }
  return err(refused('it accepts the keys but does not show them'));
}

/** The device's own keys first: nothing can be signed that the homeserver does not know. */
async function uploadKeys({ outgoing, signal }: SetUpIdentityOptions): Promise<IdentityProblem | null> {
  try {
    await outgoing.flush(signal);
    return null;
  } catch (error) {
    if (!isMatrixError(error) || error.status !== 400) throw error;
    const remedy = `The homeserver does not take the keys of this store (${error.errcode}): most likely it was put back from an older copy, which must never be done, because its keys were used since. \`matrix-oracle crypto new-device\` makes another device with the same identity.`;
    return { code: 'DEVICE_KEYS_REFUSED', remedy, cause: error };
  }
}

interface Gathered {
  readonly facts: IdentityFacts;
  /** Of the file. */
  readonly identity: Identity | null;
}
async function gather(options: SetUpIdentityOptions, wantsNew: boolean): Promise<Result<Gathered, IdentityProblem>> {
  const { engine, outgoing, file, signal } = options;
  const text = readPrivateFile(file);
  const identity = text === null ? null : readIdentity(text, engine.userId);
  if (identity !== null && !identity.ok && !wantsNew) return err(brokenFile(file, identity.error));
  const query = await engine.call('query_self', (machine) => readRequest(machine.queryKeysForUsers([new wasm.UserId(engine.userId)])));
  const answer = await outgoing.send(query, signal);
  const kept = identity?.ok === true ? identity.value : null;
  const inStore = await exportIdentity(engine);
  const deviceIsSigned = await isDeviceSigned(engine);
  return ok({
    facts: {
      onServer: readMasterKey(answer, engine.userId),
      inStore: inStore === null ? null : publicKeyOf(inStore.masterKey),
      inFile: kept === null ? null : publicKeyOf(kept.masterKey),
      deviceIsSigned,
      wantsNew,
    },
    identity: kept,
  });
}

/** Private keys in the store; null unless all three are there. Secret. */
export async function exportIdentity(engine: Pick<Engine, 'call'>): Promise<Identity | null> {
  const exported = await engine.call('export_identity', (machine) => machine.exportCrossSigningKeys());
  const { masterKey, self_signing_key: selfSigningKey, userSigningKey } = exported ?? {};
  if (masterKey === undefined || selfSigningKey === undefined || userSigningKey === undefined) return null;
  return { masterKey, selfSigningKey, userSigningKey };
}

/** As the homeserver last told it. */
export const isDeviceSigned = ({ call, userId, deviceId }: SetUpIdentityOptions['engine']): Promise<boolean> =>
  call('own_device', async (machine) => {
    const device = await machine.getDevice(new wasm.UserId(userId), new wasm.DeviceId(deviceId));
    return device?.isCrossSignedByOwner() ?? false;
  });

function readMasterKey(answer: JsonObject, user: string): string | null {
  const all = answer['master_keys'];
  const own = isJsonObject(all) ? all[user] : undefined;
  const keys = isJsonObject(own) && isJsonObject(own['keys']) ? Object.values(own['keys']) : [];
  return typeof keys[0] === 'string' ? keys[0] : null;
}

type Work = Exclude<IdentityStep, { kind: 'done' | 'stop' }>;

/** @returns why it cannot go on, or null. */
async function take(step: Work, options: SetUpIdentityOptions, identity: Identity | null): Promise<IdentityProblem | null> {
  const { engine, file } = options;
  switch (step.kind) {
    case 'create':
      await engine.call('create_identity', (machine) => machine.bootstrapCrossSigning(true));
      // At once, because the homeserver may have another one, which this one is to replace.
      return publish(options, await writeIdentity(options));
    case 'write_file':
      await writeIdentity(options);
      return null;
    case 'publish':
      if (identity === null) throw new Error('there is no identity to publish');
      return publish(options, identity);
    case 'import': {
      if (identity === null) throw new Error('there is no identity to import');
      const { masterKey, selfSigningKey, userSigningKey } = identity;
      const status = await engine.call('import_identity', (machine) =>
        machine.importCrossSigningKeys(masterKey, selfSigningKey, userSigningKey),
      );
      return status.hasMaster && status.hasSelfSigning && status.hasUserSigning ? null : brokenFile(file, 'BAD_IDENTITY_FILE');
    }
    case 'sign_device':
      return signDevice(options);
    default:
      return assertNever(step);
  }
}

async function writeIdentity({ engine, file }: SetUpIdentityOptions): Promise<Identity> {
  const identity = await exportIdentity(engine);
  if (identity === null) throw new Error('the engine has no identity to write down');
  writePrivateFile(file, buildIdentityFile(identity, engine.userId));
  return identity;
}

/** The device is signed in a step of its own. */
async function publish({ engine, api, signal }: SetUpIdentityOptions, identity: Identity): Promise<IdentityProblem | null> {
  const body = buildPublicKeys(identity, engine.userId);
  try {
    await api.request('POST', '/_matrix/client/v3/keys/device_signing/upload', { body, ...(signal === undefined ? {} : { signal }) });
    return null;
  } catch (error) {
    if (isMatrixError(error) && error.status >= 400 && error.status < 500 && error.status !== 429) return refusedUpload(error);
    throw error;
  }
}

async function signDevice({ engine, outgoing, signal }: SetUpIdentityOptions): Promise<IdentityProblem | null> {
  const request = await engine.call('sign_device', async (machine) => {
    const device = await machine.getDevice(new wasm.UserId(engine.userId), new wasm.DeviceId(engine.deviceId));
    return device === undefined ? null : readRequest(await device.verify());
  });
  if (request === null) return refused('it does not show the oracle its own device');
  return readFailures(await outgoing.send(request, signal));
}

const readFailures = ({ failures }: JsonObject): IdentityProblem | null =>
  isJsonObject(failures) && Object.keys(failures).length > 0 ? refused('it did not accept the signature of the device') : null;

const REFUSED = 'The homeserver does not let the oracle set up its identity for encryption';
const refused = (why: string): IdentityProblem => ({
  code: 'IDENTITY_REFUSED',
  remedy: `${REFUSED}: ${why}. See its log.`,
});
const refusedUpload = (cause: MatrixError): IdentityProblem => ({
  code: 'IDENTITY_REFUSED',
  remedy: `${REFUSED} (${cause.errcode}, HTTP ${cause.status}): the registration needs \`io.element.msc4190: true\`, and the homeserver a version that knows it (Synapse 1.141 or newer).`,
  cause,
});

function brokenFile(file: string, why: 'BAD_IDENTITY_FILE' | 'OF_ANOTHER_ACCOUNT'): IdentityProblem {
  const fault = why === 'OF_ANOTHER_ACCOUNT' ? 'belongs to another account' : 'is not a file of the oracle’s identity, or not whole';
  return {
    code: 'IDENTITY_FILE_BROKEN',
    remedy: `${file} ${fault}: put the right one in its place with \`matrix-oracle crypto import\`, or move it away if the oracle has no other.`,
  };
}

function explain(because: IdentityStop, file: string): IdentityProblem {
  const ways = `\`matrix-oracle crypto import\` brings back a saved copy; \`matrix-oracle crypto new-identity\` makes a new one, and everybody who verified the oracle will be warned.`;
  switch (because) {
    case 'unknown':
      return {
        code: 'IDENTITY_UNKNOWN',
        remedy: `The account already has an identity for encryption, but its private keys are neither in the store nor in ${file}: ${ways}`,
      };
    case 'changed':
      return {
        code: 'IDENTITY_CHANGED',
        remedy: `The account has another identity for encryption on the homeserver than here; somebody replaced it. Find out who, then: ${ways}`,
      };
    case 'file_differs':
      return { code: 'IDENTITY_FILE_DIFFERS', remedy: `${file} holds another identity than the oracle's key store: ${ways}` };
    default:
      return assertNever(because);
  }
}
