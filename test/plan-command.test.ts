/**
 * People compare policies before they adopt one. What `palimpsest plan` says must be what the service would do, must
 * hold for recorded sessions as they are, and must leave nothing behind: no server, no data folder, no changed file.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CacheMeter } from '../src/cli/plan-cache.js';
import { rememberingCounters } from '../src/cli/plan-counter.js';
import { baseline, policiesFromFlags } from '../src/cli/plan-policies.js';
import { rehearse, type RehearsedRequest } from '../src/cli/plan-rehearsal.js';
import type { Rehearsal } from '../src/cli/plan-rehearsed.js';
import { cutLines, planTable } from '../src/cli/plan-report.js';
import { parseTranscripts } from '../src/cli/transcripts.js';
import { Conversation, type Summarizer } from '../src/compaction/index.js';
import type { ViewItem } from '../src/conversation/context.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { presetNames } from '../src/policy/presets.js';
import type { PolicyInput } from '../src/policy/schema.js';
import { readTranscripts, skipWithoutTranscripts } from './support/transcripts.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), 'plan-'));
const sample = path.join(root, 'examples', 'debugging-session.jsonl');
const sampleMessages: ChatMessage[] = readFileSync(sample, 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line) as ChatMessage);

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

function talk(rounds: number): ChatMessage[] {
  return Array.from({ length: rounds }, (_, round): ChatMessage[] => [
    {
      role: 'user',
      content: `Question ${round}: what became of order ORD-${1000 + round}? ${'It was promised for Monday. '.repeat(8)}`,
    },
    {
      role: 'assistant',
      content: `Order ORD-${1000 + round} left depot D-${round}. ${'It is on its way by rail. '.repeat(8)}`,
    },
  ]).flat();
}

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

const untouched = path.join(folder, 'data');

async function run(...args: string[]): Promise<Ended> {
  const env = {
    ...process.env,
    PALIMPSEST_DATA: untouched,
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
  };
  const child = spawn(process.execPath, ['--import', 'tsx', 'src/cli/main.ts', 'plan', ...args], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  expect(existsSync(untouched)).toBe(false);
  return { code, stdout, stderr };
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
    expect(stdout).toMatch(/No model was asked/);
    expect(readFileSync(svg, 'utf8')).toMatch(/^<svg .*<\/svg>\n$/s);
    expect(code).toBe(0);
  });

  test('--json: one object a session in the order of the input; a broken one costs only itself', async () => {
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
    [['nowhere.jsonl'], 1, /no such file: nowhere\.jsonl/],
    [[sample, '--window', 'wide'], 2, /--window must be a number of tokens/],
    [[sample, '--preset', 'adk,other'], 2, /no preset "other"[\s\S]*langchain/],
    [[sample, '--policy', 'mine={"trigger":{"fraction":2}}'], 2, /policy\.trigger\.fraction/],
    [[sample, '--policy', 'nowhere.json'], 2, /no such policy file: nowhere\.json/],
    [[sample, '--prices', 'cheap'], 2, /--prices/],
    [[sample, '--cuts', 'other'], 2, /no policy "other" among those compared/],
    [[sample, '--session', 'other'], 2, /No session "other" was read[\s\S]*debugging-session/],
    [[sample, '--svg', '/nowhere/at/all.svg'], 2, /there is no folder/],
  ])('wrong usage says what to do: %j', async (args, code, message) => {
    const ended = await run(...args);
    expect(ended.stdout + ended.stderr).toMatch(message);
    expect(ended.stderr).not.toMatch(/^ +at /m);
    expect(ended.code).toBe(code);
  });

  test('--svg draws one session, which --session chooses', async () => {
    const [day, svg] = [path.join(folder, 'day.jsonl'), path.join(folder, 'one.svg')];
    const many = await run(day, '--svg', svg);
    expect(many.stderr).toMatch(/--svg draws one session, and 2 were read\./);
    expect(many.code).toBe(2);
    expect((await run(day, '--svg', svg, '--session', 'first')).code).toBe(0);
    expect(readFileSync(svg, 'utf8')).toContain('Context of first');
  });

  test('--help teaches by example', async () => {
    const { code, stdout } = await run('--help');
    expect(stdout).toMatch(
      /--prices <spec>[\s\S]*Examples:\n {2}palimpsest plan session\.jsonl --window 128000/,
    );
    expect(code).toBe(0);
  });
});

describe('policies', () => {
  const namesOf = (flags: Parameters<typeof policiesFromFlags>[0]) =>
    policiesFromFlags(flags).map(({ name }) => name);

  test('without flags: no compaction, the default, economic, every system once', () => {
    const names = namesOf({});
    expect(names.slice(0, 3)).toEqual([baseline, 'default', 'economic']);
    expect(names.slice(3).every((name) => presetNames.some((preset) => preset === name))).toBe(true);
    expect(names).toContain('langchain');
    expect(names.filter((name) => name === 'smart-agent' || name === 'hybrid')).toHaveLength(1);
  });

  test('names: given, of the file, numbered, never twice', () => {
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

  test('the window holds for all, prices where a policy has none of its own', () => {
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

  test('what cannot be offered at this window is left out with its reason', () => {
    const leftOut: string[] = [];
    const all = policiesFromFlags({ window: '4,000', prices: '3' }, (name, why) =>
      leftOut.push(`${name}: ${why}`),
    );
    expect(all[0]!.name).toBe(baseline);
    expect(all.length + leftOut.length).toBe(policiesFromFlags({}).length);
    expect(leftOut.length).toBeGreaterThan(0);
  });
});

const small: PolicyInput = { contextWindow: 16_000 };

/** Evicted ranges follow each other, nothing is lost between them, and the rest stays. */
function checkRanges(
  messages: readonly ChatMessage[],
  { compactions, tail, evictedTokens, rawTokens }: Rehearsal,
): void {
  const cuts = compactions.filter(({ boundary }) => boundary !== null);
  for (const [index, cut] of cuts.entries()) {
    if (index > 0) expect(cut.fromSeq).toBe(cuts[index - 1]!.throughSeq + 1);
    expect(cut.throughSeq).toBeGreaterThanOrEqual(cut.fromSeq);
  }
  const leading = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const system = leading === -1 ? messages.length : leading;
  const evicted = (cuts.at(-1)?.throughSeq ?? system) - system;
  expect(cuts.reduce((sum, { evictedMessages }) => sum + evictedMessages, 0)).toBe(evicted);
  expect(tail.messages).toBe(messages.length - system - evicted);
  expect(evictedTokens + tail.tokens).toBeLessThanOrEqual(rawTokens);
}

describe('a rehearsal', () => {
  test('does what a session in memory does with the same turns', async () => {
    const rehearsal = await rehearse(sampleMessages, small);
    const conversation = new Conversation({ policy: small });
    let largest = 0;
    for (const [index, { throughSeq }] of rehearsal.turns.entries()) {
      conversation.append(sampleMessages.slice(rehearsal.turns[index - 1]?.throughSeq ?? 0, throughSeq));
      largest = Math.max(largest, conversation.context().tokens);
      while (conversation.isDue() && (await conversation.compact(null)));
    }
    const facts = conversation.generations.map(
      ({ generation, reason, throughSeq, tokensBefore, tokensAfter }) => [
        generation,
        reason,
        throughSeq,
        tokensBefore,
        tokensAfter,
      ],
    );
    expect(
      rehearsal.compactions.map(({ generation, reason, throughSeq, tokensBefore, tokensAfter }) => [
        generation,
        reason,
        throughSeq,
        tokensBefore,
        tokensAfter,
      ]),
    ).toEqual(facts);
    expect(facts.length).toBeGreaterThan(2);
    expect(rehearsal.largest).toBe(largest);
    checkRanges(sampleMessages, rehearsal);
  });

  test('without compaction the requests grow at their end: every token of the log is written once', async () => {
    const rehearsal = await rehearse(sampleMessages, { enabled: false, overhead: 5_000 });
    expect(rehearsal.compactions).toEqual([]);
    expect(rehearsal.agent.written).toBe(rehearsal.largest);
    expect(rehearsal.fits).toBe(false);
    expect(rehearsal.summarizerCost).toBe(0);
  });

  test('a summarizer that answers at length is sent what was said, and never more', async () => {
    const messages = talk(100);
    const policy: PolicyInput = { contextWindow: 16_000, summary: { integrityCheck: false } };
    // A line has about ten tokens.
    const summarize: Summarizer = (_request, { maxTokens }) =>
      [
        '## Current state',
        ...Array.from(
          { length: Math.floor(maxTokens / 11) },
          (_, n) => `- Order ORD-${1000 + n} left depot D-${n}.`,
        ),
      ].join('\n');
    const rehearsal = await rehearse(messages, policy);
    const conversation = new Conversation({ policy });
    for (const [index, { throughSeq }] of rehearsal.turns.entries()) {
      conversation.append(messages.slice(rehearsal.turns[index - 1]?.throughSeq ?? 0, throughSeq));
      while (conversation.isDue() && (await conversation.compact(summarize)));
    }
    const [first] = conversation.generations;
    const [said] = rehearsal.compactions;
    const sent = first!.calls.reduce((sum, { inputTokens }) => sum + inputTokens, 0);
    expect([first!.throughSeq, first!.calls.length]).toEqual([said!.throughSeq, said!.summarizer.calls]);
    expect(first!.calls.length).toBeGreaterThan(2);
    expect(sent).toBeLessThanOrEqual(said!.summarizer.input);
    expect(sent).toBeGreaterThan(0.8 * said!.summarizer.input);
  });

  test('no mode pays twice for what was read once', async () => {
    const messages = talk(500);
    const inputs = await Promise.all(
      (['incremental', 'full_rewrite', 'layered'] as const).map(async (mode) => {
        const { summarizer, compactions } = await rehearse(messages, {
          contextWindow: 16_000,
          summary: { mode },
        });
        return { input: summarizer.input, compactions: compactions.length };
      }),
    );
    // Reading the whole archive at each of n compactions would take about n/2 times as much.
    for (const { input, compactions } of inputs) {
      expect(compactions).toBeGreaterThan(4);
      expect(input).toBeLessThan(2 * inputs[0]!.input);
    }
  });

  test('counting once for several policies changes nothing', async () => {
    const counters = rememberingCounters();
    for (const policy of [small, { ...small, tokenizer: 'chars/4' as const }]) {
      const [alone, shared] = await Promise.all([
        rehearse(sampleMessages, policy),
        rehearse(sampleMessages, policy, { counters }),
      ]);
      expect(shared).toEqual(alone);
    }
  });

  test('what the policy cannot do is a finding with its turn', async () => {
    const messages: ChatMessage[] = [
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: 'Hello' },
      { role: 'user', content: 'x '.repeat(30_000) },
      { role: 'assistant', content: 'That is long.' },
    ];
    const rehearsal = await rehearse(messages, { contextWindow: 8_000 });
    expect(rehearsal.failures).toMatchObject([{ type: 'Budget.Unreachable', turn: 3, turns: 2 }]);
    expect(rehearsal.turns.map(({ tokens }) => tokens === null)).toEqual([false, false, true, true]);
    expect([rehearsal.fits, rehearsal.context]).toEqual([false, null]);
    expect(planTable([{ name: 'default', rehearsal }])).toMatch(
      /Budget\.Unreachable at turn 3 and 1 more turn/,
    );
  });

  test('an aborted signal ends it', async () => {
    await expect(rehearse(talk(3), {}, { signal: AbortSignal.abort(new Error('enough')) })).rejects.toThrow(
      'enough',
    );
  });
});

describe('the cache', () => {
  const item = (content: string, tokens: number): ViewItem => ({
    ...{ fromSeq: 1, throughSeq: 1, source: 'log', group: 1, role: 'user', tool: null, tokens },
    message: { role: 'user', content },
  });

  test('reads the shared prefix and writes the rest, message by message', () => {
    const meter = new CacheMeter(100);
    expect(meter.request([item('a', 10), item('b', 20)])).toMatchObject({ read: 0, written: 130, prefix: 0 });
    expect(meter.request([item('a', 10), item('b', 20), item('c', 5)])).toMatchObject({
      read: 130,
      written: 5,
      prefix: 2,
    });
    expect(meter.request([item('a', 10), item('B', 20), item('c', 5)])).toMatchObject({
      read: 110,
      written: 25,
      prefix: 1,
    });
    expect(meter.total).toEqual({ read: 240, written: 160 });
  });

  test('charges every token of every request once', () => {
    const requests = fc.array(
      fc.array(fc.record({ content: fc.constantFrom('a', 'b', 'c'), tokens: fc.constant(3) })),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(requests, fc.nat(50), (given, overhead) => {
        const meter = new CacheMeter(overhead);
        for (const one of given) meter.request(one.map(({ content, tokens }) => item(content, tokens)));
        const sent = given.reduce((sum, one) => sum + overhead + 3 * one.length, 0);
        expect(meter.total.read + meter.total.written).toBe(sent);
      }),
    );
  });
});

describe('what is printed', () => {
  test('a narrow terminal gets fewer columns and is told which; a very narrow one a paragraph a policy', async () => {
    const rows = [{ name: 'default', rehearsal: await rehearse(sampleMessages, small) }];
    const wide = planTable(rows);
    expect(wide).toMatch(/│ default │ 12,600 \/ 16,000 │ +\d× │ 2–/);
    const narrow = planTable(rows, wide.indexOf('\n') - 1);
    expect(narrow).toMatch(/│ default │ 12,600[\s\S]*For want of room without: cuts/);
    expect(narrow.split('\n').every((line) => line.length < wide.indexOf('\n'))).toBe(true);
    expect(planTable(rows, 40)).toMatch(
      /^default\n {2}at \/ window 12,600 \/ 16,000\n {2}\d compactions\n {2}cuts 2–/,
    );
  });

  test('cuts are shown where they are, however odd the messages', async () => {
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

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test(
    'every one, clean and malformed, is planned: ranges hold, requests fit, the prefix is stable',
    { timeout: 300_000 },
    async () => {
      let [sessions, compactions, between] = [0, 0, 0];
      for await (const { line, file, number } of readTranscripts()) {
        const [read] = parseTranscripts(line, `${file}#${number}`);
        if (!read || 'error' in read) throw new Error(`${file}:${number} was not read`);
        let before: RehearsedRequest | null = null;
        const request = (now: RehearsedRequest): void => {
          if (before?.generation === now.generation && now.charged.prefix < before.items.length - 1) {
            const reduced = now.items.some(({ source }) => source === 'reduced' || source === 'omitted');
            if (!reduced) throw new Error(`${read.id}: the prefix broke at turn ${now.turn}`);
          }
          before = now;
          between++;
        };
        const rehearsal = await rehearse(
          read.messages,
          { contextWindow: 24_000, trigger: { economic: true } },
          { request },
        );
        checkRanges(read.messages, rehearsal);
        if (rehearsal.failures.length === 0) expect(rehearsal.fits, read.id).toBe(true);
        sessions++;
        compactions += rehearsal.compactions.length;
      }
      expect(sessions).toBeGreaterThan(0);
      expect(between).toBeGreaterThan(sessions);
      console.log(`${sessions} sessions, ${compactions} compactions`);
    },
  );
});
