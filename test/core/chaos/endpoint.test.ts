/** The chaos run's model, without faults, writes summaries of its agents' messages that the product accepts. */
import { expect, test } from 'vitest';
import { Conversation, type Summarizer } from '../../../src/compaction/in-memory/index.js';
import { chaosPolicy, turnOf } from '../../chaos/agents.js';
import { misbehavingEndpoint } from '../../chaos/endpoint.js';
import { markersIn } from '../../chaos/journal.js';
import { Random } from '../../chaos/random.js';
import type { Completion } from '../../support/model-replies.js';

function fairSummarizer(random: Random): Summarizer {
  const { script, behave } = misbehavingEndpoint(random);
  behave();
  let number = 0;
  return async ({ messages, maxTokens }) => {
    const { body } = await script({
      ...{
        number: ++number,
        key: '',
        headers: {},
        clientPort: undefined,
        at: 0,
        answered: null,
        aborted: false,
      },
      body: { model: 'fair', messages, max_tokens: maxTokens },
    });
    const { choices } = body as { choices: { message: Completion['message'] & { content: string } }[] };
    return choices[0]!.message.content;
  };
}

test.for(['journal', 'incremental', 'full_rewrite'] as const)(
  'a model without faults writes every chunk of every compaction: %s',
  async (mode) => {
    const random = new Random(11);
    const conversation = new Conversation({
      policy: { ...chaosPolicy, summary: { ...chaosPolicy.summary, mode } },
    });
    const summarizer = fairSummarizer(random.fork());
    for (let turn = 1; turn <= 60; turn++) {
      conversation.append(turnOf({ tenant: 'a', session: 's1', incarnation: 1 }, turn, random));
      if (conversation.isAlmostDue()) await conversation.writeAhead(summarizer);
      if (conversation.isDue()) await conversation.compact(summarizer);
    }
    const made = conversation.generations.filter(({ method }) => method !== 'none');
    expect(made.length).toBeGreaterThan(3);
    for (const generation of made) expect(generation).toMatchObject({ method: 'model', chunksByRule: 0 });
    const [summary] = conversation.context().messages;
    expect(markersIn(JSON.stringify(summary)).length).toBeGreaterThan(3);
    if (mode === 'journal')
      expect(made.at(-1)!.state).toMatch(/^- T\d+ request \d+ about \w+ mk-.*\[m\d+\]$/m);
  },
);
