import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { buildAnswerContent, buildAnswerEdit, LIVE_KEY } from '../../../../appservice/content/build-answer.ts';
import {
  buildDelegationRequired,
  buildHello,
  buildMirror,
  buildNotice,
  buildReaction,
} from '../../../../appservice/content/build-notice.ts';
import { withMarker } from '../../../../appservice/content/mark-answer.ts';
import { isTerminal, readRunField } from '../../../../appservice/content/run-field.ts';
import type { Did, EventId, RunId, SessionId, UserId } from '../../../../src/ids.ts';
import { canonicalJson } from '../../../../src/json.ts';
import { LIMITS } from '../../../../src/limits.ts';

const id = (letter: string) => `$${letter.repeat(43)}` as EventId;
const answer = {
  text: 'A **bold** word',
  part: 1,
  seq: 7,
  runId: '01JEXAMP0E0000000000000000' as RunId,
  sessionId: id('s') as SessionId,
  prompts: [id('p')],
  status: 'running' as const,
  live: true,
};
const run = { run_id: answer.runId, session_id: answer.sessionId, prompts: [id('p')], part: 1, seq: 7, status: 'running' };

describe('the answer', () => {
  test('in an unthreaded room there is no relation', () => {
    expect(buildAnswerContent(answer)).toEqual({
      msgtype: 'm.text',
      body: 'A **bold** word',
      format: 'org.matrix.custom.html',
      formatted_body: '<p>A <strong>bold</strong> word</p>',
      'm.mentions': {},
      'ixo.oracle.run': run,
      [LIVE_KEY]: {},
    });
  });

  test('in a thread it falls back to the newest event, or to the root', () => {
    const relation = (latest: EventId) => ({
      'm.relates_to': { rel_type: 'm.thread', event_id: id('r'), is_falling_back: true, 'm.in_reply_to': { event_id: latest } },
    });

    expect(buildAnswerContent({ ...answer, thread: { root: id('r'), latest: id('l') } })).toMatchObject(relation(id('l')));
    expect(buildAnswerContent({ ...answer, thread: { root: id('r') } })).toMatchObject(relation(id('r')));
    expect(buildAnswerContent({ ...answer, replyTo: id('q') })).toMatchObject({
      'm.relates_to': { 'm.in_reply_to': { event_id: id('q') } },
    });
  });

  test('an edit has the whole text in m.new_content, a short fallback, and only the replacing relation', () => {
    const edit = buildAnswerEdit({ ...answer, target: id('o'), text: `${'long '.repeat(100)}\n\n**end**` });

    expect(edit['m.relates_to']).toEqual({ rel_type: 'm.replace', event_id: id('o') });
    expect(String(edit['body'])).toMatch(/^\* long /);
    expect(String(edit['body']).length).toBeLessThanOrEqual(102);
    expect(edit).not.toHaveProperty('formatted_body');
    expect(edit['m.new_content']).toMatchObject({
      'm.mentions': {},
      'ixo.oracle.run': run,
      [LIVE_KEY]: {},
      format: 'org.matrix.custom.html',
    });
    expect(edit['m.new_content']).not.toHaveProperty(['m.relates_to']);
    expect(edit).toMatchObject({ 'm.mentions': {}, 'ixo.oracle.run': run, [LIVE_KEY]: {} });
  });

  test('the final edit carries the live marker nowhere', () => {
    expect(JSON.stringify(buildAnswerEdit({ ...answer, live: false, status: 'completed', target: id('o') }))).not.toContain(LIVE_KEY);
  });

  test.each(['@room look', 'hi @alice:server', '[x](https://matrix.to/#/@alice:server)', '<a href="https://matrix.to/#/@a:b">x</a>'])(
    'no text of a model mentions anybody: %s',
    (text) => {
      expect(buildAnswerContent({ ...answer, text })['m.mentions']).toEqual({});
      expect(buildAnswerEdit({ ...answer, text, target: id('o') })).toMatchObject({
        'm.mentions': {},
        'm.new_content': { 'm.mentions': {} },
      });
    },
  );

  test('the worst metadata and text stay within an event, by giving up the HTML', () => {
    const worst = {
      ...answer,
      text: '**"**'.repeat(LIMITS.partTextBytes / 5),
      prompts: Array.from({ length: 500 }, (_, index) => `$${String(index).padStart(254, 'x')}` as EventId),
      tools: Array.from({ length: 500 }, (_, index) => `${index}${'t'.repeat(500)}`),
      usage: { inputTokens: 1.5, outputTokens: Number.NaN },
      target: id('o'),
    };

    const json = canonicalJson(buildAnswerEdit(worst));

    expect(json.ok && Buffer.byteLength(json.value)).toBeLessThanOrEqual(LIMITS.partEventBytes);
    expect(readRunField(buildAnswerEdit(worst))).toMatchObject({ ok: true, value: { usage: { inputTokens: 2, outputTokens: 0 } } });
  });

  test('any text has a canonical form', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), fc.boolean(), (text, live) => {
        expect(canonicalJson(buildAnswerEdit({ ...answer, text, live, target: id('o') })).ok).toBe(true);
        expect(canonicalJson(buildAnswerEdit({ ...answer, text: `${text}\ud800`, live, target: id('o') })).ok).toBe(true);
      }),
    );
  });
});

describe('ixo.oracle.run', () => {
  test('what is written is read back', () => {
    const field = { ...answer, tools: ['search'], usage: { inputTokens: 3, outputTokens: 4 }, status: 'completed' as const };
    const { text: _text, live: _live, ...expected } = field;

    const read = readRunField(buildAnswerEdit({ ...field, target: id('o') }));

    expect(read).toEqual({ ok: true, value: expected });
    expect(read.ok && read.value !== undefined && isTerminal(read.value)).toBe(true);
  });

  test('absent is not broken', () => {
    expect(readRunField({})).toEqual({ ok: true, value: undefined });
    expect(readRunField(null)).toEqual({ ok: true, value: undefined });
  });

  test.each([
    null,
    5,
    {},
    { ...run, run_id: 'x' },
    { ...run, prompts: ['x'] },
    { ...run, seq: 1.5 },
    { ...run, part: 0 },
    { ...run, status: 'x' },
  ])('%j is broken', (value) => {
    expect(readRunField({ 'ixo.oracle.run': value })).toEqual({ ok: false, error: 'BAD_RUN_FIELD' });
  });

  test('no JSON makes the reader throw', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), (field, prompts) => {
        readRunField(field);
        readRunField({ 'ixo.oracle.run': field });
        readRunField({ 'ixo.oracle.run': { ...run, prompts } });
      }),
    );
  });
});

describe('notices', () => {
  const error = { status: 402, code: 'OUT_OF_CREDITS', message: 'You have no credits left.', retryable: false };

  test('an error is a sentence for people and a field for programs', () => {
    expect(buildNotice({ error: { ...error, runId: answer.runId }, thread: { root: id('r') } })).toMatchObject({
      msgtype: 'm.notice',
      body: 'You have no credits left.',
      'm.mentions': {},
      'ixo.oracle.error': { ...error, run_id: answer.runId },
      'm.relates_to': { rel_type: 'm.thread' },
    });
  });

  test('details and cause of a refusal do not leave (G12)', () => {
    const leaky = { ...error, details: { token: 'secret' }, cause: new Error('secret') };

    expect(JSON.stringify(buildNotice({ error: leaky }))).not.toContain('secret');
  });

  test('a missing grant names the oracle, and a page only when there is one', () => {
    const required = { oracleDid: 'did:key:z6Mk' as Did, body: 'Please authorise me.' };

    expect(buildDelegationRequired(required)).toMatchObject({
      msgtype: 'm.notice',
      'ixo.oracle.delegation_required': { oracleDid: 'did:key:z6Mk', body: 'Please authorise me.' },
    });
    expect(buildDelegationRequired({ ...required, url: 'https://o.example/a' })).toMatchObject({
      body: 'Please authorise me.\n\nhttps://o.example/a',
      'ixo.oracle.delegation_required': { url: 'https://o.example/a' },
    });
  });

  test('a mirrored prompt is quoted as it is', () => {
    expect(buildMirror({ text: '**hi** <b>', did: 'did:ixo:x' as Did, requestId: 'r1' })).toEqual({
      msgtype: 'm.notice',
      body: '**hi** <b>',
      'm.mentions': {},
      'ixo.oracle.mirror': { did: 'did:ixo:x', request_id: 'r1' },
    });
  });

  test('reaction and greeting', () => {
    expect(buildReaction({ target: id('t'), key: '👍' })).toEqual({
      'm.relates_to': { rel_type: 'm.annotation', event_id: id('t'), key: '👍' },
    });
    expect(buildHello({ kind: 'group', name: 'Oracle', userId: '@oracle:s' as UserId })['body']).toContain('Mention me (@oracle:s)');
    expect(buildHello({ kind: 'direct', name: ' \u202e ', userId: '@oracle:s' as UserId })['body']).toContain('I am @oracle:s');
  });
});

describe('markers', () => {
  test('the text stays as it is, and an open fence is closed before the marker', () => {
    expect(withMarker('Half an ans', 'cancelled')).toBe('Half an ans\n\n*Stopped on request.*');
    expect(withMarker('```js\nlet a', 'interrupted')).toMatch(/^```js\nlet a\n```\n\n\*This answer was interrupted/);
    expect(withMarker('', 'failed')).toMatch(/^\*The answer ends here/);
  });
});
