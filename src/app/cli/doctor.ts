/**
 * Answers "why does it not work?" before anybody reads a log: one line per thing that can be wrong, each failed one with its remedy.
 * Ends with status 1 when something failed, so that a deployment can wait for it. Writes nothing but one probe row of the database.
 */
import { randomUUID } from 'node:crypto';
import { connectMatrix } from '../../../appservice/client.ts';
import { type Config, type Environment, readEnvironment } from '../../config.ts';
import { createGuardedFetch } from '../../net/guarded-fetch.ts';
import { systemClock } from '../../system-clock.ts';
import { createResolveKeys } from '../../ucan/did/resolve-keys.ts';
import { readCurrentKey } from '../../ucan/oracle-keys.ts';
import { cryptoFiles, dataPaths } from '../data-paths.ts';
import { loadConfig, loadKeys, readRegistrationFile } from '../load-config.ts';
import { checkBlocksync, checkSigningKey, countUseGrants, decideAccess, planOldKeyChecks } from './doctor/authority-checks.ts';
import { buildLine, type Check, failed, passed } from './doctor/check.ts';
import { checkData } from './doctor/data-checks.ts';
import { checkEncryption } from './doctor/encryption-checks.ts';
import { checkHomeserver } from './doctor/homeserver-checks.ts';
import { checkModel, checkPublicUrl, isListening, readHealthPart } from './doctor/http-checks.ts';
import { printable } from './open-database.ts';

export async function runDoctor({ settings }: { readonly settings?: string }): Promise<void> {
  let wrong = 0;
  for await (const check of checkEverything(settings)) {
    if (check.status === 'failed') wrong += 1;
    process.stdout.write(`${buildLine(check)}\n`);
  }
  if (wrong === 0) return;
  process.stdout.write(`\n${wrong === 1 ? 'One check' : `${wrong} checks`} failed.\n`);
  process.exitCode = 1;
}

async function* checkEverything(settings: string | undefined): AsyncGenerator<Check> {
  const loaded = await loadConfig({ environment: readEnvironment(), settings });
  if (!loaded.ok) {
    for (const { message, remedy } of loaded.error) yield failed('config', message.replace(/\.$/u, ''), remedy);
    return;
  }
  const { config, environment, warnings } = loaded.value;
  for (const { message, remedy } of warnings) yield failed('config', message.replace(/\.$/u, ''), remedy);
  if (warnings.length === 0) yield passed('config', `every setting is valid; the oracle is ${config.oracleDid}`);
  yield await checkPlugins(config, environment);
  yield* checkMatrix(config, environment);
  yield* checkData(config);
  yield await checkModel(config);
  yield await checkPublicUrl(config);
  yield* checkAuthority(config);
}

/** By the function that `start` uses, which is loaded only now: what is wrong with a plugin must not hide the rest. */
async function checkPlugins(config: Config, environment: Environment): Promise<Check> {
  const { planPlugins } = await import('../load-plugins.ts');
  const plan = await planPlugins({ config, environment });
  if (plan.ok) return passed('plugins', `${plan.value.status.loaded.length} are loaded (\`matrix-oracle plugins\` says which)`);
  const count = plan.error.length === 1 ? 'one problem stops' : `${plan.error.length} problems stop`;
  return failed('plugins', `${count} the start`, printable(plan.error.map(({ message }) => message).join(' ')));
}

async function* checkAuthority(config: Config): AsyncGenerator<Check> {
  const paths = dataPaths(config.dataDir);
  const fetch = createGuardedFetch({ clock: systemClock });
  try {
    yield await checkBlocksync(config, fetch);
    const keyFile = config.oracleKeyFile ?? paths.key;
    const key = await readCurrentKey({ keyFile, mnemonic: config.signingMnemonic?.reveal() ?? null });
    const keysOf = createResolveKeys({ blocksyncUrl: config.blocksyncGraphqlUrl ?? null, fetch, clock: systemClock });
    yield await checkSigningKey({ did: config.oracleDid, key, keysOf });
    if (key.ok) yield* planOldKeyChecks(await loadKeys(config));
    yield* decideAccess(config, countUseGrants(paths.database));
  } finally {
    await fetch.close();
  }
}

async function* checkMatrix(config: Config, environment: Environment): AsyncGenerator<Check> {
  const connection = await connectMatrix({ baseUrl: config.matrixBaseUrl, asToken: config.matrixAsToken.reveal(), clock: systemClock });
  try {
    const listening = await isListening(config.appserviceHost, config.appservicePort);
    let isThere = false;
    for await (const check of checkHomeserver({ connection, config, listening, newId: randomUUID })) {
      if (check.name === 'device') isThere = check.status === 'ok';
      yield check;
    }
    // What comes before it is the cause then.
    if (!isThere) return;
    yield* checkEncryption({
      connection,
      config,
      files: cryptoFiles(config),
      registration: await readRegistrationFile(environment),
      health: await readHealthPart(config, 'encryption'),
    });
  } finally {
    await connection.close();
  }
}
