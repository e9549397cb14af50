/**
 * Measures the planning of a long session's first compaction: 5,000 messages of 2 million tokens, already counted, at a window
 * of 128,000. It measures the CPU time of the plan, the view, and its reduction to the budget, without servers.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { readTranscripts } from '../src/cli/play/transcripts.js';
import { Conversation } from '../src/compaction/in-memory/conversation.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { agentTurns } from './conversation.js';
import { figure, type BenchResult } from './figures.js';

const runs = 5;
const barMs = 300;
const large = 5_000;
const small = 500;

interface Measured {
  planMs: number;
  contextMs: number;
}

export async function plan(): Promise<BenchResult> {
  const source = await recordedMessages();
  const [messages, fewer] = [repeated(source, large), repeated(source, small)];
  const measured: Measured[] = [];
  const reference: Measured[] = [];
  // The first one warms the code up and is not counted.
  for (let run = 0; run <= runs; run++) {
    const [one, other] = [await measureOnce(messages), await measureOnce(fewer)];
    if (run > 0) measured.push(one);
    if (run > 0) reference.push(other);
  }
  const heap = await heldMb(messages);
  const heapOfFewer = await heldMb(fewer);
  const tokens = prepared(messages).log.reduce((sum, logged) => sum + logged.tokens, 0);
  const of = (list: readonly Measured[], time: (one: Measured) => number) => list.map(time);
  const both = ({ planMs, contextMs }: Measured) => planMs + contextMs;
  return {
    figures: [
      figure('plan', 'CPU of plan, view and reductions', 'ms', of(measured, both), barMs),
      figure(
        'plan',
        'of that, the plan',
        'ms',
        of(measured, ({ planMs }) => planMs),
      ),
      figure(
        'plan',
        'of that, the context made to fit',
        'ms',
        of(measured, ({ contextMs }) => contextMs),
      ),
      figure('plan', 'the same for 500 messages', 'ms', of(reference, both)),
      figure('plan', 'heap held by plan and context', 'MB', [heap]),
      figure('plan', 'the same for 500 messages', 'MB', [heapOfFewer]),
    ],
    notes: [
      `${messages.length.toLocaleString('en-US')} messages of ${tokens.toLocaleString('en-US')} tokens, counted before, at a window of 128,000; CPU of all threads of the process.`,
    ],
  };
}

function prepared(messages: readonly ChatMessage[]): Conversation {
  const conversation = new Conversation({ policy: { contextWindow: 128_000 } });
  conversation.append(messages);
  return conversation;
}

async function measureOnce(messages: readonly ChatMessage[]): Promise<Measured> {
  const conversation = prepared(messages);
  const planned = await cpu(() => conversation.plan());
  if ('nothing' in planned.result) throw new Error(`nothing was planned: ${planned.result.nothing}`);
  const context = await cpu(() => conversation.context());
  if (context.result.tokens > conversation.limits.budget) throw new Error('the context does not fit');
  return { planMs: planned.ms, contextMs: context.ms };
}

/** MB of heap beyond the session once plan and context are made. */
async function heldMb(messages: readonly ChatMessage[]): Promise<number> {
  const conversation = prepared(messages);
  const before = heapMb();
  const made = { plan: await conversation.plan(), context: conversation.context() };
  const after = heapMb();
  if ('nothing' in made.plan || made.context.items.length === 0) throw new Error('nothing was planned');
  return Math.max(0, after - before);
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
  const collect = runInNewContext('gc') as () => void;
  collect();
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

/** The messages again and again until there are so many: with recorded ones about 420 tokens each. */
function repeated(source: readonly ChatMessage[], count: number): ChatMessage[] {
  return Array.from({ length: count }, (_, index) => source[index % source.length]!);
}
