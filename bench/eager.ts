/**
 * `PALIMPSEST_TRANSCRIPTS=<folder> node --import tsx bench/eager.ts [--quick]`: measures the savings and costs of writing
 * ahead, on every recorded session, with a scripted model. Writes Markdown to stdout; `--quick` plays every sixth session.
 */
import { setImmediate } from 'node:timers/promises';
import { Conversation, type Summarizer } from '../src/compaction/in-memory/index.js';
import { cutTurns } from '../src/conversation/groups.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { isFailure } from '../src/errors.js';
import { counter, notesOn, percent, recordedSessions } from './recorded.js';

/** Time in turns of the agent: it never waits, and a model's answer comes that many turns after it was asked. */
class Clock {
  now = 0;
  private waiting: { at: number; answer: () => void }[] = [];

  after<T>(turns: number, value: T): Promise<T> {
    return new Promise((resolve) =>
      this.waiting.push({ at: this.now + turns, answer: () => resolve(value) }),
    );
  }

  async tick(): Promise<void> {
    this.now += 1;
    const due = this.waiting.filter(({ at }) => at <= this.now);
    this.waiting = this.waiting.filter(({ at }) => at > this.now);
    for (const { answer } of due) answer();
    await setImmediate();
  }

  get isWaitedFor(): boolean {
    return this.waiting.length > 0;
  }
}

interface Played {
  evicted: number;
  input: number;
  output: number;
  /** Input tokens of entries that were written ahead and not used. */
  unused: number;
  /** Of each compaction: model calls from trigger to commit, one after the other. */
  latencies: number[];
  /** Compactions at whose trigger all, or all but the last rest and the state, was written or being written. */
  ready: number;
  withRest: number;
}

async function play(
  messages: readonly ChatMessage[],
  { window, eager, callTurns }: { window: number; eager: boolean; callTurns: number },
): Promise<Played> {
  const conversation = new Conversation({
    policy: {
      contextWindow: window,
      tokenizer: 'chars/4',
      summary: { mode: 'journal', contextWindow: 128_000 },
      memory: { eager },
    },
    counter,
  });
  const clock = new Clock();
  const played: Played = {
    ...{ evicted: 0, input: 0, output: 0, unused: 0, latencies: [], ready: 0, withRest: 0 },
  };
  let asked: { kind: string; input: number; from: number }[] = [];
  const summarize: Summarizer = ({ messages: request, maxTokens }, { kind }) => {
    const input = request.reduce((sum, { content }) => sum + counter.count(content) + 4, 0);
    const answer = notesOn(request.at(-1)?.content ?? '', maxTokens);
    played.input += input;
    played.output += counter.count(answer);
    asked.push({ kind, input, from: clock.now });
    return callTurns === 0 ? answer : clock.after(callTurns, answer);
  };
  /** Work ahead since the last commit: its input, and whether it is under way. */
  let ahead = { input: 0, throughSeq: 0 };
  let writing: Promise<unknown> | null = null;
  let compacting: { since: number; done: Promise<void> } | null = null;

  const compact = async (since: number): Promise<void> => {
    const before = ahead;
    asked = [];
    const own = asked;
    try {
      const generation = await conversation.compact(summarize);
      if (generation === null || generation.evicted === 0) return;
      ahead = { input: 0, throughSeq: 0 };
      const range = conversation.log.slice(generation.fromSeq - 1, generation.throughSeq);
      played.evicted += range.reduce((sum, { tokens }) => sum + tokens, 0);
      if (generation.method !== 'model') return;
      const notes = own.filter(({ kind }) => kind === 'notes').length;
      played.latencies.push(callTurns === 0 ? own.length : (clock.now - since) / callTurns);
      if (before.input > 0 && generation.throughSeq < before.throughSeq) played.unused += before.input;
      else if (before.input > 0 && notes === 0) played.ready += 1;
      else if (before.input > 0 && notes <= 1) played.withRest += 1;
    } catch (error) {
      if (!isFailure(error)) throw error;
    } finally {
      compacting = null;
    }
  };

  for (const { from, to } of cutTurns(messages)) {
    conversation.append(messages.slice(from, to));
    await clock.tick();
    if (compacting === null && conversation.isAlmostDue()) {
      asked = [];
      const own = asked;
      writing = conversation.writeAhead(summarize).then(() => {
        ahead = {
          input: own.reduce((sum, { input }) => sum + input, 0),
          throughSeq: conversation.writtenThroughSeq ?? 0,
        };
      });
      await setImmediate();
      ahead = {
        input: own.reduce((sum, { input }) => sum + input, 0),
        throughSeq: conversation.writtenThroughSeq ?? 0,
      };
      if (callTurns === 0) await writing;
    } else if (compacting === null && conversation.isDue()) {
      compacting = { since: clock.now, done: compact(clock.now) };
      if (callTurns === 0) await compacting.done;
      else await setImmediate();
    }
  }
  played.unused += ahead.input;
  return played;
}

function summed(all: readonly Played[]): Played {
  const sum = (of: (played: Played) => number) => all.reduce((total, one) => total + of(one), 0);
  return {
    evicted: sum((one) => one.evicted),
    input: sum((one) => one.input),
    output: sum((one) => one.output),
    unused: sum((one) => one.unused),
    latencies: all.flatMap(({ latencies }) => latencies),
    ready: sum((one) => one.ready),
    withRest: sum((one) => one.withRest),
  };
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

const sessions = await recordedSessions();
console.log(`${sessions.length} recorded sessions\n`);
console.log(
  '| window | eager | a call takes | compactions | nothing missing at the trigger | the rest missing | calls one after the other | input per evicted token | output | unused input |',
);
console.log('|---|---|---|---|---|---|---|---|---|---|');
for (const window of [8_192, 32_768])
  for (const callTurns of [0, 1, 3])
    for (const eager of [false, true]) {
      const runs: Played[] = [];
      for (const session of sessions) runs.push(await play(session, { window, eager, callTurns }));
      const { latencies, ready, withRest, evicted, input, output, unused } = summed(runs);
      console.log(
        `| ${window} | ${eager ? 'on' : 'off'} | ${callTurns} turns | ${latencies.length} | ${percent(ready, latencies.length)} | ${percent(withRest, latencies.length)} | ${mean(latencies).toFixed(2)} | ${(input / evicted).toFixed(2)} | ${(output / evicted).toFixed(2)} | ${percent(unused, input)} |`,
      );
    }
