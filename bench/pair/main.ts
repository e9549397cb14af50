/**
 * `npm run bench -- pair ../other [--only case,case] [--rounds N] [--json FILE] [--source] [--share 0.1]`: measures this checkout
 * against another one, in turn, on one machine. Both are run as their users run them, with their defaults. Each checkout must
 * be built (`npm ci && npm run build`), or `--source` runs the TypeScript of both.
 */
import { writeFileSync } from 'node:fs';
import os from 'node:os';
import { parseArgs } from 'node:util';
import { median, shown } from '../figures.js';
import { type Case, cases, type Reading } from './cases.js';
import { type Checkout, openCheckout, ownFolder } from './checkout.js';
import { startEndpoint } from './endpoint.js';
import { startPairServers } from './servers.js';
import { type Side, startSide } from './side.js';

interface Options {
  other: string;
  chosen: [name: string, each: Case][];
  rounds: number;
  share: number;
  form: 'built' | 'source';
  json?: string;
}

/** Values of one row: of each round the other's and this checkout's. */
interface Row {
  case: string;
  what: string;
  unit: Reading['unit'];
  other: number[];
  own: number[];
}

/** Share of the load that warms a side up. */
const warmUpShare = 0.25;

export async function pair(args: string[]): Promise<number> {
  const options = optionsOf(args);
  const other = openCheckout(options.other, options.form);
  const own = openCheckout(ownFolder, options.form);
  console.log(introduction(options, other, own));
  const servers = await startPairServers(['other', 'own'], (line) => console.error(line));
  const endpoint = await startEndpoint();
  const sides: Side[] = [];
  let stopping: Promise<void> | undefined;
  const stop = () =>
    (stopping ??= (async () => {
      await Promise.all(sides.map((side) => side.stop()));
      await endpoint.close();
      await servers.stop();
    })());
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => void stop().finally(() => process.exit(130)));
  const started = Date.now();
  const rows: Row[] = [];
  const failed: string[] = [];
  try {
    for (const [name, checkout] of [
      ['other', other],
      ['own', own],
    ] as const)
      sides.push(await startSide(name, checkout, servers, endpoint));
    for (const [name, each] of options.chosen) {
      try {
        rows.push(...(await measure(name, each, sides, options, servers.dataDir)));
      } catch (error) {
        if (stopping) await new Promise(() => {});
        failed.push(name);
        console.error(`${name}:`, error);
      }
    }
  } finally {
    await stop();
  }
  const machine = machineLine();
  console.log(`\n${machine}; took ${Math.round((Date.now() - started) / 1_000)} s.`);
  if (options.json !== undefined) {
    const versions = { other: other.version, own: own.version };
    writeFileSync(options.json, `${JSON.stringify({ versions, machine, rows, failed }, null, 2)}\n`);
  }
  return failed.length === 0 ? 0 : 1;
}

async function measure(
  name: string,
  each: Case,
  sides: readonly Side[],
  { rounds, share }: Options,
  dataDir: string,
): Promise<Row[]> {
  console.log(`\n${name}`);
  const rows: Row[] = [];
  const first = each.warmUp === false ? 1 : 0;
  for (let round = first; round <= rounds; round++)
    for (const side of sides) {
      const from = Date.now();
      const isWarmUp = round === 0;
      const readings = await each.run({
        ...{ side, dataDir, id: `${name}-${round}` },
        share: share * (isWarmUp ? warmUpShare : 1),
      });
      const seconds = ((Date.now() - from) / 1_000).toFixed(1);
      const what = isWarmUp ? 'warm-up, not counted' : `round ${round}`;
      console.log(`  ${what}, ${side.name} ${side.checkout.version} (${seconds} s)`);
      if (isWarmUp) continue;
      for (const reading of readings) {
        console.log(`    ${reading.what}: ${shown(reading.value)} ${reading.unit}`);
        rowOf(rows, name, reading)[side.name === 'own' ? 'own' : 'other'].push(reading.value);
      }
    }
  console.log(`  other against own, ${rounds} rounds`);
  for (const row of rows) console.log(`    ${summaryOf(row)}`);
  return rows;
}

function rowOf(rows: Row[], name: string, { what, unit }: Reading): Row {
  const found = rows.find((row) => row.what === what);
  if (found) return found;
  const row: Row = { case: name, what, unit, other: [], own: [] };
  rows.push(row);
  return row;
}

function summaryOf({ what, unit, other, own }: Row): string {
  const ratios = own.map((value, round) => value / (other[round] ?? NaN)).filter(Number.isFinite);
  const ratio = ratios.length === 0 ? '' : `; ratio ${spread(ratios)}`;
  const of = (values: readonly number[]) => (values.length === 0 ? 'none' : `${spread(values)} ${unit}`);
  return `${what}: ${of(other)} → ${of(own)}${ratio}`;
}

function spread(values: readonly number[]): string {
  return `${shown(median(values))} (${shown(Math.min(...values))} – ${shown(Math.max(...values))})`;
}

function introduction(options: Options, other: Checkout, own: Checkout): string {
  const runs = options.chosen.map(
    ([, each]) => each.seconds * options.share * (options.rounds + (each.warmUp === false ? 0 : warmUpShare)),
  );
  const minutes = Math.ceil((2 * runs.reduce((sum, one) => sum + one, 0)) / 60 + 0.5);
  const roles = ({ hasRoles }: Checkout) =>
    hasRoles ? 'with database roles' : 'as the owner of the database';
  return [
    `${options.rounds} rounds of ${options.chosen.map(([name]) => name).join(', ')}: about ${minutes} min on two cores.`,
    `other: ${other.version}, ${roles(other)} · own: ${own.version}, ${roles(own)}; ${options.form}, defaults of each version.`,
    machineLine(),
  ].join('\n');
}

function machineLine(): string {
  const memory = Math.round(os.totalmem() / 2 ** 30);
  return (
    `${os.cpus().length} cores (${os.cpus()[0]?.model ?? 'unknown'}), ${memory} GB, ${process.platform} ${process.arch}, ` +
    `Node ${process.version}; load ${(os.loadavg()[0] ?? 0).toFixed(1)}`
  );
}

function optionsOf(args: string[]): Options {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      only: { type: 'string' },
      rounds: { type: 'string', default: '3' },
      share: { type: 'string', default: '1' },
      json: { type: 'string' },
      source: { type: 'boolean', default: false },
    },
  });
  const [other, ...more] = positionals;
  if (other === undefined || more.length > 0) throw new Error('Name one other checkout: pair ../other');
  const [rounds, share] = [Number(values.rounds), Number(values.share)];
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds is a whole number from 1 on.');
  if (!(share > 0 && share <= 1)) throw new Error('--share is above 0 and at most 1.');
  const names = values.only?.split(',') ?? Object.keys(cases);
  const form = values.source ? 'source' : 'built';
  const chosen = names.map((name): [string, Case] => {
    const found = cases[name];
    if (!found) throw new Error(`There is no case ${name}; there are ${Object.keys(cases).join(', ')}.`);
    if (found.needsBuild && form === 'source' && values.only !== undefined)
      throw new Error(`The case ${name} measures the built package; leave out --source.`);
    return [name, found];
  });
  return {
    ...{ other, rounds, share, form },
    chosen: chosen.filter(([, { needsBuild }]) => !needsBuild || form === 'built'),
    ...(values.json === undefined ? {} : { json: values.json }),
  };
}
