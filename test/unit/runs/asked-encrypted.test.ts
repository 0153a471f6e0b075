import { expect, test } from 'vitest';
import { createAskedEncrypted } from '../../../src/runs/asked-encrypted.ts';
import { buildCore } from '../../fakes/core.ts';
import { incoming, OTHER_ROOM, ROOM } from '../../fakes/events.ts';
import { encrypted } from '../../fakes/fake-reveal.ts';

test('what a run says in its own room answers an encrypted message; in the clear, elsewhere or of no run it does not', async () => {
  const core = buildCore();
  await core.joinDirect();
  core.execute = null;
  core.crypto.bring('s');
  await core.take(encrypted('a', { session: 's', index: 0 }), incoming('b'));
  const asked = createAskedEncrypted(core);
  const [one, other] = core.store.read.all(core.store.sql.selectFrom('runs').select('run_id').orderBy('run_id'));

  expect(asked({ run_id: one?.run_id ?? null, room_id: ROOM })).toBe(true);
  expect(asked({ run_id: one?.run_id ?? null, room_id: OTHER_ROOM })).toBe(false);
  expect(asked({ run_id: other?.run_id ?? null, room_id: ROOM })).toBe(false);
  expect(asked({ run_id: null, room_id: ROOM })).toBe(false);
});
