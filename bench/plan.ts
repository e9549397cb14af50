/**
 * What planning costs where a long session is compacted for the first time: 5,000 messages of 2 million tokens, counted
 * already, at a window of 128,000. CPU of the plan, of the view, and of reducing it to the budget; no servers.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { readTranscripts } from '../src/cli/transcripts.js';
import { Conversation } from '../src/compaction/conversation.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { agentTurns } from './conversation.js';
import { figure, median, shown, type BenchResult } from './figures.js';

const runs = 5;
const barMs = 300;
const large = { messages: 5_000, tokens: 2_000_000 };
const small = { messages: 500, tokens: 200_000 };

interface Measured {
  planMs: number;
  contextMs: number;
  /** Heap that plan and context hold once made, and the most in use beyond the session while they were made. */
  heldMb: number;
  messages: number;
  tokens: number;
}

export async function plan(): Promise<BenchResult> {
  const source = await recordedMessages();
  const measured: Measured[] = [];
  const reference: Measured[] = [];
  const messages = sized(source, large);
  const fewer = sized(source, small);
  // The first one warms the code up and is not counted.
  for (let run = 0; run <= runs; run++) {
    const [one, other] = [await measureOnce(messages), await measureOnce(fewer)];
    if (run > 0) [measured, reference].forEach((list, index) => list.push(index === 0 ? one : other));
  }
  const first = measured[0]!;
  const ratio = median(measured.map(({ heldMb }) => heldMb)) / median(reference.map(({ heldMb }) => heldMb));
  return {
    figures: [
      figure(
        'plan',
        'CPU of plan, view and reductions',
        'ms',
        measured.map(({ planMs, contextMs }) => planMs + contextMs),
        barMs,
      ),
      figure(
        'plan',
        'of that, the plan',
        'ms',
        measured.map(({ planMs }) => planMs),
      ),
      figure(
        'plan',
        'of that, the context made to fit',
        'ms',
        measured.map(({ contextMs }) => contextMs),
      ),
      figure(
        'plan',
        'the same for 500 messages',
        'ms',
        reference.map(({ planMs, contextMs }) => planMs + contextMs),
      ),
      figure(
        'plan',
        'heap held by plan and context',
        'MB',
        measured.map(({ heldMb }) => heldMb),
      ),
    ],
    notes: [
      `${first.messages.toLocaleString('en-US')} messages of ${first.tokens.toLocaleString('en-US')} tokens, window 128,000; heap against a tenth of the messages: ${shown(ratio)} ×.`,
    ],
  };
}

async function measureOnce(messages: readonly ChatMessage[]): Promise<Measured> {
  const conversation = new Conversation({ policy: { contextWindow: 128_000 } });
  conversation.append(messages);
  const tokens = conversation.log.reduce((sum, logged) => sum + logged.tokens, 0);
  const before = heapMb();
  const plan = await cpu(() => conversation.plan());
  if ('nothing' in plan.result) throw new Error(`nothing was planned: ${plan.result.nothing}`);
  const context = await cpu(() => conversation.context());
  const heldMb = heapMb() - before;
  if (context.result.tokens > conversation.limits.budget) throw new Error('the context does not fit');
  return { planMs: plan.ms, contextMs: context.ms, heldMb, messages: messages.length, tokens };
}

/** User and system time of this process, all threads. */
async function cpu<T>(work: () => T | Promise<T>): Promise<{ ms: number; result: T }> {
  const start = process.cpuUsage();
  const result = await work();
  const { user, system } = process.cpuUsage(start);
  return { ms: (user + system) / 1_000, result };
}

/** Heap in use after a collection. */
function heapMb(): number {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect === 'function') collect();
  return process.memoryUsage().heapUsed / 2 ** 20;
}

/** Messages of recorded coding sessions; made ones without them. */
async function recordedMessages(): Promise<ChatMessage[]> {
  const folder = process.env.PALIMPSEST_TRANSCRIPTS;
  if (folder === undefined) return agentTurns(84, 400).flat();
  const sessions = path.join(folder, 'sessions');
  const files = readdirSync(sessions).filter((file) => /^(claude-code|codex|coding-agent)\.jsonl/.test(file));
  const reads = await Promise.all(files.map((file) => readTranscripts(path.join(sessions, file))));
  return reads
    .flat()
    .flatMap((read) => ('error' in read ? [] : read.messages.filter(({ role }) => role !== 'system')));
}

/** The messages again and again until there are so many; text is added to, or the longest are left out, until the tokens come out. */
function sized(source: readonly ChatMessage[], { messages }: typeof large): ChatMessage[] {
  return Array.from({ length: messages }, (_, index) => source[index % source.length]!);
}
