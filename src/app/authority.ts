/**
 * Everything that answers "may this be done, and in whose name?", put together once: keys of the oracle, keys of others, stored grants, links,
 * and what registers, verifies and uses them. Rooms, the sidecar and the agent get the same objects, so that a rule cannot hold in one of them only.
 */
import { type AccessRules, isTrustedServer } from '../admission/access.ts';
import { type AuthorisePage, createAuthorisePage } from '../commands/authorise-page.ts';
import { createOwnGrants, type OwnGrants } from '../commands/own-grants.ts';
import type { Config } from '../config.ts';
import { createGuardedFetch } from '../net/guarded-fetch.ts';
import type { Logger } from '../observe/logger.ts';
import type { Store } from '../store/store.ts';
import type { Clock } from '../time.ts';
import { createLinks, type Links } from '../turn/links.ts';
import { type AuthoriseLinks, createAuthoriseLinks } from '../ucan/authorise-links.ts';
import { createVerifier, type Verifier } from '../ucan/chain.ts';
import { createResolveKeys, type ResolveKeys } from '../ucan/did/resolve-keys.ts';
import { createResolveService } from '../ucan/did/web.ts';
import { createDownstream, type Downstream } from '../ucan/downstream.ts';
import { createGrants, type Grants } from '../ucan/grants.ts';
import { newNonce } from '../ucan/mint.ts';
import { createRegisterGrant, type RegisterGrant } from '../ucan/register-grant.ts';
import type { SigningKey } from '../ucan/signing-key.ts';
import { createUseGrants, type UseGrants } from '../ucan/use-grants.ts';
import { loadKeys } from './load-config.ts';
import { StartRefused } from './start-refused.ts';

export interface Authority {
  readonly rules: AccessRules;
  readonly links: Links;
  readonly grants: Grants;
  readonly useGrants: UseGrants;
  readonly ownGrants: OwnGrants;
  readonly authoriseLinks: AuthoriseLinks;
  readonly page: AuthorisePage;
  readonly keysOf: ResolveKeys;
  readonly verifier: Verifier;
  readonly registerGrant: RegisterGrant;
  readonly downstream: Downstream;
  /** The oracle's own key; null: it cannot sign. */
  readonly signing: SigningKey | null;
  /** Ends look-ups that are under way. */
  close(): Promise<void>;
}

export async function createAuthority({
  config,
  store,
  clock,
  logger,
}: {
  config: Config;
  store: Store;
  clock: Clock;
  logger: Logger;
}): Promise<Authority> {
  const now = () => clock.now();
  const rules: AccessRules = {
    access: config.access,
    trustedHomeservers: config.trustedHomeservers,
    allowedUsers: config.allowedUsers,
    unsignedUsers: config.unsignedUsers,
  };
  const loaded = await loadKeys(config);
  if (!loaded.ok) throw new StartRefused(`${loaded.error.message} ${loaded.error.remedy}`);
  const { keys, warnings } = loaded.value;
  for (const { message, remedy } of warnings) logger.warn({ reason: `${message} ${remedy}` }, 'a key of the oracle needs a look');

  const links = createLinks({ store });
  const grants = createGrants({ store });
  const authoriseLinks = createAuthoriseLinks({ store, newNonce });
  const fetch = createGuardedFetch({ clock });
  const keysOf = createResolveKeys({ blocksyncUrl: config.blocksyncGraphqlUrl ?? null, fetch, clock });
  const verifier = createVerifier({ findToken: grants.findToken, keysOf, isRevoked: grants.isRevoked, now });
  return {
    rules,
    links,
    grants,
    useGrants: createUseGrants({ store }),
    ownGrants: createOwnGrants({ store, grants, links }),
    authoriseLinks,
    page: createAuthorisePage({ publicUrl: config.publicUrl ?? null, links: authoriseLinks, grants }),
    keysOf,
    verifier,
    registerGrant: createRegisterGrant({
      store,
      grants,
      links,
      authoriseLinks,
      verify: verifier.grant,
      oracleDids: () => keys.audiences(now()),
      isTrustedServer: (user) => isTrustedServer(user, rules),
      now,
    }),
    downstream: createDownstream({
      keys,
      services: createResolveService({ fetch, clock }),
      reusable: config.reusableServices,
      verify: verifier.grant,
      findToken: grants.findToken,
      now,
      newNonce,
    }),
    signing: keys.current,
    close: () => fetch.close(),
  };
}
