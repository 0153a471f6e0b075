/**
 * Decoders up to cborg 5 take a map key `__proto__` for the prototype: fields that no signature covers become readable as if signed
 * (research/ucan.md §0.4). npm overrides pin a good one here, but overrides do not reach whoever installs us as a dependency, so the
 * start asks the decoder that is really loaded and refuses to go on with a bad one.
 */
import { decode } from '@ipld/dag-ucan';

type Decode = (bytes: Uint8Array) => { readonly facts: readonly unknown[] };

const KEY = '__proto__';
/** As long as KEY, and harmless: the control that shows that the block itself can be read. */
const CONTROL_KEY = '__plain__';

/** A whole UCAN block whose only fact is `{ <key>: { "planted": true } }`, in canonical DAG-CBOR, with zeros for keys and signature. */
function buildProbe(key: typeof KEY | typeof CONTROL_KEY): Uint8Array {
  const principal = `5822ed01${'00'.repeat(32)}`;
  const fact = `a169${Buffer.from(key).toString('hex')}a167706c616e746564f5`;
  const fields = {
    s: `61735844eda10340${'00'.repeat(64)}`,
    v: '617665302e392e31',
    att: '6361747480',
    aud: `63617564${principal}`,
    exp: '6365787001',
    fct: `6366637481${fact}`,
    iss: `63697373${principal}`,
    prf: '6370726680',
  };
  return Uint8Array.from(Buffer.from(`a8${Object.values(fields).join('')}`, 'hex'));
}

/** Throws, with what to do, when the decoder lets `__proto__` through, or cannot read a UCAN at all. */
export function assertSafeDecoder(decodeUcan: Decode = decode as unknown as Decode): void {
  if (readFact(decodeUcan, CONTROL_KEY) === undefined) throw new Error('The installed UCAN decoder cannot read UCAN 0.9.1.');
  const fact = readFact(decodeUcan, KEY);
  if (fact !== undefined && (fact as { planted?: unknown }).planted !== undefined) {
    throw new Error(
      'The installed CBOR decoder lets a map key "__proto__" through, so tokens could carry unsigned data. ' +
        'Install cborg 6.1.5 or later and @ipld/dag-cbor 10 or later for @ipld/dag-ucan (npm "overrides").',
    );
  }
}

/** The first fact, or undefined when the decoder refuses the block: as good as keeping such a key an ordinary one. */
function readFact(decodeUcan: Decode, key: typeof KEY | typeof CONTROL_KEY): object | undefined {
  try {
    const [fact] = decodeUcan(buildProbe(key)).facts;
    return typeof fact === 'object' && fact !== null ? fact : undefined;
  } catch {
    return undefined;
  }
}
