/**
 * What a second start of the demo must find again: tokens, ports, the person's password, key and room. Without it each start would be another
 * homeserver to Element, and the conversation of yesterday would be gone. Holds secrets, so only the owner may read it (G12).
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { acquireInstallLock } from '../../../../synapse-dev/homeserver/install-lock.ts';
import { buildKeyFile, generateKey, readKeyFile, type SigningKey } from '../../../ucan/signing-key.ts';
import { CliError } from '../cli-error.ts';

const port = z.number().int().min(1).max(65_535);
const KeptState = z.strictObject({
  v: z.literal(1),
  asToken: z.string().min(32),
  hsToken: z.string().min(32),
  password: z.string().min(16),
  ports: z.strictObject({ homeserver: port, appservice: port, sidecar: port, metrics: port }).optional(),
  session: z.strictObject({ userId: z.string(), accessToken: z.string(), deviceId: z.string() }).optional(),
  roomId: z.string().optional(),
});
export type DemoState = z.infer<typeof KeptState>;
export type DemoPorts = NonNullable<DemoState['ports']>;

export interface DemoFolder {
  readonly dir: string;
  readonly synapseDir: string;
  /** DATA_DIR of the oracle. */
  readonly oracleDir: string;
  readonly oracleKeyFile: string;
  readonly oracleLog: string;
  readonly oracleKey: SigningKey;
  readonly personKey: SigningKey;
  /** The file of the encryption keys of one device of the person: with the device they belong to in its name. */
  personStore(deviceId: string): string;
  /** True when an earlier start made it. */
  readonly known: boolean;
  readonly state: DemoState;
  /** Merges and writes. */
  keep(change: Partial<DemoState>): Promise<void>;
  /** Another demo may use the folder now. */
  release(): void;
}

const TOKEN_BYTES = 32;
const PASSWORD_BYTES = 15;
const OWNER_ONLY = 0o600;

/** @throws CliError when the folder is in use, unreadable or not writable. */
export async function openDemoFolder(path: string): Promise<DemoFolder> {
  const dir = resolve(path);
  const stateFile = join(dir, 'demo.json');
  const oracleDir = join(dir, 'oracle');
  const oracleKeyFile = join(oracleDir, 'oracle.key');
  try {
    await mkdir(oracleDir, { recursive: true, mode: 0o700 });
    await chmod(dir, 0o700);
    const lock = await lockFolder(dir);
    try {
      const kept = await readState(stateFile, dir);
      let state = kept ?? newState();
      const write = async () => {
        await writeFile(`${stateFile}.half`, `${JSON.stringify(state, null, 2)}\n`, { mode: OWNER_ONLY });
        await rename(`${stateFile}.half`, stateFile);
      };
      if (kept === undefined) await write();
      return {
        dir,
        synapseDir: join(dir, 'synapse'),
        oracleDir,
        oracleKeyFile,
        oracleLog: join(dir, 'oracle.log'),
        oracleKey: await readOrMakeKey(oracleKeyFile, dir),
        personKey: await readOrMakeKey(join(dir, 'person.key'), dir),
        personStore: (deviceId) => join(dir, `person-${deviceId}.db`),
        known: kept !== undefined,
        get state() {
          return state;
        },
        async keep(change) {
          state = { ...state, ...change };
          await write();
        },
        release: () => lock.release(),
      };
    } catch (error) {
      lock.release();
      throw error;
    }
  } catch (error) {
    throw explain(error, dir);
  }
}

/** Two demos on one folder would be two homeservers on one database. */
async function lockFolder(dir: string): Promise<{ release(): void }> {
  const busy = new AbortController();
  try {
    return await acquireInstallLock(join(dir, 'demo.lock'), {
      signal: busy.signal,
      onWait: (pid) =>
        busy.abort(new CliError(`a demo (process ${pid}) is running in ${dir} already: stop it, or start this one with --data <folder>.`)),
    });
  } catch (error) {
    throw busy.signal.aborted ? busy.signal.reason : error;
  }
}

const newState = (): DemoState => ({
  v: 1,
  asToken: randomBytes(TOKEN_BYTES).toString('hex'),
  hsToken: randomBytes(TOKEN_BYTES).toString('hex'),
  password: randomBytes(PASSWORD_BYTES).toString('base64url'),
});

async function readState(file: string, dir: string): Promise<DemoState | undefined> {
  const text = await readIfThere(file);
  if (text === undefined) return undefined;
  try {
    return KeptState.parse(JSON.parse(text));
  } catch (cause) {
    throw new CliError(`${file} is damaged or of another release: delete the folder ${dir} to begin anew.`, { cause });
  }
}

async function readOrMakeKey(file: string, dir: string): Promise<SigningKey> {
  const text = await readIfThere(file);
  if (text === undefined) {
    const key = generateKey();
    await writeFile(file, buildKeyFile(key), { mode: OWNER_ONLY, flag: 'wx' });
    return key;
  }
  const key = readKeyFile(text);
  if (!key.ok) throw new CliError(`${file} is no Ed25519 key: delete the folder ${dir} to begin anew.`);
  return key.value;
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

const codeOf = (error: unknown): unknown => (error instanceof Error && 'code' in error ? error.code : undefined);

function explain(error: unknown, dir: string): unknown {
  const code = codeOf(error);
  if (error instanceof CliError || code === undefined) return error;
  return code === 'ENOSPC'
    ? new CliError(`the disk of ${dir} is full: make room, or choose another folder with --data, and start again.`, { cause: error })
    : new CliError(`the folder ${dir} cannot be used (${String(code)}): choose another one with --data <folder>.`, { cause: error });
}
