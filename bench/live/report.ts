import os from 'node:os';
import Table from 'cli-table3';
import { quantile, shown } from '../figures.js';
import type { Backfill } from '../../src/contract/backfills.js';
import { describeCpu, type CpuShare } from '../processes.js';
import { window } from './material.js';
import type { Phase } from './players.js';
import type { Verified } from './verify.js';
import type { Waits } from './waits.js';

export interface LiveOptions {
  live: number;
  backfill: number;
  minutes: number;
  /** Seconds without a backfill that the rest is compared with. */
  baseline: number;
  pauseMs: number;
  latencyMs: number;
  concurrency: number;
  sample: number;
  /** A separate worker process serves backfills. */
  apart: boolean;
}

export interface Memory {
  name: string;
  megabytes: number;
}

export interface Outcome {
  options: LiveOptions;
  source: string;
  imported: Record<string, number>;
  alone: Phase & { waits: Waits; cpu: CpuShare[] };
  beside: Phase & { waits: Waits; cpu: CpuShare[] };
  job: Backfill;
  memory: { start: Memory[]; end: Memory[]; most: Memory[] };
  verified: Verified;
}

/** One table: without and with the backfill, and how much the one is of the other. */
export function print({ options, source, imported, alone, beside, job, memory, verified }: Outcome): void {
  const table = new Table({
    head: ['', 'alone', 'beside the backfill', 'ratio'],
    style: { head: [], border: [] },
    colAligns: ['left', 'right', 'right', 'right'],
  });
  const row = (what: string, unit: string, one: number, other: number) =>
    table.push([
      what,
      `${shown(one)} ${unit}`,
      `${shown(other)} ${unit}`,
      one > 0 ? (other / one).toFixed(2) : '–',
    ]);
  for (const [name, of] of [
    ['append', 'appends'],
    ['context', 'contexts'],
  ] as const)
    for (const q of [0.5, 0.99]) row(`${name}, p${q * 100}`, 'ms', at(alone[of], q), at(beside[of], q));
  row('compaction wait, median', 'ms', at(alone.waits.ms, 0.5), at(beside.waits.ms, 0.5));
  row('compaction wait, p95', 'ms', at(alone.waits.ms, 0.95), at(beside.waits.ms, 0.95));
  row('live turns', '/s', rate(alone.turns, alone), rate(beside.turns, beside));
  row('live compactions', '/s', rate(alone.waits.ms.length, alone), rate(beside.waits.ms.length, beside));
  table.push(['backfill', '', `${shown(job.perSecond)} sessions/s`, '']);
  for (const [index, { name, megabytes }] of memory.start.entries()) {
    const end = memory.end[index]?.megabytes ?? 0;
    table.push([
      `memory of ${name}`,
      `${shown(megabytes)} MB`,
      `${shown(end)} MB (most ${shown(most(memory.most, name))})`,
      (end / megabytes).toFixed(2),
    ]);
  }
  table.push(['errors', list(alone.errors), list(beside.errors), '']);
  console.log(table.toString());
  const { counts } = job;
  const states = (['compacted', 'unchanged', 'failed', 'skipped', 'pending', 'running'] as const)
    .map((state) => `${counts[state].toLocaleString('en-US')} ${state}`)
    .join(', ');
  const failures = Object.entries(job.failures).map(([type, number]) => `${type} ${number}`);
  const perSecond = (1_000 * (imported.stored ?? 0)) / Math.max(1, imported.milliseconds ?? 1);
  console.log(
    [
      `${options.live} live sessions over HTTP (a turn and its context every ${options.pauseMs / 1_000} s each) from ${source}; windows of ${window.toLocaleString('en-US')} tokens; a model call takes ${options.latencyMs} ms.`,
      `Alone for ${seconds(alone)} s, beside the backfill for ${seconds(beside)} s; ${alone.contexts.length + beside.contexts.length} contexts read, ${alone.unreachable + beside.unreachable} that cannot fit; waits still open: ${alone.waits.open} and ${beside.waits.open}.`,
      `Import: ${imported.stored} sessions, ${imported.added?.toLocaleString('en-US')} messages in ${((imported.milliseconds ?? 0) / 1_000).toFixed(1)} s, ${shown(perSecond)} sessions/s.`,
      `Backfill (${options.concurrency} at once): ${job.state}${job.reason ? ` (${job.reason})` : ''}; ${counts.selected.toLocaleString('en-US')} selected: ${states}${failures.length > 0 ? ` (${failures.join(', ')})` : ''}; ${job.modelCalls.toLocaleString('en-US')} model calls, ${job.tokensBefore.toLocaleString('en-US')} → ${job.tokensAfter.toLocaleString('en-US')} tokens.`,
      `Cores alone: ${describeCpu(alone.cpu)}.`,
      `Cores beside: ${describeCpu(beside.cpu)}.`,
      `Verified: ${verified.live} live sessions (${verified.liveMessages.toLocaleString('en-US')} messages) and ${verified.old.toLocaleString('en-US')} old ones are what was sent, ${verified.archiveParts.toLocaleString('en-US')} archive parts are whole; ${verified.wrong.length === 0 ? 'nothing is lost' : `WRONG: ${verified.wrong.length}`}.`,
      ...verified.wrong.slice(0, 20).map((text) => `  ${text}`),
      `${os.cpus().length} cores (${os.cpus()[0]?.model ?? 'unknown'}), ${Math.round(os.totalmem() / 2 ** 30)} GB, Node ${process.version}; load ${os.loadavg()[0]!.toFixed(1)}.`,
    ].join('\n'),
  );
}

const at = (values: readonly number[], q: number): number =>
  values.length === 0 ? NaN : quantile(values, q);
const seconds = ({ from, to }: { from: number; to: number }): number => Math.round((to - from) / 1_000);
const rate = (count: number, phase: { from: number; to: number }): number =>
  (1_000 * count) / Math.max(1, phase.to - phase.from);
const most = (memory: readonly Memory[], name: string): number =>
  memory.find((one) => one.name === name)?.megabytes ?? 0;
const list = (errors: ReadonlyMap<string, number>): string =>
  errors.size === 0 ? 'none' : [...errors].map(([type, number]) => `${number} × ${type}`).join('\n');
