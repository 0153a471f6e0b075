import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { buildRegistration, readRegistration } from '../../../appservice/registration.ts';
import {
  appserviceUrlInDocker,
  buildContainerPlan,
  dockerPlacement,
  engineAddresses,
  hostPortsOf,
} from '../../../synapse-dev/homeserver/docker.ts';
import { buildHomeserverYaml, buildLogYaml, writeHomeserverConfig } from '../../../synapse-dev/homeserver/homeserver-config.ts';

const secrets = { registrationSharedSecret: 'shared', macaroonSecretKey: 'macaroon', formSecret: 'form' };
const placement = { dir: '/data folder', bindAddress: '127.0.0.1', port: 8123 };
const base = { serverName: 'oracle.local', placement, secrets, registrationFiles: ['registration-0.yaml'] };

test('the homeserver talks to nobody but us', () => {
  const config = parse(buildHomeserverYaml(base));

  expect(config).toMatchObject({ trusted_key_servers: [], federation_domain_whitelist: [], report_stats: false });
  expect(config.listeners).toEqual([
    expect.objectContaining({ bind_addresses: ['127.0.0.1'], port: 8123, resources: [{ names: ['client'], compress: false }] }),
  ]);
  expect(config.app_service_config_files).toEqual(['/data folder/registration-0.yaml']);
});

test('limits are loosened unless a test is about the limits', () => {
  expect(parse(buildHomeserverYaml(base)).rc_message).toEqual({ per_second: 10_000, burst_count: 10_000 });
  expect(Object.keys(parse(buildHomeserverYaml({ ...base, loosenedLimits: false }))).filter((key) => key.startsWith('rc_'))).toEqual([]);
});

test('keys come in transactions only where somebody switches that on, as on most homeservers', () => {
  expect(parse(buildHomeserverYaml(base))).not.toHaveProperty('experimental_features');
  expect(parse(buildHomeserverYaml({ ...base, keysInTransactions: true })).experimental_features).toEqual({
    msc2409_to_device_messages_enabled: true,
    msc3202_transaction_extensions: true,
  });
});

test('venv and container differ in folder, address and port only', () => {
  const strip = (text: string, dir: string) => JSON.parse(JSON.stringify({ ...parse(text), listeners: undefined }).replaceAll(dir, 'DIR'));

  const inDocker = buildHomeserverYaml({ ...base, placement: dockerPlacement });

  expect(strip(inDocker, '/data')).toEqual(strip(buildHomeserverYaml(base), '/data folder'));
  expect(parse(inDocker).listeners[0]).toMatchObject({ bind_addresses: ['0.0.0.0'], port: 8008 });
  expect(parse(buildLogYaml(dockerPlacement)).handlers.file.filename).toBe('/data/homeserver.log');
});

test('files with tokens can be read by their owner only', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'matrix-oracle-config-'));
  const registration = buildRegistration({ url: 'http://127.0.0.1:1', asToken: 'a', hsToken: 'h', serverName: 'oracle.local' });

  await writeHomeserverConfig({ ...base, dir, registrations: [registration] });

  for (const name of ['homeserver.yaml', 'registration-0.yaml']) expect((await stat(join(dir, name))).mode & 0o777).toBe(0o600);
  expect(readRegistration(await readFile(join(dir, 'registration-0.yaml'), 'utf8'))).toEqual({ ok: true, value: registration });
  await rm(dir, { recursive: true });
});

test('a container calls the application service on the host by the forwarder’s name', () => {
  expect(appserviceUrlInDocker('http://127.0.0.1:9000')).toBe('http://host.testcontainers.internal:9000');
  expect(appserviceUrlInDocker('http://localhost:9000/path')).toBe('http://host.testcontainers.internal:9000/path');
  expect(appserviceUrlInDocker('https://oracle.example.org')).toBe('https://oracle.example.org');
  expect(hostPortsOf(['http://127.0.0.1:9000', 'http://localhost:9000', 'https://oracle.example.org'])).toEqual([9000]);
});

test('the container runs the pinned image with our configuration, as the caller’s user, on the caller’s port', () => {
  expect(buildContainerPlan({ dir: '/tmp/hs', port: 4711, uid: 1000, gid: 100 })).toEqual({
    image: 'matrixdotorg/synapse:v1.163.2',
    command: ['run', '-c', '/data/homeserver.yaml'],
    environment: { UID: '1000', GID: '100' },
    mounts: [{ source: '/tmp/hs', target: '/data', mode: 'z' }],
    ports: [{ container: 8008, host: 4711 }],
  });
});

test('DOCKER_HOST alone decides where the engine is looked for', () => {
  expect(engineAddresses({ DOCKER_HOST: 'unix:///x/docker.sock' })).toEqual([{ socketPath: '/x/docker.sock' }]);
  expect(engineAddresses({ DOCKER_HOST: 'tcp://10.0.0.1:2375' })).toEqual([{ host: '10.0.0.1', port: 2375 }]);
  expect(engineAddresses({ DOCKER_HOST: 'ssh://somewhere' })).toEqual(['unknown-scheme']);
  expect(engineAddresses({})).toContainEqual({ socketPath: '/var/run/docker.sock' });
});
