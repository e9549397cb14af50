/** Options of a connection, and the typed failures with the next step if it fails. */
import { beforeAll, afterAll, describe, expect, test, vi } from 'vitest';
import { PalimpsestError } from '../../../src/errors.js';
import type { PalimpsestOptions } from '../../../src/library/connections.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { startWorker, type WorkerSettings } from '../../../src/worker/worker.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { temporalAddress } from '../../support/temporal.js';
import { Way } from '../../support/way.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createDatabase();
});

afterAll(() => database.drop());

async function failureOf(options: unknown): Promise<PalimpsestError> {
  const error = await Palimpsest.connect(options as PalimpsestOptions).then(
    () => null,
    (reason: unknown) => reason,
  );
  if (!(error instanceof PalimpsestError)) throw new Error(`not typed: ${String(error)}`);
  expect(error.message).not.toMatch(/TypeError|getaddrinfo|E(?:CONN|AI_)|ENOTFOUND|SASL|undefined/);
  return error;
}

const withUrl = (change: (url: URL) => void) => {
  const url = new URL(database.url);
  change(url);
  return { databaseUrl: url.toString(), temporal: { address: temporalAddress() } };
};

describe('an invalid option is Input.Invalid with its field', () => {
  const temporal = { address: 'localhost:7233' };
  const databaseUrl = 'postgresql://localhost/x';

  test.each<[unknown, string]>([
    ['postgresql://localhost/x', 'options'],
    [null, 'options'],
    [{ databaseUrl: 5432, temporal }, 'databaseUrl'],
    [{ databaseUrl: null, temporal }, 'databaseUrl'],
    [{ databaseURL: databaseUrl, temporal }, 'databaseURL'],
    [{ databaseUrl, temporal: 'localhost:7233' }, 'temporal'],
    [{ databaseUrl, temporal: {} }, 'temporal.address'],
    [{ databaseUrl, temporal: { address: 7233 } }, 'temporal.address'],
    [{ databaseUrl, temporal: { address: 'http://localhost:7233' } }, 'temporal.address'],
    [{ databaseUrl, temporal, tenant: 7 }, 'tenant'],
    [{ databaseUrl, temporal, poolSize: 'many' }, 'poolSize'],
    [{ databaseUrl, temporal, turnLimits: { maxMessages: 0 } }, 'turnLimits.maxMessages'],
  ])('%j', async (options, path) => {
    expect(await failureOf(options)).toMatchObject({ type: 'Input.Invalid', path });
  });

  test('is also refused for a worker', async () => {
    const of = (settings: object) => startWorker({ model: {}, ...settings } as WorkerSettings);
    await expect(of({ databaseUrl: 5, temporal })).rejects.toMatchObject({ path: 'databaseUrl' });
    await expect(of({ databaseUrl: database.url, temporal: 'localhost:7233' })).rejects.toMatchObject({
      type: 'Input.Invalid',
      path: 'temporal',
    });
    await expect(startWorker(undefined as unknown as WorkerSettings)).rejects.toMatchObject({
      path: 'settings',
    });
    await expect(of({ databaseUrl: database.url, temporal, model: undefined })).rejects.toMatchObject({
      path: 'model',
    });
  });
});

describe('an unusable server is named with the next step', () => {
  test.each<[string, (url: URL) => void, RegExp, RegExp]>([
    ['no host', (url) => void (url.hostname = 'nowhere.invalid'), /nowhere\.invalid/, /DATABASE_URL runs/],
    ['no server', (url) => void (url.port = '1'), /nothing listens at 127\.0\.0\.1:1/, /DATABASE_URL runs/],
    [
      'a wrong password',
      (url) => void (url.password = 'wrong'),
      /password authentication failed/,
      /Check user/,
    ],
    ['no password', (url) => void (url.password = ''), /asks for a password/, /user:password@host/],
    ['no database', (url) => void (url.pathname = '/nowhere'), /"nowhere" does not exist/, /createdb/],
    [
      'a broken escape',
      (url) => void (url.href = url.href.replace('@', '%ZZ@')),
      /connection string/,
      /special/,
    ],
    ['no TLS', (url) => url.searchParams.set('sslmode', 'require'), /TLS/, /sslmode/],
    ['no certificate', (url) => url.searchParams.set('sslrootcert', '/no.pem'), /no\.pem/, /DATABASE_URL/],
  ])('PostgreSQL: %s', async (_, change, message, hint) => {
    expect(await failureOf(withUrl(change))).toMatchObject({
      type: 'Store.Unavailable',
      message: expect.stringMatching(message),
      hint: expect.stringMatching(hint),
    });
  });

  test('a failed login leaves no connection open', async () => {
    const way = new Way(new URL(database.url).host);
    const port = await way.open();
    try {
      await failureOf(withUrl((url) => Object.assign(url, { port, password: '' })));
      // The server itself would end the login after a minute.
      await expect.poll(() => way.connections).toBe(0);
    } finally {
      way.cut();
    }
  });

  test.each([
    [{ address: '127.0.0.1:1' }, /nothing listens|deadline/],
    [{ address: 'nowhere.invalid:7233' }, /nowhere\.invalid/],
    [{ address: temporalAddress(), namespace: 'nowhere' }, /nowhere/],
  ])('Temporal: %j', async (temporal, message) => {
    expect(await failureOf({ databaseUrl: database.url, temporal })).toMatchObject({
      type: 'Temporal.Unavailable',
      message: expect.stringMatching(message),
      hint: expect.stringContaining('TEMPORAL_ADDRESS'),
      cause: expect.anything(),
    });
  });
});

test('omitted options come from the environment; without it the failure says what to set', async () => {
  vi.stubEnv('PALIMPSEST_DATA', '/nowhere/palimpsest');
  try {
    expect(await failureOf(undefined)).toMatchObject({
      ...{ type: 'Input.Invalid', path: 'DATABASE_URL' },
      hint: expect.stringMatching(/palimpsest dev`.*DATABASE_URL and TEMPORAL_ADDRESS/),
    });
    expect(await failureOf({ databaseUrl: database.url })).toMatchObject({ path: 'TEMPORAL_ADDRESS' });
    vi.stubEnv('DATABASE_URL', database.url);
    vi.stubEnv('TEMPORAL_ADDRESS', temporalAddress());
    const palimpsest = await Palimpsest.connect({ tenant: 'shop' });
    await expect(palimpsest.status({ session: 'none' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
    await palimpsest.close();
  } finally {
    vi.unstubAllEnvs();
  }
});
