/** A world whose people encrypt: the same persons, rooms and talks as in harness.ts, their clients being real ones. */
import { afterAll, afterEach, beforeAll } from 'vitest';
import { generateKey } from '../../src/ucan/signing-key.ts';
import type { MatrixEvent } from '../../synapse-dev/homeserver/user-client.ts';
import { type ClientProcess, type CryptoClient, ENCRYPTION, startClientProcess } from './crypto-client.ts';
import { createPerson, eventually, LISTED, type Person, useWorld, type World, type WorldOptions } from './harness.ts';

export interface CryptoPerson extends Person {
  readonly client: CryptoClient;
}
export interface CryptoPersonOptions {
  /** False: nobody signed this person's device, as before anybody has set up an identity. */
  readonly crossSigning?: boolean;
  /** The name is on every oracle's UNSIGNED_USERS, and the person does not sign messages. */
  readonly listed?: boolean;
  /** Base address for the client, in place of the homeserver's: a proxy that looks on or interferes. */
  readonly through?: string;
}
export interface CryptoWorld extends Omit<World, 'person'> {
  person(options?: CryptoPersonOptions): Promise<CryptoPerson>;
  /** A new device of somebody: a login that nobody has signed. */
  device(person: CryptoPerson): Promise<CryptoClient>;
}

export const isSealed = ({ type, content }: MatrixEvent): boolean =>
  type === 'm.room.encrypted' && content['algorithm'] === ENCRYPTION.content.algorithm && typeof content['ciphertext'] === 'string';

export function useCryptoWorld(options: WorldOptions): CryptoWorld {
  const world = useWorld(options);
  const clients: CryptoClient[] = [];
  let running: ClientProcess | undefined;
  const process = (): ClientProcess => {
    if (running === undefined) throw new Error('clients are there inside tests only');
    return running;
  };
  let people = 0;
  const keep = (client: CryptoClient): CryptoClient => {
    clients.push(client);
    return client;
  };
  const passwordOf = (username: string) => `${username}-password`;
  beforeAll(() => {
    running = startClientProcess();
  });
  afterEach(() => {
    for (const client of clients.splice(0)) client.close();
  });
  afterAll(() => running?.end());
  return {
    get homeserver() {
      return world.homeserver;
    },
    oracle: world.oracle,
    async person({ crossSigning = true, listed = false, through } = {}) {
      people += 1;
      const username = `${listed ? LISTED : ''}e2ee${people}`;
      const session = await world.homeserver.registerUser({ username, password: passwordOf(username) });
      const client = keep(await process().open({ baseUrl: through ?? world.homeserver.baseUrl }, session, { crossSigning }));
      return { ...createPerson(client, listed ? null : generateKey()), client };
    },
    async device({ userId, client }) {
      const username = userId.slice(1, userId.indexOf(':'));
      const session = await world.homeserver.login({ username, password: passwordOf(username) });
      const further = keep(await process().open(world.homeserver, session, { crossSigning: false }));
      // Until the first device has heard of it, it shares no key with it.
      await eventually(async () => (await client.devices(userId)).some(({ deviceId }) => deviceId === session.deviceId));
      return further;
    },
  };
}
