/**
 * Commands on sessions for operators and scripts: their output for people and with `--json`, their exit codes, and their errors
 * for wrong input, on a real stack. `spawn` starts a separate process, once for each kind of command.
 */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cliOf, linesOf } from '../../support/cli.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let cli: ReturnType<typeof cliOf>;

beforeAll(async () => {
  stack = await startStack();
  cli = cliOf(stack);
  await fill('talk', 12);
  await stack.palimpsest.compact({ session: 'talk' });
  await fill('short', 1);
});

afterAll(() => stack?.stop());

async function fill(session: string, turns: number): Promise<void> {
  for (const [index, messages] of dialogue(turns, 100).entries())
    await stack.palimpsest.appendTurn({
      session,
      turnId: `t-${index}`,
      messages,
      ...(index === 0 ? { policy: smallPolicy } : {}),
    });
  await stack.palimpsest.settled({ session });
}

describe('commands that read', () => {
  test('sessions: one row each; with --json one object per line; a page with the start of the next', async () => {
    const { stdout, stderr, code } = await cli.spawn(['sessions']);
    expect(code).toBe(0);
    expect(stderr).toBe('');
    const [head, ...rows] = stdout.trimEnd().split('\n');
    expect(head).toMatch(/^session +format +messages +turns +tokens +budget +full +gen +updated +state$/);
    expect(rows.map((row) => row.split(/ +/)[0])).toEqual(['short', 'talk']);

    const one = await cli.run(['sessions', '--limit', '1', '--json']);
    expect(linesOf(one.stdout)).toEqual([
      expect.objectContaining({ session: 'short', messages: 2, generation: 0 }),
    ]);
    expect(one.stderr).toBe('more follow: --after "short", or --all\n');
    const rest = await cli.run(['sessions', '--after', 'short', '--json']);
    expect(linesOf(rest.stdout)).toEqual([expect.objectContaining({ session: 'talk', turns: 12 })]);

    const none = await cli.run(['sessions', '--prefix', 'nobody', '--json']);
    expect(none).toMatchObject({ code: 0, stdout: '', stderr: 'No session.\n' });
  });

  test('status: size, generations and policy on one screen; --json is the library’s status', async () => {
    const { stdout } = await cli.run(['status', 'talk']);
    expect(stdout).toMatch(/^session +talk$/m);
    expect(stdout).toMatch(/^phase +idle$/m);
    expect(stdout).toMatch(/^context +█+·+ {2}[\d,]+ of 3,500 tokens \(\d+ %\)$/m);
    expect(stdout).toMatch(/^generation +\d+; \d+ archive parts? with [\d,]+ tokens$/m);
    expect(stdout).toMatch(/^gen +when +reason +method +tokens +evicted +messages$/m);
    expect(stdout).toMatch(/^contextWindow +4000 +session$/m);
    expect(await cli.json(['status', 'talk'])).toMatchObject({ session: 'talk', messages: 24, budget: 3500 });
    const knobs = await cli.run(['status', 'short', '--knobs']);
    expect(knobs.stdout).toMatch(/^summary\.mode +"incremental" +begun$/m);
  });

  test('status warns of a window that is assumed, with the next step', async () => {
    const windowOf = async (session: string, policy: { model?: string }) => {
      const messages = [{ role: 'user' as const, content: 'Hello' }];
      await stack.palimpsest.appendTurn({ session, turnId: 't-1', messages, policy });
      const { stdout } = await cli.run(['status', session]);
      return /^window.*(?:\n .*)?/m.exec(stdout)?.[0].replaceAll(/\s+/g, ' ');
    };
    expect(await windowOf('misspelt', { model: 'gtp-4o' })).toBe(
      'window 32,768 tokens (fallback) → assumed, because the model "gtp-4o" is not known: correct it, or set contextWindow',
    );
    expect(await windowOf('unnamed', {})).toBe(
      'window 32,768 tokens (fallback) → assumed, because the policy names no model: set model or contextWindow',
    );
    expect(await windowOf('known', { model: 'gpt-4o' })).toBe('window 128,000 tokens (model)');
  });

  test('status: the window of the policy, and what it is in tokens as counted here', async () => {
    for (const [turn, messages] of dialogue(4, 400).entries()) {
      const counted =
        (await stack.palimpsest.context({ session: 'reported' }).catch(() => null))?.tokens ?? 0;
      await stack.palimpsest.appendTurn({
        ...{ session: 'reported', turnId: `t-${turn}`, messages, policy: { contextWindow: 60_000 } },
        usage: { inputTokens: Math.round(1.5 * (counted + 410)), outputTokens: 400 },
      });
    }
    const { window, calibration } = await stack.palimpsest.status({ session: 'reported' });
    expect(calibration.applied).toBeGreaterThan(1.2);
    expect(window).toEqual({
      ...{ given: 60_000, source: 'explicit' },
      tokens: Math.floor(60_000 / calibration.applied),
    });
    const { stdout } = await cli.run(['status', 'reported']);
    expect(stdout).toContain(
      `60,000 tokens (explicit); ${window.tokens.toLocaleString('en')} as counted here, where one token is ${calibration.applied.toFixed(3)} of the provider's`,
    );
  });

  test('context: one line per message; --json has the messages', async () => {
    const { stdout } = await cli.run(['context', 'talk']);
    expect(stdout).toMatch(/^seq +source +role +tokens +begins$/m);
    expect(stdout).toMatch(/^ +– +summarization +user +[\d,]+ +\S/m);
    const own = await stack.palimpsest.context({ session: 'talk' });
    expect(await cli.json(['context', 'talk', '--wait', '100ms'])).toEqual(own);
    const small = await cli.json<{ budget: number; tokens: number }>([
      'context',
      'talk',
      '--budget',
      '3,000',
    ]);
    expect(small.budget).toBe(3_000);
    const converted = await cli.json<{ format: string }>(['context', 'talk', '--format', 'anthropic']);
    expect(converted.format).toBe('anthropic');
  });

  test('replay, archive, expand and history return the originals', async () => {
    const all = linesOf<{ seq: number; message: unknown }>(
      (await cli.run(['replay', 'talk', '--json'])).stdout,
    );
    expect(all.map(({ message }) => message)).toEqual(dialogue(12, 100).flat());
    const read = await cli.run(['replay', 'talk']);
    expect(read.stdout).toMatch(/^#1 user · \d+ tokens\nRequest 1: /);

    const parts = await cli.json<{ part: number; fromSeq: number; throughSeq: number }[]>([
      'archive',
      'talk',
    ]);
    expect(parts[0]).toMatchObject({ part: 1, fromSeq: 1 });
    const table = await cli.run(['archive', 'talk']);
    expect(table.stdout).toMatch(/^part +gen +from +through +messages +tokens +bytes +sha256$/m);
    const first = linesOf((await cli.run(['archive', 'talk', '1', '--json'])).stdout);
    expect(first).toEqual(all.slice(0, parts[0]?.throughSeq));

    const page = await cli.spawn(['expand', 'talk', '--from', '3', '--limit', '2']);
    expect(page.stdout).toMatch(/^#3 user[\s\S]*^#4 assistant/m);
    expect(page.stderr).toBe('the next page: --from 5\n');
    expect(await cli.json(['expand', 'talk', '--from', '3', '--limit', '2'])).toMatchObject({ nextSeq: 5 });

    const history = await cli.run(['history', 'talk']);
    expect(history.stdout).toMatch(/^## Summarized at \d{4}-/);
    const pieces = linesOf<{ markdown: string }>((await cli.run(['history', 'talk', '--json'])).stdout);
    expect(pieces.map(({ markdown }) => markdown).join('')).toBe(history.stdout);
  });

  test('search and tool', async () => {
    const { stdout } = await cli.run(['search', 'talk', 'Request 7']);
    expect(stdout).toMatch(/^seq +date +role +tool +offset +match$/m);
    expect(stdout).toMatch(/^ *13 +[\d-]{10} +user +– +[\d,]+ +.*«/m);
    const found = await cli.json<{ hits: { seq: number }[] }>([
      'search',
      'talk',
      'Request 7',
      '--role',
      'user',
    ]);
    expect(found.hits[0]?.seq).toBe(13);
    expect(await cli.run(['search', 'talk', 'xyzzy', '--exit-code'])).toMatchObject({ code: 3 });
    expect(await cli.run(['search', 'talk', 'xyzzy'])).toMatchObject({
      code: 0,
      stderr: 'Nothing was found.\n',
    });

    const exact = await cli.spawn(['tool', 'talk', '--seq', '13']);
    expect(exact.stdout).toBe(dialogue(12, 100)[6]?.[0]?.content);
    expect(exact.stderr).toMatch(/^message 13 \(user\), in archive part \d+, characters 0–/);
    expect(await cli.json(['tool', 'talk', '--seq', '13', '--limit', '10'])).toMatchObject({
      nextOffset: 10,
    });
  });

  test('timeline: the chart of blocks, the compactions, and the same as SVG and JSON', async () => {
    const { stdout } = await cli.run(['timeline', 'talk']);
    expect(stdout).toMatch(/^talk: 12 turns, [\d,]+ tokens, \d+ compactions?; context/);
    expect(stdout).toMatch(/[▁▂▃▄▅▆▇█]/);
    expect(stdout).toMatch(/^gen +turn +when +reason +method +before +after +saved +evicted +part$/m);
    const found = await cli.json<{
      turns: { contextTokens: number; logTokens: number }[];
      tokens: number;
      compactions: unknown[];
    }>(['timeline', 'talk']);
    expect(found.turns).toHaveLength(12);
    expect(found.compactions.length).toBeGreaterThan(0);
    const status = await stack.palimpsest.status({ session: 'talk' });
    expect(found.tokens).toBe(status.tokens);
  });

  test('timeline: a note says that contexts above the budget are shortened when they are read', async () => {
    // Without a worker nothing is compacted.
    const alone = await startStack({ worker: false });
    const session = 'above';
    for (const [index, messages] of dialogue(2, 3_000).entries())
      await alone.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
    const file = path.join(mkdtempSync(path.join(tmpdir(), 'timeline-')), 'chart.svg');
    const { stdout } = await cliOf(alone).run(['timeline', session, '--svg', file]);
    await alone.stop();
    const said =
      'turns that left the context above the budget: 2 (first: turn 1); a read at such a time returned a context';
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain(said);
    expect(readFileSync(file, 'utf8')).toContain(said);
    expect((await cli.run(['timeline', 'short'])).stdout).not.toContain('above the budget');
  });
});

describe('commands that change', () => {
  test('compact: the outcome, or a note that there was nothing to do', async () => {
    await fill('by-hand', 6);
    const { stdout, code } = await cli.run(['compact', 'by-hand']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^generation +\d+ \(manual, model\)$/m);
    expect(stdout).toMatch(/^context +[\d,]+ → [\d,]+ tokens, \d+ % less$/m);
    expect(await cli.json(['compact', 'short'])).toBeNull();
    const nothing = await cli.run(['compact', 'short', '--exit-code']);
    expect(nothing).toMatchObject({ code: 3, stdout: 'short: nothing to do, the context is unchanged.\n' });
    expect(await cli.json(['resummarize', 'by-hand'])).toBeNull();
  });

  test('resummarize says that no model could be asked', async () => {
    const session = 'by-rule';
    const policy = { ...smallPolicy, summary: { method: 'extractive' as const } };
    for (const [index, messages] of dialogue(8, 100).entries())
      await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
    await stack.palimpsest.compact({ session });
    const { stdout, code } = await cli.run(['resummarize', session]);
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain('by-rule: the extraction rules wrote the summary');
    expect(code).toBe(0);
    expect(await cli.run(['resummarize', session, '--exit-code'])).toMatchObject({ code: 3 });
    expect(await cli.json(['resummarize', session])).toBeNull();
    expect((await cli.run(['resummarize', 'short'])).stdout).toContain('nothing to do');
  });

  test('restore and fork', async () => {
    await fill('undo', 8);
    await stack.palimpsest.compact({ session: 'undo' });
    const before = await stack.palimpsest.status({ session: 'undo' });
    const restored = await cli.json(['restore', 'undo', '0']);
    expect(restored).toMatchObject({ reason: 'restore', generation: before.generation + 1 });
    const forked = await cli.spawn(['fork', 'undo', '--through', '4', '--to', 'undo-b']);
    expect(forked.stdout).toMatch(/^undo-b was created: 4 messages, generation \d+\.\n$/);
    expect(await cli.json(['fork', 'undo', '--through', '4', '--to', 'undo-b'])).toMatchObject({
      repeated: true,
    });
  });

  test('pause, resume, close', async () => {
    await fill('held', 1);
    expect(await cli.json(['pause', 'held'])).toEqual({ session: 'held', paused: true });
    expect((await stack.palimpsest.status({ session: 'held' })).paused).toBe(true);
    expect((await cli.run(['status', 'held'])).stdout).toMatch(/^paused +no compaction begins/m);
    expect((await cli.spawn(['resume', 'held'])).stdout).toBe('held is resumed.\n');
    expect((await stack.palimpsest.status({ session: 'held' })).paused).toBe(false);
    expect(await cli.json(['close', 'held'])).toEqual({ session: 'held', closed: true });
  });

  test('policy and pins', async () => {
    await fill('ruled', 1);
    const set = await cli.json(['policy', 'set', 'ruled', '--window', '9,000', '--trigger', '0.5']);
    expect(set).toEqual({ policyVersion: 2 });
    expect(await cli.json(['policy', 'get', 'ruled'])).toEqual({
      policy: { contextWindow: 9_000, trigger: [{ fraction: 0.5 }] },
      policyVersion: 2,
    });
    const wrong = await cli.run(['policy', 'set', 'ruled', '--policy', '{"windows":1}', '--json']);
    expect(wrong.code).toBe(2);
    expect(linesOf(wrong.stdout)).toMatchObject([
      { error: { type: 'Input.Invalid', path: 'policy.windows' } },
    ]);

    await cli.run(['pins', 'add', 'ruled', 'Never refund.', '--seq', '1']);
    const listed = await cli.spawn(['pins', 'list', 'ruled']);
    expect(listed.stdout).toBe('1  Never refund.\n2  {"seq":1}\n');
    expect(await cli.json(['pins', 'remove', 'ruled', '1'])).toEqual({ pins: [{ seq: 1 }] });
    expect(await cli.run(['pins', 'remove', 'ruled', '7'])).toMatchObject({ code: 2 });

    expect(await cli.json(['policy', 'get'])).toMatchObject({ policy: {} });
    await cli.spawn(['policy', 'set', '--policy', '{"target":0.5}']);
    expect(await cli.json(['policy', 'get'])).toMatchObject({ policy: { target: 0.5 } });
    await cli.run(['policy', 'set', '--policy', '{}']);
  });

  test('erase asks, and without a terminal requires --yes', async () => {
    await fill('gone', 1);
    const asked = await cli.run(['erase', 'gone']);
    expect(asked.code).toBe(2);
    expect(asked.stderr).toMatch(/was not erased[\s\S]*Add --yes/);
    expect(await cli.json(['erase', 'gone', '--yes'])).toEqual({
      ...{ session: 'gone', messages: 2, generations: 0, digests: 0, forks: 0 },
      ...{ executions: 1, remaining: 0 },
    });
    expect(await cli.run(['status', 'gone'])).toMatchObject({ code: 1 });
  });

  test('erase-messages erases what --seq names or --search finds, after a question', async () => {
    await fill('holed', 3);
    await fill('holed too', 2);
    await cli.run(['fork', 'holed', '--through', '3', '--to', 'shares']);
    const asked = await cli.run(['erase-messages', 'holed', '--seq', '3']);
    expect(asked.code).toBe(2);
    expect(asked.stderr).toMatch(/was not erased[\s\S]*Add --yes/);
    for (const wrong of [
      ['holed'],
      ['holed', '--seq', '1', '--search', 'x'],
      ['--seq', '1'],
      ['--search', 'x'],
    ])
      expect(await cli.run(['erase-messages', ...wrong, '--yes'])).toMatchObject({ code: 2 });
    expect(await cli.run(['erase-messages', 'holed', '--seq', '4-2', '--yes'])).toMatchObject({ code: 2 });
    const dry = ['erase-messages', 'holed', '--seq', '3', '--seq', '3-4', '--dry-run'];
    expect(await cli.run(dry)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /holed: 2 messages would be erased; 0 generations rewritten[^]*still in shares/,
      ) as unknown,
    });
    expect(await cli.json(['erase-messages', 'holed', '--seq', '3', '--forks', '--yes'])).toMatchObject({
      erased: [
        {
          session: 'holed',
          messages: [{ seq: 3 }],
          already: [],
          remaining: [],
          forks: [{ session: 'shares' }],
        },
      ],
      left: [],
    });
    const everywhere = [
      'erase-messages',
      '--all-sessions',
      '--search',
      'request 1:',
      '--reason',
      'asked',
      '--yes',
    ];
    const { erased } = await cli.json<{ erased: { session: string; messages: object[] }[] }>([...everywhere]);
    const of = (session: string) => erased.find((one) => one.session === session)?.messages;
    expect([of('holed'), of('shares'), of('holed too')]).toEqual(
      Array(3).fill([expect.objectContaining({ seq: 1, reason: 'asked' })]),
    );
    expect(await cli.json([...everywhere])).toEqual({ erased: [], left: [] });
    expect(await cli.json(['verify', 'holed', 'shares', 'holed too'])).toMatchObject({
      erased: 5,
      damaged: 0,
      invalid: 0,
    });
    expect(await cli.run(['verify', 'holed'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/6 messages, 2 of them erased, in/) as unknown,
    });
    // A policy with the text is named, and the command fails.
    await cli.run(['pins', 'add', 'holed', 'Answer 2']);
    expect(await cli.run(['erase-messages', 'holed', '--search', 'Answer 2', '--yes'])).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/the text stays in policy/) as unknown,
    });
  });

  test('erase --forks also erases the forks, and counts them', async () => {
    await fill('origin', 2);
    await cli.run(['fork', 'origin', '--through', '2', '--to', 'branch']);
    await cli.run(['fork', 'branch', '--through', '1', '--to', 'twig']);
    expect(await cli.run(['erase', 'origin', '--forks', '--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        /origin is erased with 2 forks: 7 messages, 0 generations, 0 digests, 1 execution\./,
      ) as unknown,
    });
    for (const session of ['branch', 'twig'])
      expect(await cli.run(['status', session])).toMatchObject({ code: 1 });
  });
});

describe.concurrent('wrong input', () => {
  test.each([
    [['status', 'nobody']],
    [['context', 'nobody']],
    [['replay', 'nobody']],
    [['compact', 'nobody']],
    [['search', 'nobody', 'x']],
    [['archive', 'nobody']],
    [['history', 'nobody']],
    [['export', 'nobody']],
    [['timeline', 'nobody']],
    [['policy', 'get', 'nobody']],
    [['erase', 'nobody', '--yes']],
    [['verify', 'nobody']],
  ])('%j: an unknown session is exit 1 with type and hint, in JSON too', async (args) => {
    const { code, stdout, stderr } = await cli.spawn([...args, '--json']);
    expect(code).toBe(1);
    expect(linesOf(stdout)).toEqual([
      {
        error: {
          type: 'Store.SessionNotFound',
          path: 'session',
          message: expect.stringContaining('nobody') as string,
          hint: expect.stringMatching(/palimpsest.* sessions` lists the sessions of the tenant/) as string,
        },
      },
    ]);
    expect(stderr).toMatch(/^Store\.SessionNotFound: .*nobody\n {2}`.*palimpsest.* sessions` lists/);
  });

  test.each([
    [['sessions', '--limit', 'many'], '--limit'],
    [['context', 'talk', '--budget', '0'], '--budget'],
    [['context', 'talk', '--wait', 'soon'], '--wait'],
    [['context', 'talk', '--format', 'morse'], 'format'],
    [['restore', 'talk', 'first'], 'generation'],
    [['restore', 'talk', '99'], 'generation'],
    [['archive', 'talk', '0'], 'part'],
    [['expand', 'talk', '--from', '999'], 'fromSeq'],
    [['search', 'talk', 'x', '--role', 'robot'], '--role'],
    [['tool', 'talk'], '--call'],
    [['fork', 'talk', '--through', '999', '--to', 'new'], 'throughSeq'],
    [['policy', 'set', 'talk'], '--policy'],
    [['timeline', 'talk', '--svg', '/nowhere/at/all.svg'], '--svg'],
    [['sessions', '--url', 'ftp://x'], '--url'],
  ])('%j: exit 2, and the path is %s', async (args, at) => {
    // Over HTTP there is no --tenant.
    const { code, stdout } = await cli.run([...args, '--json']);
    expect(linesOf(stdout)).toMatchObject([{ error: { type: 'Input.Invalid', path: at } }]);
    expect(code).toBe(2);
  });

  test.each([
    [['stauts', 'talk'], /unknown command 'stauts'\n\(Did you mean status\?\)/],
    [['status', 'talk', '--knob'], /unknown option '--knob'\n\(Did you mean --knobs\?\)/],
    [['status'], /missing required argument 'session'/],
    [['fork', 'talk'], /required option '--through <seq>' not specified/],
    [['backfill', 'begin'], /unknown command 'begin'/],
  ])('%j: exit 2', async (args, message) => {
    const { code, stderr } = await cli.run(args);
    expect(stderr).toMatch(message);
    expect(code).toBe(2);
    const json = await cli.run([...args, '--json']);
    expect(linesOf(json.stdout)).toMatchObject([{ error: { type: 'Input.Invalid' } }]);
  });
});
