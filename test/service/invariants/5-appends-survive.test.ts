/**
 * Invariant 5. Appends during a compaction survive: the commit replaces exactly the planned prefix, guarded by
 * compare-and-set on the generation; one compaction per session is in flight.
 */
import type { Client } from '@temporalio/client';
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { validateView } from '../../../src/context/view/validity.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { AppendedTurn } from '../../../src/contract/turns.js';
import { openPool } from '../../support/pool.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { sessionWorkflowId } from '../../../src/temporal/names.js';
import { dialogue } from '../../support/dialogue.js';
import { histories } from '../../support/histories.js';
import { appendTurns, contextOrNull, replayed } from '../../support/sessions.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';
import { compactThrough } from '../../support/store.js';

let stack: Stack;
let pool: Pool;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  client = await connectClient(stack.temporal);
  pool = openPool(stack.databaseUrl, { max: 2 });
});

afterAll(async () => {
  await client.connection.close();
  await pool.end();
  await stack.stop();
});

const policy = { contextWindow: 4_000 };

/** A session whose compaction waits for the model. The model is unique, so that no digest of another session is used. */
async function held(session: string): Promise<ChatMessage[]> {
  const { palimpsest, model } = stack;
  const asked = model.requests.length;
  model.hold();
  const turns = dialogue(16);
  const summary = { model: session, contextWindow: 16_000 };
  await appendTurns(palimpsest, session, turns, { policy: { ...policy, summary } });
  await model.waitForRequests(asked + 1);
  return turns.flat();
}

/** Several writers at once, each with its turns in order; each turn is sent as often as `sends` says, at once. */
async function write(
  session: string,
  writers: { messages: ChatMessage[]; sends: number }[][],
): Promise<{ turn: AppendedTurn; messages: ChatMessage[] }[]> {
  const written = writers.map(async (turns, writer) => {
    const stored: { turn: AppendedTurn; messages: ChatMessage[] }[] = [];
    for (const [index, { messages, sends }] of turns.entries()) {
      const turnId = `writer-${writer}-${index}`;
      const answers = await Promise.all(
        Array.from({ length: sends }, () => stack.palimpsest.appendTurn({ session, turnId, messages })),
      );
      const ranges = answers.map(({ fromSeq, throughSeq }) => ({ fromSeq, throughSeq }));
      expect(new Set(ranges.map((range) => JSON.stringify(range))).size).toBe(1);
      expect(answers.filter(({ repeated }) => !repeated)).toHaveLength(1);
      stored.push({ turn: answers[0]!, messages });
    }
    return stored;
  });
  return (await Promise.all(written)).flat();
}

const turns = fc.record({
  messages: fc.oneof(
    histories.filter((messages) => messages.length > 0),
    fc.constant<ChatMessage[]>([{ role: 'user', content: 'and now?' }]),
  ),
  sends: fc.constantFrom(1, 1, 2, 4),
});

describe('invariant 5: appends during a compaction survive', () => {
  test('any turns by any number of writers during a model call', async () => {
    const { palimpsest, model } = stack;
    let run = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(turns, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 4 }),
        async (writers) => {
          const session = `writers-${++run}`;
          const log = await held(session);
          const planned = log.length;
          const written = await write(session, writers);
          for (const { turn, messages } of written) {
            expect(turn.fromSeq).toBeGreaterThan(planned);
            messages.forEach((message, index) => (log[turn.fromSeq + index - 1] = message));
          }
          expect((await palimpsest.status({ session })).generation).toBe(0);
          model.release();
          await palimpsest.settled({ session });

          // No gap, no loss, no duplicate turn: every writer's messages are at the seqs of its answer.
          expect(await replayed(palimpsest, session)).toEqual(log.map((message) => JSON.stringify(message)));
          const [first] = await palimpsest.archive({ session });
          expect(first?.throughSeq).toBeLessThanOrEqual(planned);
          const parts = await palimpsest.archive({ session });
          const evicted = parts.at(-1)!.throughSeq;
          const context = await contextOrNull(palimpsest, session);
          expect(validateView(context?.messages ?? [])).toEqual([]);
          const seqs = (context?.entries ?? []).flatMap(({ seq }) => (seq === null ? [] : [seq]));
          expect(seqs.every((seq) => seq > evicted)).toBe(true);
        },
      ),
      { numRuns: sized(3, 6), endOnFailure: true },
    );
  });

  test('a turn appended meanwhile is in the next context, word for word, before and after the commit', async () => {
    const { palimpsest, model } = stack;
    const session = 'middle';
    await held(session);
    const said: ChatMessage[] = [
      { role: 'user', content: 'One more thing: keep the old endpoint.' },
      { role: 'assistant', content: 'I will keep it.' },
    ];
    await palimpsest.appendTurn({ session, turnId: 'more', messages: said });
    const during = await palimpsest.context({ session });
    expect([during.generation, during.messages.slice(-2)]).toEqual([0, said]);
    model.release();
    await palimpsest.settled({ session });
    const after = await palimpsest.context({ session });
    expect([after.generation, after.messages.slice(-2)]).toEqual([1, said]);
  });

  test('requests to compact wait for the one in flight: one child, one answer', async () => {
    const { palimpsest, model } = stack;
    const session = 'joined';
    await held(session);
    const asked = model.requests.length;
    const answers = Promise.all([1, 2, 3].map(() => palimpsest.compact({ session })));
    const workflow = client.workflow.getHandle(sessionWorkflowId({ tenant: stack.queuePrefix, session }));
    const accepted = async () =>
      (await workflow.fetchHistory()).events?.filter(
        (event) => event.workflowExecutionUpdateAcceptedEventAttributes,
      );
    await expect.poll(accepted).toHaveLength(3);
    model.release();
    const [one, ...others] = await answers;
    expect(one).toMatchObject({ generation: 1 });
    expect(others).toEqual([one, one]);
    expect(model.requests.length).toBe(asked);
  });

  test('a plan that another commit overtook replaces nothing: it is refused and made again from the new context', async () => {
    const { palimpsest, model, queuePrefix: tenant } = stack;
    const session = 'overtaken';
    const log = await held(session);
    const winner = await compactThrough(pool, { tenant, session }, 6);
    await appendTurns(palimpsest, session, dialogue(20).slice(16), { from: 16 });
    log.push(...dialogue(20).slice(16).flat());
    model.release();
    await palimpsest.settled({ session });
    const compactions = await palimpsest.compactions({ session });
    expect(compactions[0]).toMatchObject({ generation: 1, runId: winner.runId });
    expect(compactions.map(({ generation }) => generation)).toEqual(compactions.map((_, index) => index + 1));
    const parts = await palimpsest.archive({ session });
    parts.forEach(({ fromSeq }, index) => expect(fromSeq).toBe((parts[index - 1]?.throughSeq ?? 0) + 1));
    expect(await replayed(palimpsest, session)).toEqual(log.map((message) => JSON.stringify(message)));
    expect((await palimpsest.context({ session })).messages.slice(-2)).toEqual(log.slice(-2));
  });
});
