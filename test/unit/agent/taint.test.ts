import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { expect, test } from 'vitest';
import { buildArtifact, createTaint, hasForeignResult, isForeignEntry } from '../../../src/agent/taint.ts';
import type { PrincipalId } from '../../../src/ids.ts';
import type { RegisteredTool } from '../../../src/plugin-host/registered-tool.ts';
import type { TranscriptEntry } from '../../../src/sessions/transcript.ts';

const ALICE = 'did:key:zAlice' as PrincipalId;
type Said = Pick<TranscriptEntry, 'role' | 'speaker' | 'tier' | 'tainted'>;
const said = (change: Partial<Said>): Said => ({ role: 'human', speaker: ALICE, tier: 'signed', tainted: false, ...change });

test.each<[string, Partial<Said>, 'signed' | 'sender-bound' | 'listed', boolean]>([
  ['their own words', {}, 'signed', false],
  ['their own words of a higher tier', {}, 'listed', false],
  ['what only a homeserver says they said, in a signed run', { tier: 'sender-bound' }, 'signed', true],
  ['what only a homeserver says they said, in a run that rests on no more', { tier: 'sender-bound' }, 'sender-bound', false],
  ['what was overheard of them', { tier: null }, 'signed', true],
  ['another person', { speaker: 'did:key:zBob' }, 'signed', true],
  ['another person, to a listed account', { speaker: 'matrix:u/bob:x', tier: 'listed' }, 'listed', true],
  [
    'an answer to what only a homeserver vouched for, in a signed run',
    { role: 'ai', speaker: 'oracle', tier: 'sender-bound' },
    'signed',
    true,
  ],
  ['an answer of before tiers were written down', { role: 'ai', speaker: 'oracle', tier: null }, 'signed', true],
  ['the oracle’s answer in an untainted run', { role: 'ai', speaker: 'oracle' }, 'signed', false],
  ['a trusted tool’s result', { role: 'tool', speaker: 'oracle' }, 'signed', false],
  ['an answer of a tainted run', { role: 'ai', speaker: 'oracle', tainted: true }, 'signed', true],
  ['a result in a tainted run', { role: 'tool', speaker: 'oracle', tainted: true }, 'listed', true],
])('%s (%j, run of tier %s) taints: %s', (_name, change, tier, expected) => {
  expect(isForeignEntry(said(change), { principalId: ALICE, tier })).toBe(expected);
});

const tools = new Map([
  ['web_read', { definition: { untrusted: true } } as RegisteredTool],
  ['now', { definition: {} } as RegisteredTool],
]);
const result = (name: string, more: object = {}) => new ToolMessage({ tool_call_id: 'c', name, content: 'x', ...more });

test('a result taints when its tool says so, or when it is marked, also when its plugin is gone', () => {
  expect(hasForeignResult([new HumanMessage('web_read'), new AIMessage('x'), result('now'), result('nosuch')], tools)).toBe(false);
  expect(hasForeignResult([result('now'), result('web_read')], tools)).toBe(true);
  expect(hasForeignResult([result('gone', { ...buildArtifact({ isForeign: true, calls: [] }) })], tools)).toBe(true);
});

test('taint only ever turns on', () => {
  const taint = createTaint();
  expect(taint.isOn).toBe(false);
  taint.turnOn();
  taint.turnOn();
  expect(taint.isOn).toBe(true);
});
