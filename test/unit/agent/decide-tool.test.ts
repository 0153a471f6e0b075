import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decideTool, isAudited, type ToolQuestion } from '../../../src/agent/decide-tool.ts';

const MEMORY = { resource: 'ixo:memory', action: 'memory/write' };
const ask = (change: Partial<ToolQuestion> = {}) =>
  decideTool({ tool: {}, tier: 'signed', tainted: false, holdsCapability: false, authority: null, ...change });
const codeOf = (change: Partial<ToolQuestion>): string => {
  const decision = ask(change);
  return decision.kind === 'run' ? 'run' : `${decision.kind} ${decision.code}`;
};

test.each<[string, Partial<ToolQuestion>, string]>([
  ['a read tool, whoever asks and whatever was read', { tier: 'listed', tainted: true }, 'run'],
  ['an own write tool likewise', { tool: { effect: 'write' }, tier: 'sender-bound', tainted: true }, 'run'],
  ['an external tool in a signed, untainted run', { tool: { effect: 'write', reach: 'external' } }, 'run'],
  ['an external tool below signed', { tool: { reach: 'external' }, tier: 'sender-bound' }, 'refuse TIER_TOO_LOW'],
  ['an external tool of a listed account', { tool: { reach: 'external' }, tier: 'listed', tainted: true }, 'refuse TIER_TOO_LOW'],
  ['an external tool in a tainted run', { tool: { reach: 'external' }, tainted: true }, 'refuse NEEDS_CONFIRMATION'],
  ['a capability that is granted', { tool: { capability: MEMORY }, holdsCapability: true }, 'run'],
  ['a capability that is not granted', { tool: { capability: MEMORY } }, 'refuse NEEDS_GRANT'],
  [
    'a granted capability below signed',
    { tool: { capability: MEMORY }, holdsCapability: true, tier: 'sender-bound' },
    'refuse TIER_TOO_LOW',
  ],
  ['a granted reading capability in a tainted run', { tool: { capability: MEMORY }, holdsCapability: true, tainted: true }, 'run'],
  [
    'a granted writing one in a tainted run',
    { tool: { capability: MEMORY, effect: 'write' }, holdsCapability: true, tainted: true },
    'refuse NEEDS_CONFIRMATION',
  ],
  ['anything once the grant of the run is taken back', { authority: 'REVOKED' }, 'stop REVOKED'],
  [
    'an external tool once the grant of the run has ended',
    { tool: { reach: 'external' }, tier: 'listed', authority: 'GRANT_EXPIRED' },
    'stop GRANT_EXPIRED',
  ],
])('%s: %j is %s (G8)', (_name, change, expected) => {
  expect(codeOf(change)).toBe(expected);
});

test('a refusal tells the model what to say, and which grant is missing', () => {
  expect(ask({ tool: { capability: MEMORY } })).toMatchObject({
    text: expect.stringMatching(/!authorise.*memory\/write on ixo:memory.*Tell the user so/u),
  });
});

const question = fc.record({
  tool: fc.record({
    effect: fc.constantFrom('read' as const, 'write' as const),
    reach: fc.constantFrom('own' as const, 'external' as const),
    ...{ capability: fc.constantFrom(undefined, MEMORY) },
  }),
  tier: fc.constantFrom('signed' as const, 'sender-bound' as const, 'listed' as const),
  tainted: fc.boolean(),
  holdsCapability: fc.boolean(),
  authority: fc.constantFrom(null, 'REVOKED' as const),
});

test('whatever is asked: nothing external runs tainted or unsigned, no capability without its grant, nothing without authority', () => {
  fc.assert(
    fc.property(question, (asked) => {
      const { tool, ...rest } = asked;
      const { capability, ...plain } = tool;
      const one = { ...rest, tool: capability === undefined ? plain : { ...plain, capability } };
      const decision = decideTool(one);
      if (decision.kind !== 'run') {
        expect(isAudited(one.tool, decision)).toBe(true);
        return;
      }
      expect(one.authority).toBeNull();
      if (tool.reach === 'external') expect([one.tier, one.tainted, isAudited(one.tool, decision)]).toEqual(['signed', false, true]);
      if (capability !== undefined) expect([one.tier, one.holdsCapability, isAudited(one.tool, decision)]).toEqual(['signed', true, true]);
    }),
  );
});

test('less authority never allows more: lower tier, taint, or a missing grant', () => {
  fc.assert(
    fc.property(question, (asked) => {
      const { tool, ...rest } = asked;
      const { capability, ...plain } = tool;
      const one = { ...rest, tool: capability === undefined ? plain : { ...plain, capability } };
      const allowed = (change: Partial<ToolQuestion>) => decideTool({ ...one, ...change }).kind === 'run';
      if (allowed({})) {
        expect(allowed({ tier: 'signed' })).toBe(true);
        expect(allowed({ tainted: false })).toBe(true);
        expect(allowed({ holdsCapability: true })).toBe(true);
      }
    }),
  );
});
