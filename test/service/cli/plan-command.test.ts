/**
 * People compare policies before they adopt one. `palimpsest plan` must explain its use, name errors and next steps, and leave
 * no server, data folder or changed file.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { baseline, policiesFromFlags } from '../../../src/cli/compare/policies.js';
import { rehearse } from '../../../src/rehearsal/rehearse.js';
import { cutLines, planTable } from '../../../src/cli/compare/report.js';
import { presetNames } from '../../../src/policy/schema.js';
import { runCli, type Ended } from '../../support/cli.js';
import { document } from '../../support/documents.js';
import { sample, sampleMessages, small, talk } from '../../support/plan-sessions.js';

const folder = mkdtempSync(path.join(tmpdir(), 'plan-'));

beforeAll(() => {
  const lines = [
    { id: 'first', messages: talk(60) },
    { id: 'broken', messages: [{ role: 'robot', content: 'x' }] },
    { id: 'last <&> "\u202E"', messages: talk(2) },
  ];
  writeFileSync(path.join(folder, 'day.jsonl'), lines.map((line) => JSON.stringify(line)).join('\n'));
  writeFileSync(path.join(folder, 'tight.json'), JSON.stringify({ trigger: { tokens: 3_000 } }));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

test.each(['README.md', 'docs/cli.md'])('%s shows the comparison of the sample as it is', async (page) => {
  const documented = document(page).match(/^│ (?:no compaction|default|langchain|zrb) .*$/gm) ?? [];
  expect(documented.length).toBeGreaterThan(1);
  const { stdout, code } = await runCli(['plan', 'examples/debugging-session.jsonl', '--window', '16000']);
  expect(code).toBe(0);
  for (const row of documented) expect(stdout.split('\n')).toContain(row);
});

const untouched = path.join(folder, 'data');

async function run(...args: string[]): Promise<Ended> {
  const ended = await runCli(['plan', ...args], {
    PALIMPSEST_DATA: untouched,
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
  });
  expect(existsSync(untouched)).toBe(false);
  return ended;
}

describe('the command', () => {
  test('shows each policy in a row, the cuts of one, and draws a chart', async () => {
    const svg = path.join(folder, 'sizes.svg');
    const args = ['--window', '32000', '--trigger', '0.5', '--prices', '3', '--cuts', 'flags', '--svg', svg];
    const { code, stdout, stderr } = await run(sample, ...args);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/^debugging-session: 147 messages, 41 turns, [\d,]+ tokens$/m);
    for (const name of [baseline, 'default', 'economic', 'langchain', 'flags'])
      expect(stdout).toMatch(new RegExp(`^│ ${name} +│`, 'm'));
    expect(stdout).toMatch(/│ flags +│ 16,000 \/ 32,000 │ +[1-9]\d*× │ 2–\d+ [ua].*USD \d/);
    expect(stdout).toMatch(/^flags, compaction 1 after turn \d+ \(\w+\): [\d,]+ → [\d,]+ tokens/m);
    expect(stdout).toMatch(/^ {2}✂ +\d+ {2}(tool|assistant|user): /m);
    expect(stdout).toMatch(/No model was called/);
    expect(readFileSync(svg, 'utf8')).toMatch(/^<svg .*<\/svg>\n$/s);
    expect(code).toBe(0);
  });

  test('shows what its documentation shows', async () => {
    const [, shown = ''] = /\$ palimpsest plan .*\n([^]*?)\n```/.exec(document('docs/cli.md')) ?? [];
    const documented = shown.split('\n').filter((line) => line !== '…');
    expect(documented.length).toBeGreaterThan(8);
    const { stdout } = await run(sample, '--window', '16000');
    for (const line of documented) expect(stdout).toContain(`\n${line}\n`);
  });

  test('--json: one object per session in the order of the input; a broken session affects no other', async () => {
    const tight = `--policy=${path.join(folder, 'tight.json')}`;
    const { code, stdout, stderr } = await run(
      path.join(folder, 'day.jsonl'),
      '--json',
      '--preset',
      'none',
      tight,
    );
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(lines.map(({ session }) => session)).toEqual(['broken', 'first', 'last <&> "\u202E"']);
    expect(lines[0]).toMatchObject({ error: { type: 'Input.Invalid', path: 'messages[0].role' } });
    expect(lines[1]).toMatchObject({ messages: 120, turns: 120 });
    const policies = lines[1]!.policies as { policy: string; compactions: unknown[]; largest: number }[];
    expect(policies.map(({ policy }) => policy)).toEqual([baseline, 'default', 'economic', 'tight']);
    expect(policies[3]!.compactions.length).toBeGreaterThan(1);
    expect(policies[3]!.largest).toBeLessThan(policies[0]!.largest);
    expect(stderr).toMatch(/broken {3}error {3}Input\.Invalid/);
    expect(code).toBe(1);
  });

  test.each([
    [[], 2, /missing required argument 'files'/],
    [['nowhere.jsonl'], 2, /The file does not exist: nowhere\.jsonl/],
    [[sample, '--window', 'wide'], 2, /--window must be a number of tokens/],
    [[sample, '--preset', 'adk,other'], 2, /preset "other" does not exist[\s\S]*langchain/],
    [[sample, '--policy', 'mine={"trigger":{"fraction":2}}'], 2, /policy\.trigger\.fraction/],
    [[sample, '--policy', 'nowhere.json'], 2, /policy file does not exist: nowhere\.json/],
    [[sample, '--prices', 'cheap'], 2, /--prices/],
    [[sample, '--cuts', 'other'], 2, /comparison has no policy "other"/],
    [[sample, '--session', 'other'], 2, /No session "other" was read[\s\S]*debugging-session/],
    [[sample, '--svg', '/nowhere/at/all.svg'], 2, /--svg: the folder .+ does not exist/],
  ])('wrong usage says what to do: %j', async (args, code, message) => {
    const ended = await run(...args);
    expect(ended.stdout + ended.stderr).toMatch(message);
    expect(ended.stderr).not.toMatch(/^ +at /m);
    expect(ended.code).toBe(code);
  });

  test('--svg draws one session, which --session chooses', async () => {
    const [day, svg] = [path.join(folder, 'day.jsonl'), path.join(folder, 'one.svg')];
    const many = await run(day, '--svg', svg);
    expect(many.stderr).toMatch(/--svg draws one session, but 2 were read\./);
    expect(many.code).toBe(2);
    expect((await run(day, '--svg', svg, '--session', 'first')).code).toBe(0);
    expect(readFileSync(svg, 'utf8')).toContain('Context of first');
  });

  test('--help has examples', async () => {
    const { code, stdout } = await run('--help');
    expect(stdout).toMatch(
      /--prices <spec>[\s\S]*Examples:\n {2}# compare the default.*\n {2}palimpsest plan session\.jsonl --window 128000/,
    );
    expect(code).toBe(0);
  });
});

describe('policies', () => {
  const namesOf = (flags: Parameters<typeof policiesFromFlags>[0]) =>
    policiesFromFlags(flags).map(({ name }) => name);

  test('without flags: no compaction, the default, economic, each preset once', () => {
    const names = namesOf({});
    expect(names.slice(0, 3)).toEqual([baseline, 'default', 'economic']);
    expect(names.slice(3).every((name) => presetNames.some((preset) => preset === name))).toBe(true);
    expect(names).toContain('langchain');
    expect(names.filter((name) => name === 'smart-agent' || name === 'hybrid')).toHaveLength(1);
  });

  test('names: given, from the file, or numbered; never twice', () => {
    const file = path.join(folder, 'tight.json');
    const policy = [
      'small={"trigger":{"tokens":5000}}',
      '{"trigger":{"tokens":6000}}',
      file,
      `small=${file}`,
      'default={}',
    ];
    expect(namesOf({ preset: 'none', policy }).slice(3)).toEqual([
      'small',
      'policy 2',
      'tight',
      'small 2',
      'default 2',
    ]);
  });

  test('the window applies to all policies, prices to those without prices', () => {
    const own = '{"prices":{"input":7}}';
    const all = policiesFromFlags({
      window: '64,000',
      prices: 'input=3,output=15',
      preset: 'adk',
      policy: [own],
    });
    expect(all.map(({ input }) => input.contextWindow)).toEqual(all.map(() => 64_000));
    expect(all.map(({ input }) => input.prices?.input)).toEqual([3, 3, 3, 3, 7]);
  });

  test('a policy that is impossible at this window is left out with the reason', () => {
    const leftOut: string[] = [];
    const all = policiesFromFlags({ window: '4,000', prices: '3' }, (name, why) =>
      leftOut.push(`${name}: ${why}`),
    );
    expect(all[0]!.name).toBe(baseline);
    expect(all.length + leftOut.length).toBe(policiesFromFlags({}).length);
    expect(leftOut.length).toBeGreaterThan(0);
  });
});

describe('the output', () => {
  test('a narrow terminal gets fewer columns and their names; a very narrow one gets a paragraph per policy', async () => {
    const rows = [{ name: 'default', rehearsal: await rehearse(sampleMessages, small) }];
    const wide = planTable(rows);
    expect(wide).toMatch(/│ default │ 12,600 \/ 16,000 │ +\d× │ 2–/);
    const narrow = planTable(rows, wide.indexOf('\n') - 1);
    expect(narrow).toMatch(/│ default │ 12,600[\s\S]*Columns omitted to fit the width: repeats/);
    expect(narrow.split('\n').every((line) => line.length < wide.indexOf('\n'))).toBe(true);
    expect(planTable(rows, 40)).toMatch(
      /^default\n {2}at \/ window 12,600 \/ 16,000\n {2}\d compactions\n {2}cuts 2–/,
    );
  });

  test('cuts are shown at their positions, for any messages', async () => {
    const messages = talk(60).map((message, index) =>
      index % 5 === 0 ? { ...message, content: `\u0000\uD83E ${'🦊'.repeat(300)}` } : message,
    );
    const rehearsal = await rehearse(messages, { trigger: { tokens: 3_000 } });
    const lines = cutLines(messages, { name: 'tight', rehearsal });
    for (const { throughSeq } of rehearsal.compactions)
      expect(lines.some((line) => line.startsWith(`  ✂ ${String(throughSeq).padStart(5)}  `))).toBe(true);
    expect(lines.every((line) => Array.from(line).length < 160)).toBe(true);
  });
});
