/**
 * `PALIMPSEST_TRANSCRIPTS=<folder> node --import tsx bench/zero-pause.ts [--quick]`: compares the contexts of an agent that
 * never waits for a compaction with those of one that waits. A model call takes a given number of turns, during which the agent
 * appends and reads. After each turn the bench looks for every identifier that a later action needs. Writes Markdown; `--quick`
 * plays every fourth session.
 */
import { setImmediate } from 'node:timers/promises';
import { Conversation, type Summarizer } from '../src/compaction/in-memory/index.js';
import { cutTurns } from '../src/conversation/groups.js';
import { isFailure } from '../src/errors.js';
import { counterFor } from '../src/tokens/counter.js';
import { pooled } from './quality/intervals.js';
import { holds, indexed, neededAfter, textOf } from './quality/needs.js';
import { type Recorded, recordedSessions } from './quality/sessions.js';
import { lossyOracle } from './quality/summarizers.js';
import { percent, sum, table } from './quality/table.js';

const counter = counterFor('o200k_base');
const oracle = lossyOracle(0.9, counter);

interface Setting {
  window: number;
  eager: boolean;
  /** Turns of the agent between a request and its answer. 0: the agent waits. */
  callTurns: number;
}

interface Kept {
  looks: number;
  needed: number;
  kept: number;
}

async function play(session: Recorded, { window, eager, callTurns }: Setting): Promise<Kept> {
  const conversation = new Conversation({
    policy: {
      contextWindow: window,
      tokenizer: 'o200k_base',
      summary: { mode: 'journal', contextWindow: 128_000 },
      memory: { eager },
    },
    counter,
  });
  const index = indexed(session.messages);
  const found: Kept = { looks: 0, needed: 0, kept: 0 };
  let turn = 0;
  let waiting: { until: number; answer: () => void }[] = [];
  const summarize: Summarizer = async (request, options) => {
    const answer = await oracle(request, options);
    if (callTurns > 0)
      await new Promise<void>((resolve) => waiting.push({ until: turn + callTurns, answer: resolve }));
    return answer;
  };
  let compacting: Promise<void> | null = null;
  const compact = async (): Promise<void> => {
    try {
      await conversation.compact(summarize);
    } catch (error) {
      if (!isFailure(error)) throw error;
    } finally {
      compacting = null;
    }
  };

  for (const { from, to } of cutTurns(session.messages)) {
    conversation.append(session.messages.slice(from, to));
    turn += 1;
    const due = waiting.filter(({ until }) => until <= turn);
    waiting = waiting.filter(({ until }) => until > turn);
    for (const { answer } of due) answer();
    await setImmediate();
    let work: Promise<unknown> | null = null;
    if (compacting === null && conversation.isAlmostDue()) work = conversation.writeAhead(summarize);
    else if (compacting === null && conversation.isDue()) work = compacting = compact();
    await (callTurns === 0 ? work : setImmediate());
    if (sum(session.tokens.slice(0, to)) < window) continue;
    const text = conversation.context().messages.map(textOf).join('\n');
    found.looks += 1;
    for (const [name, kind] of neededAfter(index, to, to)) {
      if (kind === 'symbol') continue;
      found.needed += 1;
      if (holds(text, name)) found.kept += 1;
    }
  }
  return found;
}

const folder = process.env.PALIMPSEST_TRANSCRIPTS;
if (folder === undefined) {
  console.error('PALIMPSEST_TRANSCRIPTS names no folder of recorded sessions.');
  process.exit(2);
}
const every = process.argv.includes('--quick') ? 4 : 1;
const sessions = (await recordedSessions(folder, counter)).filter((_, index) => index % every === 0);
const rows: string[][] = [];
for (const window of [8_192, 32_768]) {
  const large = sessions.filter(({ total }) => total >= 1.2 * window);
  for (const callTurns of [0, 1, 3, 8])
    for (const eager of [false, true]) {
      const all: Kept[] = [];
      for (const session of large) {
        try {
          all.push(await play(session, { window, eager, callTurns }));
        } catch (error) {
          if (!isFailure(error, 'Budget.Unreachable')) throw error;
        }
      }
      const needed = sum(all.map((one) => one.needed));
      rows.push([
        ...[String(window), callTurns === 0 ? 'it waits' : `${callTurns} turns`, eager ? 'on' : 'off'],
        ...[String(all.length), String(sum(all.map(({ looks }) => looks))), String(needed)],
        percent(pooled(all)),
      ]);
    }
}
console.log(
  table(['window', 'a call takes', 'ahead', 'sessions', 'looks', 'needed', 'in the context'], rows),
);
