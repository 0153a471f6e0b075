import { afterEach, beforeEach, expect, test } from 'vitest';
import { queryPublishedKeys, readPublishedKeys } from '../../../../appservice/crypto/published-keys.ts';
import type { DeviceId, UserId } from '../../../../src/ids.ts';
import type { JsonObject } from '../../../../src/json.ts';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { giveIdentity } from '../../../fakes/key-identity.ts';
import { type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const USER = '@oracle:oracle.local' as UserId;
const WHOSE = { user: USER, sendingDevice: 'ORACLE' as DeviceId };
let server: FakeKeyServer;
let machine: KeyMachine;
beforeEach(async () => {
  server = fakeKeyServer({ clock: systemClock });
  machine = await openKeyMachine({ server, user: USER, device: 'ORACLE_AAAAAA' as DeviceId });
});
afterEach(() => machine.close());
const answer = (): Promise<JsonObject> =>
  machine.api.request('POST', '/_matrix/client/v3/keys/query', { body: { device_keys: { [USER]: [] } } });

test('the identity and whether it signed the device are read as they are published', async () => {
  const before = await queryPublishedKeys(machine.api, WHOSE);
  await giveIdentity(machine);
  const after = await queryPublishedKeys(machine.api, WHOSE);

  const device = { deviceId: 'ORACLE_AAAAAA', fingerprint: machine.engine.identityKeys.ed25519 };
  expect(before).toMatchObject({ masterKey: null, devices: [{ ...device, isSigned: false }] });
  expect(after).toMatchObject({ masterKey: server.masterKey(USER), devices: [{ ...device, isSigned: true }] });
  expect(server.isSigned(USER, 'ORACLE_AAAAAA')).toBe(true);
});

test('a device counts as signed only when every signature up to the master key is true', async () => {
  await giveIdentity(machine);
  const whole = await answer();
  const signedWith = (change: (answer: Record<string, any>) => void): boolean | undefined => {
    const copy = structuredClone(whole) as Record<string, any>;
    change(copy);
    return readPublishedKeys(copy, WHOSE).devices[0]?.isSigned;
  };

  expect(signedWith(() => undefined)).toBe(true);
  expect(signedWith(({ device_keys: keys }) => (keys[USER].ORACLE_AAAAAA.keys['curve25519:ORACLE_AAAAAA'] = 'A'.repeat(43)))).toBe(false);
  expect(signedWith(({ self_signing_keys: keys }) => (keys[USER].signatures = {}))).toBe(false);
  expect(signedWith(({ master_keys: keys }) => delete keys[USER])).toBe(false);
});

test('devices of other names, and what is malformed, are not there', () => {
  const device = { keys: { 'ed25519:ORACLE': 'A'.repeat(43), 'ed25519:ORACLE_BBBBBB': 'short' } };
  const devices = { ORACLE: device, ORACLE_BBBBBB: device, ORACLE_CCCCCC: 7, OTHER: device };

  expect(readPublishedKeys({ device_keys: { [USER]: devices }, master_keys: [], self_signing_keys: 'x' }, WHOSE)).toEqual({
    masterKey: null,
    selfSigningKey: null,
    userSigningKey: null,
    devices: [],
  });
});
