/** `crypto status` in words. What is only known to a running oracle is said to be that, and what two places say differently is said to be wrong. Pure. */
import type { PublishedKeys } from '../../../appservice/crypto/published-keys.ts';
import type { HealthPart } from './doctor/http-checks.ts';

export interface CryptoFacts {
  readonly account: string;
  readonly identityFile: string;
  /** Public master key of the file; null: there is none; a fault as a sentence. */
  readonly identity: { readonly masterKey: string } | { readonly fault: string } | null;
  readonly storeFile: string;
  readonly store: StoreFacts;
  readonly homeserver: HomeserverFacts | { readonly fault: string };
}
export type StoreFacts =
  | { readonly kind: 'none' }
  | { readonly kind: 'stopped'; readonly deviceId: string | null; readonly roomKeys: number; readonly bytes: number }
  /** `health`: what the oracle says of its encryption; null: it does not answer. */
  | { readonly kind: 'running'; readonly bytes: number; readonly health: HealthPart | null }
  | { readonly kind: 'unreadable'; readonly fault: string };
export interface HomeserverFacts {
  readonly published: PublishedKeys;
  /** Of the oracle's one device; null: not said. */
  readonly oneTimeKeys: number | null;
}

/** As clients show fingerprints. */
export const inGroups = (key: string): string => key.replace(/.{4}(?=.)/gu, '$& ');

export function describeCrypto(facts: CryptoFacts): string[] {
  return [
    `Account        ${facts.account}`,
    `Identity       ${describeIdentity(facts)}`,
    ...describeDevices(facts),
    `Key store      ${describeStore(facts)}`,
    `Oracle         ${describeOracle(facts.store)}`,
  ];
}

function describeIdentity({ identity, identityFile, homeserver, store }: CryptoFacts): string {
  const published = 'fault' in homeserver ? null : homeserver.published.masterKey;
  if (identity === null) {
    if (published === null) return `none at ${identityFile}; the oracle makes one at its first start`;
    const again = store.kind === 'none' ? '' : 'the next start writes it again if the key store has it; otherwise ';
    return `✗ none at ${identityFile}, but the homeserver has ${inGroups(published)}: ${again}\`matrix-oracle crypto import\` brings a saved copy back`;
  }
  if ('fault' in identity) return `✗ ${identity.fault}`;
  const own = `${inGroups(identity.masterKey)} (${identityFile})`;
  if ('fault' in homeserver) return `${own}; ${homeserver.fault}`;
  if (published === null) return `${own}; not on the homeserver yet, the next start publishes it`;
  return published === identity.masterKey
    ? `${own}, and the homeserver has the same`
    : `✗ ${own}, but the homeserver has another: ${inGroups(published)}`;
}

function describeDevices({ store, homeserver }: CryptoFacts): string[] {
  const own = store.kind === 'stopped' ? store.deviceId : null;
  if ('fault' in homeserver) return own === null ? [] : [`Device         ${own}`];
  const { published, oneTimeKeys } = homeserver;
  const keys = oneTimeKeys === null ? [] : [`One-time keys  ${oneTimeKeys} left on the homeserver`];
  const listed = published.devices.flatMap(({ deviceId, fingerprint, isSigned }) => [
    `Device         ${deviceId}, ${isSigned ? 'signed by the identity' : '✗ not signed by the identity: some clients give it no keys'}${own !== null && own !== deviceId ? '; not of this key store' : ''}`,
    `Fingerprint    ${inGroups(fingerprint)}`,
  ]);
  const isMissing = own !== null && published.devices.every(({ deviceId }) => deviceId !== own);
  return [...listed, ...(isMissing ? [`Device         ${own}, whose keys the homeserver does not show`] : []), ...keys];
}

const size = (bytes: number): string => (bytes < 1024 ** 2 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`);

function describeStore({ store, storeFile }: CryptoFacts): string {
  switch (store.kind) {
    case 'none':
      return `none at ${storeFile}; the next start makes one, with a new device`;
    case 'stopped':
      return `${store.roomKeys} room keys, ${size(store.bytes)} (${storeFile})`;
    case 'running':
      return `${size(store.bytes)} (${storeFile}); how many room keys only the running oracle knows: metric matrix_oracle_crypto_room_keys`;
    case 'unreadable':
      return `✗ ${store.fault}`;
  }
}

function describeOracle(store: StoreFacts): string {
  if (store.kind !== 'running') return 'does not run here';
  if (store.health === null) return 'runs, and does not answer at its HTTP address';
  return store.health.ok ? 'runs, and keys arrive' : `✗ runs: ${store.health.detail ?? 'keys do not arrive'}`;
}
