import { describe, expect, test } from 'vitest';
import type { EventId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Run } from '../../../src/runs/run.ts';
import { buildFilesGroup, buildRoomFile, readOutgoingFile } from '../../../src/runtime-context/files-group.ts';
import type { MatrixAccess, SharedFile } from '../../../src/runtime-context/matrix-access.ts';
import { buildMatrixGroup, buildPost } from '../../../src/runtime-context/matrix-group.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';

const never = new AbortController().signal;
const innocent = { isTainted: () => false, readsForeign: () => undefined, redactor: { holds: () => false } };
const TEXT = { name: 'a.txt', mimeType: 'text/plain', text: 'x' };

interface SetUp {
  readonly call?: { readonly id: string; readonly mayWriteExternally: boolean };
  readonly run?: Run;
  readonly access?: Partial<MatrixAccess>;
}
function setUp({ call = { id: 'c', mayWriteExternally: true }, run = fakeRun(), access = {} }: SetUp = {}) {
  const done: string[] = [];
  const files: SharedFile[] = [];
  const matrix: MatrixAccess = {
    ...noMatrix,
    async uploadFile({ roomId, threadRoot, askedEncrypted }, file) {
      done.push(`upload${askedEncrypted ? ' sealed' : ''} to ${roomId} ${threadRoot ?? 'main'}`);
      files.push(file);
      return { msgtype: 'm.file', body: file.name } satisfies JsonObject;
    },
    async send({ txnId, content }) {
      done.push(`send ${txnId} ${String(content['body'])}`);
      return '$sent' as EventId;
    },
    ...access,
  };
  const post = buildPost({ run, access: matrix, signal: never, call });
  return {
    done,
    files,
    group: buildFilesGroup({ run, access: matrix, post, signal: never }),
    matrix: buildMatrixGroup({ run, access: matrix, post, ...innocent }),
  };
}

test('a file is uploaded, then shown, in the room and thread of the run', async () => {
  const run = fakeRun({ threadRoot: '$root' as EventId });
  const { group, done } = setUp({ run });

  expect(await group.send(TEXT)).toBe('$sent');
  expect(done).toEqual(['upload to !room:test $root', `send tool.${run.id}.c.1 a.txt`]);
});

test('whoever asked encrypted gets an encrypted file, whatever the room says (G11)', async () => {
  const { group, done } = setUp({ run: fakeRun({ trust: 'cross-signed' }) });
  await group.send(TEXT);

  expect(done[0]).toBe('upload sealed to !room:test main');
});

test('messages and files of one call are counted together: each has a txn id of its own (G4)', async () => {
  const { group, matrix, done } = setUp();
  await matrix.postToRoom('!room:test', { msgtype: 'm.text', body: 'one' });
  await group.send(TEXT);

  expect(done.filter((what) => what.startsWith('send')).map((what) => what.split(' ')[1]?.split('.').at(-1))).toEqual(['1', '2']);
});

test.each([
  ['outside a tool that may write', { call: { id: 'c', mayWriteExternally: false } }, 'NOT_ALLOWED'],
  ['below tier signed', { run: fakeRun({ tier: 'sender-bound' }) }, 'TIER_TOO_LOW'],
  ['without the power for it', { access: { mayUserSend: async () => false } }, 'NOT_ALLOWED'],
] as const)('%s nothing is uploaded (no confused deputy)', async (_name, more, code) => {
  const { group, done } = setUp(more);

  await expect(group.send(TEXT)).rejects.toMatchObject({ refusal: { code } });
  expect(done).toEqual([]);
});

test('a call sends so many files and no more (G14)', async () => {
  const { group } = setUp();
  for (let n = 0; n < 20; n += 1) await group.send(TEXT);

  await expect(group.send(TEXT)).rejects.toMatchObject({ refusal: { code: 'NOT_ALLOWED' } });
});

describe('what is sent must be a file', () => {
  test('text, or bytes', () => {
    expect(readOutgoingFile(TEXT)).toEqual({ name: 'a.txt', mimeType: 'text/plain', bytes: Buffer.from('x') });
    expect(readOutgoingFile({ name: ' b ', mimeType: 'Image/PNG', bytes: new Uint8Array([1]) })).toEqual({
      name: 'b',
      mimeType: 'image/png',
      bytes: new Uint8Array([1]),
    });
  });
  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['neither text nor bytes', { name: 'a', mimeType: 'text/plain' }],
    ['both', { ...TEXT, bytes: new Uint8Array() }],
    ['no name', { ...TEXT, name: ' ' }],
    ['a name without end', { ...TEXT, name: 'x'.repeat(256) }],
    ['a type that is none', { ...TEXT, mimeType: 'text' }],
    ['a type with a header in it', { ...TEXT, mimeType: 'text/plain\r\nx: y' }],
    ['numbers for bytes', { name: 'a', mimeType: 'text/plain', bytes: [1] }],
    ['one byte too many', { name: 'a', mimeType: 'text/plain', bytes: new Uint8Array(LIMITS.fileBytes + 1) }],
  ])('%s', (_name, file) => {
    expect(() => readOutgoingFile(file)).toThrow(expect.objectContaining({ refusal: expect.objectContaining({ code: 'BAD_REQUEST' }) }));
  });
  test('as large as the limit, it is one', () => {
    expect(readOutgoingFile({ name: 'a', mimeType: 'a/b', bytes: new Uint8Array(LIMITS.fileBytes) }).bytes).toHaveLength(LIMITS.fileBytes);
  });
});

describe('what is read', () => {
  test.each([
    ['text/markdown', true],
    ['application/json', true],
    ['application/ld+json', true],
    ['image/svg+xml', true],
    ['application/pdf', false],
    ['application/octet-stream', false],
  ])('of type %s has a text: %s', (mimeType, has) => {
    expect('text' in buildRoomFile({ name: 'a', mimeType, bytes: Buffer.from('é') })).toBe(has);
  });
  test('has none when its bytes are no UTF-8, rather than half of one', () => {
    expect(buildRoomFile({ name: 'a', mimeType: 'text/plain', bytes: Buffer.from([0x61, 0xff]) })).toEqual({
      name: 'a',
      mimeType: 'text/plain',
      size: 2,
      bytes: Buffer.from([0x61, 0xff]),
    });
  });
  test("is asked of the run's own room, with the signal of the call", async () => {
    const asked: unknown[] = [];
    const { group } = setUp({
      access: {
        async readFile(...args) {
          asked.push(...args);
          return { name: 'a', mimeType: 'text/plain', bytes: Buffer.from('x') };
        },
      },
    });

    expect(await group.read('$file')).toMatchObject({ text: 'x', size: 1 });
    expect(asked).toEqual(['!room:test', '$file', never]);
    await expect(group.read('no id')).rejects.toMatchObject({ refusal: { code: 'BAD_REQUEST' } });
  });
});
