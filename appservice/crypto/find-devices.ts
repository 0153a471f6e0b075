/**
 * Makes the engine know the devices of these people as they are now: of whom it never asked for, or who changed them since. Costs no request when it
 * knows, and then waits for nobody: questions about other people may hang on their servers.
 */
import type { UserId } from '../../src/ids.ts';
import { isJsonObject } from '../../src/json.ts';
import type { Engine } from './engine.ts';
import type { OutgoingRequest } from './engine-request.ts';
import type { Outgoing } from './outgoing.ts';

export interface FindDevicesOptions {
  readonly engine: Pick<Engine, 'trackUsers' | 'outgoing'>;
  readonly outgoing: Pick<Outgoing, 'askForDevices'>;
}

/** @throws MatrixError */
export async function findDevices(users: readonly UserId[], { engine, outgoing }: FindDevicesOptions): Promise<void> {
  await engine.trackUsers(users);
  const waiting = await engine.outgoing();
  if (waiting.some((request) => asksForAny(request, users))) await outgoing.askForDevices();
}

function asksForAny(request: OutgoingRequest, users: readonly UserId[]): boolean {
  if (request.kind !== 'keys_query') return false;
  const body: unknown = JSON.parse(request.body);
  const asked = isJsonObject(body) && isJsonObject(body['device_keys']) ? body['device_keys'] : {};
  return users.some((user) => Object.hasOwn(asked, user));
}
