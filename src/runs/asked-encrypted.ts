/**
 * Whether what a run says in its room answers a message that was encrypted: then it is encrypted as well, also where the room's state does not say that the
 * room is (it was lost in a resolution of states, withheld, or is on its way), because the question would be told by its answer (G11).
 */
import type { RoomId, RunId } from '../ids.ts';
import type { Store } from '../store/store.ts';

export type AskedEncrypted = (row: { readonly run_id: RunId | null; readonly room_id: RoomId }) => boolean;

export function createAskedEncrypted({ store }: { store: Store }): AskedEncrypted {
  return ({ run_id: run, room_id: room }) => {
    if (run === null) return false;
    const asked = store.read.get(store.sql.selectFrom('runs').select(['trust', 'room_id']).where('run_id', '=', run));
    // What a tool posts into another room goes by that room.
    return asked !== undefined && asked.room_id === room && asked.trust !== null && asked.trust !== 'clear';
  };
}
