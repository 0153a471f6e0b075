/** DIDs cost nothing, so bounds per DID do not bound what one account, or one caller, makes us keep for good. */
import { expect, test } from 'vitest';
import { LIMITS } from '../../../src/limits.ts';
import type { PlannedGrant } from '../../../src/ucan/register-grant.ts';
import { ALICE, alice, DM, grantsWorld, HOUR_MS, keyOf, MEMORY, must, talkAs } from './grants-world.ts';

const CALENDAR = { can: 'calendar/read', with: 'ixo:calendar' };

async function write(world: ReturnType<typeof grantsWorld>, planned: PlannedGrant): Promise<string> {
  const written = await world.write(planned);
  return written.ok ? 'stored' : written.error;
}

test('one account stores so many grants of ever new DIDs an hour, and then no more (G14)', async () => {
  const world = grantsWorld();
  const send = async (name: string) => {
    const dlg = world.mint({ key: keyOf(name), capabilities: [{ ...MEMORY, nb: { sender: ALICE } }] });
    return write(world, must(await world.register.fromEvent({ dlg, sender: ALICE, roomId: DM })));
  };
  for (let n = 0; n < LIMITS.grantsStoredPerHour; n += 1) expect(await send(`did ${n}`)).toBe('stored');
  expect(await send('one more')).toBe('RATE_LIMITED');
  expect([world.count('grants'), world.count('audit')]).toEqual([LIMITS.grantsStoredPerHour, LIMITS.grantsStoredPerHour]);
  world.clock.advance(HOUR_MS + 1);
  expect(await send('an hour later')).toBe('stored');
});

test('session grants that make place for each other are bounded as well; one that is known is stored again for nothing', async () => {
  const world = grantsWorld();
  const raws = Array.from({ length: LIMITS.grantsStoredPerHour + 1 }, () => world.mintSession({ capabilities: talkAs(alice.did) }));
  const send = async (raw: string) => write(world, must(await world.register.fromCaller({ raw, caller: alice.did, source: 'http' })));
  const [first = '', ...more] = raws;
  const answers = [await send(first)];
  for (const raw of more) answers.push(await send(raw));
  expect([answers.filter((answer) => answer === 'stored').length, answers.at(-1)]).toEqual([LIMITS.grantsStoredPerHour, 'RATE_LIMITED']);
  expect(await send(raws.at(-2) ?? '')).toBe('stored');
  expect(await send(world.mint({ capabilities: [CALENDAR] }))).toBe('RATE_LIMITED');
});
