/** The operator's limits on a policy: what is refused when it is given, and what is narrowed when it was given earlier. */
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../../../src/config/config.js';
import { settings } from '../../../src/config/schema.js';
import { PalimpsestError } from '../../../src/errors.js';
import { effectivePolicy, policyOf } from '../../../src/policy/layers.js';
import { parsePolicy, type PolicyInput } from '../../../src/policy/schema.js';
import {
  assertWithinLimits,
  limitsInForce,
  priceOf,
  refusalOfModel,
  type TenantLimits,
  tenantLimitsSchema,
} from '../../../src/policy/tenant-limits.js';
import { describePolicy } from '../../../src/policy/describe.js';

function refusalOf(policy: PolicyInput, limits: TenantLimits, before?: PolicyInput): PalimpsestError | null {
  try {
    assertWithinLimits(parsePolicy(policy), limits, before);
    return null;
  } catch (error) {
    if (error instanceof PalimpsestError) return error;
    throw error;
  }
}

const cases: [name: string, limits: TenantLimits, within: PolicyInput, beyond: PolicyInput, path: string][] =
  [
    [
      'concurrency',
      { concurrency: 8 },
      { summary: { concurrency: 8 } },
      { summary: { concurrency: 9 } },
      'policy.summary.concurrency',
    ],
    [
      'digestRetentionMs',
      { digestRetentionMs: 100_000 },
      { retention: { digests: 100_000 } },
      { retention: { digests: 100_001 } },
      'policy.retention.digests',
    ],
    [
      'models',
      { models: ['small-*', 'exact'] },
      { summary: { model: 'small-1' } },
      { summary: { model: 'exact-not' } },
      'policy.summary.model',
    ],
    [
      'spendPerDay',
      { spendPerDay: 5, prices: { known: { input: 1, output: 2 } } },
      { summary: { model: 'known' } },
      { summary: { model: 'unknown' } },
      'policy.summary.model',
    ],
    [
      'policyCharacters',
      { policyCharacters: 20 },
      { summary: { prompt: 'x'.repeat(10) }, pins: ['y'.repeat(10)] },
      { summary: { prompt: 'x'.repeat(10) }, pins: ['y'.repeat(11)] },
      'policy.pins',
    ],
    [
      'policyCharacters',
      { policyCharacters: 100 },
      { overhead: 1_000_000, summary: { acknowledgment: false } },
      { overhead: ['z'.repeat(100)] },
      'policy.overhead',
    ],
    [
      'policyCharacters',
      { policyCharacters: 100 },
      { summary: { sections: [{ key: 'risks', title: 'Risks' }] } },
      { summary: { sections: [{ key: 'risks', title: 'Risks', asks: 'w'.repeat(90) }] } },
      'policy.summary.sections',
    ],
    [
      'patterns',
      { patterns: 2 },
      { pins: [{ pattern: 'a' }], redact: { patterns: ['b'] } },
      { pins: [{ pattern: 'a' }], redact: { patterns: ['b', 'c'] } },
      'policy.redact.patterns',
    ],
    [
      'patternCharacters',
      { patternCharacters: 3 },
      { pins: [{ pattern: 'abc' }] },
      { pins: [{ pattern: 'abcd' }] },
      'policy.pins',
    ],
    [
      'patternCharacters',
      { patternCharacters: 3 },
      { redact: { patterns: ['abc'] } },
      { redact: { patterns: ['abcd'] } },
      'policy.redact.patterns',
    ],
  ];

describe.each(cases)('%s', (limit, limits, within, beyond, path) => {
  it('accepts a policy at the limit, and refuses one beyond it with field, limit and next step', () => {
    expect(refusalOf(within, limits)).toBeNull();
    expect(refusalOf({}, limits)).toBeNull();
    const refused = refusalOf(beyond, limits);
    expect(refused).toMatchObject({ type: 'Tenant.BeyondLimit', path, details: { limit } });
    expect(refused?.hint).toMatch(/palimpsest limits set|limits\.prices/);
  });

  it('accepts again what stood before the limit was lowered', () => {
    expect(refusalOf({ ...beyond, target: 0.5 }, limits, beyond)).toBeNull();
  });
});

describe('a limit lowered later narrows the policy and says so', () => {
  const narrow = (session: PolicyInput, limits: TenantLimits) => {
    const effective = effectivePolicy({ session: parsePolicy(session), limits });
    const rows = new Map(describePolicy(effective).map((row) => [row.path, row]));
    return { policy: effective.policy, rows };
  };

  test('numbers, defaults included', () => {
    const limits = { concurrency: 2, digestRetentionMs: 90_000 };
    for (const session of [{ summary: { concurrency: 64 } }, {}]) {
      const { policy, rows } = narrow(session, limits);
      expect(policy).toMatchObject({ summary: { concurrency: 2 }, retention: { digests: 90_000 } });
      expect(rows.get('summary.concurrency')).toMatchObject({
        ...{ value: 2, warning: expect.stringContaining('`concurrency`') as string },
      });
      expect(rows.get('retention.digests')?.warning).toContain('`digestRetentionMs`');
    }
    expect(narrow({ summary: { concurrency: 1 } }, limits).rows.get('summary.concurrency')).toEqual({
      ...{ path: 'summary.concurrency', value: 1, source: 'session' },
    });
  });

  test('a model that may not be called, with its window', () => {
    const session = { summary: { model: 'expensive', contextWindow: 500_000 } };
    const { policy, rows } = narrow(session, { models: ['cheap*'] });
    expect(policy.summary).toMatchObject({ model: null, contextWindow: null });
    expect(rows.get('summary.model')?.warning).toContain('expensive');
    const environment = { summary: { model: 'of-the-operator', contextWindow: 9_000 } };
    expect(policyOf({ session, environment, limits: { models: ['cheap*'] } }).summary).toMatchObject({
      ...{ model: 'of-the-operator', contextWindow: 9_000 },
    });
    expect(policyOf({ session, limits: { models: ['expensive'] } }).summary.model).toBe('expensive');
  });

  test("the agent's model and what its counts depend on stay", () => {
    const session = { model: 'gpt-4o', contextWindow: 50_000, overhead: ['a system prompt'] };
    const { policy } = narrow(session, { models: ['cheap*'], policyCharacters: 0 });
    expect(policy).toMatchObject(session);
  });

  test('texts and patterns, first those that go to the summarizer', () => {
    const session: PolicyInput = {
      summary: { prompt: 'p'.repeat(50), sections: [{ key: 'facts' }] },
      pins: ['a'.repeat(10), 'b'.repeat(10), { pattern: 'one' }, { pattern: 'second' }, { seq: 3 }],
      redact: { patterns: ['x', 'y'] },
    };
    const { policy, rows } = narrow(session, { policyCharacters: 15, patterns: 3, patternCharacters: 5 });
    expect(policy.summary).toMatchObject({ prompt: null, sections: null });
    expect(policy.pins).toEqual(['a'.repeat(10), { pattern: 'one' }, { seq: 3 }]);
    // Without a pattern a secret would reach the model.
    expect(policy.redact?.patterns).toEqual(['x', 'y']);
    for (const path of ['summary.prompt', 'summary.sections', 'pins'])
      expect(rows.get(path)?.warning, path).toMatch(/the operator's limit `policyCharacters`/);
    expect(narrow(session, { policyCharacters: 1_000 }).policy).toEqual(policyOf({ session }));
  });
});

test('the defaults of all tenants, a limit of one tenant, and a tenant without this limit', () => {
  const defaults = { concurrency: 4, sessions: 100 };
  expect(limitsInForce(defaults, null)).toEqual(defaults);
  expect(limitsInForce(defaults, { concurrency: 8 })).toEqual({ concurrency: 8, sessions: 100 });
  expect(limitsInForce(defaults, { concurrency: null })).toEqual({ sessions: 100 });
  expect(limitsInForce({}, null)).toBeUndefined();
  expect(limitsInForce(undefined, { sessions: null })).toBeUndefined();
});

test('the longest name that fits gives the price; a limited cost needs one', () => {
  const prices = {
    'gpt-*': { input: 1, output: 1 },
    'gpt-4o*': { input: 2, output: 2 },
    'gpt-4o-mini': { input: 3, output: 3 },
  };
  expect(priceOf(prices, 'gpt-4o-mini')?.input).toBe(3);
  expect(priceOf(prices, 'gpt-4o-mini-1')?.input).toBe(2);
  expect(priceOf(prices, 'gpt-3')?.input).toBe(1);
  expect(priceOf(prices, 'other')).toBeNull();
  expect(refusalOfModel({ prices, spendPerMonth: 1 }, 'other')).toMatchObject({
    details: { limit: 'spendPerMonth' },
  });
  expect(refusalOfModel({ prices, spendPerMonth: 1 }, 'gpt-5')).toBeNull();
  expect(refusalOfModel({ prices, modelTokensPerDay: 1 }, 'other')).toBeNull();
});

describe('the configuration', () => {
  test('has every limit in the environment', () => {
    const { limits } = readConfig({
      PALIMPSEST_LIMIT_SPEND_PER_DAY: '2.5',
      PALIMPSEST_LIMIT_MODELS: 'gpt-4o-mini*, small',
      PALIMPSEST_LIMIT_PRICES: '{"gpt-4o-mini*": {"input": 0.15, "output": 0.6}}',
      PALIMPSEST_LIMIT_STORED_BYTES: '1_000_000',
    });
    expect(limits).toEqual({
      spendPerDay: 2.5,
      models: ['gpt-4o-mini*', 'small'],
      prices: { 'gpt-4o-mini*': { input: 0.15, output: 0.6 } },
      storedBytes: 1_000_000,
    });
    expect(readConfig({}).limits).toEqual({});
    const variables = settings().filter(({ path: [section] }) => section === 'limits');
    expect(variables.map(({ path }) => path[1])).toEqual(Object.keys(tenantLimitsSchema.shape));
  });

  test.each([
    ['PALIMPSEST_LIMIT_CONCURRENCY', '0'],
    ['PALIMPSEST_LIMIT_SESSIONS', 'many'],
    ['PALIMPSEST_LIMIT_MODELS', 'a*b'],
    ['PALIMPSEST_LIMIT_PRICES', 'free'],
  ])('refuses %s=%s and names it', (variable, value) => {
    expect(() => readConfig({ [variable]: value })).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: expect.stringContaining(variable) as string }),
    );
  });
});
