import { describe, expect, test } from 'vitest';
import { decideIdentity, type IdentityFacts, type IdentityStep } from '../../../../appservice/crypto/identity.ts';

const NOTHING: IdentityFacts = { onServer: null, inStore: null, inFile: null, deviceIsSigned: false, wantsNew: false };

const CASES: [string, Partial<IdentityFacts>, IdentityStep][] = [
  ['nowhere an identity: one is made', {}, { kind: 'create' }],
  ['made, and the process died before the file was there', { inStore: 'A' }, { kind: 'write_file' }],
  ['made and written, and the process died before the homeserver knew', { inStore: 'A', inFile: 'A' }, { kind: 'publish' }],
  ['a file alone: store and homeserver were lost', { inFile: 'A' }, { kind: 'publish' }],
  ['the file is of another identity than the unpublished store', { inStore: 'A', inFile: 'B' }, { kind: 'stop', because: 'file_differs' }],
  ['known everywhere, the device not signed yet', { onServer: 'A', inStore: 'A', inFile: 'A' }, { kind: 'sign_device' }],
  ['all is well', { onServer: 'A', inStore: 'A', inFile: 'A', deviceIsSigned: true }, { kind: 'done' }],
  ['the file was lost', { onServer: 'A', inStore: 'A', deviceIsSigned: true }, { kind: 'write_file' }],
  ['the file was exchanged', { onServer: 'A', inStore: 'A', inFile: 'B', deviceIsSigned: true }, { kind: 'stop', because: 'file_differs' }],
  ['a new store, the identity in the file', { onServer: 'A', inFile: 'A' }, { kind: 'import' }],
  ['an old identity in the store, the right one in the file', { onServer: 'A', inStore: 'B', inFile: 'A' }, { kind: 'import' }],
  ['the homeserver has one that we never had', { onServer: 'A' }, { kind: 'stop', because: 'unknown' }],
  ['somebody replaced ours', { onServer: 'B', inStore: 'A', inFile: 'A' }, { kind: 'stop', because: 'changed' }],
  ['somebody replaced ours, and the store has noticed', { onServer: 'B', inFile: 'A' }, { kind: 'stop', because: 'changed' }],
  ['somebody replaced ours, and there is no file', { onServer: 'B', inStore: 'A' }, { kind: 'stop', because: 'changed' }],
  ['a new one is wanted', { onServer: 'B', inStore: 'A', inFile: 'A', wantsNew: true }, { kind: 'create' }],
];

describe('the identity at start', () => {
  test.each(CASES)('%s', (_name, facts, step) => {
    const decided = decideIdentity({ ...NOTHING, ...facts });

    expect(decided).toEqual(step);
  });

  test('no combination of facts makes a new identity where one is known, unless it was asked for', () => {
    const keys = [null, 'A', 'B'];
    for (const onServer of keys)
      for (const inStore of keys)
        for (const inFile of keys)
          for (const deviceIsSigned of [true, false]) {
            const { kind } = decideIdentity({ onServer, inStore, inFile, deviceIsSigned, wantsNew: false });

            if (kind === 'create') expect([onServer, inStore, inFile]).toEqual([null, null, null]);
            if (kind === 'done') expect(new Set([onServer, inStore, inFile]).size).toBe(1);
          }
  });
});
