/**
 * The policy's options of the engine, end to end on real servers: summary modes, the single repair, separately summarized
 * messages, summaries rewritten once a model answers again, the cold cache, spend limits, and the form of the summary.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import type { Layer } from '../../../src/summary/ask/layers.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { about, ok, status, type Script } from '../../support/model-replies.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

const textOf = ({ body }: RecordedRequest) => body.messages.map(({ content }) => content).join('\n');

/** Plays turns until the session is quiet; answers the requests that this took. */
async function play(
  session: string,
  turns: readonly ChatMessage[][],
  policy: PolicyInput,
  from = 0,
): Promise<RecordedRequest[]> {
  const before = stack.model.requests.length;
  await appendTurns(stack.palimpsest, session, turns, { policy, from });
  await stack.palimpsest.settled({ session });
  return stack.model.requests.slice(before);
}

/** Turns that no other session has: equal messages are summarized once for a whole tenant. */
function talk(session: string, count: number, tokens = 100): ChatMessage[][] {
  return dialogue(count, tokens).map((turn) =>
    turn.map((message) => ({ ...message, content: `${String(message.content)} (${session})` })),
  );
}

interface Row {
  reason: string;
  method: string;
  fallback: boolean;
  snapshot: string;
  layers: Layer[] | null;
}

async function newest(session: string): Promise<Row> {
  const { rows } = await pool.query<Row>(
    `select reason, method, fallback, snapshot, layers from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 order by generation desc limit 1`,
    [stack.queuePrefix, session],
  );
  return rows[0]!;
}

async function valid(session: string): Promise<ChatMessage[]> {
  const { messages, tokens, budget } = await stack.palimpsest.context({ session });
  expect(tokens).toBeLessThanOrEqual(budget);
  expect(validateView(messages)).toEqual([]);
  return messages;
}

describe('summary modes', () => {
  test('full_rewrite reads the whole archive from its digests and pays only for new messages', async () => {
    const policy: PolicyInput = { ...smallPolicy, summary: { mode: 'full_rewrite', chunkTokens: 600 } };
    await play('rewrite', talk('rewrite', 18), policy);
    const second = await play('rewrite', talk('rewrite', 36).slice(18), policy, 18);
    expect((await stack.palimpsest.compactions({ session: 'rewrite' })).length).toBeGreaterThan(1);
    expect(stack.model.paidTwice()).toEqual([]);
    expect(second.some((request) => textOf(request).includes('<previous_snapshot'))).toBe(false);
    const root = second.findLast((request) => /<digest [0-9a-f]+ 5>/.test(textOf(request)));
    expect(root).toBeDefined();
    // The first messages were read before the first compaction, and not again.
    expect(second.some((request) => textOf(request).includes('Request 1:'))).toBe(false);
    await valid('rewrite');
  });
});

describe('the one repair', () => {
  const incremental: PolicyInput = { ...smallPolicy, summary: { mode: 'incremental' } };
  const wordy = `## Current state\n- ${words(2_000)}`;
  const isRepair = (request: RecordedRequest) => /too long|shorten|left out|missing/i.test(textOf(request));

  test('a snapshot that is too long is requested once more, shorter', async () => {
    const script: Script = (request) =>
      (isRepair(request) ? about('## Current state\n- repaired in short') : ok(wordy.slice(0, 6_000)))(
        request,
      );
    stack.model.reply(script);
    const requests = await play('long', talk('long', 18), incremental);
    stack.model.reply(ok());
    expect(requests.filter(isRepair)).toHaveLength(1);
    expect(await newest('long')).toMatchObject({ method: 'model', fallback: false });
    expect((await newest('long')).snapshot).toContain('repaired in short');
  });

  test('if the repair is also too long, the fallback serves and is reported', async () => {
    stack.model.reply(ok(wordy.slice(0, 6_000)));
    await play('longer', talk('longer', 18), incremental);
    stack.model.reply(ok());
    expect(await newest('longer')).toMatchObject({ method: 'extractive', fallback: true });
    const { lastError } = await stack.palimpsest.status({ session: 'longer' });
    expect(lastError).toMatchObject({ type: 'Summary.NotSmaller' });
  });
});

test('a very large message is summarized alone: its beginning and end stay, and restore returns it', async () => {
  const { palimpsest } = stack;
  const answer = `BEGINNING of the report. ${words(2_400)} END of the report.`;
  const turns: ChatMessage[][] = [
    [{ role: 'user', content: 'Write the report.' }],
    [{ role: 'assistant', content: answer }],
    ...talk('large', 4, 120),
  ];
  stack.model.reply(about('## Facts from tools\n- the report is about ledgers'));
  await play('large', turns, { contextWindow: 4_000, keep: { messages: 12 }, summary: { minGain: 0.05 } });
  stack.model.reply(ok());
  const shown = JSON.stringify(await valid('large'));
  expect(shown).toContain('BEGINNING of the report');
  expect(shown).toContain('END of the report');
  expect(shown).toContain('the report is about ledgers');
  expect(shown).not.toContain(answer);
  await palimpsest.restore({ session: 'large', generation: 0 });
  let restored = '';
  for await (const { message } of palimpsest.replay({ session: 'large' }))
    restored += JSON.stringify(message);
  expect(restored).toContain(JSON.stringify(answer).slice(1, -1));
  const [first] = await palimpsest.compactions({ session: 'large' });
  expect(first?.generation).toBe(1);
});

describe('once a model answers again', () => {
  const down = status(401, { error: { message: 'no such key' } });

  test('resummarize rewrites, from the archive, the summaries of the fallback', async () => {
    const { palimpsest } = stack;
    stack.model.reply(down);
    await play('back', talk('back', 18), smallPolicy);
    expect(await newest('back')).toMatchObject({ method: 'extractive', fallback: true });
    stack.model.reply(about('## Current state\n- written by the model'));
    const before = stack.model.requests.length;
    const outcome = await palimpsest.resummarize({ session: 'back' });
    expect(outcome).toMatchObject({ reason: 'resummarize', method: 'model', evicted: 0, archivePart: null });
    expect(await newest('back')).toMatchObject({ fallback: false });
    expect((await newest('back')).snapshot).toContain('written by the model');
    // From the originals, not from the extractive summary of them.
    const read = stack.model.requests.slice(before).map(textOf).join('\n');
    expect(read).toContain('Request 1: ');
    expect(read).not.toContain('<previous_snapshot');
    expect(await palimpsest.resummarize({ session: 'back' })).toBeNull();
    stack.model.reply(ok());
    await valid('back');
  });

  test('the next compaction also does so', async () => {
    stack.model.reply(down);
    const policy: PolicyInput = { ...smallPolicy, summary: { retryAfterFailure: 1 } };
    await play('next', talk('next', 18), policy);
    expect(await newest('next')).toMatchObject({ fallback: true });
    stack.model.reply(ok());
    const requests = await play('next', talk('next', 34).slice(18), policy, 18);
    expect(await newest('next')).toMatchObject({ method: 'model', fallback: false });
    expect(requests.map(textOf).join('\n')).toContain('Request 1: ');
  });
});

test('an idle session is compacted once its cache is cold', async () => {
  const policy: PolicyInput = {
    contextWindow: 32_000,
    trigger: [{ fraction: 0.85 }, { idle: 1_000 }],
    prices: { input: 2, summarizerInput: 0.1 },
    summary: { mode: 'incremental' },
  };
  stack.model.reply(ok());
  await appendTurns(stack.palimpsest, 'cold', talk('cold', 60), { policy });
  await expect.poll(async () => (await stack.palimpsest.compactions({ session: 'cold' })).length).toBe(1);
  const [outcome] = await stack.palimpsest.compactions({ session: 'cold' });
  expect(outcome).toMatchObject({ reason: 'idle', method: 'model', currency: 'USD' });
  expect(outcome!.savedPerTurn).toBe(outcome!.tokensBefore - outcome!.tokensAfter);
  expect(outcome!.cost).toBeCloseTo(
    (outcome!.modelInputTokens * 0.1 + outcome!.modelOutputTokens * 0.5) / 1e6,
    9,
  );
  expect(outcome!.paysBackAfter).toBeGreaterThan(0);
});

test('beyond the spend limit the rules serve, without a model call', async () => {
  const policy: PolicyInput = {
    ...smallPolicy,
    prices: { input: 10 },
    spend: { perCompaction: 0.000_001 },
  };
  const requests = await play('poor', talk('poor', 18), policy);
  expect(requests).toEqual([]);
  expect(await newest('poor')).toMatchObject({ method: 'extractive', fallback: true });
});

test('prompt, sections, form, acknowledgment and redaction come from the policy', async () => {
  const secret = 'sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ';
  const policy: PolicyInput = {
    ...smallPolicy,
    summary: {
      prompt: 'You keep minutes for a harbour master. {sections} Use {words} words at most.',
      sections: [{ key: 'ships', title: 'Ships in port', asks: 'names and berths' }, { key: 'next' }],
      form: 'plain',
      acknowledgment: false,
    },
    redact: {},
  };
  stack.model.reply(about('## Ships in port\n- Aurora at berth 7\n## Next steps\n- unload'));
  const turns = talk('custom', 18);
  turns[0] = [{ role: 'user', content: `The key is ${secret}. ${words(80)}` }];
  const requests = await play('custom', turns, policy);
  stack.model.reply(ok());
  const asked = requests.map(textOf).join('\n');
  expect(asked).toContain('harbour master');
  expect(asked).toContain('Ships in port');
  expect(asked).not.toContain(secret);
  expect(asked).toContain('[REDACTED:');
  const [head, following] = await valid('custom');
  expect(head?.content).toMatch(/^Here is a summary of the conversation to date:\n\n/);
  expect(head?.content).toContain('Aurora at berth 7');
  expect(JSON.stringify(head)).not.toContain(secret);
  expect(following?.role).toBe('user');
  // The log keeps the original.
  let log = '';
  for await (const { message } of stack.palimpsest.replay({ session: 'custom' }))
    log += JSON.stringify(message);
  expect(log).toContain(secret);
});
