/**
 * A policy is refused if it is misspelt or contradicts itself. Otherwise its sizes are consistent: the target of a compaction
 * is below the threshold of the next one.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PalimpsestError } from '../../../src/errors.js';
import { isTriggered, limitsOf, measureAt, type Limits } from '../../../src/limits/limits.js';
import { DEFAULT_ACKNOWLEDGMENT } from '../../../src/policy/defaults.js';
import { parsePolicy, type PolicyInput } from '../../../src/policy/schema.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import { PROMPT_TOKENS } from '../../../src/limits/economics.js';
import { counterFor } from '../../../src/tokens/counter.js';

/** Sizes of `incremental`; separate tests cover those of the journal. */
const limitsFor = (input: unknown): Limits => {
  const policy = parsePolicy(input);
  return limitsOf(resolvePolicy({ ...policy, summary: { mode: 'incremental', ...policy.summary } }));
};

function refusal(input: unknown): PalimpsestError {
  try {
    limitsFor(input);
  } catch (error) {
    if (error instanceof PalimpsestError && error.type === 'Input.Invalid') return error;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(input)}`);
}

describe('refused by its form, with path and hint', () => {
  test.each([
    [{ foo: 1 }, 'policy.foo', /not a known field/, /Known fields: preset, enabled, model, /],
    [
      { summary: { modle: 'x' } },
      'policy.summary.modle',
      /not a known field/,
      /Known fields: method, model, /,
    ],
    [
      { trigger: [{ fraction: 0.5 }, { token: 5 }] },
      'policy.trigger[1].token',
      /not a known field/,
      /tokens, messages, fraction/,
    ],
    [{ trigger: { fraction: 1.5 } }, 'policy.trigger.fraction', /at most 1, not 1.5/, /Share of the window/],
    [
      { trigger: [{ fraction: 1.5 }] },
      'policy.trigger[0].fraction',
      /at most 1, not 1.5/,
      /Share of the window/,
    ],
    [{ model: 'm'.repeat(201) }, 'policy.model', /^.{0,100}200.{0,100}$/, /The agent's model/],
    [
      { summary: { model: 'm'.repeat(201) } },
      'policy.summary.model',
      /^.{0,100}200.{0,100}$/,
      /Summarizer's/,
    ],
    [{ trigger: { fraction: 0 } }, 'policy.trigger.fraction', /above 0, not 0/, /Share/],
    [{ trigger: { fraction: -0.1 } }, 'policy.trigger.fraction', /above 0, not -0.1/, /Share/],
    [{ trigger: { tokens: 0 } }, 'policy.trigger.tokens', /at least 1/, /Number of tokens/],
    [
      { trigger: { messages: 1.5 } },
      'policy.trigger.messages',
      /a whole number, not 1.5/,
      /Number of messages/,
    ],
    [{ trigger: { messages: '20' } }, 'policy.trigger.messages', /a number, not "20"/, /Number of messages/],
    [{ trigger: { messages: true } }, 'policy.trigger.messages', /a number, not true/, /Number of messages/],
    [{ trigger: {} }, 'policy.trigger', /names no size/, /at least one of tokens, messages, fraction/],
    [{ trigger: 0.85 }, 'policy.trigger', /an object or a list, not 0.85/, /starts a compaction/],
    [{ trigger: [] }, 'policy.trigger', /needs at least one trigger/, /enabled: false/],
    [{ keep: {} }, 'policy.keep', /names no ceiling/, /omit keep/],
    [{ keep: { fraction: 1 } }, 'policy.keep.fraction', /below 1, not 1/, /share of the window/],
    [{ overhead: 1.5 }, 'policy.overhead', /a whole number, a list or an object, not 1.5/, /System prompt/],
    [{ overhead: ['tools', 3] }, 'policy.overhead[1]', /a string, not 3/, undefined],
    [{ overhead: { tools: ['look'] } }, 'policy.overhead.tools[0]', /an object, not "look"/, undefined],
    [{ contextWindow: 'large' }, 'policy.contextWindow', /a number, not "large"/, /agent's window/],
    [
      { tokenizer: 'gpt2' },
      'policy.tokenizer',
      /one of o200k_base, cl100k_base, chars\/4, chars\/3.3, chars, not "gpt2"/,
      /Default/,
    ],
    [
      { summary: { method: 'magic' } },
      'policy.summary.method',
      /one of model, extractive/,
      /never calls a model/,
    ],
    [{ summary: { minGain: 1 } }, 'policy.summary.minGain', /below 1/, /share of the context/],
    [{ summary: null }, 'policy.summary', /an object, not null/, undefined],
    [{ pins: [''] }, 'policy.pins[0]', /must not be empty/, undefined],
    [
      { trigger: { economic: false } },
      'policy.trigger.economic',
      /cannot be false here/,
      /belong together: tokens, messages, fraction; or economic; or idle/,
    ],
    [{ trigger: [{ idle: 5 }] }, 'policy.trigger[0].idle', /at least 1000, not 5/, /cache counts as cold/],
    [
      { trigger: { economic: true, idle: 60_000 } },
      'policy.trigger.idle',
      /cannot be 60000 here/,
      /belong together: tokens, messages, fraction; or economic; or idle/,
    ],
    [
      { pins: [{ pattern: '(' }] },
      'policy.pins[0].pattern',
      /not valid RE2 syntax/,
      /RE2: JavaScript without lookaround/,
    ],
    [{ pins: [5] }, 'policy.pins[0]', /a string or an object, not 5/, undefined],
    [{ pins: [{ seq: 1, text: 'x' }] }, 'policy.pins[0].text', /not a known field/, /Known fields: seq/],
    [
      { reduce: { toolResults: { byTool: { grep: 'shred' } } } },
      'policy.reduce.toolResults.byTool.grep',
      /one of keep_full, summarize_archive, archive, drop/,
      undefined,
    ],
    [
      { reduce: { arguments: 5 } },
      'policy.reduce.arguments',
      /must be false or an object, not 5/,
      /Truncation of long call arguments/,
    ],
    [
      { reduce: { arguments: { form: 0.5 } } },
      'policy.reduce.arguments.form',
      /not a known field/,
      /Known fields: tools, /,
    ],
    [{ reduce: { messages: true } }, 'policy.reduce.messages', /false or a number/, /Share of the threshold/],
    [{ preset: 'claude' }, 'policy.preset', /one of adk, smart-agent, hybrid, /, /another system/],
    [
      { summary: { sections: [{ key: 'risks' }] } },
      'policy.summary.sections[0]',
      /needs a title/,
      /built-in title/,
    ],
    [{ overhead: { tool: [] } }, 'policy.overhead.tool', /not a known field/, /Known fields: system, tools/],
    [{ prices: { input: 1e308 } }, 'policy.prices.input', /at most 1000000, not 1e\+308/, /a million/],
    [{ prices: { summarizerOutput: 1_000_001 } }, 'policy.prices.summarizerOutput', /at most/, /a million/],
    [{ prices: { input: 0 } }, 'policy.prices.input', /above 0, not 0/, /a million uncached input tokens/],
    [{ redact: true }, 'policy.redact', /false or an object, not true/, /REDACTED/],
    [{ target: 1 }, 'policy.target', /too close to the threshold/, /up to 0.9/],
    [null, 'policy', /an object, not null/, undefined],
    [[], 'policy', /an object/, undefined],
  ])('%j', (input, path, reason, hint) => {
    const error = refusal(input);
    expect(error.path).toBe(path);
    expect(error.message).toMatch(reason);
    if (hint === undefined) expect(error.hint).toBeUndefined();
    else expect(error.hint).toMatch(hint);
  });
});

describe('refused if its parts contradict each other, with the numbers', () => {
  test.each([
    [
      'a window smaller than overhead and reserved output',
      { contextWindow: 8_000, overhead: 7_000 },
      'policy.contextWindow',
      /8,000 .* overhead of 7,000 .* 1,000 reserved/,
    ],
    [
      'the same where the window is the model’s',
      { model: 'gpt-4', overhead: 9_000 },
      'policy.overhead',
      /8,192 .* 9,000 .* 1,024/,
    ],
    [
      'an overhead given as texts',
      { contextWindow: 2_000, overhead: ['word '.repeat(3_000)] },
      'policy.contextWindow',
      /overhead of 3,001|overhead of 3,000/,
    ],
    [
      'a trigger that can never fire',
      { contextWindow: 8_000, trigger: { tokens: 170_000 } },
      'policy.trigger[0]',
      /170,000 tokens can never fire: .* 8,000 holds 7,000/,
    ],
    [
      'a trigger that an empty session meets',
      { contextWindow: 32_000, overhead: 9_000, trigger: { tokens: 9_000 } },
      'policy.trigger[0]',
      /9,000 .* fire on an empty session/,
    ],
    [
      'a default trigger below the overhead',
      { contextWindow: 8_000, overhead: 6_500 },
      'policy.trigger[0]',
      /6,300 .* 6,500/,
    ],
    ['no room for a summary', { contextWindow: 1_000 }, 'policy', /875 .* leave 175 for a summary/],
    [
      'a message trigger that the head meets',
      { trigger: { messages: 3 } },
      'policy.trigger[0].messages',
      /fires again at once/,
    ],
    [
      'keeping as many messages as trigger',
      { trigger: { messages: 20 }, keep: { messages: 20 } },
      'policy.trigger[0].messages',
      /keeps 20/,
    ],
    [
      'keeping as many tokens as trigger',
      { contextWindow: 32_000, keep: { tokens: 25_000 } },
      'policy.keep.tokens',
      /25,000 .* threshold of 25,200/,
    ],
    [
      'keeping as large a share as triggers',
      { contextWindow: 32_000, trigger: { fraction: 0.5 }, keep: { fraction: 0.5 } },
      'policy.keep.fraction',
      /threshold of 16,000/,
    ],
    [
      'a target at the threshold',
      { contextWindow: 32_000, target: 25_000 },
      'policy.target',
      /25,000 tokens is too close to the threshold of 25,200/,
    ],
    [
      'pins larger than what is kept',
      { contextWindow: 8_000, pins: ['word '.repeat(2_000)] },
      'policy.pins',
      /leave too little of the 2,380/,
    ],
    [
      'a summarizer without room',
      { contextWindow: 128_000, summary: { contextWindow: 2_000 } },
      'policy.summary.contextWindow',
      /window of 2,000 tokens leaves no room/,
    ],
    [
      'an answer larger than the summarizer’s window',
      { contextWindow: 8_000, summary: { reservedOutputTokens: 8_000 } },
      'policy.summary.reservedOutputTokens',
      /answer \(8,000\)/,
    ],
    [
      'chunks larger than the summarizer reads',
      { contextWindow: 32_000, summary: { chunkTokens: 30_000 } },
      'policy.summary.chunkTokens',
      /30,000 .* 32,000/,
    ],
    [
      'a spend limit without prices',
      { spend: { perCompaction: 0.5 } },
      'policy.spend.perCompaction',
      /limit of 0.5 needs prices/,
    ],
    [
      'the same for a session, where only the summarizer has a price',
      { spend: { perSession: 20 }, prices: { summarizerInput: 1 } },
      'policy.spend.perSession',
      /limit of 20 /,
    ],
    [
      'more sections than a snapshot has room for',
      {
        contextWindow: 8_000,
        trigger: { tokens: 1_200 },
        summary: {
          sections: Array.from({ length: 20 }, (_, at) => ({ key: `s${at}`, title: `Part ${at}` })),
        },
      },
      'policy.summary.sections',
      /20 sections do not fit a snapshot of 96 tokens: each takes at least 24/,
    ],
    [
      'instructions that leave the summarizer no room',
      {
        contextWindow: 128_000,
        summary: { contextWindow: 8_000, prompt: 'Mind every rule. '.repeat(1_100) },
      },
      'policy.summary.contextWindow',
      /in addition to the prompt \(4,\d{3}\)/,
    ],
  ])('%s', (_what, input, path, reason) => {
    const error = refusal(input);
    expect(error.path).toBe(path);
    expect(error.message).toMatch(reason);
    expect(error.hint).toBeTruthy();
    expect(Object.values(error.details ?? {}).some((value) => typeof value === 'number')).toBe(true);
  });
});

test('accepted: sizes with other triggers, custom sections, custom instructions, spend limits with prices', () => {
  const accepted: PolicyInput[] = [
    { trigger: [{ economic: true }, { tokens: 20_000 }, { messages: 200 }, { idle: 300_000 }] },
    { trigger: { idle: 300_000 } },
    { summary: { method: 'extractive', mode: 'layered' } },
    { summary: { method: 'extractive', mode: 'full_rewrite' } },
    { summary: { prompt: 'Summarize.', sections: [{ key: 'risks', title: 'Risks' }, { key: 'next' }] } },
    { spend: { perCompaction: 0.5, perSession: 20 }, prices: { input: 3 } },
    { enabled: false, trigger: [] },
  ];
  for (const policy of accepted) expect(limitsFor(policy).contextTarget).toBeGreaterThan(0);
});

test('a policy that becomes enabled without a trigger is refused', () => {
  const error = (() => {
    try {
      limitsOf({ ...resolvePolicy({ enabled: false, trigger: [] }), enabled: true });
    } catch (thrown) {
      return thrown;
    }
    return null;
  })();
  expect(error).toMatchObject({ type: 'Input.Invalid', path: 'policy.trigger' });
});

describe('defaults', () => {
  test('of an empty policy', () => {
    expect(resolvePolicy(parsePolicy({}))).toEqual({
      enabled: true,
      model: null,
      contextWindow: null,
      fallbackContextWindow: 32_768,
      reservedOutputTokens: null,
      overhead: 0,
      tokenizer: 'o200k_base',
      calibration: true,
      roles: 'auto',
      trigger: [{ fraction: 0.85 }],
      economic: false,
      idleTrigger: null,
      target: 0.75,
      keep: null,
      reduce: {
        arguments: {
          tools: ['write_file', 'edit_file'],
          olderThan: 20,
          longerThan: 2_000,
          prefix: 20,
          text: '...(argument truncated)',
          from: 0.7,
        },
        toolResults: {
          byTool: {},
          retention: 'summarize_archive',
          critical: ['response', 'manage_todo_list', 'get_tool_response'],
          budget: null,
        },
        messages: 0.5,
        newestUserMessage: false,
      },
      summary: {
        method: 'model',
        mode: 'journal',
        prompt: null,
        sections: null,
        structured: 'auto',
        form: 'restoration',
        model: null,
        contextWindow: null,
        maxTokens: 2_000,
        ledgerTokens: 1_000,
        chunkTokens: null,
        concurrency: 4,
        depthLimit: 5,
        reservedOutputTokens: null,
        deadline: 600_000,
        retryAfterFailure: 60_000,
        acknowledgment: DEFAULT_ACKNOWLEDGMENT,
        minGain: 0.1,
        fallback: 'extractive',
      },
      recovery: 'tools',
      memory: { share: 0.6, eager: true },
      pins: [],
      prices: {
        currency: null,
        input: 1,
        cachedInput: 0.1,
        cacheWrite: 1.25,
        output: 5,
        summarizerInput: 1,
        summarizerOutput: 5,
      },
      spend: { perCompaction: null, perSession: null },
      redact: { secrets: true, patterns: [] },
      retention: { digests: 2_592_000_000 },
      deadCallAfter: 600_000,
      debounceMs: 0,
      idleAfter: 3_600_000,
      signal: 'due',
    });
  });

  test('come from the model: window and tokenizer', () => {
    expect(limitsFor({ model: 'claude-sonnet-4-5' })).toMatchObject({
      window: 200_000,
      windowSource: 'model',
      tokenizer: 'chars/3.3',
    });
    expect(limitsFor({ model: 'gpt-4', tokenizer: 'chars/4' })).toMatchObject({
      window: 8_192,
      tokenizer: 'chars/4',
    });
    expect(limitsFor({ model: 'my-own' })).toMatchObject({
      window: 32_768,
      windowSource: 'fallback',
      tokenizer: 'chars/4',
    });
    expect(limitsFor({ model: 'my-own', contextWindow: 50_000 })).toMatchObject({
      window: 50_000,
      windowSource: 'explicit',
    });
  });
});

describe('sizes', () => {
  test('of a window of 8,000', () => {
    expect(limitsFor({ contextWindow: 8_000 })).toEqual({
      window: 8_000,
      windowSource: 'explicit',
      factor: 1,
      tokenizer: 'o200k_base',
      overhead: 0,
      reservedOutput: 1_000,
      budget: 7_000,
      headMax: 1_400,
      noteTokens: 200,
      pinTokens: 0,
      contextTarget: 3_780,
      tailTarget: 2_380,
      keepMessages: 6,
      keepTokens: 2_000,
      triggers: [{ contextTokens: 6_300, messages: null }],
      economic: null,
      idle: null,
      reduceAt: 5_600,
      messageTokens: 3_150,
      resultBudget: 1_890,
      summarizer: {
        window: 8_000,
        chunkTokens: 4_000,
        maxTokens: 800,
        reservedOutput: 1_000,
        promptTokens: 1_000,
      },
      exactTokens: 400,
    });
  });

  test('of large windows: head, chunk and reserved output have ceilings', () => {
    const limits = limitsFor({ contextWindow: 200_000 });
    expect(limits).toMatchObject({
      reservedOutput: 4_096,
      headMax: 3_500,
      contextTarget: 102_000,
      exactTokens: 1_000,
    });
    expect(limits.triggers).toEqual([{ contextTokens: 170_000, messages: null }]);
    expect(limits.summarizer).toEqual({
      window: 200_000,
      chunkTokens: 32_000,
      maxTokens: 2_000,
      reservedOutput: 4_096,
      promptTokens: 1_000,
    });
  });

  test('a fraction is the smaller of fraction · window and 0.9 · (window − reserved output); tokens are used unchanged', () => {
    const at = (trigger: PolicyInput['trigger']) =>
      limitsFor({ contextWindow: 10_000, reservedOutputTokens: 2_000, trigger }).triggers;
    expect(at({ fraction: 0.7 })).toEqual([{ contextTokens: 7_000, messages: null }]);
    expect(at({ fraction: 0.85 })).toEqual([{ contextTokens: 7_200, messages: null }]);
    expect(at({ tokens: 7_900 })).toEqual([{ contextTokens: 7_900, messages: null }]);
    expect(at({ tokens: 5_000, fraction: 0.7, messages: 30 })).toEqual([
      { contextTokens: 7_000, messages: 30 },
    ]);
  });

  test('thresholds and a target in tokens are compared with overhead + context', () => {
    const limits = limitsFor({
      contextWindow: 32_000,
      overhead: 5_000,
      trigger: { tokens: 20_000 },
      target: 12_000,
    });
    expect(limits.triggers).toEqual([{ contextTokens: 15_000, messages: null }]);
    expect(limits.contextTarget).toBe(7_000);
    expect(limits.budget).toBe(32_000 - 5_000 - 4_000);
  });

  test('an overhead given as texts is counted, and so are pins', () => {
    const texts = ['You are a careful agent.', '{"name":"read_file"}'];
    const counter = counterFor('o200k_base');
    const limits = limitsFor({ overhead: texts, pins: ['Never touch the public API.'] });
    expect(limits.overhead).toBe(counter.count(texts[0] ?? '') + counter.count(texts[1] ?? ''));
    expect(limits.pinTokens).toBeGreaterThanOrEqual(counter.count('Never touch the public API.'));
    expect(limits.tailTarget).toBe(limits.contextTarget - limits.headMax - limits.pinTokens);
  });

  test('a trigger by messages alone aims at 0.6 of the highest threshold a fraction could give', () => {
    const limits = limitsFor({ contextWindow: 32_000, trigger: { messages: 40 } });
    expect(limits.contextTarget).toBe(Math.floor(0.6 * 0.9 * (32_000 - 4_000)));
    expect(limits.triggers).toEqual([{ contextTokens: null, messages: 40 }]);
    expect(measureAt(limits)).toEqual({ tokens: null, messages: 40 });
  });

  test('of several clauses the smallest reachable one sets the target; another beyond the window is not an error', () => {
    const limits = limitsFor({ contextWindow: 32_000, trigger: [{ tokens: 100_000 }, { fraction: 0.5 }] });
    expect(limits.contextTarget).toBe(9_600);
    const byMessages = limitsFor({ contextWindow: 32_000, trigger: [{ tokens: 100_000 }, { messages: 40 }] });
    expect(byMessages.contextTarget).toBe(15_120);
  });

  test('a threshold far below the window gets a head that leaves room for a tail', () => {
    const limits = limitsFor({ contextWindow: 128_000, trigger: { tokens: 4_000 } });
    expect(limits).toMatchObject({ contextTarget: 2_400, headMax: 960, keepTokens: 1_440 });
  });

  test('ceilings of keep are exactly the given ones', () => {
    const keep = (given: PolicyInput['keep']) => {
      const { keepMessages, keepTokens } = limitsFor({ contextWindow: 32_000, keep: given });
      return { keepMessages, keepTokens };
    };
    expect(keep(undefined)).toEqual({ keepMessages: 6, keepTokens: 8_000 });
    expect(keep({ messages: 10 })).toEqual({ keepMessages: 10, keepTokens: null });
    expect(keep({ tokens: 900 })).toEqual({ keepMessages: null, keepTokens: 900 });
    expect(keep({ tokens: 9_000, fraction: 0.2, messages: 50 })).toEqual({
      keepMessages: 50,
      keepTokens: 6_400,
    });
  });

  test('the summarizer’s window: given, else its model’s, else the agent’s', () => {
    const window = (summary: PolicyInput['summary']) =>
      limitsFor({ contextWindow: 64_000, summary }).summarizer.window;
    expect(window(undefined)).toBe(64_000);
    expect(window({ model: 'gpt-4o-mini' })).toBe(128_000);
    expect(window({ model: 'gpt-4o-mini', contextWindow: 16_000 })).toBe(16_000);
    expect(window({ model: 'unknown' })).toBe(32_768);
  });

  test('a policy that is off keeps its sizes and never fires', () => {
    const limits = limitsFor({ enabled: false, trigger: [], contextWindow: 8_000 });
    expect(limits.budget).toBe(7_000);
    expect(isTriggered(limits, { contextTokens: 1e9, messages: 1e9 })).toBe(false);
    expect(measureAt(limits)).toEqual({ tokens: null, messages: null });
  });
});

describe('for any policy that is accepted', () => {
  const size = fc.integer({ min: 1, max: 200_000 });
  const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
  const clause = fc
    .record({
      tokens: optional(size),
      messages: optional(fc.integer({ min: 1, max: 200 })),
      fraction: optional(fc.double({ min: 0.05, max: 1, noNaN: true })),
    })
    .filter((given) => Object.values(given).some((value) => value !== undefined));
  const policies = fc.record({
    contextWindow: fc.integer({ min: 1_000, max: 1_100_000 }),
    reservedOutputTokens: optional(fc.integer({ min: 0, max: 10_000 })),
    overhead: fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.integer({ min: 0, max: 60_000 })),
    trigger: fc.oneof(
      fc.constant(undefined),
      clause,
      fc.constant({ economic: true }),
      fc.array(
        fc.oneof(
          { weight: 3, arbitrary: clause },
          fc.constant({ economic: true }),
          fc.constant({ idle: 60_000 }),
        ),
        { minLength: 1, maxLength: 3 },
      ),
    ),
    target: optional(fc.oneof(fc.double({ min: 0.1, max: 0.9, noNaN: true }), size)),
    pins: optional(fc.array(fc.constantFrom('a pin', 'a longer pin '.repeat(20)), { maxLength: 3 })),
    summary: optional(
      fc.record({
        contextWindow: optional(fc.integer({ min: 2_000, max: 300_000 })),
        maxTokens: optional(fc.integer({ min: 64, max: 8_000 })),
        ledgerTokens: optional(fc.integer({ min: 0, max: 4_000 })),
        chunkTokens: optional(fc.integer({ min: 256, max: 100_000 })),
        reservedOutputTokens: optional(fc.integer({ min: 1, max: 9_000 })),
      }),
    ),
  });
  const sessions = fc.record({
    factor: optional(fc.double({ min: 0.2, max: 5, noNaN: true })),
    meanTurnTokens: optional(fc.double({ min: 0, max: 50_000, noNaN: true })),
    pinTokens: optional(fc.integer({ min: 0, max: 5_000 })),
    systemTokens: optional(fc.integer({ min: 0, max: 20_000 })),
  });
  /** Limits of generated policies; refused ones are passed over, anything but a typed refusal fails. */
  function forAccepted(
    check: (limits: Limits) => void,
    mode: 'incremental' | 'journal' = 'incremental',
  ): void {
    let accepted = 0;
    fc.assert(
      fc.property(policies, sessions, (policy, facts) => {
        let limits: Limits;
        try {
          const given = parsePolicy(policy);
          limits = limitsOf(resolvePolicy({ ...given, summary: { ...given.summary, mode } }), facts);
        } catch (error) {
          expect(error).toMatchObject({
            type: 'Input.Invalid',
            path: expect.stringMatching(/^policy/) as string,
          });
          return;
        }
        const { factor, budget, window, overhead, reservedOutput } = limits;
        if (factor !== Math.max(0.5, facts.factor ?? 1)) {
          // With the learnt values no tokens are left: the sizes stay as declared, except the budget.
          expect(factor).toBe(1);
          expect(budget).toBeLessThanOrEqual(
            (window - overhead - reservedOutput) / Math.max(1, facts.factor ?? 1),
          );
          return;
        }
        accepted++;
        check(limits);
      }),
      { numRuns: 2_000 },
    );
    expect(accepted).toBeGreaterThan(400);
  }

  test.each(['incremental', 'journal'] as const)('budget, head, target and tail of %s add up', (mode) => {
    forAccepted((limits) => {
      expect(limits.budget).toBe(limits.window - limits.overhead - limits.reservedOutput);
      const most = mode === 'journal' ? 48 * Math.sqrt(limits.budget) : Math.min(3_500, 0.2 * limits.budget);
      expect(limits.headMax).toBeLessThanOrEqual(most);
      expect(limits.headMax).toBeGreaterThanOrEqual(200);
      expect(limits.summarizer.maxTokens + limits.exactTokens + limits.noteTokens).toBeLessThanOrEqual(
        limits.headMax,
      );
      expect(limits.headMax + limits.pinTokens + limits.tailTarget).toBe(limits.contextTarget);
      expect(limits.tailTarget).toBeGreaterThan(0);
      expect(limits.contextTarget).toBeLessThan(limits.budget);
      const { keepTokens, reduceAt, messageTokens, resultBudget, economic, idle, summarizer } = limits;
      const sizes = [keepTokens, reduceAt, messageTokens, resultBudget, ...Object.values(summarizer)];
      const costs = [economic?.from, economic?.at, idle?.contextTokens];
      for (const size of [...sizes, ...costs])
        expect(size ?? 0).toSatisfy((given: number) => Number.isInteger(given) && given >= 0);
    }, mode);
  });

  test('a summarizer request with prompt, previous snapshot, chunk and answer fits its window', () => {
    forAccepted(({ summarizer }) => {
      const { window, chunkTokens, maxTokens, reservedOutput, promptTokens } = summarizer;
      expect(promptTokens).toBeGreaterThanOrEqual(PROMPT_TOKENS);
      expect(chunkTokens).toBeGreaterThanOrEqual(256);
      expect(maxTokens).toBeLessThanOrEqual(reservedOutput);
      expect(promptTokens + maxTokens + chunkTokens + reservedOutput).toBeLessThan(window);
    });
  });

  test('a context at the target, with the messages kept by default, triggers no clause by tokens or by messages alone', () => {
    forAccepted((limits) => {
      const reached = { contextTokens: limits.contextTarget, messages: (limits.keepMessages ?? 0) + 3 };
      const alone = limits.triggers.filter(
        ({ contextTokens, messages }) => contextTokens === null || messages === null,
      );
      expect(isTriggered({ ...limits, triggers: alone }, reached)).toBe(false);
    });
  });

  test('no clause fires below both sizes at which the session is measured', () => {
    let fired = 0;
    forAccepted((limits) => {
      const { tokens, messages } = measureAt(limits);
      for (const contextTokens of [0, limits.contextTarget, (tokens ?? 1) - 1, tokens ?? 0, limits.budget]) {
        for (const count of [0, 5, (messages ?? 1) - 1, messages ?? 0, 500]) {
          if (!isTriggered(limits, { contextTokens, messages: count })) continue;
          fired++;
          expect(
            (tokens !== null && contextTokens >= tokens) || (messages !== null && count >= messages),
          ).toBe(true);
        }
      }
    });
    expect(fired).toBeGreaterThan(1_000);
  });
});

test('clauses are AND inside and OR across', () => {
  const limits = limitsFor({
    contextWindow: 32_000,
    trigger: [{ tokens: 5_000, messages: 20 }, { tokens: 12_000 }, { messages: 100 }],
  });
  const fires = (contextTokens: number, messages: number) => isTriggered(limits, { contextTokens, messages });
  expect([fires(5_000, 19), fires(4_999, 20), fires(5_000, 20)]).toEqual([false, false, true]);
  expect([fires(11_999, 0), fires(12_000, 0), fires(0, 99), fires(0, 100)]).toEqual([
    false,
    true,
    false,
    true,
  ]);
  expect(measureAt(limits)).toEqual({ tokens: 5_000, messages: 100 });
});
