/**
 * Usage reported with a turn corrects the sizes of a session: it is stored with its append, compared with the local count of
 * the same request, and applied to the sizes only if the difference matters.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { limitsOf, marksFor } from '../../../src/limits/limits.js';
import { policyOf } from '../../../src/policy/layers.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { factsOf, type SessionRow } from '../../../src/store/sessions/session-row.js';
import { openPool } from '../../support/pool.js';
import { loadSession, setExhausted } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { checkUsage } from '../../../src/store/append/learnt.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import type { AppendResult } from '../../../src/store/append/turn-answers.js';
import { registerCounter } from '../../../src/tokens/counter.js';
import { knownOf, type Calibration } from '../../../src/tokens/calibration.js';
import type { UsageReport } from '../../../src/tokens/reported-usage.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { statements } from '../../support/statements.js';
import { compactThrough, configureSession, newSession, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const policy: PolicyInput = { model: 'gpt-4o', contextWindow: 60_000, overhead: 2_000 };

interface Report {
  /** Reported input tokens for one of ours. */
  ratio?: number;
  inputTokens?: number;
  model?: string;
  messages?: ChatMessage[];
}

/** A session whose provider can be played: every turn asks with the present context and one more user message. */
class Talk {
  readonly ids: SessionIds = newSession();
  private turn = 0;

  constructor(private readonly given: PolicyInput = policy) {}

  async append({ ratio = 1, inputTokens, model, messages }: Report = {}): Promise<AppendResult> {
    const asked = messages ?? talk(2, 600);
    const turnId = `t-${this.turn++}`;
    // The count is read from a separate session, so that the expectation does not come from the code under test.
    const before = this.turn === 1 ? 0 : (await this.row()).liveTokens;
    const { liveTokens } = await appendTurn(pool, {
      ...newSession(),
      turnId,
      messages: asked.slice(
        0,
        Math.max(
          1,
          asked.findIndex(({ role }) => role === 'assistant'),
        ),
      ),
      policy: this.given,
    });
    const counted = before + liveTokens;
    return appendTurn(pool, {
      ...this.ids,
      turnId,
      messages: asked,
      ...(this.turn === 1 ? { policy: this.given } : {}),
      usage: {
        inputTokens: inputTokens ?? 2_000 + Math.round(counted * ratio),
        outputTokens: 50,
        ...(model ? { model } : {}),
      },
    });
  }

  row(): Promise<SessionRow> {
    return loadSession(pool, this.ids);
  }

  async known() {
    const row = await this.row();
    const { model } = policyOf(row.policy);
    return { ...knownOf(row.calibration, model, row.tokenizer), applied: row.appliedFactor };
  }
}

describe('reported usage', () => {
  it.each([0.6, 1.5])(
    'of %s tokens for each counted one changes budget and thresholds correctly',
    async (ratio) => {
      const session = new Talk();
      await session.append();
      const before = await session.row();
      for (let turn = 0; turn < 12; turn++) await session.append({ ratio });
      const { factor, samples, applied } = await session.known();
      expect(factor / ratio).toBeCloseTo(1, 1);
      expect(samples).toBe(13);
      expect(Math.abs(factor / applied - 1)).toBeLessThanOrEqual(0.05);
      const row = await session.row();
      const expected = limitsOf(policyOf(row.policy), factsOf(row));
      expect(row.appliedOverhead / 2_000).toBeCloseTo(1, 0);
      expect(row.budget).toBe(expected.budget);
      expect(row.policyVersion).toBeGreaterThan(before.policyVersion);
      expect(Math.sign(before.budget - row.budget)).toBe(Math.sign(ratio - 1));
      expect(Math.sign((before.measureAtTokens ?? 0) - (row.measureAtTokens ?? 0))).toBe(
        Math.sign(ratio - 1),
      );
    },
  );

  it('close to the local counts does not change the sizes, turn after turn', async () => {
    const session = new Talk();
    await session.append({ ratio: 1.02 });
    const before = await session.row();
    for (const ratio of [1.03, 0.98, 1.04, 0.97]) await session.append({ ratio });
    const { budget, policyVersion, appliedFactor, calibration } = await session.row();
    expect({ budget, policyVersion, appliedFactor }).toEqual({
      ...{ budget: before.budget, policyVersion: before.policyVersion, appliedFactor: 1 },
    });
    expect(calibration).not.toEqual(before.calibration);
  });

  it('makes a session due as soon as the provider’s tokens reach the trigger', async () => {
    const session = new Talk({ ...policy, trigger: { tokens: 20_000 } });
    let result = await session.append({ ratio: 2 });
    while (!result.due) result = await session.append({ ratio: 2 });
    // 20,000 of the provider's tokens are 2,000 of overhead and 9,000 of ours; a turn is some 1,200 of them.
    expect(result.liveTokens).toBeGreaterThanOrEqual(8_600);
    expect(result.liveTokens).toBeLessThan(10_500);
  });

  it('of another model is stored separately and used once the policy names that model', async () => {
    const session = new Talk();
    for (let turn = 0; turn < 4; turn++) {
      await session.append({ ratio: 1.4, model: 'gpt-4.1-2025-04-14' });
      await session.append({ ratio: 1, model: 'gpt-4o-2024-08-06' });
    }
    expect(await session.known()).toMatchObject({ model: 'gpt-4o', samples: 4, applied: 1 });
    const before = await session.row();
    await configureSession(pool, session.ids, { ...policy, model: 'gpt-4.1' });
    const other = await session.known();
    expect(other).toMatchObject({ model: 'gpt-4.1', samples: 4 });
    expect(other.applied).toBeCloseTo(1.4, 1);
    expect((await session.row()).budget).toBeLessThan(before.budget);
    await configureSession(pool, session.ids, policy);
    expect((await session.row()).budget / before.budget).toBeCloseTo(1, 2);
  });

  it('is neither learnt from nor used for sizes if the policy turns it off', async () => {
    const session = new Talk();
    for (let turn = 0; turn < 3; turn++) await session.append({ ratio: 1.5 });
    expect((await session.known()).applied).toBeCloseTo(1.5, 1);
    await configureSession(pool, session.ids, { ...policy, calibration: false });
    const off = await session.row();
    expect(off.appliedFactor).toBe(1);
    await session.append({ ratio: 3 });
    expect((await session.row()).calibration).toEqual(off.calibration);
  });

  it('is not learnt from if the turn has no answer of the model', async () => {
    const session = new Talk({ ...policy, overhead: 0 });
    await session.append({ ratio: 1.5, messages: talk(1, 600) });
    expect((await session.row()).calibration).toEqual({});
  });

  it('that cannot belong to its request changes only a warning', async () => {
    const session = new Talk({ ...policy, overhead: 0 });
    for (let turn = 0; turn < 4; turn++) await session.append();
    const { calibration, ...before } = await session.row();
    await session.append({ inputTokens: 0 });
    const after = await session.row();
    const sizes = ({
      budget,
      appliedFactor,
      appliedOverhead,
      policyVersion,
      measureAtTokens,
    }: SessionRow) => ({
      ...{ budget, appliedFactor, appliedOverhead, policyVersion, measureAtTokens },
    });
    expect(sizes(after)).toEqual(sizes({ ...before, calibration }));
    const [[key, sample]] = Object.entries(after.calibration) as [[string, Calibration[string]]];
    const { implausible, ...rest } = sample;
    expect(rest).toEqual(calibration[key]);
    expect(implausible).toMatchObject({ reported: 0 });
  });

  it('is not learnt from if the context was reduced to its budget', async () => {
    const session = new Talk({ ...policy, contextWindow: 12_000 });
    const large = talk(2, 9_000);
    await session.append({ messages: large });
    const { budget, liveTokens, calibration } = await session.row();
    expect(liveTokens).toBeGreaterThan(budget);
    await session.append({ ratio: 0.5 });
    expect((await session.row()).calibration).toEqual(calibration);
  });

  it('is not learnt from in the turn after a compaction, whose request may still have had the evicted messages', async () => {
    const session = new Talk();
    for (let turn = 0; turn < 4; turn++) await session.append();
    await compactThrough(pool, session.ids, 6);
    const before = await session.row();
    await session.append({ inputTokens: 8_000 });
    expect((await session.row()).calibration).toEqual(before.calibration);
  });

  it('never makes a valid policy invalid, nor a turn fail', async () => {
    // At three times our counts, this window has no room for a summary.
    const small = { ...policy, contextWindow: 5_000 };
    const session = new Talk(small);
    for (let turn = 0; turn < 4; turn++) await session.append({ ratio: 3, messages: talk(2, 300) });
    expect((await session.known()).factor).toBeCloseTo(3, 1);
    const { budget, measureAtTokens } = (await readContextSource(pool, session.ids, 'own')).session;
    expect(2_000 + 3 * budget).toBeLessThanOrEqual(5_000);
    expect(budget).toBeGreaterThan(0);
    // Its sizes stay as declared: there is no room for a smaller summary.
    expect(measureAtTokens).toBe(marksFor(limitsOf(policyOf({ session: small })), 0).tokens);
    await configureSession(pool, session.ids, { ...small, keep: { messages: 2 } });
    expect((await session.row()).budget).toBe(budget);
    await configureSession(pool, session.ids, policy);
    expect((await session.known()).applied).toBeCloseTo(3, 1);
  });

  it('of earlier versions, with sizes that no request supports, is corrected at the first read', async () => {
    const session = new Talk({ ...policy, overhead: 0 });
    await session.append();
    const { ids } = session;
    const { budget, policyVersion } = await session.row();
    await pool.query(
      `update palimpsest.sessions set calibration = $3, applied_factor = 0.31, budget = $4, measure_at_tokens = $5
       where tenant_id = $1 and session_id = $2`,
      [
        ids.tenant,
        ids.session,
        { 'gpt-4o|o200k_base': { factor: 0.31, samples: 1 } },
        3 * budget,
        3 * budget,
      ],
    );
    const { session: read } = await readContextSource(pool, ids, 'own');
    expect(read).toMatchObject({ budget, appliedFactor: 1, policyVersion: policyVersion + 1 });
    const { rows } = await pool.query<{ budget: number }>(
      'select budget, applied_factor from palimpsest.sessions where tenant_id = $1 and session_id = $2',
      [ids.tenant, ids.session],
    );
    expect(rows).toEqual([{ budget, applied_factor: 1 }]);
  });

  it('does not change the thresholds of an exhausted session', async () => {
    const session = new Talk();
    await session.append();
    const { liveTokens, nextSeq } = await session.row();
    await setExhausted(pool, session.ids, { atSeq: nextSeq - 1, tokens: liveTokens, reason: 'floor' });
    const { measureAtTokens } = await session.row();
    for (let turn = 0; turn < 4; turn++) await session.append({ ratio: 2 });
    const row = await session.row();
    expect(row.appliedFactor).toBeGreaterThan(1.05);
    expect([row.measureAtTokens, row.exhausted?.reason]).toEqual([measureAtTokens, 'floor']);
  });

  it('counts once, even if its turn is repeated', async () => {
    const ids = newSession();
    const usage = { inputTokens: 3_500, outputTokens: 9 };
    const turn = { ...ids, turnId: '1', messages: talk(2, 600), policy, usage };
    await Promise.all(Array.from({ length: 5 }, () => appendTurn(pool, turn)));
    const { calibration, turns } = await loadSession(pool, ids);
    expect(Object.values(calibration)).toMatchObject([{ samples: 1 }]);
    expect(turns).toBe(1);
  });

  it.each<[string, UsageReport, object]>([
    ['two numbers', { inputTokens: 9, outputTokens: 2, model: 'm' }, { inputTokens: 9, model: 'm' }],
    [
      'OpenAI’s chat completions, cached tokens within',
      {
        ...{ prompt_tokens: 2_006, completion_tokens: 300, total_tokens: 2_306 },
        ...{
          prompt_tokens_details: { cached_tokens: 1_920 },
          completion_tokens_details: { reasoning_tokens: 0 },
        },
      },
      { inputTokens: 2_006, outputTokens: 300 },
    ],
    [
      'OpenAI’s Responses, cached tokens within',
      {
        ...{ input_tokens: 75, input_tokens_details: { cached_tokens: 64 }, total_tokens: 1_261 },
        ...{ output_tokens: 1_186, output_tokens_details: { reasoning_tokens: 1_024 } },
      },
      { inputTokens: 75, outputTokens: 1_186 },
    ],
    [
      'Anthropic’s messages, cached tokens beside',
      {
        ...{ input_tokens: 21, cache_creation_input_tokens: 188_086, cache_read_input_tokens: 1_000 },
        ...{ output_tokens: 393, service_tier: 'standard', server_tool_use: null },
      },
      { inputTokens: 189_107, outputTokens: 393 },
    ],
    [
      'Anthropic’s messages without a cache',
      {
        input_tokens: 21,
        cache_creation_input_tokens: null,
        cache_read_input_tokens: null,
        output_tokens: 3,
      },
      { inputTokens: 21, outputTokens: 3 },
    ],
    [
      'Gemini, cached content within',
      {
        ...{ promptTokenCount: 5_000, cachedContentTokenCount: 4_000, candidatesTokenCount: 40 },
        ...{ thoughtsTokenCount: 60, totalTokenCount: 5_100 },
      },
      { inputTokens: 5_000, outputTokens: 100 },
    ],
    [
      'a response of Gemini',
      { usageMetadata: { promptTokenCount: 5_000 }, model: 'gemini-2.5-pro' },
      { inputTokens: 5_000, outputTokens: 0, model: 'gemini-2.5-pro' },
    ],
    [
      'the AI SDK, cached tokens within',
      {
        ...{ inputTokens: 900, outputTokens: undefined, totalTokens: 900 },
        inputTokenDetails: { noCacheTokens: 100, cacheReadTokens: 800, cacheWriteTokens: undefined },
        outputTokenDetails: { textTokens: undefined, reasoningTokens: undefined },
      },
      { inputTokens: 900, outputTokens: 0 },
    ],
  ])('is accepted in the form of %s', (_, usage, expected) => {
    expect(checkUsage(usage)).toMatchObject(expected);
  });

  it('that the AI SDK has as undefined changes nothing', async () => {
    const usage = { inputTokens: undefined, inputTokenDetails: {}, outputTokens: undefined };
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2, 600), policy, usage });
    expect((await loadSession(pool, ids)).calibration).toEqual({});
  });

  it.each([
    [{ inputTokens: -1, outputTokens: 0 }, 'usage.inputTokens'],
    [{ inputTokens: 1.5, inputTokenDetails: {} }, 'usage.inputTokens'],
    [{ inputTokens: 1, outputTokens: 0.5 }, 'usage.outputTokens'],
    [{ inputTokens: 1, outputTokens: 1, model: 'a\0b' }, 'usage.model'],
    [{ inputTokens: 1, outputTokens: 1, cached: 1 }, 'usage.cached'],
    [{ prompt_tokens: '12' }, 'usage.prompt_tokens'],
    [{ input_tokens: 12, cache_read_input_tokens: -1 }, 'usage.cache_read_input_tokens'],
    [{ usageMetadata: { promptTokenCount: 1.5 } }, 'usage.usageMetadata.promptTokenCount'],
    [{ tokens: 12 }, 'usage'],
    [[12], 'usage'],
  ])('%j is refused with its path', async (usage, path) => {
    const turn = { ...newSession(), turnId: '1', messages: talk(2), usage: usage as UsageReport };
    const refused = appendTurn(pool, turn);
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path });
  });

  it('adds no statement to the append', async () => {
    const session = new Talk();
    await session.append();
    await session.append();
    await compactThrough(pool, session.ids, 2);
    // This append learns of the compaction, with a second statement.
    await session.append();
    const plain = { ...session.ids, messages: talk(2) };
    const without = await statements(() => appendTurn(pool, { ...plain, turnId: 'without' }));
    const usage = { inputTokens: 5_000, outputTokens: 1 };
    const withUsage = await statements(() => appendTurn(pool, { ...plain, turnId: 'with', usage }));
    expect([without, withUsage]).toEqual([['with'], ['with']]);
  });
});

describe('the mean turn', () => {
  it('is the first turn, then follows the turns slowly', async () => {
    const ids = newSession();
    const first = await appendTurn(pool, { ...ids, turnId: '1', messages: talk(2, 50) });
    expect(await loadSession(pool, ids)).toMatchObject({ turns: 1, meanTurnTokens: first.liveTokens });
    const second = await appendTurn(pool, { ...ids, turnId: '2', messages: talk(2, 500) });
    const size = second.liveTokens - first.liveTokens;
    const { turns, meanTurnTokens } = await loadSession(pool, ids);
    expect(turns).toBe(2);
    expect(meanTurnTokens).toBeCloseTo(0.9 * first.liveTokens + 0.1 * size, 6);
  });

  it('changes the cost-optimal threshold', async () => {
    const economic: PolicyInput = {
      ...{ contextWindow: 200_000, trigger: [{ economic: true }] },
      prices: { input: 3, output: 15, cachedInput: 0.3, cacheWrite: 3.75 },
    };
    const marks = async (words: number): Promise<number> => {
      const ids = newSession();
      for (let turn = 0; turn < 3; turn++)
        await appendTurn(pool, {
          ...{ ...ids, turnId: `${turn}`, messages: talk(2, words) },
          ...(turn === 0 ? { policy: economic } : {}),
        });
      return (await loadSession(pool, ids)).measureAtTokens ?? NaN;
    };
    expect(await marks(1_500)).toBeGreaterThan(await marks(100));
  });
});

describe('a custom counter', () => {
  it('counts large messages in slices, between which other work runs', async () => {
    const words = (text: string): number => text.split(/\s+/).filter((word) => word !== '').length;
    let turnsOfTheLoop = 0;
    const seen: number[] = [];
    registerCounter('words', (text) => {
      seen.push(turnsOfTheLoop);
      return words(text);
    });
    const content = 'some words of a long tool result\n'.repeat(30_000);
    const loop = setInterval(() => turnsOfTheLoop++, 0);
    const { liveTokens } = await appendTurn(pool, {
      ...newSession(),
      turnId: '1',
      messages: [{ role: 'user', content }],
      policy: { tokenizer: 'custom:words' },
    });
    clearInterval(loop);
    expect(liveTokens).toBe(words(content) + 4);
    expect(seen.length).toBeGreaterThan(10);
    expect(seen.at(-1)).toBeGreaterThan(seen[0] ?? Infinity);
  });

  it('that fails refuses the turn and leaves no trace', async () => {
    registerCounter('failing', () => NaN);
    const ids = newSession();
    const policyOfTurn = { tokenizer: 'custom:failing' as const };
    const refused = appendTurn(pool, { ...ids, turnId: '1', messages: talk(1), policy: policyOfTurn });
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path: 'policy.tokenizer' });
    await expect(loadSession(pool, ids)).rejects.toMatchObject({ type: 'Store.SessionNotFound' });
  });
});
