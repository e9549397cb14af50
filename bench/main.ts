/**
 * `npm run bench [name…] [--json FILE]`: starts servers and measures the figures of docs/numbers.md in about six minutes.
 * `live` (only by name) runs many live sessions during a backfill, `attack` a healthy client while another tenant attacks;
 * `pair` measures another checkout against this one; their options are in live/main.ts, attack.ts and pair/main.ts. `plan` and `economics` need no servers; with PALIMPSEST_TRANSCRIPTS they
 * also measure recorded sessions.
 */
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import { parseArgs } from 'node:util';
import Table from 'cli-table3';
import { actions } from './actions.js';
import { append } from './append.js';
import { attack } from './attack.js';
import { backfill } from './backfill.js';
import { chunks32 } from './chunks.js';
import { economics } from './economics.js';
import { type BenchResult, type Figure, shown } from './figures.js';
import { gateway } from './gateway.js';
import { http } from './http.js';
import { overhead } from './overhead.js';
import { live } from './live/main.js';
import { memory } from './memory.js';
import { pair } from './pair/main.js';
import { plan } from './plan.js';
import { read } from './read.js';
import { turns } from './turns.js';
import { waiting } from './waits.js';
import { startServers, type Servers } from './servers.js';

// Load tests with separate options and tables, run only on request.
const loads: Record<string, (args: string[]) => Promise<number>> = { live, attack, pair };
const load = loads[process.argv[2] ?? ''];
if (load) process.exit(await load(process.argv.slice(3)));

const benches: Record<string, (servers: Servers) => Promise<BenchResult>> = {
  read,
  overhead,
  chunks: chunks32,
  turns,
  actions,
  memory,
  backfill,
  http,
  gateway,
  waits: waiting,
  append,
};

/** Benches of the pure core. */
const withoutServers: Record<string, () => Promise<BenchResult>> = { plan, economics };

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'string' } },
});
const names = [...Object.keys(benches), ...Object.keys(withoutServers)];
const unknown = positionals.find((name) => !names.includes(name));
if (unknown !== undefined) {
  console.error(`There is no bench ${unknown}; there are ${names.join(', ')}.`);
  process.exit(2);
}
const isChosen = ([name]: [string, unknown]): boolean =>
  positionals.length === 0 || positionals.includes(name);
const chosen = Object.entries(benches).filter(isChosen);

const started = Date.now();
const figures: Figure[] = [];
const notes: Record<string, string[]> = {};
for (const [name, bench] of Object.entries(withoutServers).filter(isChosen)) await run(name, bench);
if (chosen.length > 0) {
  const servers = await startServers((line) => console.error(line));
  try {
    for (const [name, bench] of chosen) await run(name, () => bench(servers), servers);
  } finally {
    await servers.stop();
  }
}

const machine = {
  cores: os.cpus().length,
  cpu: os.cpus()[0]?.model ?? 'unknown',
  memoryGb: Math.round(os.totalmem() / 2 ** 30),
  node: process.version,
  platform: `${process.platform} ${process.arch}`,
  /** Mean number of processes that wanted to run in the last minute, these included. */
  load: os.loadavg()[0] ?? 0,
};
print();
if (options.json !== undefined) {
  writeFileSync(options.json, `${JSON.stringify({ machine, figures, notes }, null, 2)}\n`);
}

async function run(name: string, bench: () => Promise<BenchResult>, servers?: Servers): Promise<void> {
  console.error(`${name} …`);
  try {
    const result = await bench();
    figures.push(...result.figures);
    notes[name] = result.notes;
    for (const figure of result.figures) console.error(`  ${lineOf(figure)}`);
  } catch (error) {
    // Failures from here on are caused by the stopped servers; the signal's handler ends the process.
    if (servers?.interrupted()) await new Promise(() => {});
    console.error(`${name}:`, error);
    process.exitCode = 1;
  }
}

/** What one figure says, as soon as it is there; the table at the end has them all. */
function lineOf({ what, unit, median, min, max, runs, bar }: Figure): string {
  const verdict = bar === undefined ? '' : `, at most ${bar} ${unit}${median <= bar ? '' : ': MISSED'}`;
  return `${what}: ${shown(median)} ${unit} (${shown(min)} – ${shown(max)}, ${runs} runs${verdict})`;
}

function print(): void {
  const table = new Table({
    head: ['bench', 'figure', 'median', 'least – most', 'runs', 'bar'],
    style: { head: [], border: [] },
    colAligns: ['left', 'left', 'right', 'right', 'right', 'left'],
  });
  for (const { bench, what, unit, median, min, max, runs, bar } of figures) {
    const verdict = bar === undefined ? '' : `≤ ${bar} ${unit}${median <= bar ? '' : '  MISSED'}`;
    table.push([bench, what, `${shown(median)} ${unit}`, `${shown(min)} – ${shown(max)}`, runs, verdict]);
  }
  console.log(table.toString());
  for (const [name, lines] of Object.entries(notes))
    for (const line of lines) console.log(`${name}: ${line}`);
  const { cores, cpu, memoryGb, node, platform, load } = machine;
  console.log(
    `${cores} cores (${cpu}), ${memoryGb} GB, ${platform}, Node ${node}; load ${load.toFixed(1)}; ` +
      `took ${Math.round((Date.now() - started) / 1000)} s.`,
  );
}
