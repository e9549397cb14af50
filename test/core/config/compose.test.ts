/**
 * docker-compose.yml describes a deployment. It is checked by docker-compose, if that is installed, and against the settings.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '../../../src/config/config.js';
import { settings } from '../../../src/config/schema.js';

const file = fileURLToPath(new URL('../../../docker-compose.yml', import.meta.url));

const given = { POSTGRES_PASSWORD: '9f2c41d07ab6e5830c1d' };

interface Service {
  read_only?: boolean;
  mem_limit?: string;
  logging?: object;
  image?: string;
  command?: string[];
  environment?: Record<string, string>;
  healthcheck?: object;
  profiles?: string[];
  stop_grace_period?: string;
}

const { services } = parse(readFileSync(file, 'utf8'), { merge: true }) as {
  services: Record<string, Service>;
};

const ours = Object.entries(services).filter(([, { image }]) => image === 'palimpsest');

const compose = ['docker-compose', 'docker'].find((program) => {
  try {
    execFileSync(program, program === 'docker' ? ['compose', 'version'] : ['version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
});

test.skipIf(compose === undefined)('docker-compose takes it, with and without the profile of roles', () => {
  const run = (...args: string[]) =>
    execFileSync(compose ?? '', [...(compose === 'docker' ? ['compose'] : []), '-f', file, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...given },
    });
  for (const profile of [[], ['--profile', 'roles']]) expect(run(...profile, 'config')).toContain('worker');
});

test('no password and no token has a default', () => {
  expect(ours.map(([, { environment = {} }]) => environment.PALIMPSEST_API_TOKENS ?? '')).not.toContainEqual(
    expect.stringMatching(/:-.+}/),
  );
  const text = readFileSync(file, 'utf8');
  for (const variable of Object.keys(given)) {
    expect(text).toContain(`\${${variable}:?`);
    expect(text).not.toContain(`\${${variable}:-`);
  }
});

test('services cannot write to their image, and have limits for memory and logs', () => {
  for (const [name, service] of Object.entries(services)) {
    expect(service.mem_limit, name).toBeDefined();
    expect(service.logging, name).toMatchObject({ options: { 'max-size': '10m' } });
  }
  for (const [name, service] of ours) expect(service.read_only, name).toBe(true);
});

test('every variable is a setting, and its default can be read', () => {
  const known = new Set(settings().map(({ variable }) => variable));
  expect(ours.map(([name]) => name)).toEqual(
    expect.arrayContaining([
      'migrate',
      'api',
      'worker',
      'worker-workflow',
      'worker-database',
      'worker-model',
      'worker-backfill',
    ]),
  );
  for (const [, { environment = {} }] of ours) {
    expect(Object.keys(environment).filter((name) => !known.has(name))).toEqual([]);
    const defaults = Object.entries(environment).map(([name, value]) => [
      name,
      value.replace(/\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}/g, (_, variable: string, otherwise = '') =>
        variable in given ? given[variable as keyof typeof given] : String(otherwise),
      ),
    ]);
    expect(() => readConfig(Object.fromEntries(defaults) as NodeJS.ProcessEnv)).not.toThrow();
  }
});

test('long-running services have a health check and time to stop', () => {
  const { worker, api } = readConfig({});
  for (const [name, service] of ours.filter(([name]) => name !== 'migrate')) {
    expect(service.healthcheck, name).toBeDefined();
    const graceMs = 1_000 * Number.parseInt(service.stop_grace_period ?? '0');
    expect(graceMs).toBeGreaterThan(name === 'api' ? api.shutdownGraceMs : worker.graceMs + 5_000);
  }
});
