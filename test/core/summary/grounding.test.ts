/**
 * No error text, refusal, placeholder or counter-question becomes a summary, in any language. Real summaries are accepted,
 * since each false refusal costs a model call. `src` has no list of these texts: its thresholds were chosen with the first half
 * of them only.
 */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { renderMessage } from '../../../src/conversation/render.js';
import { extractiveSnapshot } from '../../../src/summary/extractive/extractive.js';
import { Ground } from '../../../src/summary/answer/grounding.js';
import { atOnce } from '../../../src/steps.js';
import { chunkRequest } from '../../../src/summary/ask/prompts.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { notSummaries } from '../../acceptance/no-summaries.js';
import { records, type TestRecord } from '../../acceptance/records.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const asked = chunkRequest({ transcript: '', key: 'k', maxTokens: 500 })
  .messages.map(({ content }) => content)
  .join('\n');

const texts = Object.entries(notSummaries).flatMap(([lang, all]) =>
  all.map((text) => ({ lang, text, half: halfOf(text) })),
);

/** Divided by hash, so that the choice of training and test texts is arbitrary. */
function halfOf(text: string): 'first' | 'second' {
  return (createHash('sha256').update(text).digest()[0] ?? 0) % 2 === 0 ? 'first' : 'second';
}

function isAccepted(text: string, ground: Ground): boolean {
  const grounding = ground.of(text);
  return grounding === null || grounding.found >= grounding.needed;
}

const said = ({ lines }: Pick<TestRecord, 'lines'>) =>
  lines.map((line) => line.replace(/^\w+: /, '')).join('\n');

describe('texts that are not summaries', () => {
  test('cover more than 25 languages, and neither half is small', () => {
    expect(new Set(texts.map(({ lang }) => lang)).size).toBeGreaterThan(25);
    for (const half of ['first', 'second'])
      expect(texts.filter((one) => one.half === half).length).toBeGreaterThan(80);
  });

  test.each(records)('none is accepted as a summary of a record of $kind in $lang', (record) => {
    const ground = atOnce(Ground.reading(said(record), asked));
    const accepted = texts.filter(({ text }) => isAccepted(text, ground));
    // The English service record contains a refusal word for word, and the reasons that the longest refusal gives.
    const mostly = record.lang === 'en' && record.kind === 'service' ? 1 : 0;
    expect(accepted.map(({ text }) => text).slice(mostly)).toEqual([]);
  });

  test.each(['first', 'second'])('none of the %s half is accepted in the requested sections', (half) => {
    for (const record of records.filter(({ kind }) => kind !== 'service')) {
      const ground = atOnce(Ground.reading(said(record), asked));
      for (const { text } of texts.filter((one) => one.half === half)) {
        const filled = `## Session intent\n- ${text}\n## Current state\n- ${text}`;
        expect({ filled, accepted: isAccepted(filled, ground) }).toEqual({ filled, accepted: false });
      }
    }
  });
});

describe('summaries', () => {
  const detailed = records.map((record) => ({ ...record, summary: record.summaries[0] ?? '' }));
  test.each(detailed.filter(({ lines }) => lines.length > 3))(
    'in the record’s own language are accepted: $kind in $lang',
    (record) => expect(isAccepted(record.summary, atOnce(Ground.reading(said(record), asked)))).toBe(true),
  );

  test.each(records.flatMap((record) => record.translated.map((text) => ({ ...record, text }))))(
    'in another language are accepted by their names and values: $kind in $lang',
    (record) => expect(isAccepted(record.text, atOnce(Ground.reading(said(record), asked)))).toBe(true),
  );

  test('an id and the number after it are two values, a number with separators is one', () => {
    const flights = ['HAT260', 'HAT277', 'HAT158'].map(
      (flight, index) => `{"flight":"${flight}","price":${167 + index}}`,
    );
    const prices = atOnce(
      Ground.reading(`<155>53 tool search\n[${flights.join(', ')}]`, `${asked} flight price`),
    );
    expect(isAccepted('- HAT260 167, HAT277 168 [m53]', prices)).toBe(true);
    for (const [record, answer] of [
      ['paid 1200450', 'Paid 1,200,450'],
      ['paid 1,200,450', 'Paid 1 200 450'],
    ] as const)
      expect(
        atOnce(Ground.reading(`They agreed that the harbour ${record} crowns.`, asked)).of(answer)!.found,
      ).toBeGreaterThan(5);
  });

  test('a record without content refuses no answer', () => {
    expect(
      atOnce(Ground.reading('<media type="image_url" ref="message 1 part 1"/>', asked)).of('A picture.'),
    ).toBeNull();
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  const counter = counterFor('o200k_base');

  test('false accepts stay below one in a thousand, false refusals below one in two hundred', async () => {
    const counts = { first: [0, 0], second: [0, 0], summaries: [0, 0] } as Record<string, [number, number]>;
    for await (const { line } of readTranscripts()) {
      const { messages } = JSON.parse(line) as { messages: ChatMessage[] };
      for (const slice of slicesOf(messages)) {
        const ground = atOnce(Ground.reading(slice.map(renderMessage).join('\n'), asked));
        for (const { text, half } of texts) note(counts[half], isAccepted(text, ground));
        const tokens = slice.reduce((sum, one) => sum + one.tokens, 0);
        if (tokens < 400) continue;
        const maxTokens = Math.max(64, Math.floor(tokens / 12));
        const summary = withoutSources(
          extractiveSnapshot({ previous: null, messages: slice, maxTokens, counter }),
        );
        note(counts['summaries'], !isAccepted(summary, ground));
      }
    }
    console.log('false accepts (first half, second half) and false refusals of summaries by rule:', counts);
    for (const half of ['first', 'second']) expect(share(counts[half])).toBeLessThan(1 / 1_000);
    expect(share(counts['summaries'])).toBeLessThan(1 / 200);
  });

  /** The first messages of a session, of about 150, 600 and 2,400 tokens. */
  function slicesOf(messages: readonly ChatMessage[]) {
    const log = messages
      .filter(({ role }) => role !== 'system' && role !== 'developer')
      .map((message, index) => ({ seq: index + 1, message, tokens: 0 }))
      .map((logged) => ({ ...logged, tokens: counter.count(renderMessage(logged)) }));
    return [150, 600, 2_400].flatMap((size) => {
      let tokens = 0;
      const slice = log.filter((one) => tokens < size && (tokens += one.tokens) > 0);
      return tokens >= size ? [slice] : [];
    });
  }

  /** Items written by rule name their messages, and a line states how much was read; a model's summary need not have either. */
  function withoutSources(summary: string): string {
    return summary.replace(/^- #\d+: /gm, '- ').replace(/^- Covered by rule.*\n?/m, '');
  }

  function note(counts: [number, number] | undefined, isWrong: boolean): void {
    if (!counts) return;
    counts[0] += isWrong ? 1 : 0;
    counts[1] += 1;
  }

  const share = (counts: [number, number] | undefined) => (counts ? counts[0] / counts[1] : 1);
});
