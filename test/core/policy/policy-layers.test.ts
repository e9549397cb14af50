/**
 * A policy is merged from session, tenant, file and environment: the higher layer wins, as a whole or field by field as
 * documented, and every value names its source.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { describePolicy } from '../../../src/policy/describe.js';
import {
  effectivePolicy,
  policyLayers,
  type PolicyLayers,
  policyOf,
  resolvePolicy,
  withSummarizer,
} from '../../../src/policy/layers.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { presets } from '../../../src/policy/presets.js';
import { parsePolicy, policySchema, type PolicyInput } from '../../../src/policy/schema.js';
import { summarySchema } from '../../../src/policy/summary-schema.js';

describe('the higher layer wins', () => {
  test('session, tenant, file, environment, default, in this order', () => {
    const layers: PolicyLayers = {
      environment: { target: 0.3, debounceMs: 1, idleAfter: 1, deadCallAfter: 1 },
      file: { target: 0.4, debounceMs: 2, idleAfter: 2 },
      tenant: { target: 0.5, debounceMs: 3 },
      session: { target: 0.7 },
    };
    const { policy, sources } = effectivePolicy(layers);
    expect(policy).toMatchObject({ target: 0.7, debounceMs: 3, idleAfter: 2, deadCallAfter: 1 });
    expect(sources).toEqual({
      target: 'session',
      debounceMs: 'tenant',
      idleAfter: 'file',
      deadCallAfter: 'environment',
    });
    expect(policy.calibration).toBe(true);
  });

  test('field by field in summary, reduce, prices, spend and retention', () => {
    const { policy, sources } = effectivePolicy({
      tenant: {
        summary: { mode: 'full_rewrite', maxTokens: 1_000 },
        reduce: { toolResults: { critical: ['ask'], budget: 500 }, arguments: { prefix: 10, olderThan: 5 } },
        prices: { input: 3, output: 15 },
      },
      session: {
        summary: { maxTokens: 3_000 },
        reduce: { toolResults: { budget: 900 }, arguments: { prefix: 40 } },
        spend: { perSession: 2 },
        prices: { output: 12 },
      },
    });
    expect(policy.summary).toMatchObject({ mode: 'full_rewrite', maxTokens: 3_000 });
    expect(policy.reduce.toolResults).toMatchObject({ budget: 900 });
    expect(policy.reduce.toolResults.critical).toContain('ask');
    expect(policy.reduce.arguments).toMatchObject({ prefix: 40, olderThan: 5 });
    expect(policy.prices).toMatchObject({ input: 3, output: 12, currency: 'USD' });
    expect(sources).toMatchObject({
      'summary.mode': 'tenant',
      'summary.maxTokens': 'session',
      'reduce.arguments.prefix': 'session',
      'reduce.arguments.olderThan': 'tenant',
      'prices.input': 'tenant',
      'prices.output': 'session',
    });
  });

  test('trigger, keep, pins, sections, redact and lists as a whole', () => {
    const { policy } = effectivePolicy({
      tenant: {
        trigger: [{ fraction: 0.5 }, { messages: 90 }],
        keep: { messages: 4, tokens: 900 },
        pins: ['tenant'],
        redact: { secrets: false, patterns: ['x'] },
        reduce: { toolResults: { byTool: { grep: 'drop' } } },
      },
      session: {
        trigger: { tokens: 9_000 },
        keep: { messages: 8 },
        pins: ['session'],
        redact: {},
        reduce: { toolResults: { byTool: { cat: 'archive' } } },
      },
    });
    expect(policy.trigger).toEqual([{ tokens: 9_000 }]);
    expect(policy.keep).toEqual({ messages: 8 });
    expect(policy.pins).toEqual(['session']);
    expect(policy.redact).toEqual({ secrets: true, patterns: [] });
    expect(policy.reduce.toolResults.byTool).toEqual({ cat: 'archive' });
  });

  test('false over an object and an object over false, with no trace of what it replaced', () => {
    const off = effectivePolicy({
      tenant: { reduce: { arguments: { prefix: 9 } } },
      session: { reduce: { arguments: false } },
    });
    expect(off.policy.reduce.arguments).toBeNull();
    expect(off.sources).toEqual({ 'reduce.arguments': 'session' });
    const on = effectivePolicy({
      tenant: { reduce: { arguments: false } },
      session: { reduce: { arguments: { prefix: 9 } } },
    });
    expect(on.policy.reduce.arguments).toMatchObject({ prefix: 9, olderThan: 20 });
    expect(on.sources).toEqual({ 'reduce.arguments.prefix': 'session' });
  });

  test('does not change the given layers', () => {
    const layers: PolicyLayers = {
      tenant: { preset: 'adk', summary: { mode: 'full_rewrite' } },
      session: { summary: { maxTokens: 500 }, reduce: { arguments: { prefix: 3 } } },
    };
    const before = structuredClone({ layers, presets });
    effectivePolicy(layers);
    expect({ layers, presets }).toEqual(before);
  });
});

describe('a preset', () => {
  test('applies in its layer: above lower layers, below explicit fields of its layer and of higher ones', () => {
    const { policy, preset, sources } = effectivePolicy({
      environment: { trigger: { fraction: 0.3 }, debounceMs: 5 },
      tenant: { preset: 'deepagents', keep: { messages: 12 } },
      session: { trigger: { tokens: 30_000 } },
    });
    expect(preset).toBe('deepagents');
    expect(policy).toMatchObject({
      trigger: [{ tokens: 30_000 }],
      keep: { messages: 12 },
      tokenizer: 'chars/4',
      debounceMs: 5,
    });
    expect(sources).toMatchObject({
      preset: 'tenant',
      trigger: 'session',
      keep: 'tenant',
      tokenizer: 'tenant (preset deepagents)',
      debounceMs: 'environment',
    });
    const below = effectivePolicy({
      environment: { trigger: { fraction: 0.3 } },
      session: { preset: 'adk' },
    });
    expect(below.policy.trigger).toEqual([{ fraction: 0.85 }]);
    expect(below.sources.trigger).toBe('session (preset adk)');
  });

  test('of a higher layer replaces that of a lower one: two systems are not mixed', () => {
    const mixed = policyOf({ tenant: { preset: 'langchain' }, session: { preset: 'deepagents' } });
    expect(mixed).toEqual(policyOf({ session: { preset: 'deepagents' } }));
  });

  test('is the same alone as in the only layer', () => {
    expect(resolvePolicy({ preset: 'zrb' })).toEqual(policyOf({ tenant: { preset: 'zrb' } }));
    expect(resolvePolicy({ preset: 'hybrid' })).toEqual(resolvePolicy({ preset: 'smart-agent' }));
  });
});

describe('the model', () => {
  test('in force decides on window and tokenizer, whatever layer names it', () => {
    const limits = limitsOf(
      policyOf({ tenant: { model: 'gpt-4o' }, session: { model: 'claude-sonnet-4-5' } }),
    );
    expect(limits).toMatchObject({ window: 200_000, windowSource: 'model', tokenizer: 'chars/3.3' });
    const policy = policyOf({
      environment: { model: 'claude-sonnet-4-5' },
      session: { preset: 'langchain' },
    });
    expect(policy.tokenizer).toBe('chars/3.3');
    expect(policyOf({ session: { preset: 'langchain', model: 'gpt-4o' } }).tokenizer).toBe('chars/4');
  });

  test('loses the window and the tokenizer given with it when another model replaces it', () => {
    const tenant = { model: 'local', contextWindow: 16_000, tokenizer: 'cl100k_base' } as const;
    const replaced = effectivePolicy({ tenant, session: { model: 'gpt-4o' } });
    expect(limitsOf(replaced.policy)).toMatchObject({ window: 128_000, tokenizer: 'o200k_base' });
    expect(replaced.sources).toEqual({ model: 'session' });
    const same = effectivePolicy({ tenant, session: { model: 'local' } });
    expect(limitsOf(same.policy)).toMatchObject({ window: 16_000, tokenizer: 'cl100k_base' });
    const cap = effectivePolicy({ tenant: { contextWindow: 16_000 }, session: { model: 'gpt-4o' } });
    expect(limitsOf(cap.policy).window).toBe(16_000);
  });

  test('of the worker summarizes if no layer names another', () => {
    const worker = { model: 'small', contextWindow: 9_000 };
    expect(policyOf(withSummarizer({ session: {} }, worker)).summary).toMatchObject(worker);
    const named = { tenant: { summary: { model: 'large' } } };
    expect(policyOf(withSummarizer(named, worker)).summary).toMatchObject({
      model: 'large',
      contextWindow: null,
    });
  });
});

describe('describePolicy', () => {
  test('has one row for every knob of the schema, in its order', () => {
    const paths = describePolicy(effectivePolicy({})).map(({ path }) => path);
    const top = paths.map((path) => path.split('.')[0]);
    expect([...new Set(top)]).toEqual(Object.keys(policySchema.shape));
    for (const key of Object.keys(summarySchema.shape)) expect(paths).toContain(`summary.${key}`);
    expect(paths).toEqual(
      expect.arrayContaining(['reduce.arguments.prefix', 'reduce.toolResults.contextPolicy']),
    );
    expect(new Set(paths).size).toBe(paths.length);
    expect(describePolicy(effectivePolicy({})).every(({ source }) => source === 'default')).toBe(true);
  });

  test('gives the value in force and its source', () => {
    const rows = describePolicy(
      effectivePolicy({
        tenant: { preset: 'langchain', reduce: { toolResults: { defaultPolicy: 'archive' } } },
        session: { trigger: [{ economic: true }, { tokens: 9_000 }, { idle: 60_000 }], redact: {} },
      }),
    );
    const row = (path: string) => rows.find((one) => one.path === path);
    expect(row('preset')).toEqual({ path: 'preset', value: 'langchain', source: 'tenant' });
    expect(row('trigger')).toMatchObject({
      value: [{ tokens: 9_000 }, { economic: true }, { idle: 60_000 }],
      source: 'session',
    });
    expect(row('reduce.arguments')).toMatchObject({ value: false, source: 'tenant (preset langchain)' });
    expect(row('reduce.toolResults.defaultPolicy')).toMatchObject({ value: 'archive', source: 'tenant' });
    expect(row('summary.acknowledgment')).toMatchObject({ value: false });
    expect(row('redact')).toMatchObject({ value: { secrets: true, patterns: [] }, source: 'session' });
    expect(row('summary.mode')).toMatchObject({ value: 'incremental', source: 'tenant (preset langchain)' });
  });

  test('warns of fields without effect', () => {
    const given = { session: { summary: { mode: 'layered' as const, integrityCheck: true } } };
    const warned = describePolicy(effectivePolicy(given)).filter(({ warning }) => warning !== undefined);
    expect(warned.map(({ path, value }) => [path, value])).toEqual([
      ['summary.mode', 'journal'],
      ['summary.integrityCheck', null],
    ]);
    expect(describePolicy(effectivePolicy({})).every((row) => !('warning' in row))).toBe(true);
  });

  test('a session begun under an earlier default keeps it until a layer says otherwise', () => {
    const begun = { summary: { mode: 'incremental' as const } };
    expect(policyOf({}).summary.mode).toBe('journal');
    expect(policyOf({ begun }).summary.mode).toBe('incremental');
    expect(policyOf({ begun, tenant: { summary: { mode: 'journal' } } }).summary.mode).toBe('journal');
  });

  test('is itself a policy that resolves to the same', () => {
    const given: PolicyLayers = {
      environment: { preset: 'adk', prices: { input: 2 } },
      session: { summary: { mode: 'full_rewrite' }, trigger: [{ idle: 60_000 }, { messages: 50 }] },
    };
    const effective = effectivePolicy(given);
    const written: Record<string, unknown> = {};
    for (const { path, value } of describePolicy(effective)) {
      if (value === null || path === 'preset') continue;
      const keys = path.split('.');
      const last = keys.pop() ?? '';
      let place = written;
      for (const key of keys) place = (place[key] ??= {}) as Record<string, unknown>;
      place[last] = value;
    }
    expect(resolvePolicy(parsePolicy(written))).toEqual(effective.policy);
  });
});

test('for any layers, each field has the value of the highest layer that gives it', () => {
  const fields: fc.Arbitrary<PolicyInput> = fc.record(
    {
      target: fc.double({ min: 0.1, max: 0.9, noNaN: true }),
      debounceMs: fc.nat(1_000),
      enabled: fc.boolean(),
      summary: fc.record(
        {
          minGain: fc.double({ min: 0, max: 0.9, noNaN: true }),
          depthLimit: fc.integer({ min: 1, max: 20 }),
        },
        { requiredKeys: [] },
      ),
    },
    { requiredKeys: [] },
  );
  const layered = fc.record(
    { session: fields, tenant: fields, file: fields, environment: fields, begun: fields },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(layered, (layers) => {
      const { policy, sources } = effectivePolicy(layers);
      const highest = <T>(pick: (given: PolicyInput) => T | undefined) =>
        policyLayers.find((layer) => pick(layers[layer] ?? {}) !== undefined);
      const target = highest(({ target: given }) => given);
      expect(sources.target).toBe(target);
      if (target) expect(policy.target).toBe(layers[target]?.target);
      const depth = highest(({ summary }) => summary?.depthLimit);
      expect(sources['summary.depthLimit']).toBe(depth);
      expect(policy.summary.depthLimit).toBe(depth ? layers[depth]?.summary?.depthLimit : 5);
    }),
  );
});
