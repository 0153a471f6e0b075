/** Asks plugins for the routes that they add to the sidecar. Which of them collide is found where they are registered (src/sidecar/plugin-routes.ts). */
import { z } from 'zod';
import type { PluginRoutesContext } from '../plugin-api/define-oracle-plugin.ts';
import { err, ok, type Result } from '../result.ts';
import type { BootProblem } from './boot-problem.ts';
import type { LoadedPlugin, PluginRoutes } from './plugin-host.ts';
import { hookFailed } from './resolve-plugins.ts';

const MAX_OPEN_ROUTES = 50;
const openRoutes = z
  .array(z.strictObject({ path: z.string().regex(/^\/[^\s?#]{0,255}$/u, 'is no path'), method: z.string().toUpperCase().optional() }))
  .max(MAX_OPEN_ROUTES);

export function buildPluginRoutes(
  loaded: readonly LoadedPlugin[],
  contextFor: (plugin: LoadedPlugin) => PluginRoutesContext<unknown>,
): Result<readonly PluginRoutes[], readonly BootProblem[]> {
  const routes: PluginRoutes[] = [];
  const problems: BootProblem[] = [];
  for (const one of loaded) {
    const { name, plugin } = one;
    if (plugin.getRoutes === undefined) continue;
    try {
      const register: unknown = plugin.getRoutes(contextFor(one));
      if (typeof register !== 'function') throw new TypeError('it must return a Fastify plugin');
      const open = openRoutes.safeParse(plugin.getAuthExcludedRoutes?.() ?? []);
      if (!open.success) throw new TypeError('getAuthExcludedRoutes must return a list of { path, method? }');
      routes.push({ plugin: name, register: register as PluginRoutes['register'], open: open.data as PluginRoutes['open'] });
    } catch (error) {
      problems.push(hookFailed(name, 'getRoutes', error));
    }
  }
  return problems.length > 0 ? err(problems) : ok(routes);
}
