import { beforeEach, describe, expect, test } from 'vitest';
import { createAttachments } from '../../../appservice/crypto/attachments.ts';
import { MatrixError } from '../../../appservice/matrix-api.ts';
import { createMedia, type Media } from '../../../appservice/media.ts';
import type { DeviceId, EventId, RoomId, UserId } from '../../../src/ids.ts';
import type { JsonObject } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { createFakeHomeserver, type FakeHomeserver, registerOracle } from '../../fakes/fake-homeserver.ts';

const ORACLE = '@oracle:oracle.local' as UserId;
const ROOM = '!room' as RoomId;
const place = { roomId: ROOM, threadRoot: null, askedEncrypted: false };
const never = new AbortController().signal;
const NOTES = { name: 'notes.txt', mimeType: 'text/plain', bytes: Buffer.from('buy milk') };
const attachments = createAttachments({
  onFatal: (reason) => {
    throw new Error(reason);
  },
});

let homeserver: FakeHomeserver;
let media: Media;
/** Answers of "is the room encrypted?", in order; the last one stays. */
let encrypted: (boolean | Error)[];

beforeEach(async () => {
  homeserver = createFakeHomeserver({ clock: fakeClock() });
  await registerOracle(homeserver.connection());
  encrypted = [false];
  media = createMedia({
    api: homeserver.connection().as({ userId: ORACLE, deviceId: 'ORACLE' as DeviceId }),
    rooms: {
      async isEncrypted() {
        const answer = encrypted.length > 1 ? encrypted.shift() : encrypted[0];
        if (answer instanceof Error) throw answer;
        return answer === true;
      },
    },
    attachments,
  });
});
const shown = (content: JsonObject): JsonObject => ({ type: 'm.room.message', content });
const stored = () => [...homeserver.media.values()];
const refused = (message: RegExp) => ({ refusal: { code: 'BAD_REQUEST', message: expect.stringMatching(message) } });

test('a file in a room without encryption is stored as it is, and comes back', async () => {
  const content = await media.upload(place, NOTES, never);

  expect(content).toMatchObject({ msgtype: 'm.file', body: 'notes.txt', info: { mimetype: 'text/plain', size: 8 } });
  expect(stored()).toEqual([{ bytes: NOTES.bytes, contentType: 'text/plain', fileName: 'notes.txt' }]);
  expect(await media.read(shown(content), never)).toEqual(NOTES);
});

test('a file in an encrypted room is stored as ciphertext without name and type, and comes back (G11)', async () => {
  encrypted = [true];
  const content = await media.upload(place, NOTES, never);

  expect(content).not.toHaveProperty('url');
  expect(stored()).toMatchObject([{ contentType: 'application/octet-stream', fileName: null }]);
  expect(stored()[0]?.bytes.equals(NOTES.bytes)).toBe(false);
  expect(await media.read(shown(content), never)).toMatchObject({
    name: 'notes.txt',
    mimeType: 'text/plain',
    bytes: new Uint8Array(NOTES.bytes),
  });
});

test('a file for whoever asked encrypted is stored as ciphertext, whatever the room’s state says (G11)', async () => {
  const content = await media.upload({ ...place, askedEncrypted: true }, NOTES, never);

  expect(content).not.toHaveProperty('url');
  expect(stored()[0]?.bytes.equals(NOTES.bytes)).toBe(false);
});

test('while nobody can say whether the room is encrypted, nothing is uploaded (G11)', async () => {
  encrypted = [new MatrixError({ errcode: 'M_UNKNOWN', status: 500, retryAfterMs: null, certain: false })];

  await expect(media.upload(place, NOTES, never)).rejects.toMatchObject({ refusal: { code: 'HOMESERVER_UNAVAILABLE' } });
  expect(stored()).toEqual([]);
});

test('a room that was encrypted during the upload gets a message that shows the encrypted file (G11)', async () => {
  encrypted = [false, true];
  const content = await media.upload(place, NOTES, never);

  expect(content).not.toHaveProperty('url');
  expect(await media.read(shown(content), never)).toMatchObject({ bytes: new Uint8Array(NOTES.bytes) });
});

test('a file of a thread stands in it', async () => {
  const content = await media.upload({ ...place, threadRoot: '$root' as EventId }, NOTES, never);

  expect(content['m.relates_to']).toMatchObject({ rel_type: 'm.thread', event_id: '$root' });
});

describe('what cannot be read is refused with a sentence', () => {
  test.each<[string, JsonObject, RegExp]>([
    ['a text', shown({ msgtype: 'm.text', body: 'x' }), /no file/u],
    ['an event that is no message', { type: 'm.reaction', content: { msgtype: 'm.file', url: 'mxc://a.org/b' } }, /no file/u],
    ['a message that could not be decrypted', { type: 'm.room.encrypted', content: {} }, /cannot be decrypted/u],
    ['one with half a key', shown({ msgtype: 'm.file', body: 'x', file: {} }), /cannot be read/u],
    ['one that is gone', shown({ msgtype: 'm.file', body: 'x', url: 'mxc://oracle.local/none' }), /does not have the file/u],
    [
      'one that says it is too large',
      shown({ msgtype: 'm.file', body: 'x', url: 'mxc://a.org/b', info: { size: LIMITS.fileBytes + 1 } }),
      /8 MiB/u,
    ],
  ])('%s', async (_name, event, message) => {
    await expect(media.read(event, never)).rejects.toMatchObject(refused(message));
  });

  test.each([
    ['at the limit', LIMITS.fileBytes, true],
    ['one byte over it', LIMITS.fileBytes + 1, false],
    ['absurd', LIMITS.fileBytes * 4, false],
  ])('one that does not say its size: %s (G14)', async (_name, bytes, fits) => {
    homeserver.media.set('mxc://other.org/big', { bytes: Buffer.alloc(bytes), contentType: 'image/png', fileName: null });
    const reading = media.read(shown({ msgtype: 'm.image', body: 'x', url: 'mxc://other.org/big', info: { size: 1 } }), never);

    if (fits) expect((await reading).bytes).toHaveLength(bytes);
    else await expect(reading).rejects.toMatchObject(refused(/8 MiB/u));
  });

  test('one that the media repository swapped', async () => {
    encrypted = [true];
    const content = await media.upload(place, NOTES, never);
    const [uri] = [...homeserver.media.keys()];
    homeserver.media.set(uri ?? '', { bytes: Buffer.from('sell cow'), contentType: '', fileName: null });

    await expect(media.read(shown(content), never)).rejects.toMatchObject(refused(/damaged/u));
  });

  test('a homeserver that is down is said as that', async () => {
    homeserver.stop();

    await expect(media.read(shown({ msgtype: 'm.file', body: 'x', url: 'mxc://a.org/b' }), never)).rejects.toMatchObject({
      refusal: { code: 'HOMESERVER_UNAVAILABLE', retryable: true },
    });
  });

  test('a homeserver that takes no file of this size is said as that', async () => {
    homeserver.trouble(/upload/u, { kind: 'answer', status: 413, body: { errcode: 'M_TOO_LARGE' } });

    await expect(media.upload(place, NOTES, never)).rejects.toMatchObject(refused(/does not take/u));
  });

  test('an upload whose answer names no place is no upload', async () => {
    homeserver.trouble(/upload/u, { kind: 'answer', status: 200, body: { content_uri: 'https://example.org/x' } });

    await expect(media.upload(place, NOTES, never)).rejects.toMatchObject({ refusal: { code: 'HOMESERVER_UNAVAILABLE' } });
  });
});

test('a cancelled call ends its download', async () => {
  homeserver.trouble(/download/u, { kind: 'hang' });
  const abort = new AbortController();
  const reading = media.read(shown({ msgtype: 'm.file', body: 'x', url: 'mxc://a.org/b' }), abort.signal);
  queueMicrotask(() => abort.abort(new Error('cancelled')));

  await expect(reading).rejects.toMatchObject({ errcode: 'ABORTED' });
});
