/** Plugins that write down what happens to them, in one list in the order in which it happened. */
import { createMiddleware } from 'langchain';
import { z } from 'zod';
import { type AnyOraclePlugin, defineOraclePlugin, type PluginManifest } from '../../../src/plugin-api/define-oracle-plugin.ts';
import { defineSubAgent } from '../../../src/plugin-api/define-sub-agent.ts';
import { defineTool } from '../../../src/plugin-api/define-tool.ts';

const NODES = ['beforeAgent', 'beforeModel', 'afterModel', 'afterAgent'] as const;
const manifestOf = (name: string): PluginManifest => ({ title: name, summary: `What ${name} does.`, whenToUse: ['The test asks.'] });

export const echo = (name: string, log: string[] = []) =>
  defineTool({
    name,
    description: name,
    schema: z.object({ text: z.string().default('') }),
    handler: ({ text }) => {
      log.push(`${name} runs`);
      return `${name}: ${text}`;
    },
  });

/** Every hook of a middleware; `nodes: false` leaves out those that are nodes of the graph. */
export const recordingMiddleware = (name: string, log: string[], { nodes = true }: { nodes?: boolean } = {}) =>
  createMiddleware({
    name,
    ...(nodes ? Object.fromEntries(NODES.map((hook) => [hook, () => void log.push(`${name}.${hook}`)])) : {}),
    wrapModelCall: async (request, handler) => {
      log.push(`${name}.wrapModelCall`);
      const answer = await handler(request);
      log.push(`${name}.wrapModelCall done`);
      return answer;
    },
    wrapToolCall: async (request, handler) => {
      log.push(`${name}.wrapToolCall ${request.toolCall.name}`);
      const result = await handler(request);
      log.push(`${name}.wrapToolCall ${request.toolCall.name} done`);
      return result;
    },
  });

export const plugin = (name: string, more: Partial<AnyOraclePlugin> = {}): AnyOraclePlugin =>
  defineOraclePlugin({ name, version: '1.0.0', ...more, manifest: { ...manifestOf(name), visibility: 'always', ...more.manifest } });

export const onDemand = (name: string, more: Partial<AnyOraclePlugin> = {}): AnyOraclePlugin =>
  plugin(name, { ...more, manifest: { ...manifestOf(name), visibility: 'on-demand', ...more.manifest } });

export const helper = (log: string[]) =>
  defineSubAgent({
    name: 'helper',
    description: 'Helps.',
    systemPrompt: (ctx) => {
      log.push(`systemPrompt for ${ctx.user.did}`);
      return 'You help.';
    },
    tools: [echo('look', log)],
  });
