/**
 * The simulation of a policy must equal the service with the same turns: the same cuts, contexts and requests to the
 * summarizer, for recorded sessions, also malformed ones.
 */
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CacheMeter } from '../../../src/rehearsal/cache.js';
import {
  type Rehearsal,
  rehearse,
  type RehearsedRequest,
  rememberingCounters,
} from '../../../src/rehearsal/rehearse.js';
import { baseline } from '../../../src/cli/compare/policies.js';
import { planTable, totalTable } from '../../../src/cli/compare/report.js';
import { readTranscripts as readSessions } from '../../../src/cli/play/transcripts.js';
import { Conversation, type Summarizer } from '../../../src/compaction/in-memory/index.js';
import type { ViewItem } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { sampleMessages, small, talk } from '../../support/plan-sessions.js';
import { sized } from '../../support/size.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

/** Evicted ranges follow each other, nothing is lost between them, and the rest stays. */
function checkRanges(
  messages: readonly ChatMessage[],
  { compactions, tail, evictedTokens, rawTokens }: Rehearsal,
): void {
  const cuts = compactions.filter(({ boundary }) => boundary !== null);
  for (const [index, cut] of cuts.entries()) {
    if (index > 0) expect(cut.fromSeq).toBe(cuts[index - 1]!.throughSeq + 1);
    expect(cut.throughSeq).toBeGreaterThanOrEqual(cut.fromSeq);
  }
  const leading = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const system = leading === -1 ? messages.length : leading;
  const evicted = (cuts.at(-1)?.throughSeq ?? system) - system;
  expect(cuts.reduce((sum, { evictedMessages }) => sum + evictedMessages, 0)).toBe(evicted);
  expect(tail.messages).toBe(messages.length - system - evicted);
  expect(evictedTokens + tail.tokens).toBeLessThanOrEqual(rawTokens);
}

describe('a rehearsal', () => {
  test('equals a session in memory with the same turns', async () => {
    const policy: PolicyInput = { ...small, summary: { mode: 'incremental' } };
    const rehearsal = await rehearse(sampleMessages, policy);
    const conversation = new Conversation({ policy });
    let largest = 0;
    for (const [index, { throughSeq }] of rehearsal.turns.entries()) {
      conversation.append(sampleMessages.slice(rehearsal.turns[index - 1]?.throughSeq ?? 0, throughSeq));
      largest = Math.max(largest, conversation.context().tokens);
      while (conversation.isDue() && (await conversation.compact(null)));
    }
    const facts = conversation.generations.map(
      ({ generation, reason, throughSeq, tokensBefore, tokensAfter }) => [
        generation,
        reason,
        throughSeq,
        tokensBefore,
        tokensAfter,
      ],
    );
    expect(
      rehearsal.compactions.map(({ generation, reason, throughSeq, tokensBefore, tokensAfter }) => [
        generation,
        reason,
        throughSeq,
        tokensBefore,
        tokensAfter,
      ]),
    ).toEqual(facts);
    expect(facts.length).toBeGreaterThan(2);
    expect(rehearsal.largest).toBe(largest);
    checkRanges(sampleMessages, rehearsal);
  });

  test('without compaction the requests grow at their end: every token of the log is written once', async () => {
    const rehearsal = await rehearse(sampleMessages, { enabled: false, overhead: 5_000 });
    expect(rehearsal.compactions).toEqual([]);
    expect(rehearsal.agent.written).toBe(rehearsal.largest);
    expect(rehearsal.fits).toBe(false);
    expect(rehearsal.summarizerCost).toBe(0);
  });

  test('a summarizer with long answers is sent at most as many tokens as the rehearsal predicts', async () => {
    const messages = talk(100);
    const policy: PolicyInput = { contextWindow: 16_000, summary: { mode: 'incremental' } };
    // A line has about ten tokens.
    const summarize: Summarizer = (_request, { maxTokens }) =>
      [
        '## Current state',
        ...Array.from(
          { length: Math.floor(maxTokens / 11) },
          (_, n) => `- Order ORD-${1000 + n} left depot D-${n}.`,
        ),
      ].join('\n');
    const rehearsal = await rehearse(messages, policy);
    const conversation = new Conversation({ policy });
    for (const [index, { throughSeq }] of rehearsal.turns.entries()) {
      conversation.append(messages.slice(rehearsal.turns[index - 1]?.throughSeq ?? 0, throughSeq));
      while (conversation.isDue() && (await conversation.compact(summarize)));
    }
    const [first] = conversation.generations;
    const [said] = rehearsal.compactions;
    const sent = first!.calls.reduce((sum, { inputTokens }) => sum + inputTokens, 0);
    expect([first!.throughSeq, first!.calls.length]).toEqual([said!.throughSeq, said!.summarizer.calls]);
    expect(first!.calls.length).toBeGreaterThan(2);
    expect(sent).toBeLessThanOrEqual(said!.summarizer.input);
    expect(sent).toBeGreaterThan(0.8 * said!.summarizer.input);
  });

  test('no mode pays twice for the same messages', async () => {
    const messages = talk(500);
    const inputs = await Promise.all(
      (['incremental', 'full_rewrite', 'journal'] as const).map(async (mode) => {
        const { summarizer, compactions } = await rehearse(messages, {
          contextWindow: 16_000,
          summary: { mode },
        });
        return { input: summarizer.input, compactions: compactions.length };
      }),
    );
    // Reading the whole archive at each of n compactions would take about n/2 times as much.
    for (const { input, compactions } of inputs) {
      expect(compactions).toBeGreaterThan(4);
      expect(input).toBeLessThan(2 * inputs[0]!.input);
    }
  });

  test('shared counts for several policies change no result', async () => {
    const counters = rememberingCounters();
    for (const policy of [small, { ...small, tokenizer: 'chars/4' as const }]) {
      const [alone, shared] = await Promise.all([
        rehearse(sampleMessages, policy),
        rehearse(sampleMessages, policy, { counters }),
      ]);
      expect(shared).toEqual(alone);
    }
  });

  test('if a policy fails at a turn, the rehearsal reports the failure and the turn', async () => {
    const messages: ChatMessage[] = [
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Hello' },
      { role: 'user', content: 'x '.repeat(30_000) },
      { role: 'assistant', content: 'That is long.' },
    ];
    const rehearsal = await rehearse(messages, { contextWindow: 8_000 });
    expect(rehearsal.failures).toMatchObject([{ type: 'Budget.Unreachable', turn: 3, turns: 2 }]);
    expect(rehearsal.turns.map(({ tokens }) => tokens === null)).toEqual([false, false, true, true]);
    expect([rehearsal.fits, rehearsal.context]).toEqual([false, null]);
    expect(planTable([{ name: 'default', rehearsal }])).toMatch(
      /Budget\.Unreachable at turn 3 and 1 more turn.*\n.*reduce\.newestUserMessage/,
    );
    // It sent less because turns failed, which does not count as a saving.
    const none = await rehearse(messages, { contextWindow: 8_000, enabled: false });
    const rows = [
      { name: baseline, rehearsal: none },
      { name: 'default', rehearsal },
    ];
    expect(planTable(rows)).toMatch(/default .*turns failed/);
    expect(planTable(rows)).not.toMatch(/−\d+ %/);
    expect(totalTable([rows])).toMatch(/default .*turns failed/);
    const shortened = await rehearse(messages, { contextWindow: 8_000, reduce: { newestUserMessage: true } });
    expect([shortened.fits, shortened.failures]).toEqual([true, []]);
  });

  test('an aborted signal ends it', async () => {
    await expect(rehearse(talk(3), {}, { signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow(
      'enough',
    );
  });
});

describe('the cache', () => {
  const item = (content: string, tokens: number): ViewItem => ({
    ...{ fromSeq: 1, throughSeq: 1, source: 'log', group: 1, role: 'user', tool: null, tokens },
    message: { role: 'user', content },
  });

  test('reads the shared prefix and writes the rest, message by message', () => {
    const meter = new CacheMeter(100);
    expect(meter.request([item('a', 10), item('b', 20)])).toMatchObject({ read: 0, written: 130, prefix: 0 });
    expect(meter.request([item('a', 10), item('b', 20), item('c', 5)])).toMatchObject({
      read: 130,
      written: 5,
      prefix: 2,
    });
    expect(meter.request([item('a', 10), item('B', 20), item('c', 5)])).toMatchObject({
      read: 110,
      written: 25,
      prefix: 1,
    });
    expect(meter.total).toEqual({ read: 240, written: 160 });
  });

  test('charges every token of every request once', () => {
    const requests = fc.array(
      fc.array(fc.record({ content: fc.constantFrom('a', 'b', 'c'), tokens: fc.constant(3) })),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(requests, fc.nat(50), (given, overhead) => {
        const meter = new CacheMeter(overhead);
        for (const one of given) meter.request(one.map(({ content, tokens }) => item(content, tokens)));
        const sent = given.reduce((sum, one) => sum + overhead + 3 * one.length, 0);
        expect(meter.total.read + meter.total.written).toBe(sent);
      }),
    );
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test('each, clean and malformed, is planned with complete ranges, fitting requests and a stable prefix', async () => {
    let [sessions, compactions, between] = [0, 0, 0];
    for await (const { line, file, number } of readTranscripts(sized(5, 1))) {
      const [read] = await readSessions('-', Readable.from([line]));
      if (!read || 'error' in read) throw new Error(`${file}:${number} was not read`);
      let before: RehearsedRequest | null = null;
      const request = (now: RehearsedRequest): void => {
        if (before?.generation === now.generation && now.charged.prefix < before.items.length - 1) {
          const reduced = now.items.some(({ source }) => source === 'reduced' || source === 'omitted');
          if (!reduced) throw new Error(`${read.id}: the prefix broke at turn ${now.turn}`);
        }
        before = now;
        between++;
      };
      const rehearsal = await rehearse(
        read.messages,
        { contextWindow: 24_000, trigger: { economic: true } },
        { request },
      );
      checkRanges(read.messages, rehearsal);
      if (rehearsal.failures.length === 0) expect(rehearsal.fits, read.id).toBe(true);
      sessions++;
      compactions += rehearsal.compactions.length;
    }
    expect(sessions).toBeGreaterThan(0);
    expect(between).toBeGreaterThan(sessions);
    console.log(`${sessions} sessions, ${compactions} compactions`);
  });
});
