/**
 * Absent, valid and broken are three answers. If a broken token looked like no token, anybody could turn a refusal into the tier of
 * unsigned users by damaging it: a present token that fails is refused, never downgraded (DESIGN §5 "Single use").
 */
import { z } from 'zod';
import { isJsonObject } from '../json.ts';
import { err, ok, type Result } from '../result.ts';
import { UCAN_KEY } from './content-hash.ts';

const MAX_DELEGATIONS = 2;
/** Sizes are judged by the gate, which has a code for them; here only shape. */
const ucanContent = z.object({
  v: z.literal(1),
  inv: z.string().min(1).exactOptional(),
  dlg: z.array(z.string().min(1)).max(MAX_DELEGATIONS).exactOptional(),
});

export interface UcanContent {
  readonly inv?: string;
  readonly dlg?: readonly string[];
}

export function readUcanContent(content: unknown): Result<UcanContent | undefined, 'BAD_UCAN_CONTENT'> {
  if (!isJsonObject(content) || !Object.hasOwn(content, UCAN_KEY)) return ok(undefined);
  const parsed = ucanContent.safeParse(content[UCAN_KEY]); // unknown fields are dropped, wrong ones are not
  if (!parsed.success) return err('BAD_UCAN_CONTENT');
  const { v: _version, ...rest } = parsed.data;
  return ok(rest);
}
