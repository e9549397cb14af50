/** Environment and configuration file are read in one place; invalid settings are refused by name before any server starts. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { configuredModels, identityOf, readConfig } from '../../../src/config/config.js';
import { effectivePolicy, policyOf, withSummarizer } from '../../../src/policy/layers.js';
import {
  checkedDeployment,
  policyVariables,
  readDeploymentPolicy,
} from '../../../src/config/policy-sources.js';
import { unknownVariables } from '../../../src/config/unknown-variables.js';
import { parseYaml } from '../../../src/config/yaml.js';
import { PalimpsestError } from '../../../src/errors.js';

const strong = '7b1e9c40d2f85a63907cb4e8f1a2d65c3e0984b7a6d1f25c8e93b07a4d6f1c28';

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
    expect(config.llm).toEqual({ timeoutMs: 150_000 });
    expect(config.summary).toEqual({});
    expect(config.policy).toEqual({});
    expect(config.dataDir).toBe(path.resolve('.palimpsest'));
    expect(config.cacheDir).toBe(path.join('/var/cache/of-user', 'palimpsest'));
    expect(config.logLevel).toBe('info');
    expect(config.worker).toMatchObject({
      roles: ['workflow', 'database', 'model', 'backfill'],
      databaseSteps: 8,
      backfillSteps: 1,
      backfillShare: 0.25,
    });
    expect(config.api).toMatchObject({ host: '127.0.0.1', tokens: [] });
    expect(config.metrics.address).toBeUndefined();
    expect(config.configFile).toBeNull();
    expect(path.isAbsolute(readConfig({}).cacheDir)).toBe(true);
  });

  test('names the models of the operator', () => {
    const config = readConfig({
      PALIMPSEST_SUMMARY_MODEL: 'summarizer',
      PALIMPSEST_POLICY: '{"model": "agent", "summary": {"model": "other"}}',
    });
    expect(configuredModels(config)).toEqual(['summarizer', 'other', 'agent']);
    expect(configuredModels(readConfig({}))).toEqual([]);
  });

  test('is used as given, without surrounding white space', () => {
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
      PALIMPSEST_TOKENS_PER_MINUTE: '200,000',
      PALIMPSEST_REQUESTS_PER_SECOND: '2.5',
      PALIMPSEST_WORKER_ROLES: 'model, database',
      LOG_LEVEL: 'DEBUG',
    });
    expect(config).toMatchObject({
      databaseUrl: 'postgres://user:p%40ss@db.example:5433/palimpsest?sslmode=require',
      temporal: { address: 'temporal.example:7233', namespace: 'agents', apiKey: 'key', tls: true },
      llm: {
        ...{ apiKey: 'sk-1', baseUrl: 'http://localhost:11434/v1' },
        ...{ tokensPerMinute: 200_000, requestsPerSecond: 2.5 },
      },
      worker: { roles: ['model', 'database'] },
      summary: { model: 'gpt-4o-mini', contextWindow: 16_000 },
      policy: {},
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

  test('names the nearest setting for a variable that is none', () => {
    const { unknownVariables, policy } = readConfig({
      PALIMPSEST_CONTEX_WINDOW: '9000',
      PALIMPSEST_SUMARY_MODEL: 'gpt-4o-mini',
      PALIMPSEST_API_TOKN: 'acme:secret',
      PALIMPSEST_TOKE: 'secret',
      PALIMPSEST_UNSET: ' ',
      OTHER_PROGRAM: '1',
    });
    expect(unknownVariables).toEqual([
      { variable: 'PALIMPSEST_API_TOKN', nearest: 'PALIMPSEST_API_TOKENS' },
      { variable: 'PALIMPSEST_CONTEX_WINDOW', nearest: 'PALIMPSEST_CONTEXT_WINDOW' },
      { variable: 'PALIMPSEST_SUMARY_MODEL', nearest: 'PALIMPSEST_SUMMARY_MODEL' },
      { variable: 'PALIMPSEST_TOKE', nearest: 'PALIMPSEST_TOKEN' },
    ]);
    expect(policy).toEqual({});
  });

  test('knows every variable that the pages and the sources name', () => {
    const root = fileURLToPath(new URL('../../..', import.meta.url));
    const files = ['src', 'bench', 'docs', 'examples', 'test/support', 'test/peer-cases', 'packages'].flatMap(
      (folder) =>
        readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
          .filter((name) => /(?<!node_modules.*)\.(?:ts|md|py|go)$/.test(name))
          .map((name) => path.join(root, folder, name)),
    );
    const named = files.flatMap(
      (file) => readFileSync(file, 'utf8').match(/\bPALIMPSEST_[A-Z_]*[A-Z]\b/g) ?? [],
    );
    expect(named).toEqual(expect.arrayContaining(['PALIMPSEST_URL', 'PALIMPSEST_TRANSCRIPTS']));
    expect(unknownVariables(Object.fromEntries(named.map((name) => [name, 'x'])))).toEqual([]);
  });

  test('takes no address of a Kubernetes service for a port', () => {
    const besideServices = {
      PALIMPSEST_API_PORT: 'tcp://10.0.0.1:80',
      PALIMPSEST_GATEWAY_PORT: 'tcp://[::1]:81',
    };
    const { api, gateway, unknownVariables: unknown } = readConfig(besideServices);
    expect([api.port, gateway.port, unknown]).toEqual([7280, 7281, []]);
    expect(refusal({ PALIMPSEST_API_PORT: 'tcp://10.0.0.1' }).path).toBe('PALIMPSEST_API_PORT');
  });

  test('leaves out the variables that Kubernetes sets for a service', () => {
    expect(
      unknownVariables({
        PALIMPSEST_SERVICE_HOST: '10.0.0.1',
        PALIMPSEST_SERVICE_PORT_HTTP: '7280',
        PALIMPSEST_PORT: 'tcp://10.0.0.1:7280',
        PALIMPSEST_PORT_7280_TCP_ADDR: '10.0.0.1',
      }),
    ).toEqual([]);
  });

  test.each([
    [{ TEMPORAL_ADDRESS: 'http://localhost:7233' }, 'TEMPORAL_ADDRESS', /host:port/, /without a scheme/],
    [{ TEMPORAL_ADDRESS: 'localhost' }, 'TEMPORAL_ADDRESS', /host:port/, /7233/],
    [{ TEMPORAL_TLS: 'maybe' }, 'TEMPORAL_TLS', /must be true or false, not "maybe"/, /TLS/],
    [{ OPENAI_BASE_URL: 'localhost:11434' }, 'OPENAI_BASE_URL', /not an http\(s\) URL/, /v1/],
    [{ PALIMPSEST_SUMMARY_WINDOW: '16k' }, 'PALIMPSEST_SUMMARY_WINDOW', /a number, not "16k"/, /tokens/],
    [{ PALIMPSEST_SUMMARY_WINDOW: '-5' }, 'PALIMPSEST_SUMMARY_WINDOW', /at least 1/, /tokens/],
    [{ LOG_LEVEL: 'loud' }, 'LOG_LEVEL', /one of trace, debug/, undefined],
    [{ PALIMPSEST_WORKER_ROLES: 'model,cook' }, 'PALIMPSEST_WORKER_ROLES[1]', /one of workflow/, undefined],
    [
      { PALIMPSEST_WORKER_MODEL_CALLS: '0' },
      'PALIMPSEST_WORKER_MODEL_CALLS',
      /at least 1/,
      /concurrent model calls/,
    ],
    [{ PALIMPSEST_WORKER_BACKFILL_SHARE: '0' }, 'PALIMPSEST_WORKER_BACKFILL_SHARE', /above 0/, /live/],
    [{ PALIMPSEST_WORKER_BACKFILL_SHARE: '2' }, 'PALIMPSEST_WORKER_BACKFILL_SHARE', /at most 1/, /live/],
    [{ PALIMPSEST_METRICS_ADDRESS: '9464' }, 'PALIMPSEST_METRICS_ADDRESS', /host:port/, /9464/],
  ])('%j is refused by name', (env, name, reason, hint) => {
    const error = refusal(env);
    expect(error.path).toBe(name);
    expect(error.message).toMatch(reason);
    if (hint !== undefined) expect(error.hint).toMatch(hint);
  });

  test('never repeats a password in its errors', () => {
    const error = refusal({ DATABASE_URL: 'mysql://user:hunter2@host/db' });
    expect(error.path).toBe('DATABASE_URL');
    expect(`${error.message} ${error.hint ?? ''}`).not.toContain('hunter2');
    for (const tokens of [`acme:${strong},hunter2`, `acme:${strong},acme:hunter2`]) {
      const token = refusal({ PALIMPSEST_API_TOKENS: tokens });
      expect(token.path).toBe('PALIMPSEST_API_TOKENS[1]');
      expect(`${token.message} ${token.hint ?? ''}`).not.toContain('hunter2');
    }
  });

  test('refuses the same token twice', () => {
    const token = refusal({ PALIMPSEST_API_TOKENS: `acme:${strong},initech:${strong}` });
    expect(token).toMatchObject({ path: 'PALIMPSEST_API_TOKENS[1]', message: /earlier entry/ });
    expect(`${token.message} ${token.hint ?? ''}`).not.toContain(strong);
  });

  const weak = [
    ...['secret', 'palimpsest', 'a'.repeat(64), 'abc123'.repeat(10), '0123456789abcdef0123456789abcdef'],
    ...[
      'correct-horse-battery-staple-2026-production-token',
      'MySuperSecretPasswordForTheProductionApi2026!',
    ],
    ...['deadbeefdeadbeefdeadbeefdeadbeef0', '31415926535897932384626433832795028841', randomUUID()],
    ...['abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789', '1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik'],
  ];
  test.each(weak)('refuses the weak token %s', (token) => {
    for (const env of [`acme:${token}`, ` acme:${token} `])
      expect(refusal({ PALIMPSEST_API_TOKENS: env })).toMatchObject({
        ...{ path: 'PALIMPSEST_API_TOKENS[0]', message: /128 bits/, hint: /openssl rand -hex 32/ },
      });
  });

  test('takes random tokens', () => {
    for (let round = 0; round < 200; round++) {
      const tokens = [
        randomBytes(32).toString('hex'),
        randomBytes(48).toString('base64url').replaceAll(',', ''),
      ];
      const read = readConfig({ PALIMPSEST_API_TOKENS: tokens.map((token) => `acme:${token}`).join() });
      expect(read.api.tokens).toHaveLength(2);
    }
  });

  test('takes an identity provider whole or not at all', () => {
    const provider = {
      PALIMPSEST_IDENTITY_ISSUER: 'https://login.example',
      PALIMPSEST_IDENTITY_AUDIENCE: 'palimpsest',
      PALIMPSEST_IDENTITY_JWKS_URL: 'https://login.example/keys',
    };
    expect(identityOf(readConfig({}))).toBeUndefined();
    expect(identityOf(readConfig(provider))).toEqual({
      ...{ issuer: 'https://login.example', audience: 'palimpsest', jwksUrl: 'https://login.example/keys' },
      ...{ tenantClaim: 'tenant', scopesClaim: 'scope', clockToleranceMs: 30_000 },
    });
    const { PALIMPSEST_IDENTITY_AUDIENCE: _, ...without } = provider;
    expect(refusal(without)).toMatchObject({ path: 'identity.audience', hint: /together/ });
    expect(refusal({ ...provider, PALIMPSEST_IDENTITY_JWKS_URL: 'http://login.example/keys' })).toMatchObject(
      {
        path: 'PALIMPSEST_IDENTITY_JWKS_URL',
        hint: /https/,
      },
    );
    const local = { ...provider, PALIMPSEST_IDENTITY_JWKS_URL: 'http://127.0.0.1:8080/keys' };
    expect(identityOf(readConfig(local))).toMatchObject({ jwksUrl: 'http://127.0.0.1:8080/keys' });
  });

  test('gives bearer tokens of tenants, of which only the sha256 is kept', () => {
    const { tokens } = readConfig({
      PALIMPSEST_API_TOKENS: `acme:${strong}:1, initech:${strong}:2`,
    }).api;
    const sha256 = createHash('sha256').update(`${strong}:1`).digest('hex');
    expect(tokens).toEqual([
      { tenant: 'acme', sha256 },
      { tenant: 'initech', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string },
    ]);
  });
});

test('the summarizer of the environment serves policies that name none', () => {
  const summary = { model: 'gpt-4o-mini', contextWindow: 16_000 };
  expect(policyOf(withSummarizer({ session: { pins: ['x'] } }, summary))).toMatchObject({
    pins: ['x'],
    summary,
  });
  const given = { session: { summary: { maxTokens: 500, contextWindow: 9_000 } } };
  expect(policyOf(withSummarizer(given, summary)).summary).toMatchObject({
    ...{ maxTokens: 500, contextWindow: 9_000, model: 'gpt-4o-mini' },
  });
  const own = { session: { summary: { model: 'own' } } };
  expect(withSummarizer(own, summary)).toEqual(own);
  expect(withSummarizer({}, {})).toEqual({});
});

describe('the policy of the environment', () => {
  test('is JSON, single variables, or both: a variable overrides the JSON', () => {
    const policy = readDeploymentPolicy({
      PALIMPSEST_POLICY:
        '{"contextWindow": 64000, "target": 0.5, "summary": {"mode": "layered", "maxTokens": 900}}',
      PALIMPSEST_CONTEXT_WINDOW: '128,000',
      PALIMPSEST_SUMMARY_MAX_TOKENS: '1500',
      PALIMPSEST_TRIGGER: '0.7',
      PALIMPSEST_KEEP: ' messages=8,tokens=4000 ',
      PALIMPSEST_MODEL: '',
    });
    expect(policy).toEqual({
      environment: {
        contextWindow: 128_000,
        target: 0.5,
        summary: { mode: 'layered', maxTokens: 1_500 },
        trigger: { fraction: 0.7 },
        keep: { messages: 8, tokens: 4_000 },
      },
    });
  });

  test('accepts every trigger that the command line accepts', () => {
    const trigger = (spec: string) => readDeploymentPolicy({ PALIMPSEST_TRIGGER: spec }).environment?.trigger;
    expect(trigger('6000')).toEqual({ tokens: 6_000 });
    expect(trigger('40')).toEqual({ messages: 40 });
    expect(trigger('economic')).toEqual({ economic: true });
    expect(trigger('idle=300000')).toEqual({ idle: 300_000 });
    expect(trigger('[{"messages": 40}, {"fraction": 0.5}]')).toEqual([{ messages: 40 }, { fraction: 0.5 }]);
  });

  test('has a variable for every policy field that it names', () => {
    for (const [variable, { path: steps, read }] of Object.entries(policyVariables)) {
      const value = {
        preset: 'adk',
        enabled: '1',
        tokenizer: 'chars/4',
        trigger: '0.5',
        keep: '5',
        target: '0.5',
      };
      const word = { mode: 'layered', method: 'model', fallback: 'none' };
      const text = { ...value, ...word }[steps.at(-1) ?? ''] ?? '1000';
      const { environment } = readDeploymentPolicy({ [variable]: text });
      const given = steps.reduce<unknown>((inner, step) => Reflect.get(inner as object, step), environment);
      expect(given, variable).toEqual(read(text, variable));
    }
  });

  test.each([
    [
      { PALIMPSEST_CONTEXT_WINDOW: '64k' },
      'PALIMPSEST_CONTEXT_WINDOW',
      /a number, not "64k"/,
      /window in tokens/,
    ],
    [
      { PALIMPSEST_CONTEXT_WINDOW: '0' },
      'PALIMPSEST_CONTEXT_WINDOW',
      /contextWindow must be at least 1/,
      /tokens/,
    ],
    [{ PALIMPSEST_CONTEXT_WINDOW: '-4' }, 'PALIMPSEST_CONTEXT_WINDOW', /at least 1, not -4/, /tokens/],
    [
      { PALIMPSEST_SUMMARY_MAX_TOKENS: '-4' },
      'PALIMPSEST_SUMMARY_MAX_TOKENS',
      /at least 64, not -4/,
      /snapshot/,
    ],
    [
      { PALIMPSEST_RESERVED_OUTPUT_TOKENS: '-1' },
      'PALIMPSEST_RESERVED_OUTPUT_TOKENS',
      /at least 0, not -1/,
      /answer/,
    ],
    [{ PALIMPSEST_OVERHEAD: '-1' }, 'PALIMPSEST_OVERHEAD', /at least 0, not -1/, /number of tokens/],
    [{ PALIMPSEST_TARGET: '-1' }, 'PALIMPSEST_TARGET', /above 0, not -1/, /share/],
    [{ PALIMPSEST_TARGET: 'half' }, 'PALIMPSEST_TARGET', /a number, not "half"/, /share/],
    [
      { PALIMPSEST_CONTEXT_WINDOW: '5e9' },
      'PALIMPSEST_CONTEXT_WINDOW',
      /at most 100000000, not 5000000000/,
      /tokens/,
    ],
    [{ PALIMPSEST_TRIGGER: 'often' }, 'PALIMPSEST_TRIGGER', /"often" is not a size/],
    [{ PALIMPSEST_TRIGGER: '1.5' }, 'PALIMPSEST_TRIGGER', /fraction must be at most 1/],
    [{ PALIMPSEST_SUMMARY_MODE: 'sometimes' }, 'PALIMPSEST_SUMMARY_MODE', /one of journal/],
    [
      { PALIMPSEST_ENABLED: 'maybe' },
      'PALIMPSEST_ENABLED',
      /true or false, not "maybe"/,
      /automatic compaction/,
    ],
    [
      { PALIMPSEST_POLICY: '{"triger": 1}' },
      'policy.triger',
      /PALIMPSEST_POLICY, line 1: .*not a known field/,
    ],
    [{ PALIMPSEST_POLICY: '{"trigger": }' }, 'trigger', /PALIMPSEST_POLICY: Line 1, column 13/],
    [{ PALIMPSEST_POLICY: '[]' }, 'PALIMPSEST_POLICY', /a policy must be a JSON object/],
  ])('%j is refused by name', (env, name, reason, hint?: RegExp) => {
    const error = refusal(env);
    if (hint !== undefined) expect(error.hint).toMatch(hint);
    expect(error.message).toMatch(reason);
    expect(error.path).toBe(name);
  });
});

describe('the policy file', () => {
  let folder: string;
  beforeAll(() => void (folder = mkdtempSync(path.join(tmpdir(), 'palimpsest-policy-'))));
  afterAll(() => rmSync(folder, { recursive: true }));

  const written = (text: string): string => {
    const file = path.join(folder, 'policy.json');
    writeFileSync(file, text);
    return file;
  };
  const refusalOf = (text: string): PalimpsestError => refusal({ PALIMPSEST_POLICY_FILE: written(text) });

  test('overrides the environment, and each value names its source', () => {
    const file = written('\uFEFF{\n  "contextWindow": 64000,\n  "summary": { "maxTokens": 900 }\n}\n');
    const layers = readConfig({
      PALIMPSEST_POLICY_FILE: file,
      PALIMPSEST_CONTEXT_WINDOW: '32000',
      PALIMPSEST_TARGET: '0.5',
    }).policy;
    const { policy, sources } = effectivePolicy(layers);
    expect(policy).toMatchObject({ contextWindow: 64_000, target: 0.5, summary: { maxTokens: 900 } });
    expect(sources).toEqual({ contextWindow: 'file', target: 'environment', 'summary.maxTokens': 'file' });
  });

  test('that is missing or cannot be read is named', () => {
    const missing = refusal({ PALIMPSEST_POLICY_FILE: '/nowhere/policy.json' });
    expect(missing).toMatchObject({
      path: 'PALIMPSEST_POLICY_FILE',
      message: 'Policy file /nowhere/policy.json not found.',
    });
    expect(refusal({ PALIMPSEST_POLICY_FILE: folder }).message).toContain(': EISDIR');
  });

  test('that is malformed is refused with its name, the line and the field', () => {
    const field = refusalOf(
      '{\n  "contextWindow": 64000,\n  "trigger": [\n    { "tokens": 9000 },\n    { "fraction": 1.5 }\n  ]\n}',
    );
    expect(field.path).toBe('policy.trigger[1].fraction');
    expect(field.message).toMatch(/policy\.json, line 5: policy\.trigger\[1\]\.fraction must be at most 1/);
    const unknown = refusalOf('{\n\n  "summary": {\n    "maxToken": 5\n  }\n}');
    expect(unknown.message).toMatch(/policy\.json, line 4: policy\.summary\.maxToken is not a known field/);
    expect(unknown.hint).toContain('maxTokens');
    const syntax = refusalOf('{\n  "keep": {"messages": 4},\n  "keep": {"messages": 5}\n}');
    expect(syntax.message).toMatch(/policy\.json: Line 3, column 3: the key "keep" appears twice/);
    expect(refusalOf('').message).toMatch(/policy\.json: Line 1, column 1/);
  });

  test('that contradicts the environment is refused before anything starts', () => {
    const layers = readDeploymentPolicy({
      PALIMPSEST_POLICY_FILE: written('{"overhead": 9000}'),
      PALIMPSEST_CONTEXT_WINDOW: '8000',
    });
    expect(() => checkedDeployment(layers)).toThrowError(/window of 8,000/);
    expect(checkedDeployment({ file: { contextWindow: 64_000 } })).toEqual({
      file: { contextWindow: 64_000 },
    });
    expect(checkedDeployment(undefined)).toBeUndefined();
  });
});

describe('the configuration file', () => {
  let folder: string;
  beforeAll(() => void (folder = mkdtempSync(path.join(tmpdir(), 'palimpsest-config-'))));
  afterAll(() => rmSync(folder, { recursive: true }));

  const written = (text: string, name = 'config.yaml'): string => {
    const file = path.join(folder, name);
    writeFileSync(file, text);
    return file;
  };
  const refusalOf = (text: string, env: NodeJS.ProcessEnv = {}): PalimpsestError =>
    refusal({ PALIMPSEST_CONFIG: written(text), ...env });

  const everything = `
databaseUrl: postgres://user@db.example/palimpsest
temporal:
  address: temporal.example:7233
  tls: true
llm:
  apiKey: 12345
  tokensPerMinute: 300000
worker:
  roles: [model]
  modelCalls: 64
api:
  tokens:
    - { tenant: acme, token: ${strong}1 }
    - initech:${strong}2
    - { tenant: umbrella, sha256: ${'ab'.repeat(32)} }
metrics:
dataDir: data
policyFile:
policy:
  trigger: { fraction: 0.7 }
  summary: { maxTokens: 900 }
`;

  test('gives every setting by its name, with paths that start from the file', () => {
    const config = readConfig({ PALIMPSEST_CONFIG: written(everything) });
    expect(config).toMatchObject({
      databaseUrl: 'postgres://user@db.example/palimpsest',
      temporal: { address: 'temporal.example:7233', tls: true, namespace: 'default' },
      llm: { apiKey: '12345', tokensPerMinute: 300_000 },
      worker: { roles: ['model'], modelCalls: 64, databaseSteps: 8 },
      dataDir: path.join(folder, 'data'),
      policy: { environment: { trigger: { fraction: 0.7 }, summary: { maxTokens: 900 } } },
      configFile: path.join(folder, 'config.yaml'),
    });
    expect(config.api.tokens.map(({ tenant }) => tenant)).toEqual(['acme', 'initech', 'umbrella']);
    expect(JSON.stringify(config)).not.toContain(strong);
  });

  test('may be JSON, and is found by its usual name in the current folder', () => {
    written('{"worker": {"databaseSteps": 3}}', 'palimpsest.json');
    expect(readConfig({}, folder).worker.databaseSteps).toBe(3);
    written('worker:\n  databaseSteps: 4', 'palimpsest.yaml');
    expect(readConfig({}, folder).worker.databaseSteps).toBe(4);
  });

  test('is overridden by the environment', () => {
    const config = readConfig({
      PALIMPSEST_CONFIG: written(everything),
      PALIMPSEST_WORKER_ROLES: 'database',
      PALIMPSEST_TRIGGER: '0.5',
      PALIMPSEST_DATA: 'elsewhere',
    });
    expect(config.worker).toMatchObject({ roles: ['database'], modelCalls: 64 });
    expect(config.policy.environment).toEqual({ trigger: { fraction: 0.5 }, summary: { maxTokens: 900 } });
    expect(config.dataDir).toBe(path.resolve('elsewhere'));
  });

  test.each([
    ['worker:\n  modelcalls: 5', 'worker.modelcalls', /line 2: .*not a known field/, /modelCalls/],
    [
      'worker:\n\n  modelCalls: many',
      'worker.modelCalls',
      /line 3: .*a number, not "many"/,
      /concurrent model calls/,
    ],
    ['loglevel: info', 'loglevel', /not a known field/, /logLevel/],
    ['worker: 5', 'worker', /must be an object, not 5/, undefined],
    ['api:\n  tokens:\n    - justatoken', 'api.tokens[0]', /line 3: /, undefined],
    ['policy:\n  target: 0.5\n  triger: 1', 'policy.triger', /line 3: .*not a known field/, /trigger/],
    ['worker: {roles: [', 'PALIMPSEST_CONFIG', /line 1, column/, undefined],
    ['a: 1\na: 2', 'PALIMPSEST_CONFIG', /line 2, column 1: Map keys must be unique/, undefined],
    ['- a', 'PALIMPSEST_CONFIG', /contains no settings/, /logLevel/],
  ])('%j is refused with its place', (text, place, reason, hint) => {
    const error = refusalOf(text);
    expect(error.path).toBe(place);
    expect(error.message).toMatch(reason);
    expect(error.message).not.toContain('justatoken');
    if (hint !== undefined) expect(error.hint).toMatch(hint);
  });

  test('may have keys and passwords without quotes, if no digit is lost', () => {
    const { gateway, rolePasswords } = readConfig({
      PALIMPSEST_CONFIG: written('gateway: {keys: {openai: 4711}}\nrolePasswords: {app: 4712}'),
    });
    expect({ keys: gateway.keys, app: rolePasswords.app }).toEqual({ keys: { openai: '4711' }, app: '4712' });
    const lost = refusalOf('llm:\n  apiKey: 12345678901234567890');
    expect(lost).toMatchObject({ path: 'llm.apiKey', message: /line 2: .*not a number without quotes/ });
  });

  const secret = '12345678901234567890';
  test.each([
    ...['databaseUrl', 'maintenanceUrl', 'eraserUrl', 'directUrl', 'llm', 'llm.apiKey', 'embeddings.apiKey'],
    ...['temporal', 'temporal.apiKey', 'temporal.payloadKeys', 'temporal.payloadKeys.0'],
    ...['rolePasswords', 'rolePasswords.app', 'rolePasswords.eraser', 'rolePasswords.migrator'],
    ...['rolePasswords.maintenance', 'api', 'api.tokens', 'api.tokens.0', 'api.tokens.0.token'],
    ...['api.tokens.0.sha256', 'gateway', 'gateway.keys', 'gateway.keys.openai', 'gateway.keys.0'],
    ...['inlineTurnKeys', 'inlineTurnKeys.acme', 'inlineTurnKeys.0'],
  ])('no error repeats a secret: %s', (place) => {
    const wrong = [secret, `[${secret}]`, `{value: ${secret}}`, `"${secret}"`, `*x${secret}`, `|x${secret}`];
    const refused = wrong.flatMap((value) => {
      const steps = place.split('.').map((step) => (step === '0' ? '- ' : `${step}: `));
      const indented = steps.map((step, depth) => `${'  '.repeat(depth)}${step}`);
      try {
        readConfig({ PALIMPSEST_CONFIG: written(`${indented.join('\n')}${value}\n`) });
        return [];
      } catch (error) {
        const { message, path: where, hint } = error as PalimpsestError;
        return [`${message} ${where} ${hint}`];
      }
    });
    expect(refused.length).toBeGreaterThan(3);
    expect(refused.join('\n')).not.toContain(secret.slice(0, 12));
  });

  test('that is missing is named; errors about a variable do not name the file', () => {
    const missing = refusal({ PALIMPSEST_CONFIG: '/nowhere/palimpsest.yaml' });
    expect(missing).toMatchObject({ path: 'PALIMPSEST_CONFIG' });
    expect(missing.message).toContain('Configuration file /nowhere/palimpsest.yaml not found');
    const variable = refusalOf(everything, { PALIMPSEST_WORKER_MODEL_CALLS: 'x' });
    expect(variable.path).toBe('PALIMPSEST_WORKER_MODEL_CALLS');
    expect(variable.message).not.toContain('config.yaml');
  });
});

test('the line of a value is found by its path, whatever its strings contain', () => {
  const text =
    '{\n "a": "x\\"}{[,\\\\",\n "b": [\n  {"c": 1},\n\t[],\n  {"c": [\n   true]}\n ], "a,b": {}\n,"d":\n 5}';
  const { lineOf } = parseYaml(text);
  expect(lineOf('a')).toBe(2);
  expect(lineOf('b')).toBe(3);
  expect(lineOf('b[0].c')).toBe(4);
  expect(lineOf('b[1]')).toBe(5);
  expect(lineOf('b[2].c[0]')).toBe(7);
  expect(lineOf('a,b')).toBe(8);
  expect(lineOf('d')).toBe(10);
  expect(lineOf('b[2].missing'), 'the object that lacks it').toBe(6);
  expect(lineOf('c')).toBeNull();
});
