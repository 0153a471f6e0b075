import { createHash } from 'node:crypto';
import type { RoomId, UserId } from '../../../../src/ids.ts';
import { keyFromSeed } from '../../../../src/ucan/signing-key.ts';

export const ORACLE = keyFromSeed(createHash('sha256').update('oracle').digest()).did;
export const ALICE = '@alice:example.org' as UserId;
export const DM = '!dm:example.org' as RoomId;
