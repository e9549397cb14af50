/**
 * `npm run chaos:planted [-- NAME …]`: the checker must find planted bugs. Each patch of `planted/` breaks one guarantee in a
 * copy of the sources. One of up to `--tries` chaos runs on that copy, with consecutive seeds, must find a violation of a kind
 * that the patch names; one run may not be enough, since a slow machine commits little. Without a patch one run must find none.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { leashed } from '../support/leash.js';
import type { Violation } from './observations.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = fileURLToPath(new URL('planted/', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: '7' },
    minutes: { type: 'string', default: '1.5' },
    tries: { type: 'string', default: '4' },
  },
});

const all = readdirSync(folder).filter((name) => name.endsWith('.patch'));
const chosen = all.filter((name) => positionals.length === 0 || positionals.includes(path.parse(name).name));
const unknown = positionals.find((name) => !all.includes(`${name}.patch`));
if (unknown !== undefined) {
  process.stderr.write(
    `There is no planted bug ${unknown}; there are ${all.map((name) => path.parse(name).name).join(', ')}.\n`,
  );
  process.exit(2);
}

let missed = 0;
if (positionals.length === 0) {
  const violations = await runWith(null, Number(values.seed));
  tell('nothing planted', violations.length === 0, violations, violations[0]);
}
for (const patch of chosen) {
  const expected = kindsOf(patch);
  let violations: Violation[] = [];
  let found: Violation | undefined;
  for (let tried = 0; tried < Number(values.tries) && found === undefined; tried++) {
    violations = await runWith(patch, Number(values.seed) + tried);
    found = violations.find(({ kind }) => expected.includes(kind));
  }
  tell(path.parse(patch).name, found !== undefined, violations, found);
}
process.exitCode = missed === 0 ? 0 : 1;

/** `violations`: of the last run. */
function tell(
  name: string,
  asExpected: boolean,
  violations: readonly Violation[],
  example?: Violation,
): void {
  if (!asExpected) missed++;
  const kinds = [...new Set(violations.map(({ kind }) => kind))].join(', ') || 'none';
  process.stdout.write(
    `${asExpected ? 'ok' : 'MISSED'}  ${name}: ${violations.length} violations (${kinds})\n`,
  );
  if (example !== undefined) process.stdout.write(`    ${example.kind}: ${example.what}\n`);
}

/** The first line of a patch: `expects: kind, kind`. */
function kindsOf(patch: string): string[] {
  const [, kinds = ''] = /^expects: (.+)$/m.exec(readFileSync(path.join(folder, patch), 'utf8')) ?? [];
  return kinds.split(',').map((kind) => kind.trim());
}

/** Runs chaos on a copy of the tracked and new sources. */
async function runWith(patch: string | null, seed: number): Promise<Violation[]> {
  const copy = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-planted-'));
  try {
    const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
      cwd: root,
    });
    for (const file of listed.toString().split('\0'))
      if (file !== '' && existsSync(path.join(root, file)))
        cpSync(path.join(root, file), path.join(copy, file));
    symlinkSync(path.join(root, 'node_modules'), path.join(copy, 'node_modules'));
    if (patch !== null) execFileSync('git', ['apply', path.join(folder, patch)], { cwd: copy });
    const args = [
      '--import',
      'tsx',
      'test/chaos/main.ts',
      '--json',
      '--seed',
      String(seed),
      '--minutes',
      values.minutes,
    ];
    const run = leashed(spawn(process.execPath, args, { cwd: copy, stdio: ['ignore', 'pipe', 'inherit'] }));
    let output = '';
    run.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
    await once(run, 'close');
    return (JSON.parse(output) as { violations: Violation[] }).violations;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}
