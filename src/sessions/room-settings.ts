/** What the people of a room have set for it; rows of `state`, so that a setting needs no table of its own. A value that cannot be read counts as unset. */
import type { RoomId } from '../ids.ts';
import type { Store, Tx } from '../store/store.ts';

export type RoomSetting = 'multitask';
export interface RoomSettings {
  read(tx: Pick<Tx, 'get'>, room: RoomId, setting: RoomSetting): unknown;
  write(tx: Tx, room: RoomId, setting: RoomSetting, value: unknown, now: number): void;
}

export function createRoomSettings({ store }: { store: Store }): RoomSettings {
  const { sql } = store;
  return {
    read(tx, room, setting) {
      const row = tx.get(
        sql.selectFrom('state').select('value').where('scope', '=', 'room').where('scope_id', '=', room).where('key', '=', setting),
      );
      try {
        return row === undefined ? undefined : JSON.parse(row.value);
      } catch {
        return undefined;
      }
    },
    write(tx, room, setting, value, now) {
      const row = { value: JSON.stringify(value), updated_at: now };
      tx.run(
        sql
          .insertInto('state')
          .values({ scope: 'room', scope_id: room, key: setting, ...row })
          .onConflict((oc) => oc.columns(['scope', 'scope_id', 'key']).doUpdateSet(row)),
      );
    },
  };
}
