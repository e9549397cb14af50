/** Old sessions are stored exactly once, despite failures of the process, the database or the files. */
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import pg, { type Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { importSessions } from '../../../src/import/importer.js';
import type { ImportOptions, ImportReport } from '../../../src/import/report.js';
import { querySource } from '../../../src/import/rows.js';
import { fileSources, type Source } from '../../../src/import/sources.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { replayed, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
let folder: string;
let tenants = 0;
let tenant: string;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 12 });
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

beforeEach(() => {
  tenant = `tenant-${++tenants}`;
  folder = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-import-'));
  return () => rmSync(folder, { recursive: true, force: true });
});

const line = (id: string, messages: unknown = talk(4)): string => JSON.stringify({ id, messages });

function put(name: string, content: string | Buffer): string {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, content);
  return file;
}

async function run(inputs: string[] | Source[], options: Partial<ImportOptions> = {}) {
  const reports: ImportReport[] = [];
  const sources =
    typeof inputs[0] === 'string' ? await fileSources(inputs as string[]) : (inputs as Source[]);
  const totals = await importSessions(pool, sources, {
    tenant,
    onReport: (report) => void reports.push(report),
    ...options,
  });
  reports.sort((a, b) => (a.source === b.source ? a.line - b.line : a.source < b.source ? -1 : 1));
  return { totals, reports, statuses: reports.map(({ session, status }) => `${session}: ${status}`) };
}

const stored = async (session: string): Promise<unknown[]> =>
  (await replayed(pool, { tenant, session })).map(({ message }) => message);

const sessionCount = async (): Promise<number> => {
  const text = 'select count(*)::int as count from palimpsest.sessions where tenant_id = $1';
  return (await pool.query<{ count: number }>(text, [tenant])).rows[0]!.count;
};

describe('an import', () => {
  test('divides messages into turns of the allowed size, and recognises them again', async () => {
    const messages = Array.from({ length: 10_003 }, (_, index) => ({
      role: 'user',
      content: `note ${index}`,
    }));
    const file = put('long.jsonl', line('long', messages));
    expect((await run([file])).statuses).toEqual(['long: stored']);
    expect(await stored('long')).toEqual(messages);
    const turns = await pool.query<{ count: number }>(
      'select count(*)::int as count from palimpsest.turns where tenant_id = $1',
      [tenant],
    );
    expect(turns.rows[0]!.count).toBe(2);
    expect((await run([file])).statuses).toEqual(['long: present']);
  });

  test('stores each session exactly, in turns, closed', async () => {
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'café \u2028 😀 \u0000', extra: { kept: [1.5, null] } },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'a', content: '' },
      { role: 'assistant', content: 'done' },
    ];
    const { totals, reports } = await run([put('a.jsonl', `${line('one', messages)}\n${line('two')}\n`)]);
    expect(totals).toMatchObject({ stored: 2, refused: 0, messages: 9, added: 9 });
    expect(reports[0]).toMatchObject({ session: 'one', line: 1, format: 'openai-chat', messages: 5 });
    expect(await stored('one')).toEqual(messages);
    const row = await loadSession(pool, { tenant, session: 'one' });
    expect(row.turns).toBe(3);
    expect(row.closedAt).not.toBeNull();
  });

  test('run again finds all sessions present, and adds the messages appended to the files since', async () => {
    const file = put('a.jsonl', `${line('one', talk(4))}\n${line('two', talk(2))}`);
    await run([file]);
    expect((await run([file])).totals).toMatchObject({ stored: 0, present: 2, added: 0 });
    put('a.jsonl', `${line('one', talk(7))}\n${line('two', talk(2))}`);
    const again = await run([file]);
    expect(again.statuses).toEqual(['one: extended', 'two: present']);
    expect(again.totals.added).toBe(3);
    expect(await stored('one')).toEqual(talk(7));
  });

  test('continues after an interruption, and closes the sessions that were left open', async () => {
    const file = put('a.jsonl', Array.from({ length: 30 }, (_, n) => line(`s-${n}`, talk(6 + n))).join('\n'));
    const controller = new AbortController();
    let reports = 0;
    const interrupted = run([file], {
      signal: controller.signal,
      onReport: () => {
        if (++reports === 9) controller.abort(new Error('interrupted'));
      },
    });
    await expect(interrupted).rejects.toThrow('interrupted');
    const before = await sessionCount();
    expect(before).toBeGreaterThanOrEqual(9);
    expect(before).toBeLessThan(30);
    // One that was written, but not closed any more.
    await run([put('left.json', JSON.stringify(talk(4, 3)))], { keepOpen: true });
    const { totals } = await run([folder]);
    expect(totals).toMatchObject({ refused: 0, duplicate: 0 });
    expect(totals.stored + totals.extended + totals.present).toBe(31);
    for (let n = 0; n < 30; n++) expect(await stored(`s-${n}`)).toEqual(talk(6 + n));
    const open = `select session_id from palimpsest.sessions where tenant_id = $1 and closed_at is null`;
    expect((await pool.query(open, [tenant])).rows).toEqual([]);
  });

  test('does not close a session that has continued since', async () => {
    const file = put('a.jsonl', `${line('one')}\n${line('two', talk(3))}`);
    await run([file]);
    const turn = { tenant, session: 'one', turnId: 'live', messages: [{ role: 'user', content: 'more' }] };
    await appendTurn(pool, turn);
    expect((await run([file])).totals).toMatchObject({ present: 2 });
    expect((await loadSession(pool, { tenant, session: 'one' })).closedAt).toBeNull();
  });

  test('run twice concurrently stores everything once', async () => {
    const sessions = Array.from({ length: 40 }, (_, n) => line(`s-${n}`, talk(12 + n)));
    for (const part of [0, 1]) put(`${part}.jsonl`, sessions.filter((_, n) => n % 2 === part).join('\n'));
    const [one, other] = await Promise.all([run([folder]), run([folder])]);
    expect([one.totals.refused, other.totals.refused]).toEqual([0, 0]);
    expect(one.totals.added + other.totals.added).toBe(one.totals.messages);
    for (let n = 0; n < 40; n++) expect(await stored(`s-${n}`)).toEqual(talk(12 + n));
  });

  test('recognises the same messages under another id, unless they are to be kept', async () => {
    const file = put('a.jsonl', ['one', 'two', 'one'].map((id) => line(id)).join('\n'));
    const first = await run([file]);
    expect(first.statuses).toEqual(['one: stored', 'two: duplicate', 'one: present']);
    expect(first.reports[1]).toMatchObject({ duplicateOf: 'one', added: 0 });
    expect((await run([file])).statuses).toEqual(['one: present', 'two: duplicate', 'one: present']);
    expect((await run([file], { keepDuplicates: true })).statuses[1]).toBe('two: stored');
  });

  test('counts no session as a duplicate of a refused one', async () => {
    await run([put('before.jsonl', `${line('taken', talk(3, 5))}\n`)]);
    const file = put('a.jsonl', ['taken', 'two', 'three'].map((id) => line(id)).join('\n'));
    expect((await run([file])).statuses).toEqual(['taken: refused', 'two: stored', 'three: duplicate']);
  });

  test('keeps the first of two contents under one id, and names the message at which the other differs', async () => {
    const other = [...talk(2), { role: 'user', content: 'something else' }];
    const { reports } = await run([put('a.jsonl', `${line('one')}\n${line('one', other)}`)]);
    expect(reports[1]).toMatchObject({
      status: 'refused',
      error: {
        type: 'Input.Invalid',
        path: 'messages[2]',
        message: expect.stringContaining('a different message 3') as string,
      },
    });
    expect(await stored('one')).toEqual(talk(4));
    const prefixed = await run([put('b.jsonl', line('one', other))], { prefix: 'old-' });
    expect(prefixed.statuses).toEqual(['old-one: stored']);
  });

  test("separates agents' sessions with the same id, and recognises them again", async () => {
    const cline = (...texts: string[]) =>
      JSON.stringify({
        ...{ version: 1, sessionId: 'task_1', system_prompt: '' },
        messages: texts.map((content) => ({ role: 'user', content, ts: 1 })),
      });
    const response = (text: string) =>
      JSON.stringify({
        ...{ object: 'response', id: 'resp_1' },
        output: [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] }],
      });
    const trajectory = (content: string) =>
      JSON.stringify({ environment: 'main', history: [{ role: 'user', content, agent: 'main' }] });
    put('task/compacted.json', cline('summary'));
    put('task/grown.json', cline('one', 'two', 'three'));
    put('task/messages.json', cline('one', 'two'));
    put('runs/a/a.traj', trajectory('a'));
    put('runs/b/b.traj', trajectory('b'));
    put('answers.jsonl', `${response('x')}\n${response('y')}\n`);
    const expected = [
      ['resp_1', 1],
      ['resp_1~answers#2', 1],
      ['runs/a/a', 1],
      ['runs/b/b', 1],
      ['task_1', 1],
      ['task_1~task/grown', 3],
      ['task_1~task/messages', 2],
    ] as const;
    const first = await run([folder], { concurrency: 3 });
    expect(first.statuses).toEqual(expected.map(([session]) => `${session}: stored`));
    for (const [session, messages] of expected) expect(await stored(session)).toHaveLength(messages);
    const again = await run([folder]);
    expect(again.statuses).toEqual(expected.map(([session]) => `${session}: present`));
    const alone = await run([path.join(folder, 'task/grown.json')]);
    expect(alone.statuses).toEqual(['task_1: refused']);
    expect(alone.reports[0]!.error).toMatchObject({
      path: 'messages[0]',
      hint: expect.stringContaining('--prefix') as string,
    });
  });

  test('names the line of a log and the field of an error', async () => {
    const item = (payload: object) => JSON.stringify({ timestamp: 't', type: 'response_item', payload });
    const lines = [
      JSON.stringify({ timestamp: 't', type: 'session_meta', payload: { id: 's' } }),
      item({ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] }),
      '',
      item({ type: 'function_call', call_id: 'a', name: '', arguments: '{}' }),
    ];
    const { reports } = await run([put('rollout.jsonl', lines.join('\n'))]);
    expect(reports).toEqual([
      expect.objectContaining({
        ...{ source: path.join(folder, 'rollout.jsonl'), line: 4, status: 'refused' },
        error: {
          type: 'Input.Invalid',
          message: 'Line 4: payload.name must not be empty.',
          path: 'payload.name',
          hint: 'Every call must name its tool.',
        },
      }),
    ]);
    const request = {
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: [{ type: 'tool_result' }] }],
    };
    const inRequest = await run([put('request.json', JSON.stringify(request))]);
    expect(inRequest.reports[0]!.error).toMatchObject({ path: 'messages[0].content[0].tool_use_id' });
  });

  test('refuses malformed sessions with line and reason, and stores the others', async () => {
    const file = put(
      'a.jsonl',
      [
        '{"id":"cut off","messages":[{"role":"us',
        line('good'),
        line('a\u0000b'),
        line('x'.repeat(300)),
        line('no role', [{ content: 'x' }]),
        line('empty', []),
        '{"id":"big","messages":[{"role":"user","content":"x","n":9007199254740993}]}',
        line('\ud800'),
        '[]',
        'null',
        line('last', talk(2)),
      ].join('\r\n'),
    );
    const { reports, totals } = await run([file]);
    expect(totals).toMatchObject({ stored: 2, refused: 9 });
    expect(reports.filter(({ status }) => status === 'stored').map(({ line }) => line)).toEqual([2, 11]);
    const reasons = reports.flatMap(({ line, error }) =>
      error ? [`${line} ${error.type} ${error.message}`] : [],
    );
    expect(reasons).toEqual([
      expect.stringMatching(/^1 Input.Invalid Line 1, column 37: the string is not closed/),
      expect.stringMatching(/^3 Input.Invalid session contains a NUL/),
      expect.stringMatching(/^4 Input.Invalid session takes 300 bytes/),
      expect.stringMatching(/^5 Input.Invalid Line 5: messages\[0\].role must be/),
      expect.stringMatching(/^6 Input.Invalid Line 6: The session has no message/),
      expect.stringMatching(/^7 Input.Invalid Line 7, column 58: the number 9007199254740993 cannot be kept/),
      expect.stringMatching(/^8 Input.Invalid session contains half of a surrogate pair/),
      expect.stringMatching(/^9 Input.Invalid /),
      expect.stringMatching(/^10 Input.Invalid Line 10: /),
    ]);
  });

  test('refuses a history with one message per line as a whole if any line is broken', async () => {
    const lines = talk(5).map((message) => JSON.stringify(message));
    for (const broken of [0, 2, 4]) {
      const file = put(
        `${broken}.jsonl`,
        lines.map((text, n) => (n === broken ? text.slice(0, -9) : text)).join('\n'),
      );
      const { reports } = await run([file]);
      expect(reports).toMatchObject([{ session: `${broken}`, status: 'refused' }]);
      expect(reports[0]?.error?.message).toMatch(new RegExp(`^Line ${broken + 1}, column`));
    }
    expect(await sessionCount()).toBe(0);
  });

  test('selects files by their ending, names sessions by their path, and reports unreadable files', async () => {
    put('a/chat.json', JSON.stringify(talk(2, 1)));
    put('b/chat.json', JSON.stringify({ messages: talk(2, 2) }));
    put('b/zipped.jsonl.gz', gzipSync(`${line('zipped', talk(2, 3))}\n${line('zipped too', talk(2, 4))}`));
    put('bom.json', `\uFEFF${JSON.stringify(talk(2, 5))}`);
    put('array.json', JSON.stringify([{ id: 'x', messages: talk(2, 6) }, { messages: talk(2, 7) }], null, 2));
    put('empty.jsonl', '');
    put('latin1.json', Buffer.from([0x5b, 0x22, 0xe9, 0x22, 0x5d]));
    put('notes.md', 'not a transcript');
    put('.hidden/chat.json', 'not looked at');
    symlinkSync(path.join(folder, 'nowhere'), path.join(folder, 'dangling.json'));
    const { statuses, reports } = await run([folder]);
    expect(statuses.sort()).toEqual(
      [
        ...['a/chat', 'array#2', 'b/chat', 'bom', 'x', 'zipped', 'zipped too'].map((id) => `${id}: stored`),
        ...['dangling', 'empty', 'latin1'].map((id) => `${id}: refused`),
      ].sort(),
    );
    const reason = (id: string) => reports.find(({ session }) => session === id)?.error?.message;
    expect(reason('dangling')).toContain('ENOENT');
    expect(reason('empty')).toBe('The input is empty.');
    expect(reason('latin1')).toBe('The text is not valid UTF-8.');
    await expect(fileSources([path.join(folder, 'absent')])).rejects.toMatchObject({ type: 'Input.Invalid' });
    await expect(fileSources([path.join(folder, '.hidden', '..', 'nothing')])).rejects.toThrow(
      'does not exist',
    );
  });

  test('stores the complete sessions before the damage of a compressed file', async () => {
    const lines = Array.from({ length: 400 }, (_, n) =>
      line(`s-${n}`, [
        { role: 'user', content: createHash('sha256').update(`${n}`).digest('hex').repeat(20) },
      ]),
    );
    const whole = gzipSync(lines.join('\n'));
    const damaged = Buffer.from(whole);
    damaged.fill(0xff, Math.floor(whole.length * 0.9), Math.floor(whole.length * 0.9) + 40);
    for (const [name, bytes] of [
      ['damaged', damaged],
      ['cut', whole.subarray(0, Math.floor(whole.length * 0.9))],
    ] as const) {
      const { totals, reports } = await run([put(`${name}.jsonl.gz`, bytes)], {
        prefix: `${name}-`,
        keepDuplicates: true,
      });
      expect(totals.stored).toBeGreaterThan(50);
      expect(totals.refused).toBeGreaterThanOrEqual(1);
      expect(reports.flatMap(({ error }) => error?.message ?? []).at(-1)).toContain(
        'The gzip data is damaged or cut off',
      );
    }
  });

  test('refuses and skips sessions over the size limit', async () => {
    const file = put('a.jsonl', [line('a', talk(2)), line('big', talk(400)), line('c', talk(3))].join('\n'));
    const { statuses, reports } = await run([file], { longestSession: 20_000 });
    expect(statuses).toEqual(['a: stored', 'a#2: refused', 'c: stored']);
    expect(reports[1]?.error).toMatchObject({
      message: expect.stringContaining('longer than the import allows') as string,
    });
  });

  test('checks all sessions and stores nothing in a dry run', async () => {
    const { totals } = await run([put('a.jsonl', `${line('a')}\n${line('b', [])}\n${line('c')}`)], {
      dryRun: true,
    });
    expect(totals).toMatchObject({ stored: 1, duplicate: 1, refused: 1, added: 4 });
    expect(await sessionCount()).toBe(0);
  });

  test('gives new sessions a policy, and does not change that of existing ones', async () => {
    const file = put('a.json', line('a', talk(2)));
    await run([file], { policy: { contextWindow: 9_000 } });
    put('a.json', line('a', talk(5)));
    const { statuses } = await run([file], { policy: { contextWindow: 12_000 } });
    expect(statuses).toEqual(['a: extended']);
    expect((await loadSession(pool, { tenant, session: 'a' })).policy.session).toMatchObject({
      contextWindow: 9_000,
    });
  });

  test('stops when the database goes away, and later continues', async () => {
    const own = await createDatabase();
    const ownPool = openPool(own.url, { max: 8 });
    const file = put('a.jsonl', Array.from({ length: 60 }, (_, n) => line(`s-${n}`, talk(5 + n))).join('\n'));
    const sources = await fileSources([file]);
    let reports = 0;
    const cut = importSessions(ownPool, sources, {
      tenant,
      onReport: () => {
        if (++reports === 5) void pool.query(killAll, [new URL(own.url).pathname.slice(1)]);
      },
    });
    await expect(cut).rejects.toMatchObject({ type: 'Store.Unavailable' });
    const totals = await importSessions(ownPool, sources, { tenant });
    expect(totals).toMatchObject({ refused: 0, duplicate: 0 });
    expect(totals.present).toBeGreaterThan(0);
    for (let n = 0; n < 60; n++)
      expect((await replayed(ownPool, { tenant, session: `s-${n}` })).map(({ message }) => message)).toEqual(
        talk(5 + n),
      );
    await ownPool.end();
    await own.drop();
  });
});

const killAll = 'select pg_terminate_backend(pid) from pg_stat_activity where datname = $1';

describe('a query', () => {
  let source: pg.Client;
  beforeAll(async () => {
    source = new pg.Client({ connectionString: database.ownerUrl });
    await source.connect();
    await source.query(
      `create table public.old (id int, s text, position int, as_json json, as_jsonb jsonb, as_text text)`,
    );
    const insert = 'insert into public.old values ($1, $2, $3, $4::text::json, $4::text::jsonb, $4)';
    for (const [n, message] of talk(6).entries())
      await source.query(insert, [n, n < 4 ? 'first' : 'second', n, JSON.stringify(message)]);
  });
  afterAll(() => source.end());

  const query = (text: string, options: Partial<ImportOptions> = {}) =>
    run([querySource(database.ownerUrl, text)], options);

  test.each(['as_json', 'as_jsonb', 'as_text'])('returns one message per row (%s)', async (column) => {
    const { reports } = await query(
      `select s as id, ${column} as message from public.old order by s, position`,
    );
    expect(reports).toMatchObject([
      { session: 'first', status: 'stored', messages: 4, line: 1 },
      { session: 'second', status: 'stored', messages: 2, line: 5 },
    ]);
    if (column !== 'as_jsonb') expect(await stored('first')).toEqual(talk(4));
  });

  test('returns one session per row, numbers as ids; NULLs and broken rows are refused', async () => {
    const { statuses, reports } = await query(
      `select 7 as id, json_agg(as_json order by position)::text as messages from public.old
       union all select 8, null union all select null, '[]' union all select 9, '{"messages":[' union all select 10, '17'`,
    );
    expect(statuses).toEqual(['7: stored', '8: refused', 'row 3: refused', '9: refused', '10: refused']);
    expect(reports.map(({ error }) => error?.message)).toEqual([
      undefined,
      'Row 2: messages is null.',
      'Row 3: the id is null.',
      expect.stringMatching(/^Row 4: Line 1, column/),
      expect.stringMatching(/^Row 5: /),
    ]);
  });

  test('with wrong columns is refused with the expected ones, and cannot change data', async () => {
    await expect(query('select 1 as n')).rejects.toMatchObject({ type: 'Input.Invalid', path: '--query' });
    await expect(query('selec')).rejects.toMatchObject({
      type: 'Input.Invalid',
      message: expect.stringContaining('syntax error') as string,
    });
    await expect(query('delete from public.old returning s as id, as_text as message')).rejects.toMatchObject(
      {
        message: expect.stringContaining('read-only') as string,
      },
    );
    await expect(run([querySource('postgresql://127.0.0.1:1/none', 'select 1')])).rejects.toMatchObject({
      type: 'Store.Unavailable',
    });
    expect((await source.query('select 1 from public.old')).rowCount).toBe(6);
  });

  test('with separated rows of one session is refused', async () => {
    const shuffled = query(
      'select s as id, as_text as message from public.old order by position % 2, position',
    );
    await expect(shuffled).rejects.toThrow('rows of session first are not adjacent');
  });

  test('reads many rows a few at a time', async () => {
    const { totals } = await query(
      `select 'n-' || n as id, json_build_array(json_build_object('role', 'user', 'content', 'number ' || n)) as messages from generate_series(1, 230) n`,
    );
    expect(totals).toMatchObject({ stored: 230, refused: 0 });
  });
});
