/**
 * A failure of the model at one chunk affects that chunk only: the rules write its digest, marked, and the model's digests of
 * the others are used. The next compaction and `resummarize` request only the marked part again, and pay nothing twice.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { Summarizer } from '../../../src/compaction/in-memory/asker.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { saidOf } from '../../support/material.js';
import { failure, ok, refusalText, status, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { startStack, type Stack } from '../../support/stack.js';

const policy: PolicyInput = { ...smallPolicy, summary: { mode: 'incremental', chunkTokens: 500 } };

/** Stands in one message; a request for its chunk is answered otherwise than the others. */
const trouble = 'embargo';

const textOf = ({ body }: RecordedRequest) => body.messages.map(({ content }) => content).join('\n');
const isChunk = (request: RecordedRequest) => textOf(request).includes('<transcript');
const isTroubled = (request: RecordedRequest) => isChunk(request) && textOf(request).includes(trouble);

const troubled =
  (script: Script): Script =>
  (request) =>
    (isTroubled(request) ? script : ok())(request);

/** Turns that no other session has, with trouble in the fourth. */
function talk(session: string, count: number): ChatMessage[][] {
  return dialogue(count).map((turn, index) =>
    turn.map(({ role, content }) => ({
      role,
      content: `${session} ${index === 3 ? trouble : 'as before'}: ${String(content)}`,
    })),
  );
}

describe('in the service', () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack();
  });
  afterAll(() => stack.stop());
  beforeEach(() => stack.model.reply(ok()));

  /** Plays turns until the session is quiet; answers the requests that this took. */
  async function play(session: string, turns: ChatMessage[][], from = 0, given = policy) {
    const before = stack.model.requests.length;
    for (const [index, messages] of turns.entries()) {
      const turnId = `t-${from + index}`;
      await stack.palimpsest.appendTurn({ session, turnId, messages, policy: given });
    }
    await stack.palimpsest.settled({ session });
    return stack.model.requests.slice(before);
  }

  const newest = async (session: string) => (await stack.palimpsest.compactions({ session })).at(-1)!;

  test('a refused chunk is requested three times, and the other chunks cost nothing more', async () => {
    stack.model.reply(troubled(refusalText()));
    const requests = await play('refused', talk('refused', 18));
    const { method, chunks, chunksByRule } = await newest('refused');
    expect({ method, chunksByRule }).toEqual({ method: 'model', chunksByRule: 1 });
    expect(chunks).toBeGreaterThan(3);
    expect(requests.filter(isTroubled)).toHaveLength(3);
    const others = requests.filter((request) => isChunk(request) && !isTroubled(request));
    expect(others).toHaveLength(chunks - 1);
    const consolidations = requests.filter((request) => !isChunk(request)).map(textOf);
    expect(consolidations.some((text) => text.includes(trouble))).toBe(true);
    expect(consolidations.join('\n')).toContain('## Current state');
  });

  test('status, outcome and timeline say how many chunks the fallback served', async () => {
    const { palimpsest } = stack;
    const { lastError, retryAt, failures, summaryRecords } = await palimpsest.status({ session: 'refused' });
    expect(lastError).toMatchObject({
      type: 'Llm.BadOutput',
      message: expect.stringMatching(/^the model failed at 1 of its texts; the rules wrote them$/),
    });
    expect({ retryAt, failures }).toEqual({ retryAt: null, failures: 0 });
    expect(summaryRecords[0]).toMatchObject({ method: 'model', fallback: true, chunksByRule: 1 });
    const { compactions } = await palimpsest.timeline({ session: 'refused' });
    expect(compactions.at(-1)).toMatchObject({ method: 'model', chunksByRule: 1 });
  });

  test('the next compaction requests the refused chunk again, and no other earlier one', async () => {
    stack.model.reply(troubled(refusalText()));
    const requests = await play('refused', talk('refused', 34).slice(18), 18);
    expect(requests.filter(isTroubled).length).toBeGreaterThanOrEqual(3);
    for (const request of requests.filter((one) => isChunk(one) && !isTroubled(one)))
      expect(textOf(request)).not.toMatch(/Request [1-9]:/);
    const { chunksByRule } = await newest('refused');
    expect(chunksByRule).toBe(1);
    const drawn = new Set(stack.model.requests.filter(isTroubled).map(({ key }) => key));
    expect(stack.model.paidTwice().filter((key) => !drawn.has(key))).toEqual([]);
  });

  test('resummarize rewrites the marked part from its originals once the model answers', async () => {
    const before = stack.model.requests.length;
    const outcome = await stack.palimpsest.resummarize({ session: 'refused' });
    expect(outcome).toMatchObject({ reason: 'resummarize', method: 'model', chunksByRule: 0 });
    const { summaryRecords, lastError } = await stack.palimpsest.status({ session: 'refused' });
    expect(summaryRecords[0]).toMatchObject({ fallback: false, chunksByRule: 0 });
    expect(lastError).toBeNull();
    const requests = stack.model.requests.slice(before);
    expect(requests.filter(isTroubled)).toHaveLength(1);
    expect(requests.filter(isChunk)).toHaveLength(1);
  });

  test('a chunk that a content filter stops is not requested again', async () => {
    stack.model.reply(troubled(status(400, failure('content management policy', 'content_filter'))));
    const requests = await play('filtered', talk('filtered', 18));
    expect(await newest('filtered')).toMatchObject({ method: 'model', chunksByRule: 1 });
    expect(requests.filter(isTroubled)).toHaveLength(1);
  });

  test('a refused key is not the failure of one chunk: the rules write all of them', async () => {
    stack.model.reply(status(401, failure('no such key')));
    await play('locked out', talk('locked out', 18));
    const { method, chunksByRule } = await newest('locked out');
    expect(method).toBe('extractive');
    expect(chunksByRule).toBeGreaterThan(3);
  });

  test('the rules also write all chunks if the model fails at each of them', async () => {
    stack.model.reply((request) => (isChunk(request) ? refusalText() : ok())(request));
    await play('all refused', talk('all refused', 18));
    expect(await newest('all refused')).toMatchObject({ method: 'extractive' });
    expect((await newest('all refused')).chunksByRule).toBeGreaterThan(3);
  });

  test('without a fallback nothing is committed', async () => {
    stack.model.reply(troubled(refusalText()));
    const given: PolicyInput = { ...policy, summary: { ...policy.summary, fallback: 'none' } };
    await play('strict', talk('strict', 18), 0, given);
    expect(await stack.palimpsest.compactions({ session: 'strict' })).toEqual([]);
  });
});

describe('in memory', () => {
  const reads = ({ kind }: { kind: string }) => kind === 'chunk' || kind === 'notes';

  const refusing: Summarizer = (request, about) => {
    const content = request.messages.at(-1)?.content ?? '';
    const isRefused = reads(about) && content.includes(trouble);
    return isRefused
      ? "I'm sorry, but I can't help with that."
      : saidOf('## Current state\n- Read.', request);
  };

  function conversationOf(given: PolicyInput = policy): Conversation {
    const conversation = new Conversation({ policy: given });
    for (const turn of talk('memory', 18)) conversation.append(turn);
    return conversation;
  }

  test.each(['incremental', 'full_rewrite', 'journal'] as const)('%s: one chunk by rule', async (mode) => {
    const conversation = conversationOf({ ...policy, summary: { ...policy.summary, mode } });
    const generation = await conversation.compact(refusing);
    expect(generation).toMatchObject({ method: 'model', fallback: true, chunksByRule: 1 });
    const { calls, chunks } = generation!;
    expect(chunks.length).toBeGreaterThan(3);
    const refused = calls.filter(reads).length - (chunks.length - 1);
    expect(refused).toBe(1);

    const answering: Summarizer = (request) => saidOf('## Current state\n- Read.', request);
    const again = await conversation.compact(answering, { force: true, reason: 'resummarize' });
    expect(again).toMatchObject({ reason: 'resummarize', fallback: false, chunksByRule: 0 });
    expect(again!.calls.filter(reads)).toHaveLength(1);
  });

  test('a chunk at which a model failed twice is merged as it is; resummarize still retries it', async () => {
    const conversation = conversationOf();
    const read: string[] = [];
    const watched: Summarizer = (request, about) => {
      const content = request.messages.at(-1)?.content ?? '';
      if (about.kind === 'chunk' && content.includes(trouble)) read.push(content);
      return refusing(request, about);
    };
    for (let round = 0; round < 4; round++) {
      for (const turn of dialogue(16)) conversation.append(turn);
      expect(await conversation.compact(watched, { force: true })).not.toBeNull();
    }
    expect(read).toHaveLength(2);
    expect(conversation.generations.at(-1)).toMatchObject({ method: 'model', fallback: true });
    const answering: Summarizer = (request) => saidOf('## Current state\n- Read.', request);
    const again = await conversation.compact(answering, { force: true, reason: 'resummarize' });
    expect(again).toMatchObject({ fallback: false });
  });

  test.each([
    ['a defect', () => new TypeError('x is not a function')],
    ['an error of somebody else', () => new Error('socket hang up')],
    ['a database that is away', () => new PalimpsestError('Store.Unavailable', 'away')],
  ])('%s is thrown to the caller and changes nothing', async (_what, made) => {
    const conversation = conversationOf();
    const before = conversation.context(Infinity).messages;
    const error = made();
    const failing: Summarizer = () => {
      throw error;
    };
    await expect(conversation.compact(failing)).rejects.toBe(error);
    expect(conversation.generations).toEqual([]);
    expect(conversation.context(Infinity).messages).toEqual(before);
    expect(await conversation.compact(refusing)).toMatchObject({ method: 'model' });
  });

  test('a failure of the repair is also thrown', async () => {
    const conversation = conversationOf({
      ...policy,
      summary: { mode: 'incremental', maxTokens: 200, ledgerTokens: 0 },
    });
    const error = new TypeError('x is not a function');
    const long: Summarizer = (request, { kind }) => {
      if (kind === 'repair') throw error;
      const text = kind === 'fold' ? 'ledger invoice retry queue '.repeat(240) : 'Read.';
      return saidOf(`## Current state\n- ${text}`, request);
    };
    await expect(conversation.compact(long)).rejects.toBe(error);
    expect(conversation.generations).toEqual([]);
  });
});
