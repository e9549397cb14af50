/**
 * Recorded and generated sessions are imported and then compacted by one job: each once; each replays identically, and each
 * context is valid and within its budget.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure } from '../../../src/errors.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { ended, fillSessions, openBackfills, until, type BackfillBench } from '../../support/backfills.js';
import { replayed } from '../../support/sessions.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const sessions = sized(60, 300);
const made = sessions / 5;
const policy = { contextWindow: 8_000 };

describe.skipIf(skipWithoutTranscripts())('a job over recorded sessions', () => {
  let stack: Stack;
  let bench: BackfillBench;
  beforeAll(async () => {
    stack = await startStack();
    bench = await openBackfills(stack, { pageSize: sessions / 6 });
  });
  afterAll(async () => {
    await bench.close();
    await stack.stop();
  });

  test('compacts each once, and loses nothing', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const originals = new Map<string, string[]>();
    await fillSessions(bench.pool, tenant, made, { policy, turns: 40 });
    const transcripts = readTranscripts(sized(5, 1));
    for await (const { line } of transcripts) {
      if (originals.size === sessions - made) break;
      const { id, messages } = JSON.parse(line) as { id: string; messages: ChatMessage[] };
      try {
        await appendTurn(bench.pool, { tenant, session: id, turnId: 't', messages, policy });
        originals.set(
          id,
          messages.map((message) => JSON.stringify(message)),
        );
      } catch (error) {
        if (!isFailure(error, 'Input.Invalid')) throw error;
      }
    }
    expect(originals.size).toBe(sessions - made);

    await palimpsest.startBackfill({ job: 'recorded', concurrency: 24 });
    const report = await until(bench.backfills, 'recorded', ended, 240_000);
    const { counts } = report;
    console.log(counts, report.failures, report.tokensBefore, report.tokensAfter, report.perSecond);
    expect(report.state).toBe('completed');
    expect(counts.selected).toBe(sessions);
    expect(counts.compacted + counts.unchanged + counts.failed).toBe(sessions);
    expect(counts.compacted).toBeGreaterThan(made);
    // What must stay may be more than the window holds; nothing else fails.
    expect(Object.keys(report.failures).filter((type) => type !== 'Budget.Unreachable')).toEqual([]);
    expect(stack.model.paidTwice()).toEqual([]);

    const { rows } = await bench.pool.query<{
      session: string;
      state: string;
      commits: number;
      due: boolean;
    }>(
      `select i.session_id as session, i.state, s.live_tokens >= s.measure_at_tokens as due,
         (select count(*)::int from palimpsest.compactions c where c.tenant_id = i.tenant_id
            and c.session_id = i.session_id and c.generation > 0 and c.reason in ('backfill', 'reduce')) as commits
       from palimpsest.backfill_items i join palimpsest.sessions s using (tenant_id, session_id)
       where i.tenant_id = $1`,
      [tenant],
    );
    for (const { state, commits, due } of rows) {
      if (state === 'compacted') expect(commits).toBeGreaterThan(0);
      else expect(commits).toBe(0);
      if (state !== 'failed') expect(due).toBe(false);
    }
    for (const [session, messages] of originals) {
      expect(await replayed(palimpsest, session)).toEqual(messages);
      const state = rows.find((row) => row.session === session)?.state;
      if (state !== 'compacted') continue;
      const context = await palimpsest.context({ session });
      expect(context.tokens).toBeLessThanOrEqual(context.budget);
      expect(validateView(context.messages)).toEqual([]);
    }
  });
});
