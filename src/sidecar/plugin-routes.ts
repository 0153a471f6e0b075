/**
 * Routes of plugins, each in a scope of its own behind the same doors as ours: limits per address and size, the signature, and the link that Matrix proved;
 * `getAuthExcludedRoutes` is the only way around them. A plugin has the first segments of its paths for itself: a parameter or a wildcard that could take
 * another's requests stops the start, as does a path that lies where ours do (G8, G13, G14).
 */
import type { FastifyInstance, FastifyRequest, RouteOptions } from 'fastify';
import { refusal } from '../errors.ts';
import type { Did } from '../ids.ts';
import { LIMITS } from '../limits.ts';
import type { PluginRoutesContext, PluginStorage, RouteCaller } from '../plugin-api/define-oracle-plugin.ts';
import { type BootProblem, BootRefused } from '../plugin-host/boot-problem.ts';
import type { BootedPlugins, PluginRoutes } from '../plugin-host/plugin-host.ts';
import { err } from '../result.ts';
import type { SidecarDeps } from './deps.ts';
import { identify, spendOnce } from './identify.ts';
import { orRefuse } from './problem.ts';

export interface PluginRoutePorts {
  readonly routes: BootedPlugins['routes'];
  /** What this plugin keeps for this person. */
  readonly storageOf: (plugin: string, did: Did) => PluginStorage;
}

/** Verifies who signed the request. */
type Door = (request: FastifyRequest) => Promise<void>;
const SIDECAR = 'the sidecar';
/** Owners by first path segment. */
type RouteOwners = Map<string, string>;

/** Call before any route is registered. @returns what is ours when it is called, which is when the plugins' turn comes. */
export function watchOwnRoutes(app: FastifyInstance): () => RouteOwners {
  const owners: RouteOwners = new Map();
  let watching = true;
  app.addHook('onRoute', ({ url }) => {
    if (watching) owners.set(firstSegment(url), SIDECAR);
  });
  return () => {
    watching = false;
    return owners;
  };
}

export const pluginRoutes =
  (ports: PluginRoutePorts, { deps, door, ownRoutes }: { deps: SidecarDeps; door: Door; ownRoutes: () => RouteOwners }) =>
  async (app: FastifyInstance): Promise<void> => {
    const callers = new WeakMap<object, Omit<RouteCaller, 'storage'> & { readonly did: Did }>();
    const callerOf =
      (plugin: string): PluginRoutesContext<unknown>['callerOf'] =>
      (request) => {
        const caller = callers.get(request);
        if (caller === undefined) throw new Error('callerOf was asked about a request that nobody has signed');
        return { ...caller, storage: ports.storageOf(plugin, caller.did) };
      };
    const routes = ports.routes(callerOf);
    if (!routes.ok) throw new BootRefused(routes.error);
    const owners = ownRoutes();
    const problems: BootProblem[] = [];
    /** After the body was read, because the signature is about it; before the plugin's own hooks and schemas see it. */
    const authenticate = async (request: FastifyRequest): Promise<void> => {
      // A parser of the plugin's own keeps no bytes that the signature could be held against.
      if (request.rawBody === null && request.body !== undefined && request.body !== null)
        orRefuse(err(refusal('BAD_REQUEST', { message: 'The body must be application/json.' })));
      const caller = orRefuse(identify(request, undefined, deps));
      // Nobody knows what this very request did before, so it is not done again.
      if (caller.again !== null) orRefuse(err(refusal('REPLAY')));
      if (request.method !== 'GET' && request.method !== 'HEAD' && orRefuse(await spendOnce(caller, deps)) === 'again')
        orRefuse(err(refusal('REPLAY')));
      callers.set(request, { did: caller.did, matrixUserId: caller.userId });
    };
    for (const one of routes.value) {
      const found = problems.length;
      try {
        await app.register((scope) => registerOne(scope, one, { owners, problems, door, authenticate, logger: deps.logger }));
      } catch (error) {
        if (problems.length > found) continue;
        const why = error instanceof Error ? error.message.slice(0, 200) : String(error);
        problems.push(collision(one.plugin, `The routes of plugin ${one.plugin} cannot be registered: ${why}.`));
      }
    }
    if (problems.length > 0) throw new BootRefused(problems);
  };

interface Place extends Pick<SidecarDeps, 'logger'> {
  readonly owners: RouteOwners;
  readonly problems: BootProblem[];
  readonly door: Door;
  readonly authenticate: (request: FastifyRequest) => Promise<void>;
}

async function registerOne(scope: FastifyInstance, { plugin, register, open }: PluginRoutes, place: Place): Promise<void> {
  const { owners, problems, door, authenticate, logger } = place;
  const unused = new Set(open);
  const isOpen = (method: string, url: string) => {
    const entry = open.find(({ path, method: only }) => path === url && (only === undefined || only === method));
    if (entry !== undefined) unused.delete(entry);
    return entry !== undefined;
  };
  scope.addHook('onRoute', (route) => {
    const problem = takeSegment(route, plugin, owners);
    if (problem !== null) problems.push(problem);
    route.bodyLimit = Math.min(route.bodyLimit ?? LIMITS.httpBodyBytes, LIMITS.httpBodyBytes);
    route.handlerTimeout = Math.min(route.handlerTimeout ?? LIMITS.pluginRouteMs, LIMITS.pluginRouteMs);
    const methods = [route.method].flat();
    if (!methods.every((method) => isOpen(method, route.url))) route.schema = { ...route.schema, security: [{ ucan: [] }] };
  });
  scope.addHook('onRequest', async (request) => {
    if (!isOpen(request.method, request.routeOptions.url ?? '')) await door(request);
  });
  scope.addHook('preValidation', async (request) => {
    if (!isOpen(request.method, request.routeOptions.url ?? '')) await authenticate(request);
  });
  // Not `scope.register`: what a plugin wraps to break out of its scope stays in it.
  await register(scope, {});
  for (const { path } of unused) logger.warn({ plugin, path }, 'a plugin wants a route without authentication that it does not have');
}

const STATIC = /^[A-Za-z0-9._~-]+$/u;
const firstSegment = (url: string): string => (url.startsWith('/') ? (url.split('/')[1] ?? '') : url);

/** One that is not there yet becomes the plugin's. */
function takeSegment({ method, url }: Pick<RouteOptions, 'method' | 'url'>, plugin: string, owners: RouteOwners): BootProblem | null {
  const route = `${[method].flat().join(',')} ${url}`.slice(0, 200);
  const segment = firstSegment(url);
  if (!STATIC.test(segment) && segment !== '')
    return collision(
      plugin,
      `The route ${route} of plugin ${plugin} could take requests that are not its own: its path must begin with a fixed name.`,
    );
  const owner = owners.get(segment) ?? plugin;
  owners.set(segment, owner);
  if (owner === plugin) return null;
  const whose = owner === SIDECAR ? SIDECAR : `plugin ${owner}`;
  return collision(
    plugin,
    `The route ${route} of plugin ${plugin} lies below /${segment}, which belongs to ${whose}. Give it another first segment.`,
  );
}
const collision = (plugin: string, message: string): BootProblem => ({ code: 'boot.plugin.collision', plugin, message });
