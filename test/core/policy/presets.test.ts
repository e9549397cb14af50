/** The documented defaults of other systems, by name, for all usual windows. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { readTranscripts } from '../../../src/cli/play/transcripts.js';
import { cutTurns } from '../../../src/conversation/groups.js';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import { isFailure } from '../../../src/errors.js';
import { policyOf, resolvePolicy } from '../../../src/policy/layers.js';
import { isTriggered, limitsOf, type Limits } from '../../../src/limits/limits.js';
import { presets } from '../../../src/policy/presets.js';
import { parsePolicy, type PolicyInput, type PresetName, presetNames } from '../../../src/policy/schema.js';
import { sized } from '../../support/size.js';

const limitsFor = (preset: PresetName, input: PolicyInput = {}): Limits =>
  limitsOf(resolvePolicy(parsePolicy({ ...input, preset })));

/** Every window from 8,000 to 1,048,576 in steps of 3 %. */
const windows = Array.from({ length: 170 }, (_, step) => Math.floor(8_000 * 1.03 ** step)).filter(
  (window) => window <= 1_048_576,
);

describe.each(presetNames)('%s', (preset) => {
  test('is a complete policy', () => {
    expect(parsePolicy(presets[preset])).toEqual(presets[preset]);
    expect(limitsFor(preset).window).toBe(preset === 'adk' ? 200_000 : 32_768);
  });

  test('resolves without contradiction for any window from 8,000 to 1,048,576 tokens', () => {
    for (const contextWindow of [...windows, 1_048_576]) {
      const limits = limitsFor(preset, { contextWindow });
      expect(limits.triggers.length).toBeGreaterThan(0);
      expect(limits.tailTarget).toBeGreaterThan(0);
      const kept = limits.headMax + limits.pinTokens + Math.min(limits.keepTokens ?? 0, limits.tailTarget);
      expect(isTriggered(limits, { contextTokens: kept, messages: (limits.keepMessages ?? 0) + 3 })).toBe(
        false,
      );
    }
  });

  test('resolves with any known model, any summary mode and calibration', () => {
    for (const model of ['gpt-4', 'gpt-4o', 'claude-sonnet-4-5', 'gemini-2.5-pro', 'my-own'])
      expect(limitsFor(preset, { model }).budget).toBeGreaterThan(0);
    for (const mode of ['incremental', 'full_rewrite', 'layered', 'journal'] as const)
      expect(limitsFor(preset, { summary: { mode } }).headMax).toBeGreaterThan(0);
    const policy = policyOf({ session: { preset, contextWindow: 16_000 } });
    for (const factor of [0.5, 0.8, 1.25])
      expect(limitsOf(policy, { factor }).contextTarget).toBeGreaterThan(0);
  });
});

test('adk: window 200,000 by default, 85 %, six messages, 4 characters a token, no argument truncation', () => {
  const limits = limitsFor('adk', { model: 'unheard-of' });
  expect(limits).toMatchObject({
    window: 200_000,
    windowSource: 'fallback',
    tokenizer: 'chars/4',
    triggers: [{ contextTokens: 170_000, messages: null }],
    keepMessages: 6,
    keepTokens: null,
    reduceAt: null,
  });
  expect(limits.summarizer.chunkTokens).toBe(4_000);
  const { summary, reduce } = resolvePolicy({ preset: 'adk' });
  expect(summary.sections?.map(({ title }) => title)).toEqual([
    'SESSION INTENT',
    'SUMMARY',
    'ARTIFACTS',
    'NEXT STEPS',
  ]);
  expect(summary).toMatchObject({ method: 'model', fallback: 'extractive', acknowledgment: '' });
  expect(reduce.arguments).toBeNull();
});

test('adk with its TruncateArgsConfig: 70 %, 20 messages, 2,000 characters, 20 of them stay', () => {
  const policy = resolvePolicy({ preset: 'adk', reduce: { arguments: {} } });
  expect(policy.reduce.arguments).toEqual({
    tools: ['write_file', 'edit_file'],
    olderThan: 20,
    longerThan: 2_000,
    prefix: 20,
    text: '...(argument truncated)',
    from: 0.7,
  });
  expect(limitsOf(policy).reduceAt).toBe(140_000);
});

test('smart-agent, also called hybrid: 17,000 tokens, or the window if that is smaller; incremental, summarize_archive', () => {
  expect(presets.hybrid).toEqual(presets['smart-agent']);
  const policy = resolvePolicy({ preset: 'hybrid' });
  expect(policy.summary).toMatchObject({ mode: 'incremental' });
  expect(policy.reduce.toolResults).toMatchObject({
    retention: 'summarize_archive',
    critical: ['response', 'manage_todo_list', 'get_tool_response'],
  });
  const fires = (contextWindow: number, contextTokens: number) =>
    isTriggered(limitsFor('hybrid', { contextWindow }), { contextTokens, messages: 1 });
  expect([fires(128_000, 16_999), fires(128_000, 17_000)]).toEqual([false, true]);
  expect([fires(8_000, 6_299), fires(8_000, 6_300)]).toEqual([false, true]);
});

test('langchain: 4,000 tokens, at most 20 messages, plain opening, no acknowledgment, 3.3 characters a token for Anthropic', () => {
  const limits = limitsFor('langchain', { contextWindow: 128_000 });
  expect(limits.triggers).toEqual([{ contextTokens: 4_000, messages: null }]);
  expect(limits.keepMessages).toBe(20);
  expect(limits.headMax + (limits.keepTokens ?? Infinity)).toBeLessThan(4_000);
  expect(limits.summarizer.chunkTokens).toBe(4_000);
  expect(resolvePolicy({ preset: 'langchain' }).summary).toMatchObject({ form: 'plain', acknowledgment: '' });
  expect(limitsFor('langchain', { model: 'claude-sonnet-4-5' }).tokenizer).toBe('chars/3.3');
  expect(limitsFor('langchain', { model: 'gpt-4o' }).tokenizer).toBe('chars/4');
});

test('langchain as its guide configures it for production and for several models', () => {
  const production = limitsFor('langchain', {
    contextWindow: 128_000,
    trigger: [{ tokens: 6_000 }, { messages: 75 }],
    keep: { messages: 25 },
    summary: { chunkTokens: 5_000 },
  });
  expect(production).toMatchObject({ keepMessages: 25, keepTokens: null });
  expect(isTriggered(production, { contextTokens: 10, messages: 75 })).toBe(true);
  const several = limitsFor('langchain', {
    model: 'gpt-4o',
    trigger: { fraction: 0.7 },
    keep: { fraction: 0.3 },
  });
  expect(several).toMatchObject({ triggers: [{ contextTokens: 89_600 }], keepTokens: 38_400 });
});

test('deepagents: 85 %, 32,768 by default, six messages and a quarter of the window, 4,096 reserved for the summary, acknowledged', () => {
  const limits = limitsFor('deepagents');
  expect(limits).toMatchObject({
    window: 32_768,
    windowSource: 'fallback',
    tokenizer: 'chars/4',
    keepMessages: 6,
    keepTokens: 8_192,
  });
  expect(limits.summarizer.reservedOutput).toBe(4_096);
  expect(limitsFor('deepagents', { contextWindow: 200_000 }).triggers[0]?.contextTokens).toBe(170_000);
  expect(resolvePolicy({ preset: 'deepagents' }).summary.acknowledgment).not.toBe('');
});

test('zrb: tokens or messages, a separate chunk for a message above half of the threshold, depth 5, alternating roles, a restoration note', () => {
  const limits = limitsFor('zrb', { contextWindow: 100_000 });
  expect(limits.triggers).toEqual([
    { contextTokens: 60_000, messages: null },
    { contextTokens: null, messages: 101 },
  ]);
  expect(limits).toMatchObject({ messageTokens: 30_000, contextTarget: 42_000 });
  const policy = resolvePolicy({ preset: 'zrb' });
  expect(policy.roles).toBe('alternate');
  expect(policy.summary).toMatchObject({ depthLimit: 5, form: 'restoration', chunkTokens: 2_000 });
});

test('fields given with a preset override it, and keep the rest of it', () => {
  const policy = resolvePolicy({ preset: 'deepagents', trigger: { fraction: 0.75 }, keep: { messages: 10 } });
  expect(policy).toMatchObject({
    trigger: [{ fraction: 0.75 }],
    keep: { messages: 10 },
    tokenizer: 'chars/4',
    summary: { reservedOutputTokens: 4_096 },
  });
});

/** A compaction that would save too little is refused and leaves the context as it is. */
function unlessRefused(error: unknown): void {
  if (!isFailure(error, 'Summary.NotSmaller')) throw error;
}

const transcripts = process.env.PALIMPSEST_TRANSCRIPTS;

describe.skipIf(transcripts === undefined)('on recorded sessions (PALIMPSEST_TRANSCRIPTS)', () => {
  test('every preset compacts in a window of 8,000 and keeps each context within its budget', async () => {
    const folder = path.join(transcripts ?? '', 'sessions');
    const compactions = new Map<PresetName, number>();
    for (const file of readdirSync(folder)) {
      const sessions = (await readTranscripts(path.join(folder, file))).flatMap((read) =>
        'error' in read ? [] : [read.messages],
      );
      for (const messages of sessions.filter((_, index) => index % 25 === 0).slice(0, sized(1, 3))) {
        for (const preset of presetNames) {
          const policy: PolicyInput = { preset, contextWindow: 8_000, summary: { method: 'extractive' } };
          const conversation = new Conversation({ policy: { ...policy, tokenizer: 'chars/4' } });
          for (const { from, to } of cutTurns(messages).slice(0, 150)) {
            conversation.append(messages.slice(from, to));
            if (conversation.isDue()) await conversation.compact(null).catch(unlessRefused);
            expect(conversation.context().tokens).toBeLessThanOrEqual(conversation.limits.budget);
          }
          compactions.set(preset, (compactions.get(preset) ?? 0) + conversation.generations.length);
        }
      }
    }
    for (const preset of presetNames) expect(compactions.get(preset)).toBeGreaterThan(0);
  });
});
