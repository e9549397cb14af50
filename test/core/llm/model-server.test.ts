/** Tests of the scripted endpoint that the other tests use: its delays, counts and answers. */
import { describe, expect, test } from 'vitest';
import { acceptDigest } from '../../../src/summary/answer/accept.js';
import { Ground } from '../../../src/summary/answer/grounding.js';
import { atOnce } from '../../../src/steps.js';
import { chunkRequest } from '../../../src/summary/ask/prompts.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { never, useModelClient } from '../../support/model-client.js';

const llm = useModelClient();

describe('the scripted llm.server', () => {
  test('delays answers, counts requests in flight, releases in order', async () => {
    llm.server.hold();
    const calls = [llm.summarize(), llm.summarize(), llm.summarize()];
    await llm.server.waitForRequests(3);
    expect([llm.server.inFlight(), llm.server.mostInFlight()]).toEqual([3, 3]);
    llm.server.release(1);
    await llm.server.waitUntil(() => llm.server.inFlight() === 2, 'one answer');
    expect(llm.server.requests.map(({ answered }) => answered)).toEqual([200, null, null]);
    llm.server.release();
    await Promise.all(calls);
    await llm.server.waitUntil(() => llm.server.inFlight() === 0, 'all answers');
    expect(llm.server.paidTwice()).toHaveLength(1);
  });

  test('answers by default with a short sectioned summary that names its input', async () => {
    const counter = counterFor('o200k_base');
    const transcript = Array.from(
      { length: 60 },
      (_, n) => `[${n}] tool:read_file: src/store/part-${n}.ts has commit ${(0xabcdef1 + n).toString(16)}`,
    ).join('\n');
    const request = chunkRequest({ transcript, key: 'k', maxTokens: 1_000 });
    const texts = new Set<string>();
    for (const name of ['one', 'another']) {
      const { text } = await llm.client.summarize(request, {
        model: name,
        expectedInputTokens: 100,
        signal: never,
      });
      texts.add(
        acceptDigest(text, {
          ...{ inputTokens: counter.count(transcript) / 3, maxTokens: 1_000, counter },
          ground: atOnce(Ground.reading(transcript, '')),
        }),
      );
    }
    expect([...texts]).toEqual([expect.stringMatching(/^## Facts from tools[\s\S]*src\/store\/part-0\.ts/)]);
  });

  test('answers even the smallest slice with fewer tokens', async () => {
    const counter = counterFor('o200k_base');
    const transcript = 'Please go on with the work as we said. '.repeat(7);
    const { text } = await llm.client.summarize(chunkRequest({ transcript, key: 'k', maxTokens: 200 }), {
      model: 'm',
      expectedInputTokens: 100,
      signal: never,
    });
    const limits = { inputTokens: counter.count(transcript), maxTokens: 200, counter };
    expect(acceptDigest(text, { ...limits, ground: atOnce(Ground.reading(transcript, '')) })).toBe(text);
  });
});
