/**
 * `rtCtx.secrets`: what this person put into this room for tools. Values only for messages their signer signed (DESIGN §5 "Tiers": below that a
 * homeserver alone vouches for who speaks), and each is masked from then on in everything that leaves the run (G12).
 */
import { OracleError, refusal } from '../errors.ts';
import type { Run } from '../runs/run.ts';
import type { SecretRedactor } from '../secrets/redactor.ts';
import { isSecretName, MAX_NAMES_PER_CALL, type Secrets } from '../secrets/secrets.ts';
import type { RuntimeContext } from './runtime-context.ts';

export interface SecretsGroupSources {
  readonly run: Pick<Run, 'roomId' | 'matrixUserId' | 'tier'>;
  readonly secrets: Secrets;
  readonly redactor: SecretRedactor;
}

export function buildSecretsGroup({ run, secrets, redactor }: SecretsGroupSources): RuntimeContext['secrets'] {
  const owner = { room: run.roomId, user: run.matrixUserId };
  return {
    async getIndex() {
      const entries = await secrets.index(owner);
      return entries.map(({ name, eventId, publicKeyId }) => ({ name, eventId, ...(publicKeyId === null ? {} : { publicKeyId }) }));
    },
    async getValues(keys) {
      if (run.tier !== 'signed') throw new OracleError(refusal('TIER_TOO_LOW'));
      if (!Array.isArray(keys) || keys.length > MAX_NAMES_PER_CALL || !keys.every(isSecretName))
        throw new OracleError(refusal('BAD_REQUEST', { message: `getValues takes up to ${MAX_NAMES_PER_CALL} names of secrets.` }));
      const values = await secrets.values(owner, keys);
      for (const value of values.values()) redactor.add(value);
      return Object.fromEntries(values);
    },
  };
}
