/** Everything that `authenticate` answers beside what a token without grants gets (turn.test.ts), each in a sentence. */
import { createPublicKey } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Did, EventId, SessionId, UserId } from '../../../src/ids.ts';
import { sha256Base64Url } from '../../../src/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { HttpIncoming, MatrixIncoming } from '../../../src/turn/prompt.ts';
import { beginTurn } from '../../../src/turn/turn.ts';
import { type GatedToken, gateDelegation, gateInvocation } from '../../../src/ucan/gate.ts';
import { type MessageToSign, mintGrant, mintRequestInvocation, newNonce, signContent } from '../../../src/ucan/mint.ts';
import { keyFromSeed, type SigningKey } from '../../../src/ucan/signing-key.ts';
import { ALICE_KEY, buildCore, type Core, type CoreOptions, MALLORY_KEY, ORACLE_KEY } from '../../fakes/core.ts';
import { ALICE, BOB, eventId, ROOM } from '../../fakes/events.ts';

const SESSION_KEY = keyFromSeed(Buffer.alloc(32, 7));
const OTHER_SESSION_KEY = keyFromSeed(Buffer.alloc(32, 9));
const UCAN = 'ixo.oracle.ucan';
const TEXT = { msgtype: 'm.text', body: 'Hello' };
const HOUR = 3_600_000;
const IXO = 'did:ixo:ixo1abc' as Did;
const IXO_HERE = '@did-ixo-ixo1abc:example.org' as UserId;
const FOREIGN = '@alice:elsewhere.net' as UserId;

function setUp(options: CoreOptions = {}): Core {
  const core = buildCore(options);
  core.execute = null;
  return core;
}
function parse(encoded: string): GatedToken {
  const token = gateDelegation(encoded);
  if (!token.ok) throw new Error(token.error);
  return token.value;
}
const rawKey = ({ privateKey }: SigningKey): Uint8Array =>
  Buffer.from(createPublicKey(privateKey).export({ format: 'jwk' }).x ?? '', 'base64url');
/** U→S: the key of a client may speak for its owner. */
const sessionGrant = (core: Core, more: { key?: SigningKey; issuer?: Did; audience?: Did; with?: Did; livesMs?: number } = {}): string => {
  const key = more.key ?? ALICE_KEY;
  const owner = more.with ?? more.issuer ?? key.did;
  return mintGrant({
    key,
    issuer: more.issuer,
    audience: more.audience ?? SESSION_KEY.did,
    capabilities: [
      { can: 'oracle/message', with: owner },
      { can: 'oracle/read', with: owner },
    ],
    expiresAt: core.clock.now() + (more.livesMs ?? HOUR),
    nonce: newNonce(),
  });
};
const actingGrant = (core: Core, more: { key?: SigningKey; livesMs?: number; sender?: UserId } = {}): string => {
  const key = more.key ?? ALICE_KEY;
  return mintGrant({
    key,
    audience: ORACLE_KEY.did,
    capabilities: [{ can: 'memory/read', with: 'ixo:memory' }],
    expiresAt: core.clock.now() + (more.livesMs ?? HOUR),
    nonce: newNonce(),
  });
};
const sign = (core: Core, change: Partial<MessageToSign> = {}) =>
  signContent(
    {
      key: SESSION_KEY,
      as: ALICE_KEY.did,
      audience: ORACLE_KEY.did,
      room: ROOM,
      sender: ALICE,
      type: 'm.room.message',
      ts: core.clock.now(),
      nonce: newNonce(),
      ...change,
    },
    TEXT,
  );
const withBeside = (content: ReturnType<typeof sign>, ...dlg: string[]) => ({ ...content, [UCAN]: { ...(content[UCAN] as object), dlg } });
const prompt = (core: Core, name: string, change: Partial<MatrixIncoming> = {}): MatrixIncoming => ({
  via: 'matrix',
  trust: 'clear',
  text: 'Hello',
  roomId: ROOM,
  direct: true,
  sender: ALICE,
  hints: {},
  requestId: 'r',
  eventId: eventId(name),
  eventType: 'm.room.message',
  content: TEXT,
  sentAt: core.clock.now(),
  threadRoot: null,
  conversation: { kind: 'rolling' },
  editsTarget: null,
  alongside: () => undefined,
  ...change,
});
async function codeOf(core: Core, incoming: MatrixIncoming | HttpIncoming): Promise<string> {
  const turn = await beginTurn(incoming, core.checks);
  return turn.ok ? 'ok' : turn.error.refusal.code;
}
async function runOf(core: Core, name: string, change: Partial<MatrixIncoming>) {
  const turn = await beginTurn(prompt(core, name, change), core.checks);
  if (!turn.ok) throw new Error(turn.error.refusal.code);
  const run = core.runs.read(core.store.read, turn.value.runId);
  if (run === undefined) throw new Error('no run');
  return { run, joined: turn.value.joined };
}
/** Makes an account sender-bound, as `!authorise confirm` does. */
async function bind(
  core: Core,
  user: UserId,
  { key = ALICE_KEY, issuer, livesMs = 10 * 24 * HOUR }: { key?: SigningKey; issuer?: Did; livesMs?: number } = {},
) {
  const nonce = newNonce();
  const token = mintGrant({
    key,
    issuer,
    audience: ORACLE_KEY.did,
    capabilities: [{ can: 'oracle/chat', with: issuer ?? key.did, nb: { link: nonce, sender: user } }],
    expiresAt: core.clock.now() + livesMs,
    nonce: newNonce(),
  });
  const verified = await core.verifier.grant(parse(token));
  if (!verified.ok) throw new Error(verified.error);
  await core.store.write((tx) => {
    const now = core.clock.now();
    core.grants.store(tx, { verified: verified.value, kind: 'acting', car: verified.value.car, source: 'page', matrixUserId: user }, now);
    core.grants.markShown(tx, verified.value.tokenId, now);
    if (!core.grants.activate(tx, verified.value.tokenId, now)) throw new Error('not activated');
  });
  return verified.value;
}

describe('a session key under a grant', () => {
  test('speaks for the grant’s owner when the grant is inside the token, and the run rests on it', async () => {
    const core = setUp();
    const grant = parse(sessionGrant(core));

    const { run } = await runOf(core, 'a', { content: sign(core, { proofs: [grant] }) });

    expect(run).toMatchObject({ principalId: ALICE_KEY.did, did: ALICE_KEY.did, tier: 'signed' });
    expect(run.grants.path.map(({ tokenId }) => tokenId)).toEqual([grant.leaf.tokenId]);
    expect(run.grants.until).toBe(grant.leaf.expiration * 1_000);
  });

  test('the grant inside the token is stored in the same transaction, so that the next message only names it', async () => {
    const core = setUp();
    const grant = parse(sessionGrant(core));
    expect(await codeOf(core, prompt(core, 'a', { content: sign(core, { proofLinks: [grant.leaf.cid] }) }))).toBe('MISSING_PROOF');
    await runOf(core, 'b', { content: sign(core, { proofs: [grant] }) });

    expect(core.grants.byTokenId(grant.leaf.tokenId)).toMatchObject({ kind: 'session', source: 'proof', did: ALICE_KEY.did });
    expect(await codeOf(core, prompt(core, 'c', { content: sign(core, { proofLinks: [grant.leaf.cid] }) }))).toBe('ok');
  });

  test('a grant beside the token counts as its proof and is stored as well', async () => {
    const core = setUp();
    const grant = sessionGrant(core);
    const content = withBeside(sign(core, { proofLinks: [parse(grant).leaf.cid] }), grant);

    const { run } = await runOf(core, 'a', { content });

    expect(run.grants.path).toHaveLength(1);
    expect(core.grants.byTokenId(parse(grant).leaf.tokenId)).toMatchObject({ source: 'dlg' });
  });

  test('an acting grant beside a token that needs none is stored for its DID, and the run does not rest on it', async () => {
    const core = setUp();
    const grant = actingGrant(core);

    const { run } = await runOf(core, 'a', { content: withBeside(sign(core, { key: ALICE_KEY }), grant) });

    expect(run.grants).toEqual({ path: [], until: null });
    expect(core.authority.actingGrants(run, core.clock.now()).map(({ tokenId }) => tokenId)).toEqual([parse(grant).leaf.tokenId]);
  });

  test('what came with it is stored by open only: a message that is refused later leaves no grant', async () => {
    const core = setUp({ rate: { limit: 0, windowMs: 1_000 } });
    const content = withBeside(sign(core, { proofs: [parse(sessionGrant(core))] }), actingGrant(core));

    expect(await codeOf(core, prompt(core, 'a', { content }))).toBe('RATE_LIMITED');

    expect(core.count('grants')).toBe(0);
  });

  test('a redelivery of the same event passes again, whatever came with it', async () => {
    const core = setUp();
    const content = withBeside(sign(core, { proofs: [parse(sessionGrant(core))] }), actingGrant(core));
    await runOf(core, 'a', { content });

    expect(await core.checks.authenticate(prompt(core, 'a', { content }))).toMatchObject({ ok: true });
    expect(await codeOf(core, prompt(core, 'b', { content }))).toBe('REPLAY');
  });

  test.each<[string, string, (core: Core) => Promise<MatrixIncoming['content']> | MatrixIncoming['content']]>([
    ['names a proof that nobody has', 'MISSING_PROOF', (core) => sign(core, { proofLinks: [parse(sessionGrant(core)).leaf.cid] })],
    [
      'rests on a grant to another key',
      'BROKEN_CHAIN',
      (core) => sign(core, { proofs: [parse(sessionGrant(core, { audience: OTHER_SESSION_KEY.did }))] }),
    ],
    [
      'rests on somebody else’s grant',
      'NOT_DELEGATED',
      (core) => sign(core, { proofs: [parse(sessionGrant(core, { key: MALLORY_KEY }))] }),
    ],
    [
      'rests on a grant that has ended',
      'GRANT_EXPIRED',
      (core) => {
        const grant = parse(sessionGrant(core, { livesMs: 60_000 }));
        core.clock.advance(3 * 60_000);
        return sign(core, { proofs: [grant] });
      },
    ],
    [
      'rests on a grant that was taken back',
      'REVOKED',
      async (core) => {
        const grant = parse(sessionGrant(core));
        await core.store.write((tx) => core.grants.revoke(tx, { tokenId: grant.leaf.tokenId, by: ALICE_KEY.did }, core.clock.now()));
        return sign(core, { proofs: [grant] });
      },
    ],
    [
      'rests on a grant that ends before an answer could be finished',
      'EXPIRES_TOO_SOON',
      (core) => sign(core, { proofs: [parse(sessionGrant(core, { livesMs: 299_000 }))] }),
    ],
    ['has a broken grant beside it', 'UCAN_MALFORMED', (core) => withBeside(sign(core, { key: ALICE_KEY }), 'AAAA')],
    [
      'has somebody else’s grant beside it',
      'BAD_ISSUER',
      (core) => withBeside(sign(core, { key: ALICE_KEY }), actingGrant(core, { key: MALLORY_KEY })),
    ],
    [
      'has more beside it than 16 KiB',
      'UCAN_TOO_LARGE',
      (core) => withBeside(sign(core, { key: ALICE_KEY }), 'A'.repeat(12_000), 'A'.repeat(12_000)),
    ],
    ['has three grants beside it', 'BAD_UCAN_CONTENT', (core) => withBeside(sign(core, { key: ALICE_KEY }), 'AAAA', 'AAAA', 'AAAA')],
  ])('a message whose token %s is refused %s, and nothing of it is kept', async (_name, code, contentOf) => {
    const core = setUp();
    const content = await contentOf(core);

    expect(await codeOf(core, prompt(core, 'a', { content, sentAt: core.clock.now() }))).toBe(code);

    expect([core.count('runs'), core.count('grants'), core.count('replay_marks')]).toEqual([0, 0, 0]);
  });

  test('messages that rest on different grants are not answered in one run', async () => {
    const core = setUp();
    const first = parse(sessionGrant(core));
    const second = parse(sessionGrant(core, { audience: OTHER_SESSION_KEY.did, livesMs: 2 * HOUR }));
    const one = await runOf(core, 'a', { content: sign(core, { proofs: [first] }) });

    const same = await runOf(core, 'b', { content: sign(core, { proofLinks: [first.leaf.cid] }) });
    const other = await runOf(core, 'c', { content: sign(core, { key: OTHER_SESSION_KEY, proofs: [second] }) });
    const none = await runOf(core, 'd', { content: sign(core, { key: ALICE_KEY, as: undefined }) });

    expect([same.run.id === one.run.id, other.joined, none.joined]).toEqual([true, false, false]);
  });
});

describe('did:ixo', () => {
  const name = (core: Core, sender: UserId) => prompt(core, 'a', { sender, content: sign(core, { key: ALICE_KEY, as: IXO, sender }) });
  const know = (core: Core, homeserver: string | null = null) => core.documents.set(IXO, { keys: [rawKey(ALICE_KEY)], homeserver });

  test('speaks through the account of its name on a trusted server', async () => {
    const core = setUp();
    know(core);

    expect((await runOf(core, 'a', name(core, IXO_HERE))).run).toMatchObject({ principalId: IXO, tier: 'signed' });
  });

  test('through the same name on the server of its document, and on no other', async () => {
    const elsewhere = '@did-ixo-ixo1abc:elsewhere.net' as UserId;
    const core = setUp({ rules: { access: 'open' } });
    know(core, 'elsewhere.net');
    expect(await codeOf(core, name(core, elsewhere))).toBe('ok');

    know(core, 'another.net');
    expect(await codeOf(core, { ...name(core, elsewhere), eventId: eventId('b') })).toBe('WRONG_ACCOUNT');
  });

  test('another account of the trusted server cannot speak for it, although the signature is right', async () => {
    const core = setUp();
    know(core);

    expect(await codeOf(core, name(core, ALICE))).toBe('WRONG_ACCOUNT');
  });

  test('a DID whose keys nobody can tell is refused, and may be tried again', async () => {
    expect(await codeOf(setUp(), name(setUp(), IXO_HERE))).toBe('DID_NOT_RESOLVED');
  });
});

describe('an account without a token', () => {
  test('is bound by its active grant: it speaks for the DID, at the tier sender-bound, as long as the grant lasts', async () => {
    const core = setUp({ rules: { unsignedUsers: [] } });
    const grant = await bind(core, ALICE);

    const { run } = await runOf(core, 'a', {});

    expect(run).toMatchObject({ principalId: ALICE_KEY.did, tier: 'sender-bound', grants: { until: grant.expiresAt } });
    expect(run.grants.path.map(({ tokenId }) => tokenId)).toEqual([grant.tokenId]);
    expect(await codeOf(core, prompt(core, 'b', { sender: BOB }))).toBe('NO_AUTHORITY');
  });

  test('is bound although it is listed as well, and only listed once the grant is taken back', async () => {
    const core = setUp();
    const grant = await bind(core, ALICE);
    expect((await runOf(core, 'a', {})).run.tier).toBe('sender-bound');

    await core.store.write((tx) => core.grants.revoke(tx, { tokenId: grant.tokenId, by: ALICE_KEY.did }, core.clock.now()));

    expect((await runOf(core, 'b', {})).run).toMatchObject({ tier: 'listed', principalId: 'matrix:u/alice:example.org' });
  });

  test('whose grant ends before an answer could be finished is told so', async () => {
    const core = setUp();
    await bind(core, ALICE, { livesMs: 299_000 });

    expect(await codeOf(core, prompt(core, 'a'))).toBe('EXPIRES_TOO_SOON');
  });

  test('of another server is never believed, listed or bound', async () => {
    const core = setUp({ rules: { access: 'open', unsignedUsers: ['@*:elsewhere.net'] } });
    await bind(core, FOREIGN);

    expect(await codeOf(core, prompt(core, 'a', { sender: FOREIGN }))).toBe('UNTRUSTED_SERVER');
    expect(await codeOf(core, prompt(core, 'b', { sender: FOREIGN, content: { ...TEXT, [UCAN]: { v: 1, dlg: ['AAAA'] } } }))).toBe(
      'UNTRUSTED_SERVER',
    );
  });

  test('that brings a grant but no invocation authenticates nothing, although it is bound', async () => {
    const core = setUp();
    await bind(core, ALICE);

    expect(await codeOf(core, prompt(core, 'a', { content: { ...TEXT, [UCAN]: { v: 1, dlg: [actingGrant(core)] } } }))).toBe(
      'NO_AUTHORITY',
    );
  });

  test('a message with a broken token is refused, although its account is bound: never a lower tier', async () => {
    const core = setUp();
    await bind(core, ALICE);

    expect(await codeOf(core, prompt(core, 'a', { content: { ...TEXT, [UCAN]: { v: 1, inv: 'AAAA' } } }))).toBe('UCAN_MALFORMED');
  });

  test('a did:ixo binds only the account of its name', async () => {
    const core = setUp();
    core.documents.set(IXO, { keys: [rawKey(ALICE_KEY)], homeserver: null });
    await bind(core, ALICE, { issuer: IXO });
    await bind(core, IXO_HERE, { issuer: IXO });

    expect(await codeOf(core, prompt(core, 'a'))).toBe('WRONG_ACCOUNT');
    expect(await codeOf(core, prompt(core, 'b', { sender: IXO_HERE }))).toBe('ok');
  });
});

describe('ACCESS=granted', () => {
  const grantUse = (core: Core, did: Did) =>
    core.store.write((tx) => tx.run(core.store.sql.insertInto('use_grants').values({ did, granted_at: 0 })));
  const link = (core: Core, did: Did, userId: UserId) =>
    core.store.write((tx) => core.links.prove(tx, { did, userId, directRoom: null }, core.clock.now()));
  const own = (core: Core, change: Partial<MessageToSign> = {}) => sign(core, { key: ALICE_KEY, as: undefined, ...change });

  test('a DID that the operator named may use the oracle, from any server; another may not', async () => {
    const core = setUp({ rules: { access: 'granted' } });
    await grantUse(core, ALICE_KEY.did);

    expect(await codeOf(core, prompt(core, 'a', { content: own(core) }))).toBe('ok');
    expect(await codeOf(core, prompt(core, 'b', { sender: FOREIGN, content: own(core, { sender: FOREIGN }) }))).toBe('ok');
    expect(await codeOf(core, prompt(core, 'c', { content: own(core, { key: MALLORY_KEY }) }))).toBe('ok');
    expect(await codeOf(core, prompt(core, 'd', { sender: BOB, content: own(core, { key: MALLORY_KEY, sender: BOB }) }))).toBe(
      'NOT_ALLOWED',
    );
  });

  test('an unsigned account passes only through a DID that is linked to it', async () => {
    const core = setUp({ rules: { access: 'granted' } });
    await grantUse(core, ALICE_KEY.did);
    expect(await codeOf(core, prompt(core, 'a'))).toBe('NOT_ALLOWED');

    await link(core, ALICE_KEY.did, ALICE);

    expect(await codeOf(core, prompt(core, 'b'))).toBe('ok');
  });

  test('what another server says of a linked account lets no other DID in', async () => {
    const core = setUp({ rules: { access: 'granted' } });
    await grantUse(core, ALICE_KEY.did);
    await link(core, ALICE_KEY.did, FOREIGN);

    expect(await codeOf(core, prompt(core, 'a', { sender: FOREIGN, content: own(core, { key: MALLORY_KEY, sender: FOREIGN }) }))).toBe(
      'NOT_ALLOWED',
    );
  });
});

describe('over HTTP', () => {
  const SESSION = '$session' as SessionId;
  function request(core: Core, change: { key?: SigningKey; proofs?: GatedToken[] } = {}) {
    const body = '{"message":"Hello"}';
    const token = mintRequestInvocation({
      key: SESSION_KEY,
      as: ALICE_KEY.did,
      audience: ORACLE_KEY.did,
      method: 'POST',
      path: `/messages/${SESSION}`,
      body,
      sender: ALICE,
      room: ROOM,
      thread: SESSION,
      ts: core.clock.now(),
      nonce: newNonce(),
      ...change,
    });
    const gated = gateInvocation(token);
    if (!gated.ok) throw new Error(gated.error);
    return { body, token: gated.value };
  }
  async function incoming(core: Core, { body, token }: ReturnType<typeof request>): Promise<HttpIncoming> {
    const verified = await core.verifier.invocation(token);
    if (!verified.ok) throw new Error(verified.error);
    return {
      via: 'http',
      text: 'Hello',
      roomId: ROOM,
      direct: true,
      sender: ALICE,
      hints: {},
      requestId: 'r',
      sessionId: SESSION,
      method: 'POST',
      path: `/messages/${SESSION}`,
      bodyHash: sha256Base64Url(body),
      proof: verified.value,
      alongside: () => undefined,
    };
  }
  async function linked(): Promise<Core> {
    const core = setUp();
    await core.store.write((tx) => {
      core.links.prove(tx, { did: ALICE_KEY.did, userId: ALICE, directRoom: ROOM }, core.clock.now());
      core.sessions.create(
        tx,
        { id: SESSION as EventId as SessionId, roomId: ROOM, owner: ALICE_KEY.did, kind: 'rolling', threadRoot: null, title: null },
        core.clock.now(),
      );
    });
    return core;
  }

  test('a run rests on the grant of the session key, which is stored', async () => {
    const core = await linked();
    const grant = parse(sessionGrant(core));

    const turn = await beginTurn(await incoming(core, request(core, { proofs: [grant] })), core.checks);

    expect(turn.ok && core.runs.read(core.store.read, turn.value.runId)?.grants.path.map(({ tokenId }) => tokenId)).toEqual([
      grant.leaf.tokenId,
    ]);
    expect(core.count('grants')).toBe(1);
  });

  test('a grant that ends too soon is refused as in a room', async () => {
    const core = await linked();
    const grant = parse(sessionGrant(core, { livesMs: 299_000 }));

    expect(await codeOf(core, await incoming(core, request(core, { proofs: [grant] })))).toBe('EXPIRES_TOO_SOON');
  });
});

test('grants beside a token are bounded together before anything is decoded (G14)', async () => {
  const core = setUp();
  const half = 'A'.repeat(Math.ceil((LIMITS.delegationBytes / 2) * (4 / 3)) + 100);

  expect(await codeOf(core, prompt(core, 'a', { content: withBeside(sign(core, { key: ALICE_KEY, as: undefined }), half, half) }))).toBe(
    'UCAN_TOO_LARGE',
  );
});
