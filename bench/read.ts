/** Measures the effect of a long log on the hot path: a session of 10,000 messages against one of 100, with the same tail. */
import { MockActivityEnvironment } from '@temporalio/testing';
import { measure } from '../activities/measure.js';
import { createModelClient } from '../src/llm/client.js';
import { loadSession } from '../src/store/sessions/sessions.js';
import { appendTurn } from '../src/store/append/turns.js';
import { agentTurn, agentTurns, messagesPerTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, median, shown, timed, type BenchResult } from './figures.js';
import { summarizer } from './model-script.js';
import type { Servers } from './servers.js';

const long = { session: 'long', messages: 10_000 };
const short = { session: 'short', messages: 100 };
/** Both sessions keep the same messages verbatim after their last compaction. */
const policy = { contextWindow: 128_000, trigger: { tokens: 100_000 }, keep: { messages: 40 } };
const messageTokens = 120;
const batchMessages = 400;
const runs = 7;
const pairsPerRun = 60;

export async function read(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers, { script: summarizer(0) });
  try {
    await fill(deployment, short);
    const generations = await fill(deployment, long);
    const { palimpsest, pool, tenant } = deployment;
    const activities = new MockActivityEnvironment();
    const measureActivity = measure({
      pool,
      model: createModelClient({ timeoutMs: 1_000 }),
      summarizer: {},
      now: Date.now,
      inlineTurnTenants: [],
    });
    const steps = {
      'context read': (session: string) => palimpsest.context({ session }),
      'measure, its read of the store': (session: string) => loadSession(pool, { tenant, session }),
      'measure, the whole activity': (session: string) =>
        activities.run(measureActivity, { tenant, session }),
      'append of a turn to the store': (session: string) => appendAnother(deployment, session),
    };
    const contexts = await Promise.all([long, short].map(({ session }) => palimpsest.context({ session })));
    const notes = [
      `${long.messages.toLocaleString('en-US')} messages in ${generations} generations against ${short.messages}; contexts of ` +
        contexts
          .map(
            ({ messages, tokens }) => `${messages.length} messages, ${tokens.toLocaleString('en-US')} tokens`,
          )
          .join(' and ') +
        `; ${runs} runs of ${pairsPerRun} interleaved pairs.`,
    ];
    const figures = [];
    for (const [what, step] of Object.entries(steps)) {
      await compare(step, pairsPerRun);
      const ratios: number[] = [];
      const times: [number, number][] = [];
      for (let run = 0; run < runs; run++) {
        const { longMs, shortMs } = await compare(step, pairsPerRun);
        ratios.push(longMs / shortMs);
        times.push([longMs, shortMs]);
      }
      figures.push(figure('read', `${what}, 10,000 against 100 messages`, '×', ratios, 1.3));
      const [ofLong, ofShort] = [0, 1].map((side) => median(times.map((pair) => pair[side] ?? NaN)));
      notes.push(`${what}: ${shown(ofLong ?? NaN)} ms against ${shown(ofShort ?? NaN)} ms.`);
    }
    return { figures, notes };
  } finally {
    await deployment.close();
  }
}

/** Medians of the step on both sessions, measured alternately, so that other load affects both equally. */
async function compare(step: (session: string) => Promise<unknown>, pairs: number) {
  const longTimes: number[] = [];
  const shortTimes: number[] = [];
  for (let pair = 0; pair < pairs; pair++) {
    const longFirst = pair % 2 === 0;
    if (longFirst) longTimes.push(await timed(() => step(long.session)));
    shortTimes.push(await timed(() => step(short.session)));
    if (!longFirst) longTimes.push(await timed(() => step(long.session)));
  }
  return { longMs: median(longTimes), shortMs: median(shortTimes) };
}

/**
 * Compacted as it grows; then the same last 100 messages, and a compaction by hand that keeps the same of them. Answers
 * the number of compactions.
 */
async function fill({ palimpsest }: Deployment, { session, messages }: typeof long): Promise<number> {
  const end = agentTurns(Math.ceil(short.messages / messagesPerTurn), messageTokens, 1)
    .flat()
    .slice(-short.messages);
  const earlier = agentTurns(Math.ceil(messages / messagesPerTurn), messageTokens, 2).flat();
  const log = [...earlier.slice(0, messages - end.length), ...end];
  for (let from = 0; from < messages; from += batchMessages) {
    const batch = log.slice(from, from + batchMessages);
    await palimpsest.appendTurn({ session, turnId: `t-${from}`, messages: batch, policy });
    await palimpsest.settled({ session });
  }
  await palimpsest.compact({ session });
  return (await palimpsest.compactions({ session })).length;
}

let appended = 0;

async function appendAnother({ pool, tenant }: Deployment, session: string): Promise<void> {
  const messages = agentTurn(messageTokens, ++appended).slice(0, 2);
  await appendTurn(pool, { tenant, session, turnId: `more-${appended}`, messages });
}
