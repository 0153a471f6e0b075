import fc from 'fast-check';
import { expect, test } from 'vitest';
import { buildRegistration, readRegistration, registrationYaml } from '../../../appservice/registration.ts';

const OPTIONS = { url: 'http://127.0.0.1:9000', asToken: 'as-token', hsToken: 'hs-token', serverName: 'example.org' };
const namespaceOf = (serverName: string, localpart?: string): RegExp => {
  const { namespaces } = buildRegistration({ ...OPTIONS, serverName, ...(localpart === undefined ? {} : { localpart }) });
  return new RegExp(namespaces.users[0]?.regex ?? '', 'u');
};

test('the oracle is a user of the namespace, the sender is somebody else outside of it', () => {
  const registration = buildRegistration(OPTIONS);

  expect(registration).toMatchObject({
    id: 'matrix-oracle',
    sender_localpart: '_oracle_as',
    rate_limited: false,
    receive_ephemeral: false,
    'io.element.msc4190': true,
    'org.matrix.msc3202': false,
  });
  expect(namespaceOf('example.org').test('@oracle:example.org')).toBe(true);
  expect(namespaceOf('example.org').test('@oracle_alice:example.org')).toBe(true);
  expect(namespaceOf('example.org').test('@_oracle_as:example.org')).toBe(false);
});

test('keys come in transactions only when that is asked for, because presence and typing come with them', () => {
  expect(buildRegistration({ ...OPTIONS, keys: 'appservice' })).toMatchObject({ receive_ephemeral: true, 'org.matrix.msc3202': true });
  expect(buildRegistration({ ...OPTIONS, keys: 'sync' })).toMatchObject({ receive_ephemeral: false, 'org.matrix.msc3202': false });
});

test('the namespace takes no account of another server or another name', () => {
  const namespace = namespaceOf('example.org');

  for (const stranger of ['@oracle:example.org.evil.net', '@oracle:exampleXorg', '@oracles:example.org', '@x@oracle:example.org']) {
    expect(namespace.test(stranger), stranger).toBe(false);
  }
});

test('server names and localparts are taken literally', () => {
  expect(namespaceOf('[::1]:8448').test('@oracle:[::1]:8448')).toBe(true);
  expect(namespaceOf('example.org', 'o.r').test('@o.r_ghost:example.org')).toBe(true);
  expect(namespaceOf('example.org', 'o.r').test('@oxr:example.org')).toBe(false);
});

test('what is written is read back, whatever the tokens are', () => {
  const text = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 40 }).filter((value) => !/\s/u.test(value));
  fc.assert(
    fc.property(text, text, (asToken, hsToken) => {
      const registration = buildRegistration({ ...OPTIONS, asToken, hsToken });

      expect(readRegistration(registrationYaml(registration))).toEqual({ ok: true, value: registration });
    }),
  );
});

test('hostile text never throws', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      expect(readRegistration(text)).toMatchObject({ ok: false });
    }),
  );
});

test('a fault names its field and never a token (G12)', () => {
  const registration = { ...buildRegistration({ ...OPTIONS, asToken: 'secret token' }), url: 'nowhere' };

  const read = readRegistration(registrationYaml(registration));

  expect(read).toEqual({
    ok: false,
    error: { code: 'BAD_REGISTRATION', faults: [expect.stringContaining('url'), expect.stringContaining('as_token')] },
  });
  expect(JSON.stringify(read)).not.toContain('secret');
});

test('a file of another release or homeserver is read: unknown fields are ignored, missing flags are off', () => {
  const read = readRegistration(`
id: x
url: http://localhost:1
as_token: a
hs_token: h
sender_localpart: s
de.sorunome.msc2409.push_ephemeral: true
namespaces: { users: [], rooms: null }`);

  expect(read).toMatchObject({ ok: true, value: { receive_ephemeral: false, namespaces: { users: [], aliases: [], rooms: [] } } });
});

test('a file past the limit is not parsed (G14)', () => {
  expect(readRegistration(`# ${'x'.repeat(64 * 1024)}`)).toMatchObject({
    ok: false,
    error: { faults: ['the file is larger than 64 KiB'] },
  });
});
