/**
 * What people do to runs (DESIGN §7): a 🛑 or `!stop` ends one, `!mode` says what becomes of messages that come meanwhile. Everything is decided in
 * the transaction that ends the inbox row, against the runs as they are then; what works is aborted right after it (G9).
 */
import type { Commands } from '../commands/commands.ts';
import type { ControlCommand } from '../commands/read-command.ts';
import { type Refusal, refusal } from '../errors.ts';
import type { EventId, UserId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import { type Control, decideCancel, type Target } from '../runs/control.ts';
import { isMultitask, type Multitask } from '../runs/inputs.ts';
import type { RoomSettings } from '../sessions/room-settings.ts';
import type { Store, Tx } from '../store/store.ts';
import type { EndRow } from './end-row.ts';
import type { MessageItem } from './inbox-item.ts';
import type { RoomDirectory } from './room-facts.ts';

export interface ControlAdmission {
  readonly store: Store;
  readonly rooms: RoomDirectory;
  readonly control: Control;
  readonly settings: RoomSettings;
  readonly commands: Pick<Commands, 'say'>;
  readonly outbox: { wake(): void };
  readonly now: () => number;
}
export interface AdmitControl {
  react(row: InboxRow, sender: UserId, target: EventId): Promise<void>;
  obey(row: InboxRow, message: MessageItem, command: ControlCommand, direct: boolean): Promise<void>;
}

export const NOTHING_TO_STOP = 'There is nothing of yours here that I could stop.';
const NOT_STARTED = 'Stopped. What waited will not be answered.';
const NEEDS_LEVEL = 'Only who may change this room’s settings can change that.';
const MEANS: Readonly<Record<Multitask, string>> = {
  steer: 'I take it into the answer I am working on',
  enqueue: 'I answer it afterwards',
  interrupt: 'I stop and answer it instead',
};

export function createAdmitControl(options: ControlAdmission, end: EndRow): AdmitControl {
  const { store, rooms, control, settings, commands, outbox, now } = options;
  const { note, finish, ignore } = end;

  async function react(row: InboxRow, sender: UserId, target: EventId): Promise<void> {
    const run = control.runAt(store.read, row.roomId, target);
    const mayRedact = run !== undefined && run.matrixUserId !== sender && (await rooms.mayRedact(row.roomId, sender));
    const decision = decideCancel(run, { sender, mayRedact });
    if (decision.kind === 'ignore') return ignore(row, decision.reason);
    if (run === undefined) return;
    const working: Target[] = [];
    await finish(row, (tx) => {
      // Asked again: what was said may have gone over to another run while we looked.
      const present = control.runAt(tx, row.roomId, target) ?? run;
      if (decideCancel(present, { sender, mayRedact }).kind === 'stop' && control.stop(tx, present.id, now())) working.push(present);
    });
    for (const one of working) control.abort(one);
    note(row, 'stopped', run.matrixUserId === sender ? 'author' : 'moderator');
  }

  /** @returns how many of them work and are being stopped. */
  async function stopAll(row: InboxRow, list: readonly Target[], more: (tx: Tx, working: number) => void = () => undefined): Promise<void> {
    const working: Target[] = [];
    await finish(row, (tx) => {
      for (const run of list) if (control.stop(tx, run.id, now())) working.push(run);
      more(tx, working.length);
    });
    for (const run of working) control.abort(run);
  }

  /** In a thread everything that is answered there, as far as one may; elsewhere in the room only one's own. */
  async function stop(row: InboxRow, message: MessageItem): Promise<void> {
    const { sender, thread } = message;
    const here = control.unfinishedIn(store.read, row.roomId, thread);
    const others = thread !== null && here.some(({ matrixUserId }) => matrixUserId !== sender);
    const mayRedact = others && (await rooms.mayRedact(row.roomId, sender));
    const list = here.filter((run) => decideCancel(run, { sender, mayRedact }).kind === 'stop');
    await stopAll(row, list, (tx, working) => {
      // Under an answer that was begun stands that it was stopped.
      if (working === 0) reply(tx, row, message, list.length === 0 ? NOTHING_TO_STOP : NOT_STARTED);
    });
    outbox.wake();
    note(row, 'command', list.length === 0 ? 'nothing_to_stop' : 'stop');
  }

  async function mode(row: InboxRow, message: MessageItem, wanted: Multitask | null, direct: boolean): Promise<void> {
    const mayChange = wanted === null || direct || (await rooms.maySetState(row.roomId, message.sender));
    await finish(row, (tx) => {
      if (!mayChange) return reply(tx, row, message, NEEDS_LEVEL, refusal('NOT_ALLOWED', { message: NEEDS_LEVEL }));
      if (wanted !== null) settings.write(tx, row.roomId, 'multitask', wanted, now());
      const set = settings.read(tx, row.roomId, 'multitask');
      const present = isMultitask(set) ? set : 'steer';
      reply(tx, row, message, `When you write while I answer another message of yours here, ${MEANS[present]} (\`${present}\`).`);
    });
    outbox.wake();
    note(row, mayChange ? 'command' : 'refused', mayChange ? 'mode' : 'NOT_ALLOWED');
  }

  function reply(tx: Tx, row: InboxRow, { thread }: MessageItem, text: string, why: Refusal | null = null): void {
    commands.say(tx, { roomId: row.roomId, cause: row.eventId, threadRoot: thread, text, link: null, refusal: why }, now());
  }

  return {
    react,
    obey: (row, message, command, direct) => (command.kind === 'stop' ? stop(row, message) : mode(row, message, command.mode, direct)),
  };
}
