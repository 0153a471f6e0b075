/**
 * What people do to know the oracle's device: an emoji verification, whose steps are events of the room, and `!verify`, which says the fingerprint
 * for those who compare by hand. Neither needs more than the right to use the oracle, and neither reaches the model.
 */
import type { Commands } from '../commands/commands.ts';
import { code } from '../commands/describe-grant.ts';
import type { DeviceId, RoomId, UserId } from '../ids.ts';
import type { InboxRow } from '../inbox/inbox.ts';
import type { JsonObject } from '../json.ts';
import { mayUse } from './access.ts';
import type { AdmitOptions } from './admit.ts';
import type { EndRow } from './end-row.ts';
import type { InboxItem, MessageItem } from './inbox-item.ts';

export interface Fingerprint {
  readonly userId: UserId;
  readonly deviceId: DeviceId;
  /** Ed25519 key, unpadded base64. */
  readonly fingerprint: string;
}
export interface DeviceOptions {
  /** Never throws; the same step may come twice after a crash. */
  readonly verification: {
    receive(event: JsonObject, room: RoomId, by: { readonly user: UserId; readonly mayVerify: boolean }): Promise<void>;
  };
  /** Null while the keys are not there yet. */
  readonly fingerprint: () => Promise<Fingerprint | null>;
}
export interface AdmitDevice {
  verify(row: InboxRow, item: Extract<InboxItem, { kind: 'verification' }>): Promise<void>;
  show(row: InboxRow, message: MessageItem): Promise<void>;
}

export type AdmitDeviceOptions = DeviceOptions &
  Pick<AdmitOptions, 'rules' | 'now' | 'outbox' | 'actions'> & { readonly commands: Pick<Commands, 'say'> };

const NO_KEYS = 'My keys are not ready yet. Please ask again in a minute.';

export function createAdmitDevice(options: AdmitDeviceOptions, { note, finish }: EndRow): AdmitDevice {
  const { rules, now, outbox, actions, commands } = options;
  return {
    async verify(row, { event, sender }) {
      await options.verification.receive(event, row.roomId, { user: sender, mayVerify: mayUse(sender, rules) });
      note(row, 'verification', 'step');
      await finish(row);
    },
    async show(row, { thread }) {
      const own = await options.fingerprint();
      const text = own === null ? NO_KEYS : describe(own);
      await finish(row, (tx) => {
        commands.say(tx, { roomId: row.roomId, cause: row.eventId, threadRoot: thread, text, link: null, refusal: null }, now());
      });
      outbox.wake();
      note(row, 'command', 'verify');
      actions.markRead(row.roomId, row.eventId);
    },
  };
}

/** In groups of four, as clients show it. */
const describe = ({ userId, deviceId, fingerprint }: Fingerprint): string =>
  `I am ${code(userId)}, and write from the device ${code(deviceId)}. Its fingerprint is:\n\n` +
  `\`${fingerprint.replace(/[^A-Za-z0-9+/]/gu, '?').replace(/.{4}(?=.)/gu, '$& ')}\`\n\n` +
  'Compare it with what your app shows for that device in the list of my sessions. Or start a verification there: I show you seven emoji to compare.';
