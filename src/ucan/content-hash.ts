/**
 * Every member of a room can copy a token out of an event for ever, so a token is bound to the very content it came with
 * (DESIGN §5 "Binding"). The hash leaves out the token itself and `m.relates_to`, which travels outside the encryption and may be
 * rewritten; thread and edit target are bound by name instead.
 */
import { canonicalJson, type JsonObject, sha256Base64Url } from '../json.ts';
import { err, ok, type Result } from '../result.ts';

export const UCAN_KEY = 'ixo.oracle.ucan';

/** base64url SHA-256 of the canonical JSON; BAD_CONTENT when there is none (floats, integers past 2^53-1). */
export function contentHash(content: JsonObject): Result<string, 'BAD_CONTENT'> {
  const { [UCAN_KEY]: _token, 'm.relates_to': _relation, ...signed } = content;
  const text = canonicalJson(signed);
  return text.ok ? ok(sha256Base64Url(text.value)) : err('BAD_CONTENT');
}
