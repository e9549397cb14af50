/** `journal` mode on real servers: notes are written once, the state is carried on, and both move with restore, fork and policy. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import { leftOutLine } from '../../support/texts.js';
import type { KeptLayer } from '../../../src/summary/ask/layers.js';
import { shownState } from '../../../src/summary/journal/state.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { completion, contentFilter, notesOn, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { aheadWorkflowId } from '../../../src/temporal/names.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;

const policy: PolicyInput = { ...smallPolicy, summary: { mode: 'journal' }, memory: { eager: false } };
const eager: PolicyInput = { ...policy, memory: { eager: true } };
const rule = 'Always answer in the words of the ledger.';

const writes: Script = (request) => {
  const content = answerOn(textOf(request));
  return completion(request, { message: { content }, finish: 'stop', output: content, withoutUsage: true });
};

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
  stack.model.reply(writes);
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

const textOf = ({ body }: RecordedRequest) => body.messages.at(-1)?.content ?? '';

/** Notes, the rule and the next step, where a message says so; sections where they are asked for. */
function answerOn(material: string): string {
  if (material.includes('<transcript '))
    return [
      '## Current state',
      ...(material.match(/Parcel [\w-]+ left/g) ?? []).slice(0, 12).map((one) => `- ${one}`),
    ].join('\n');
  const marked = [...material.matchAll(/^<\d{3}>(\d+) (\w+)[^\n]*\n([^\n]{0,80})/gm)];
  const stated = marked.find(([, , , text]) => text?.includes(rule));
  const last = marked.findLast(([, , role]) => role === 'assistant');
  return notesOn(material, [
    stated ? `- new rule: ${rule} [m${stated[1]}]` : '- none',
    ...(last ? [`- next: ${last[3]} [m${last[1]}]`] : []),
  ]);
}

/** Unique turns, each message with a different name; the first states the rule. */
function talk(session: string, from: number, count: number): ChatMessage[][] {
  return dialogue(from + count)
    .slice(from)
    .map((turn, index) =>
      turn.map((message, place) => ({
        ...message,
        content: `${from + index === 0 && place === 0 ? `${rule} ` : ''}Parcel ${session}-${(from + index) * 7919 + place} left. ${String(message.content)}`,
      })),
    );
}

async function play(
  session: string,
  from: number,
  count: number,
  given = policy,
): Promise<RecordedRequest[]> {
  const before = stack.model.requests.length;
  await appendTurns(stack.palimpsest, session, talk(session, from, count), { policy: given, from });
  await stack.palimpsest.settled({ session });
  return stack.model.requests.slice(before);
}

interface Row {
  generation: number;
  method: string;
  snapshot: string;
  state: string | null;
  layers: KeptLayer[];
}

async function rows(session: string): Promise<Row[]> {
  const found = await pool.query<Row>(
    `select generation, method, snapshot, state, layers from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 and generation > 0 order by generation`,
    [stack.queuePrefix, session],
  );
  return found.rows;
}

async function headOf(session: string): Promise<string> {
  const { messages, tokens, budget } = await stack.palimpsest.context({ session });
  expect(tokens).toBeLessThanOrEqual(budget);
  expect(validateView(messages)).toEqual([]);
  return String(messages[0]?.content);
}

test('a compaction makes one call; entries stay unchanged and the rule is carried on', async () => {
  const asked: RecordedRequest[] = [];
  for (let from = 0; from < 60; from += 6) asked.push(...(await play('notes', from, 6)));
  const generations = await rows('notes');
  expect(generations.length).toBeGreaterThan(3);
  expect(generations.every(({ method }) => method === 'model')).toBe(true);
  expect(stack.model.paidTwice()).toEqual([]);
  const [first] = generations;
  const kept = generations.filter(({ layers }) => layers[0]?.key === first!.layers[0]!.key);
  for (const { snapshot } of kept) expect(snapshot.startsWith(first!.snapshot.slice(0, 200))).toBe(true);
  const merges = asked.filter((request) => textOf(request).includes('take too much room'));
  expect(asked.length - merges.length).toBe(generations.length);
  for (const { state } of generations) expect(state).toContain(`R1 ${rule} [m1]`);
  const ranges = generations.at(-1)!.layers.map(({ fromSeq, throughSeq }) => [fromSeq, throughSeq]);
  expect(ranges[0]?.[0]).toBe(1);
  ranges.slice(1).forEach(([from], index) => expect(from).toBe(ranges[index]![1]! + 1));
  const head = await headOf('notes');
  expect(head).toMatch(/<journal>\n### Messages 1/);
  expect(head).toMatch(
    /<session_state>\nAs of message \d+; what follows is newer and may have settled it\.\nRules and wishes in force:\n- /,
  );
});

test('the log is made searchable during the call', async () => {
  const session = 'searchable';
  const missing = async () => {
    const { rows: found } = await pool.query<{ missing: number }>(
      `select next_seq - 1 - indexed_through_seq as missing from palimpsest.sessions
       where tenant_id = $1 and session_id = $2`,
      [stack.queuePrefix, session],
    );
    return found[0]?.missing;
  };
  stack.model.reply(async (request) => {
    await expect.poll(missing).toBe(0);
    return writes(request);
  });
  try {
    await play(session, 0, 14);
  } finally {
    stack.model.reply(writes);
  }
  expect((await rows(session)).map(({ method }) => method)).toContain('model');
});

test('status and context describe the journal, also with another tokenizer', async () => {
  const session = 'notes';
  const sum = (sizes: object) =>
    Object.values(sizes).reduce((total: number, size: number) => total + size, 0);
  const told = async () => {
    const status = await stack.palimpsest.status({ session });
    const context = await stack.palimpsest.context({ session });
    for (const { breakdown, tokens } of [status, context]) {
      const { parts, ...sizes } = breakdown;
      expect(sum(sizes)).toBe(tokens);
      expect(sum(parts ?? {})).toBe(breakdown.head);
    }
    const { tail: _tail, ...beside } = status.breakdown;
    // Only the tail is shortened when a context is read.
    expect(context.breakdown).toMatchObject(beside);
    return status;
  };
  const { breakdown, journal, promptCache } = await told();
  const newest = (await rows(session)).at(-1)!;
  const counter = counterFor('o200k_base');
  expect(breakdown.parts).toMatchObject({
    state: counter.count(shownState(newest.state!, null)),
    snapshot: 0,
  });
  expect(breakdown.parts!.journal).toBeGreaterThan(100);
  expect(journal!.entries.map(({ fromSeq, throughSeq, rank }) => [fromSeq, throughSeq, rank])).toEqual(
    newest.layers.map(({ fromSeq, throughSeq, rank }) => [fromSeq, throughSeq, rank]),
  );
  const outcome = (await stack.palimpsest.compactions({ session })).at(-1)!;
  expect(promptCache).toEqual({ tokens: outcome.cachedTokens, requestTokens: outcome.tokensAfter });
  // The note at least, where the oldest entries were merged.
  expect(outcome.cachedTokens).toBeGreaterThan(50);

  await stack.palimpsest.configure({ session, policy: { ...policy, tokenizer: 'chars/4' } });
  const recounted = await told();
  expect(recounted.breakdown.parts).toMatchObject({
    state: Math.ceil(shownState(newest.state!, null).length / 4),
  });
  expect(recounted.breakdown.parts!.journal).not.toBe(breakdown.parts!.journal);

  await stack.palimpsest.fork({ session, throughSeq: recounted.messages, to: 'notes-fork' });
  const forked = await stack.palimpsest.status({ session: 'notes-fork' });
  expect(forked.breakdown).toEqual(recounted.breakdown);
  expect(forked.journal).toEqual(recounted.journal);
  await stack.palimpsest.restore({ session, generation: 1 });
  expect(await told()).toMatchObject({ promptCache: null, journal: { rewritesPerLine: 0 } });
  await stack.palimpsest.restore({ session, generation: 0 });
  expect(await told()).toMatchObject({ breakdown: { head: 0 }, journal: null });
});

test('restore returns notes and state; the earlier calls are not paid again', async () => {
  for (let from = 0; from < 36; from += 6) await play('restored', from, 6);
  const before = await rows('restored');
  expect(before.length).toBeGreaterThan(1);
  const [first] = before;
  const restored = await stack.palimpsest.restore({ session: 'restored', generation: first!.generation });
  const now = (await rows('restored')).at(-1)!;
  expect(now).toMatchObject({ snapshot: first!.snapshot, state: first!.state, layers: first!.layers });
  await stack.palimpsest.compact({ session: 'restored' });
  await stack.palimpsest.settled({ session: 'restored' });
  expect((await rows('restored')).at(-1)!.generation).toBeGreaterThan(restored.generation);
  expect(stack.model.paidTwice()).toEqual([]);
  expect((await rows('restored')).at(-1)!.state).toContain(rule);
});

test('a fork has the notes and the state of its origin', async () => {
  for (let from = 0; from < 30; from += 6) await play('origin', from, 6);
  const origin = (await rows('origin')).at(-1)!;
  const { messages } = await stack.palimpsest.status({ session: 'origin' });
  await stack.palimpsest.fork({ session: 'origin', to: 'forked', throughSeq: messages });
  expect((await rows('forked')).at(-1)).toMatchObject({ snapshot: origin.snapshot, state: origin.state });
  await play('forked', 30, 20);
  expect((await rows('forked')).at(-1)!.state).toContain(rule);
  await headOf('forked');
});

test('a session compacted before the journal continues: its snapshot is the first entry', async () => {
  await play('before', 0, 20, { ...smallPolicy });
  const snapshot = (await rows('before')).at(-1)!.snapshot;
  await stack.palimpsest.configure({ session: 'before', policy });
  for (let from = 20; from < 50; from += 10) await play('before', from, 10);
  const now = (await rows('before')).at(-1)!;
  expect(now.method).toBe('model');
  expect(now.layers.length).toBeGreaterThan(1);
  expect(now.layers[0]).toMatchObject({ fromSeq: 1 });
  if (now.layers[0]!.key.startsWith('generation ')) expect(now.snapshot).toContain(snapshot.slice(0, 80));
  await headOf('before');
});

/** Long notes: the beginning of messages with their references, or lines that are merged, as many as half of the limit holds. */
const writesLong: Script = (request) => {
  const material = textOf(request);
  const marked = [...material.matchAll(/^<\d{3}>(\d+) \w+[^\n]*\n([^\n]{0,1000})/gm)];
  const merged = material.split('\n').filter((line) => /^- .*\[m\d/.test(line));
  const lines = marked.length > 0 ? marked.map(([, seq, said]) => `- ${said} [m${seq}]`) : merged;
  let room = 0.5 * (request.body.max_tokens ?? Infinity);
  const short = lines[0]?.replace(/^(.{80}).*(?= \[)/, '$1') ?? '';
  const fitting = lines.filter((line) => (room -= counterFor('o200k_base').count(line)) > 0);
  const kept = fitting.length > 0 ? fitting : [short];
  const content = ['## Notes', ...kept, '## State', '- none'].join('\n');
  return completion(request, { message: { content }, finish: 'stop', output: content, withoutUsage: true });
};

test('a journal made for 200,000 tokens is read in 8,000: its oldest entries are dropped, and merged by the next compaction', async () => {
  const { palimpsest, model } = stack;
  const session = 'moved';
  const given: PolicyInput = { ...policy, contextWindow: 200_000 };
  const small: PolicyInput = { ...policy, contextWindow: 8_000 };
  model.reply(writesLong);
  const count = (notes: string) => counterFor('o200k_base').count(notes);
  const isLong = async () => count((await rows(session)).at(-1)?.snapshot ?? '') > 8_000;
  for (let from = 0; from < 300 && !(await isLong()); from += 10) {
    const turns = dialogue(from + 10, 1_000).slice(from);
    await appendTurns(palimpsest, session, turns, { policy: given, from });
    await palimpsest.settled({ session });
  }
  const made = (await rows(session)).at(-1)!;
  const ends = made.layers.slice(0, -1).map(({ throughSeq }) => String(throughSeq));
  const full = await headOf(session);
  expect(made.layers.length).toBeGreaterThan(2);
  await palimpsest.pause({ session });

  const expectFitted = async (budget?: number) => {
    const context = await palimpsest.context({ session, ...(budget && { budget }) });
    expect(context.tokens).toBeLessThanOrEqual(budget ?? context.budget);
    expect(validateView(context.messages)).toEqual([]);
    const { head, parts } = context.breakdown;
    expect(Object.values(parts!).reduce((sum, tokens) => sum + tokens, 0)).toBe(head);
    expect(await palimpsest.context({ session, ...(budget && { budget }) })).toEqual(context);
    return String(context.messages[0]?.content);
  };
  const leftOf = (shown: string) => new RegExp(`### Messages 1–(\\d+)\n${leftOutLine}`).exec(shown)?.[1];
  const shortened = async () => {
    const { rows: found } = await pool.query(
      `select 1 from palimpsest.reductions where tenant_id = $1 and session_id = $2
       and generation = $3 and kind = 'journal'`,
      [stack.queuePrefix, session, made.generation],
    );
    return found.length;
  };
  expect(ends).toContain(leftOf(await expectFitted(6_500)));
  expect(await shortened()).toBe(1);
  expect((await headOf(session)) === full).toBe(true);

  await palimpsest.configure({ session, policy: small });
  const shown = await expectFitted();
  expect(ends).toContain(leftOf(shown));
  expect(full.endsWith(shown.slice(shown.indexOf(leftOutLine) + leftOutLine.length))).toBe(true);
  expect(await shortened()).toBe(2);
  const left = await palimpsest.expand({ session, fromSeq: 1, limit: 4 });
  expect(left.messages.map(({ message }) => message)).toEqual(dialogue(2, 1_000).flat());

  await palimpsest.resume({ session });
  await palimpsest.settled({ session });
  const merged = (await rows(session)).at(-1)!;
  expect(merged.generation).toBeGreaterThan(made.generation);
  expect(merged.layers.every((layer) => layer.left !== true)).toBe(true);
  expect(count(merged.snapshot)).toBeLessThan(3_000);
  expect(leftOf(await expectFitted())).toBeUndefined();
  model.reply(writes);
});

const aheadOf = async (session: string): Promise<number> => {
  const { rows: found } = await pool.query(
    `select 1 from palimpsest.digest_holds h join palimpsest.digests d using (tenant_id, key)
     where h.tenant_id = $1 and h.session_id = $2 and h.run_id = 'ahead' and h.held_until > now() + interval '1 year'`,
    [stack.queuePrefix, session],
  );
  return found.length;
};

/** Nine tenths of the trigger of a window of 4,000 tokens. */
const near = 0.9 * 3_150;
const tokensOf = async (session: string): Promise<number> => {
  const { rows: found } = await pool.query<{ tokens: string }>(
    'select live_tokens as tokens from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    [stack.queuePrefix, session],
  );
  return Number(found[0]?.tokens ?? 0);
};

/** Turns one by one until something is written ahead; answers how many. */
async function playUntilAhead(session: string): Promise<number> {
  for (let turn = 0; turn < 20; turn++) {
    await play(session, turn, 1, eager);
    if ((await tokensOf(session)) < near) continue;
    await expect.poll(() => aheadOf(session)).toBe(1);
    return turn + 1;
  }
  throw new Error('the session did not come close to its threshold');
}

test('the answers for a compaction are written ahead of its trigger, once, and used at the trigger', async () => {
  const turns = await playUntilAhead('ahead');
  expect(await rows('ahead')).toEqual([]);
  const asked = stack.model.requests.length;
  for (let turn = turns; (await rows('ahead')).length === 0; turn++) await play('ahead', turn, 1, eager);
  expect(stack.model.requests.length).toBe(asked);
  expect(await aheadOf('ahead')).toBe(0);
  const [first] = await stack.palimpsest.compactions({ session: 'ahead' });
  expect(first).toMatchObject({ method: 'model', modelCalls: 1, chunksByRule: 0 });
  expect((await rows('ahead'))[0]!.state).toContain(rule);
  await headOf('ahead');
});

test('a failure ahead of the trigger is silent, and the compaction makes the call', async () => {
  const ids = { tenant: stack.queuePrefix, session: 'unheard' };
  stack.model.reply(contentFilter());
  const client = await connectClient({ address: inject('temporalAddress') });
  const page = client.workflow.getHandle(aheadWorkflowId(ids, 0));
  let turn = 0;
  for (; (await tokensOf('unheard')) < near; turn++) await play('unheard', turn, 1, eager);
  await vi.waitFor(() => page.describe(), { timeout: 90_000 });
  await page.result();
  await client.connection.close();
  expect(stack.model.requests.length).toBeGreaterThan(0);
  expect((await stack.palimpsest.status({ session: 'unheard' })).lastError).toBeNull();
  stack.model.reply(writes);
  for (; (await rows('unheard')).length === 0; turn++) await play('unheard', turn, 1, eager);
  expect((await stack.palimpsest.compactions({ session: 'unheard' }))[0]).toMatchObject({
    ...{ method: 'model', chunksByRule: 0 },
  });
});

test('a pause ends writing ahead, which is repeated after it', async () => {
  const { palimpsest, model } = stack;
  const session = 'interrupted';
  const before = model.requests.length;
  model.hold();
  let turn = 0;
  for (; (await tokensOf(session)) < near; turn++) await play(session, turn, 1, eager);
  await model.waitForRequests(before + 1);
  await palimpsest.pause({ session });
  await model.waitUntil(() => model.requests[before]!.aborted, 'the request is given up');
  model.release();
  expect(await aheadOf(session)).toBe(0);
  await palimpsest.resume({ session });
  await expect.poll(() => aheadOf(session)).toBe(1);
});

test('a pause prevents writing ahead; an erasure deletes its answers', async () => {
  const { palimpsest } = stack;
  await play('paused', 0, 10, eager);
  await palimpsest.pause({ session: 'paused' });
  const before = stack.model.requests.length;
  await play('paused', 10, 3, eager);
  expect(stack.model.requests.length).toBe(before);
  await playUntilAhead('erased');
  await palimpsest.erase({ session: 'erased' });
  expect(await aheadOf('erased')).toBe(0);
  const { rows: left } = await pool.query('select 1 from palimpsest.digests where payer_session = $1', [
    'erased',
  ]);
  expect(left).toEqual([]);
});

test('a session with times shows hours to the model and days to the agent, also restored and forked', async () => {
  const before = stack.model.requests.length;
  for (let from = 0; from < 42; from += 6) {
    const at = `2023-05-${String(7 + from / 6).padStart(2, '0')}T13:00:00Z`;
    await appendTurns(stack.palimpsest, 'days', talk('days', from, 6), { policy, from, at });
    await stack.palimpsest.settled({ session: 'days' });
  }
  const [first] = stack.model.requests.slice(before);
  expect(textOf(first!)).toMatch(/^<\d{3}>1 user 2023-05-07 13h$/m);
  expect(textOf(first!)).toMatch(/^<\d{3}>2 assistant$/m);
  const generations = await rows('days');
  expect(generations.length).toBeGreaterThan(1);
  const { layers } = generations.at(-1)!;
  for (const { fromSeq, throughSeq, days } of layers) {
    const { messages } = await stack.palimpsest.expand({
      session: 'days',
      fromSeq,
      limit: throughSeq - fromSeq + 1,
    });
    expect(days).toEqual([messages[0]!.at!.slice(0, 10), messages.at(-1)!.at!.slice(0, 10)]);
  }
  const head = await headOf('days');
  expect(head).toMatch(/<journal>\n### Messages 1–\d+, 7(?:–\d+)? May 2023\n/);
  await stack.palimpsest.fork({ session: 'days', throughSeq: 84, to: 'days-forked' });
  expect(journalIn(await headOf('days-forked'))).toBe(journalIn(head));
  await stack.palimpsest.restore({ session: 'days', generation: 1 });
  expect(journalIn(await headOf('days'))).toBe(generations[0]!.snapshot);
});

const journalIn = (head: string) => /<journal>\n([\s\S]*?)\n<\/journal>/.exec(head)?.[1];
