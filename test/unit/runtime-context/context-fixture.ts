/** A context of one run and plugin, and what came out of it. */
import { expect } from 'vitest';
import type { Run } from '../../../src/runs/run.ts';
import { buildRuntimeContext, type RuntimeContextSources } from '../../../src/runtime-context/build-runtime-context.ts';
import type { RuntimeContext } from '../../../src/runtime-context/runtime-context.ts';
import { mergePluginState, type PluginStatePort, type StoredPluginState } from '../../../src/runtime-context/state-group.ts';
import { createTestAuthority } from '../../../src/testing-authority.ts';
import { fakeServices } from '../../fakes/context-services.ts';
import { fakeClock } from '../../fakes/fake-clock.ts';
import { type FakeLogger, fakeLogger } from '../../fakes/fake-logger.ts';
import { fakeRun, noMatrix } from '../agent/turn-fixture.ts';

export interface BuiltContext {
  readonly context: RuntimeContext;
  readonly run: Run;
  readonly logger: FakeLogger;
  readonly emitted: { readonly kind: string; readonly data: unknown }[];
  /** How often the plugin was given text of strangers. */
  readonly foreign: { count: number };
  end(): void;
}
const { downstream } = createTestAuthority({ granted: [], canSign: false, now: () => 0 });

export function buildContext(more: Partial<RuntimeContextSources> = {}): BuiltContext {
  const clock = fakeClock();
  const logger = fakeLogger();
  const emitted: BuiltContext['emitted'] = [];
  const foreign = { count: 0 };
  const run = more.run ?? fakeRun();
  let over = false;
  const context = buildRuntimeContext({
    run,
    now: () => clock.now(),
    services: more.services ?? fakeServices(),
    models: {
      get: () => {
        throw new Error('unexpected model');
      },
    },
    matrix: noMatrix,
    logger,
    readMessages: () => [],
    sendToolCall: (data) => emitted.push({ kind: 'tool_call', data }),
    emit: (kind, data) => emitted.push({ kind, data }),
    signal: new AbortController().signal,
    actingGrants: () => [],
    downstream,
    isTainted: () => false,
    readsForeign: () => {
      foreign.count += 1;
    },
    isOver: () => over,
    plugin: 'p',
    call: { id: 'c1', tool: 't', mayWriteExternally: true },
    ...more,
  });
  const end = (): void => {
    over = true;
  };
  return { context, run, logger, emitted, foreign, end };
}

/** A plugin's place in the graph's state, in memory. */
export function memoryState(stored?: StoredPluginState): PluginStatePort & { readonly stored: StoredPluginState | undefined } {
  let current = stored;
  return {
    get stored() {
      return current;
    },
    get: () => current,
    update(patch) {
      current = mergePluginState(current, patch);
    },
  };
}

export const refusedWith = (code: string) => expect.objectContaining({ refusal: expect.objectContaining({ code }) });
