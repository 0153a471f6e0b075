import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { buildSharedFile, cleanFileName, type FileKey, parseMxc, readSharedFile } from '../../../../appservice/wire/read-shared-file.ts';

const KEY: FileKey = {
  v: 'v2',
  key: { kty: 'oct', key_ops: ['encrypt', 'decrypt'], alg: 'A256CTR', k: 'k'.repeat(43), ext: true },
  iv: 'i'.repeat(22),
  hashes: { sha256: 'h'.repeat(43) },
};
const FILE = { msgtype: 'm.file', body: 'notes.txt', url: 'mxc://example.org/AbC_1-2', info: { mimetype: 'text/plain', size: 12 } };
const read = (content: object) => {
  const result = readSharedFile(content);
  return result.ok ? result.value : result.error;
};

test('a file is read with its name, type, size and place', () => {
  expect(read(FILE)).toEqual({
    name: 'notes.txt',
    mimeType: 'text/plain',
    size: 12,
    caption: null,
    media: { server: 'example.org', mediaId: 'AbC_1-2' },
    key: null,
  });
});

test.each(['m.image', 'm.audio', 'm.video'])('%s is a file as well', (msgtype) => {
  expect(read({ ...FILE, msgtype })).toMatchObject({ name: 'notes.txt' });
});

test.each(['m.text', 'm.notice', 'm.location', 'm.key.verification.request'])('%s shows none', (msgtype) => {
  expect(read({ ...FILE, msgtype })).toBeUndefined();
});

test('an encrypted one has its key and its own place, whatever else is said', () => {
  expect(read({ ...FILE, url: 'mxc://liar.org/x', file: { ...KEY, url: 'mxc://example.org/sealed' } })).toMatchObject({
    media: { server: 'example.org', mediaId: 'sealed' },
    key: KEY,
  });
});

test('with a name of its own, the body is what was said about it', () => {
  expect(read({ ...FILE, filename: 'notes.txt', body: 'what do you think?' })).toMatchObject({
    name: 'notes.txt',
    caption: 'what do you think?',
  });
  expect(read({ ...FILE, filename: 'notes.txt' })).toMatchObject({ caption: null });
  expect(read({ ...FILE, filename: 'notes.txt', body: ' ' })).toMatchObject({ caption: null });
});

describe('what does not say where or how is refused (G14)', () => {
  test.each<[string, object]>([
    ['no address', { url: undefined }],
    ['one of the web', { url: 'https://example.org/x' }],
    ['one with a path', { url: 'mxc://example.org/a/b' }],
    ['one that leaves its folder', { url: 'mxc://example.org/..' }],
    ['one with a query', { url: 'mxc://example.org/a?b' }],
    ['an endless one', { url: `mxc://example.org/${'a'.repeat(256)}` }],
    ['an encrypted one without a key', { file: { url: 'mxc://example.org/a' } }],
    ['an older way of encrypting', { file: { ...KEY, v: 'v1', url: 'mxc://example.org/a' } }],
    ['a short key', { file: { ...KEY, key: { ...KEY.key, k: 'k' }, url: 'mxc://example.org/a' } }],
    ['a short vector', { file: { ...KEY, iv: 'i', url: 'mxc://example.org/a' } }],
    ['no hash', { file: { ...KEY, hashes: {}, url: 'mxc://example.org/a' } }],
    ['another cipher', { file: { ...KEY, key: { ...KEY.key, alg: 'A128CTR' }, url: 'mxc://example.org/a' } }],
    ['a key that is text', { file: 'x' }],
  ])('%s', (_name, more) => {
    expect(read({ ...FILE, ...more })).toBe('BAD_FILE');
  });
});

describe('what a sender says of it is a claim', () => {
  test.each<[unknown, string]>([
    ['TEXT/Plain; charset=utf-8', 'text/plain'],
    ['application/vnd.oasis.opendocument.text', 'application/vnd.oasis.opendocument.text'],
    ['nonsense', 'application/octet-stream'],
    ['text/plain\r\nx: y', 'application/octet-stream'],
    [`text/${'x'.repeat(500)}`, 'application/octet-stream'],
    [17, 'application/octet-stream'],
  ])('the type %j is %s', (mimetype, mimeType) => {
    expect(read({ ...FILE, info: { mimetype } })).toMatchObject({ mimeType });
  });
  test.each([-1, 1.5, '12', Number.MAX_VALUE, null])('the size %j is not known', (size) => {
    expect(read({ ...FILE, info: { size } })).toMatchObject({ size: null });
  });
  test.each<[unknown, string]>([
    ['../../etc/passwd', 'passwd'],
    ['C:\\Windows\\x.txt', 'x.txt'],
    ['a\nb\u202Etxt.exe\u200B', 'abtxt.exe'],
    ['a'.repeat(300), 'a'.repeat(255)],
    ['..', 'file'],
    ['  ', 'file'],
    ['\uD800x', 'x'],
    [undefined, 'file'],
  ])('the name %j is shown as %j', (name, shown) => {
    expect(cleanFileName(name)).toBe(shown);
  });
});

test('whatever the content, reading it never throws', () => {
  fc.assert(
    fc.property(
      fc.record(
        {
          msgtype: fc.constantFrom('m.file', 'm.image'),
          body: fc.anything(),
          url: fc.anything(),
          file: fc.anything(),
          info: fc.anything(),
          filename: fc.anything(),
        },
        { requiredKeys: ['msgtype'] },
      ),
      (content) => {
        expect(() => readSharedFile(content)).not.toThrow();
      },
    ),
  );
});

test('what is built is read back', () => {
  const url = 'mxc://example.org/a';
  for (const key of [null, KEY]) {
    const content = buildSharedFile({ name: 'a.csv', mimeType: 'text/csv', size: 3, url, key });

    expect(read(content)).toEqual({ name: 'a.csv', mimeType: 'text/csv', size: 3, caption: null, media: parseMxc(url), key });
    expect(Object.hasOwn(content, 'url')).toBe(key === null);
  }
});

test.each([
  ['image/png', 'm.image'],
  ['image/svg+xml', 'm.file'],
  ['audio/ogg', 'm.audio'],
  ['video/mp4', 'm.video'],
  ['text/html', 'm.file'],
])('%s is shown as %s', (mimeType, msgtype) => {
  expect(buildSharedFile({ name: 'x', mimeType, size: 1, url: 'mxc://a.org/b', key: null })['msgtype']).toBe(msgtype);
});
