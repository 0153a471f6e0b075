import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../../src/system-clock.ts';
import { type FakeKeyServer, fakeKeyServer } from '../../../fakes/fake-key-server.ts';
import { encryptedRoom, type KeyMachine, openKeyMachine } from '../../../fakes/key-machine.ts';

const ALICE = { user: '@alice:oracle.local', device: 'ALICE' };
const BOB = { user: '@bob:oracle.local', device: 'BOB' };

describe('several devices at one key server', () => {
  const open: KeyMachine[] = [];
  afterEach(async () => {
    for (const machine of open.splice(0)) await machine.close();
  });
  async function world(...people: { user: string; device: string }[]): Promise<{ server: FakeKeyServer; machines: KeyMachine[] }> {
    const server = fakeKeyServer({ clock: systemClock });
    const machines: KeyMachine[] = [];
    for (const person of people) machines.push(await openKeyMachine({ server, ...person }));
    open.push(...machines);
    for (const machine of machines) await machine.sync();
    return { server, machines };
  }

  test('a message is readable once its key has arrived, and its session is announced', async () => {
    const { machines } = await world(ALICE, BOB);
    const [alice, bob] = machines as [KeyMachine, KeyMachine];
    const room = encryptedRoom([alice.user, bob.user]);
    const heard: string[] = [];
    bob.engine.onKeys((sessions) => heard.push(...sessions));
    const event = await alice.say(room, { msgtype: 'm.text', body: 'hello' });
    const early = await bob.engine.decrypt(event, room.roomId);

    await bob.sync();
    const late = await bob.engine.decrypt(event, room.roomId);

    expect(early).toEqual({ ok: false, error: { code: 'missing_key', withheld: null } });
    expect(heard).toEqual([(event['content'] as { session_id: string }).session_id]);
    expect(late).toMatchObject({ ok: true, value: { event: { content: { body: 'hello' } }, sender: alice.user, senderDevice: 'ALICE' } });
  });

  test('a device that its owner did not sign is told apart from one that is', async () => {
    const { machines } = await world(ALICE, BOB);
    const [alice, bob] = machines as [KeyMachine, KeyMachine];
    const room = encryptedRoom([alice.user, bob.user]);
    const event = await alice.say(room, { msgtype: 'm.text', body: 'hello' });
    await bob.sync();

    const result = await bob.engine.decrypt(event, room.roomId);

    expect(result).toMatchObject({ ok: true, value: { shield: 'unsigned_device' } });
  });
});
