/** Admission and what it answers with, put together: rooms, commands, notices, encrypted events and those that wait for their key. */
import { readInboxItem } from '../../appservice/read-inbox-item.ts';
import { isTrustedServer } from '../admission/access.ts';
import { type Admit, type AdmitOptions, createAdmit } from '../admission/admit.ts';
import { createFloodGuard } from '../admission/flood.ts';
import { createNotices } from '../admission/notices.ts';
import { createParkedWatch, type ParkedWatch } from '../admission/parked-watch.ts';
import { createCommands } from '../commands/commands.ts';
import type { Config } from '../config.ts';
import type { Credits } from '../credits/credits.ts';
import type { UserId } from '../ids.ts';
import { createParked } from '../inbox/parked.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createControl } from '../runs/control.ts';
import type { Clock } from '../time.ts';
import type { Authority } from './authority.ts';
import type { Encryption } from './encryption.ts';
import { observeAdmission } from './observe-work.ts';
import { createGreeting, createRoomWords } from './room-words.ts';

export interface AdmissionOptions
  extends Pick<
    AdmitOptions,
    | 'store'
    | 'inbox'
    | 'outbox'
    | 'rooms'
    | 'actions'
    | 'known'
    | 'runs'
    | 'inputs'
    | 'replacing'
    | 'settings'
    | 'scheduler'
    | 'transcript'
    | 'checks'
    | 'logger'
    | 'onRevoked'
  > {
  readonly config: Config;
  readonly authority: Authority;
  readonly encryption: Encryption;
  readonly credits: Credits;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly newId: () => string;
  /** Ends what waits. */
  readonly signal: AbortSignal;
}

const DAY_MS = 24 * 60 * 60_000;

export function createAdmission(options: AdmissionOptions): { readonly admit: Admit; readonly parkedWatch: ParkedWatch } {
  const { config, authority, encryption, credits, clock, metrics, newId, signal, ...parts } = options;
  const { store, inbox, outbox, known, logger, runs, scheduler, onRevoked } = parts;
  const { rules, links, grants, registerGrant, ownGrants, page } = authority;
  const now = () => clock.now();
  const oracle = config.oracleUserId;
  const words = createRoomWords({ oracleDid: config.oracleDid, oracleEntityDid: config.oracleEntityDid });
  const trusts = (user: UserId) => isTrustedServer(user, rules);
  const control = createControl({ store, runs, scheduler });
  const notices = createNotices({ store, outbox, words, page, now, signal });
  const observe = (outcome: string, reason: string) => observeAdmission(metrics, outcome, reason);
  const parked = createParked({ store, clock, inbox });
  const { keysSyncedSince } = encryption;
  const parkedWatch = createParkedWatch({ store, parked, notices, known, clock, logger, keysSyncedSince, observe });
  encryption.onKeys(parkedWatch.keysArrived);
  const admit = createAdmit({
    ...parts,
    control,
    notices,
    commands: createCommands({
      store,
      grants,
      own: ownGrants,
      links,
      page,
      outbox,
      words,
      isTrustedServer: trusts,
      onRevoked,
      control,
      credits,
    }),
    registerGrant,
    ownGrants,
    receiptWords: words,
    flood: createFloodGuard({ isTrusted: trusts }),
    now,
    readItem: (row) => {
      const item = readInboxItem(row.event, oracle);
      return item.ok ? item : { ok: false, error: item.error.reason };
    },
    greet: createGreeting({ outbox, name: config.oracleName, userId: oracle, now }),
    newRequestId: newId,
    observe,
    parked,
    keysArrived: parkedWatch.keysArrived,
    reveal: encryption.reveal,
    onDecrypted: metrics.decrypted,
    verification: encryption.verification,
    fingerprint: encryption.fingerprint,
    cryptoTrust: config.cryptoTrust,
    oracle,
    oracleName: config.oracleName,
    rules,
    maxLatenessMs: config.maxEventLatenessS * 1_000,
    retentionMs: config.retentionDays * DAY_MS,
    commandPrefix: config.commandPrefix,
    botHopBudget: config.botHopBudget,
  });
  return { admit, parkedWatch };
}
