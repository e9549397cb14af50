/** The environment is read in one place; what cannot be used is refused by name before any server is started. */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { readConfig } from '../src/config.js';
import { withSummarizer } from '../src/policy/schema.js';
import { PalimpsestError } from '../src/errors.js';

function refusal(env: NodeJS.ProcessEnv): PalimpsestError {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof PalimpsestError && error.type === 'Input.Invalid') return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('the environment', () => {
  test('may be empty: embedded servers, no model, the platform’s cache folder', () => {
    const config = readConfig({ XDG_CACHE_HOME: '/var/cache/of-user' });
    expect(config.databaseUrl).toBeUndefined();
    expect(config.temporal).toEqual({ namespace: 'default' });
    expect(config.llm).toEqual({});
    expect(config.summary).toEqual({});
    expect(config.dataDir).toBe(path.resolve('.palimpsest'));
    expect(config.cacheDir).toBe(path.join('/var/cache/of-user', 'palimpsest'));
    expect(config.logLevel).toBe('info');
    expect(path.isAbsolute(readConfig({}).cacheDir)).toBe(true);
  });

  test('is taken as given, white space aside', () => {
    const config = readConfig({
      DATABASE_URL: 'postgres://user:p%40ss@db.example:5433/palimpsest?sslmode=require',
      TEMPORAL_ADDRESS: ' temporal.example:7233\n',
      TEMPORAL_NAMESPACE: 'agents',
      TEMPORAL_API_KEY: 'key',
      TEMPORAL_TLS: 'true',
      OPENAI_API_KEY: 'sk-1',
      OPENAI_BASE_URL: 'http://localhost:11434/v1',
      PALIMPSEST_SUMMARY_MODEL: 'gpt-4o-mini',
      PALIMPSEST_SUMMARY_WINDOW: '16000',
      PALIMPSEST_INLINE_TENANTS: 'acme, initech,',
      PALIMPSEST_DATA: 'data',
      PALIMPSEST_CACHE: 'cache',
      LOG_LEVEL: 'DEBUG',
    });
    expect(config).toEqual({
      databaseUrl: 'postgres://user:p%40ss@db.example:5433/palimpsest?sslmode=require',
      temporal: { address: 'temporal.example:7233', namespace: 'agents', apiKey: 'key', tls: true },
      llm: { apiKey: 'sk-1', baseUrl: 'http://localhost:11434/v1' },
      summary: { model: 'gpt-4o-mini', contextWindow: 16_000 },
      inlineTurnTenants: ['acme', 'initech'],
      dataDir: path.resolve('data'),
      cacheDir: path.resolve('cache'),
      logLevel: 'debug',
    });
  });

  test('counts an empty variable as unset, as compose files pass it', () => {
    const empty = Object.fromEntries(
      ['DATABASE_URL', 'TEMPORAL_ADDRESS', 'OPENAI_API_KEY', 'PALIMPSEST_SUMMARY_WINDOW', 'LOG_LEVEL'].map(
        (name) => [name, ' '],
      ),
    );
    expect(readConfig(empty)).toEqual(readConfig({}));
  });

  test.each([
    [{ TEMPORAL_ADDRESS: 'http://localhost:7233' }, 'TEMPORAL_ADDRESS', /host:port/, /without a scheme/],
    [{ TEMPORAL_ADDRESS: 'localhost' }, 'TEMPORAL_ADDRESS', /host:port/, /7233/],
    [{ TEMPORAL_TLS: 'maybe' }, 'TEMPORAL_TLS', /one of 0, 1, true, false/, undefined],
    [{ OPENAI_BASE_URL: 'localhost:11434' }, 'OPENAI_BASE_URL', /not an http\(s\) URL/, /v1/],
    [{ PALIMPSEST_SUMMARY_WINDOW: '16k' }, 'PALIMPSEST_SUMMARY_WINDOW', /a number, not "16k"/, /Tokens/],
    [{ PALIMPSEST_SUMMARY_WINDOW: '-5' }, 'PALIMPSEST_SUMMARY_WINDOW', /at least 1/, /Tokens/],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL', /one of trace, debug/, undefined],
  ])('%j is refused by name', (env, name, reason, hint) => {
    const error = refusal(env);
    expect(error.path).toBe(name);
    expect(error.message).toMatch(reason);
    if (hint !== undefined) expect(error.hint).toMatch(hint);
  });

  test('never has a password repeated in its complaints', () => {
    const error = refusal({ DATABASE_URL: 'mysql://user:hunter2@host/db' });
    expect(error.path).toBe('DATABASE_URL');
    expect(`${error.message} ${error.hint ?? ''}`).not.toContain('hunter2');
  });
});

test('the summarizer of the environment serves policies that name none', () => {
  const summary = { model: 'gpt-4o-mini', contextWindow: 16_000 };
  expect(withSummarizer({ pins: ['x'] }, summary)).toEqual({ pins: ['x'], summary });
  expect(withSummarizer({ summary: { maxTokens: 500, contextWindow: 9_000 } }, summary)).toEqual({
    summary: { maxTokens: 500, contextWindow: 9_000, model: 'gpt-4o-mini' },
  });
  expect(withSummarizer({ summary: { model: 'own' } }, summary)).toEqual({ summary: { model: 'own' } });
  expect(withSummarizer({}, {})).toEqual({});
});
