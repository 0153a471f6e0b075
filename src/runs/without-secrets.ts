/**
 * What a plugin or a model puts into a frame is read by every viewer and kept for weeks. A value whose name says that it is secret is left out
 * before it is written (G12): afterwards it would have to be found in the log, in rooms and in browsers.
 */
const SECRET_NAME = /token|secret|passw|authori[sz]ation|api[-_]?key|mnemonic|private|credential/iu;
export const SECRET_VALUE = '[secret]';

/** JSON of the value, with the values of secret names left out; undefined for what has no JSON. */
export const jsonWithoutSecrets = (value: unknown): string | undefined =>
  JSON.stringify(value, (key, inner: unknown) => (SECRET_NAME.test(key) ? SECRET_VALUE : inner));
