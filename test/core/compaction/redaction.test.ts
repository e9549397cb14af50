/** Redaction and the answers of the summarizer in a session in memory. */
import { expect, test } from 'vitest';
import { Conversation, type Generation } from '../../../src/compaction/in-memory/index.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { words } from '../../support/dialogue.js';
import { saidOf } from '../../support/material.js';

const secret = 'ORCHID-4711';

/** Only the message in the middle has the secret. */
const messages = Array.from({ length: 40 }, (_, index): ChatMessage[] => [
  { role: 'user', content: `Request ${index}: ${words(120, index)}` },
  { role: 'assistant', content: `Answer ${index}: ${index === 20 ? secret : ''} ${words(120, index)}` },
]).flat();

const modes = ['journal', 'incremental', 'full_rewrite'] as const;
type Mode = (typeof modes)[number];

const policyOf = (mode: Mode, redact: PolicyInput['redact']): PolicyInput => ({
  contextWindow: 8_000,
  summary: { mode, contextWindow: 4_000 },
  ...(redact === undefined ? {} : { redact }),
});

async function callsUnder(mode: Mode, redact: PolicyInput['redact']): Promise<Generation['calls']> {
  const conversation = new Conversation({ policy: policyOf(mode, redact) });
  conversation.append(messages);
  const answers = (request: Parameters<typeof saidOf>[1]) => saidOf('- The requests were answered.', request);
  const generation = await conversation.compact(answers, { force: true });
  return generation?.calls.filter(({ kind }) => kind === 'chunk' || kind === 'notes') ?? [];
}

test.each(modes)(
  'an answer in mode %s stays valid if another redaction shows the same text',
  async (mode) => {
    const keys = async (redact: PolicyInput['redact']) =>
      new Set((await callsUnder(mode, redact)).map(({ key }) => key));
    const [off, on, more] = [await keys(false), await keys(undefined), await keys({ patterns: [secret] })];
    expect(on.size).toBeGreaterThan(2);
    expect(on).toEqual(off);
    // Of the messages with the pattern alone, another answer is needed.
    expect([...more].filter((key) => !on.has(key))).toHaveLength(1);
    expect(more.size).toBe(on.size);
  },
);

test('no request is sent once a failure has ended the compaction, however long its redaction takes', async () => {
  const conversation = new Conversation({ policy: policyOf('journal', {}) });
  // Redacting it takes longer than the first failure.
  const long = { role: 'user' as const, content: words(8_000) };
  conversation.append([...messages.slice(0, 20), long, ...messages.slice(20)]);
  let [requests, late, ended] = [0, 0, false];
  const fails = () => {
    requests++;
    if (ended) late++;
    setImmediate(() => (ended = true));
    throw new PalimpsestError('Llm.Unavailable', 'the endpoint is away');
  };
  await conversation.compact(fails, { force: true });
  expect(requests).toBeGreaterThan(0);
  expect(late).toBe(0);
});
