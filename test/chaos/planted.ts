/**
 * `npm run chaos:planted [-- NAME …]`: the checker must see bugs that were planted on purpose. Each patch of `planted/` breaks one
 * promise in a copy of the sources; a chaos run on that copy must find a violation of a kind that the patch names. Without a patch the
 * same run must find none.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Violation } from './observations.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = fileURLToPath(new URL('planted/', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: '7' }, minutes: { type: 'string', default: '1.5' } },
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
for (const patch of [...(positionals.length === 0 ? [null] : []), ...chosen]) {
  const violations = await runWith(patch);
  const expected = patch === null ? [] : kindsOf(patch);
  const found = [...new Set(violations.map(({ kind }) => kind))];
  const seen = patch === null ? found.length === 0 : expected.some((kind) => found.includes(kind));
  if (!seen) missed++;
  const name = patch === null ? 'nothing planted' : path.parse(patch).name;
  process.stdout.write(
    `${seen ? 'ok' : 'MISSED'}  ${name}: ${violations.length} violations (${found.join(', ') || 'none'})\n`,
  );
  const example = violations.find(({ kind }) => patch === null || expected.includes(kind));
  if (example !== undefined) process.stdout.write(`    ${example.kind}: ${example.what}\n`);
}
process.exitCode = missed === 0 ? 0 : 1;

/** The first line of a patch: `expects: kind, kind`. */
function kindsOf(patch: string): string[] {
  const [, kinds = ''] = /^expects: (.+)$/m.exec(readFileSync(path.join(folder, patch), 'utf8')) ?? [];
  return kinds.split(',').map((kind) => kind.trim());
}

/** Runs chaos on a copy of the tracked and new sources. */
async function runWith(patch: string | null): Promise<Violation[]> {
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
      values.seed,
      '--minutes',
      values.minutes,
    ];
    const run = spawn(process.execPath, args, { cwd: copy, stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    run.stdout.on('data', (piece: Buffer) => (output += piece.toString()));
    await once(run, 'close');
    return (JSON.parse(output) as { violations: Violation[] }).violations;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}
