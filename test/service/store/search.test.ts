/** Search finds messages in the archive and in the tail, for any texts and queries. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { openPool } from '../../support/pool.js';
import { search } from '../../../src/store/search/search.js';
import type { SearchRequest } from '../../../src/contract/archive.js';
import { indexTexts } from '../../../src/store/search/index-texts.js';
import { parseQuery, snippetOf } from '../../../src/store/search/query.js';
import {
  runsOf,
  searchableText,
  sliceLength,
  sliceOverlap,
  slicesOf,
} from '../../../src/store/search/words.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { toolResponse } from '../../../src/store/reading/tool-response.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, countRows, newSession, sessionWith, talk } from '../../support/store.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const call = (id: string, name: string, args: unknown): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, type: 'function', function: { name, arguments: JSON.stringify(args) } }],
});

const result = (id: string, content: ChatMessage['content']): ChatMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});

const mixed: ChatMessage[] = [
  { role: 'system', content: 'You are careful.' },
  { role: 'user', content: 'Where is getUserName defined? It fails with E_CONN_42.' },
  call('c1', 'grep', { pattern: 'getUserName', where: 'src/store/pool.ts\nsrc/main.ts' }),
  result('c1', 'src/store/pool.ts:17: export function getUserName(id: string)'),
  { role: 'assistant', content: 'It is in the pool module. 日本語のテスト 🎉' },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'Look at this' },
      { type: 'image_url', image_url: { url: 'data:' } },
    ],
  },
  call('c2', 'read_file', { path: 'a_long_name.py' }),
  result('c2', 'price is 100% of 3_000 C:\\temp "quoted" it\'s\nsecond line'),
];

async function seqs(ids: SessionIds, request: SearchRequest | string): Promise<number[]> {
  const { hits } = await search(pool, ids, typeof request === 'string' ? { query: request } : request);
  return hits.map(({ seq }) => seq).sort((a, b) => a - b);
}

async function best(ids: SessionIds, query: string): Promise<number[]> {
  return (await search(pool, ids, { query })).hits.map(({ seq }) => seq);
}

describe('search by words', () => {
  it('finds identifiers whole and in parts, paths, error codes, other scripts and emoji', async () => {
    const ids = await sessionWith(pool, mixed);
    expect(await seqs(ids, 'getUserName')).toEqual([2, 3, 4]);
    expect(await seqs(ids, 'get_user_name')).toEqual([2, 3, 4]);
    expect(await seqs(ids, 'getusername')).toEqual([2, 3, 4]);
    expect(await seqs(ids, 'user')).toEqual([2, 3, 4]);
    expect(await seqs(ids, 'src/store/pool.ts')).toEqual([3, 4]);
    expect(await seqs(ids, 'pool')).toEqual([3, 4, 5]);
    expect(await seqs(ids, 'econn42')).toEqual([2]);
    expect((await best(ids, 'long name'))[0]).toBe(7);
    expect(await seqs(ids, 'テスト')).toEqual([5]);
    expect(await seqs(ids, '🎉')).toEqual([5]);
    expect(await seqs(ids, 'image')).toEqual([6]);
  });

  it('finds arguments as they read: strings unescaped, numbers digit by digit, invalid JSON unchanged', async () => {
    const broken: ChatMessage = call('c3', 'write', {});
    broken.tool_calls![0]!.function!.arguments = '{"text": "open \\u00e9t\\u00e9 "and more';
    const big: ChatMessage = call('c4', 'ask', {});
    big.tool_calls![0]!.function!.arguments =
      '{"id": 12345678901234567890, "code": "if (a) {\\n\\treturn \\"b\\";\\n}"}';
    const ids = await sessionWith(pool, [broken, big]);
    expect(await seqs(ids, '12345678901234567890')).toEqual([2]);
    expect(await seqs(ids, { query: '{\n\treturn "b";', mode: 'substring' })).toEqual([2]);
    expect(await seqs(ids, 'été')).toEqual([1]);
    expect(await seqs(ids, '"and more"')).toEqual([1]);
  });

  it('matches any word, quoted ones exactly, and the last one as a beginning', async () => {
    const ids = await sessionWith(pool, mixed);
    expect((await best(ids, 'module pool'))[0]).toBe(5);
    expect(await seqs(ids, '"pool module"')).toEqual([5]);
    expect(await seqs(ids, '"module pool"')).toEqual([]);
    expect(await seqs(ids, '"pool module" getUserName')).toEqual([5]);
    expect(await seqs(ids, '"pool.ts:17: export"')).toEqual([4]);
    expect((await best(ids, 'pool mod'))[0]).toBe(5);
    expect(await best(ids, 'unheard mod')).toEqual([5]);
    expect(await best(ids, 'mod unheard')).toEqual([]);
  });

  it('finds words spread over neighbouring messages, and ranks the place where they meet first', async () => {
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'How is Max these days?', name: 'Joanna' },
      { role: 'assistant', content: 'He died in May.', name: 'Nate' },
      ...talk(60),
      { role: 'user', content: 'Max has a bike.' },
      ...talk(60),
      { role: 'user', content: 'The battery died.' },
    ]);
    const { hits } = await search(pool, ids, { query: 'Max died', after: 1 });
    expect(
      hits
        .map(({ seq }) => seq)
        .slice(0, 2)
        .sort(),
    ).toEqual([1, 2]);
    expect(hits.map(({ seq }) => seq).sort((a, b) => a - b)).toEqual([1, 2, 63, 124]);
    const question = hits.find(({ seq }) => seq === 1);
    expect(question).toMatchObject({
      speaker: 'Joanna',
      snippet: 'How is «Max» these days?',
      following: [{ seq: 2, role: 'assistant', speaker: 'Nate', text: 'He died in May.' }],
    });
    expect(Date.parse(question!.storedAt)).toBeGreaterThan(Date.now() - 600_000);
    expect(hits.find(({ seq }) => seq === 124)?.following).toEqual([]);
    expect((await search(pool, ids, { query: 'Max died' })).hits[0]?.following).toEqual([]);
  });

  it('finds messages of one speaker in a time range, with the replies', async () => {
    const ids = newSession();
    const said: [string, ChatMessage[]][] = [
      ['2023-05-06T09:00:00Z', [{ role: 'user', content: 'Max is ill.', name: 'Joanna' }]],
      ['2023-05-07T23:59:59.999Z', [{ role: 'user', content: 'Max is dead.', name: 'Joanna' }]],
      ['2023-05-08T00:00:00Z', [{ role: 'assistant', content: 'Max was a good dog.', name: 'Nate' }]],
      ['2024-01-01T00:00:00Z', [{ role: 'user', content: 'Max was mine.', name: 'José "Pepe" \0' }]],
      ['2024-02-29T12:00:00Z', [{ role: 'user', content: 'Max never had a name.' }]],
    ];
    for (const [at, messages] of said) await appendTurn(pool, { ...ids, turnId: at, messages, at });
    const found = (request: Omit<SearchRequest, 'query'>) => seqs(ids, { query: 'max', ...request });
    expect(await found({})).toEqual([1, 2, 3, 4, 5]);
    expect(await found({ speaker: 'joanna' })).toEqual([1, 2]);
    expect(await found({ speaker: 'José "Pepe" \0' })).toEqual([4]);
    expect(await found({ speaker: 'Jo' })).toEqual([]);
    expect(await found({ from: '2023-05-07' })).toEqual([2, 3, 4, 5]);
    expect(await found({ through: '2023-05-07' })).toEqual([1, 2]);
    expect(await found({ from: '2023-05', through: '2023' })).toEqual([1, 2, 3]);
    expect(await found({ from: '2024-02-29', through: '2024-02' })).toEqual([5]);
    expect(await found({ from: '2023-05-08T02:00:00+02:00', through: '2023-05-08T00:00' })).toEqual([3]);
    expect(await found({ speaker: 'Nate', from: '2023-05-08', fromSeq: 2, role: 'assistant' })).toEqual([3]);
    expect(await found({ speaker: 'Nate', through: '2023-05-07' })).toEqual([]);
    const { hits } = await search(pool, ids, {
      query: 'dead',
      speaker: 'Joanna',
      from: '2023-05-07',
      after: 1,
    });
    expect(hits).toMatchObject([
      { seq: 2, speaker: 'Joanna', following: [{ seq: 3, speaker: 'Nate', text: 'Max was a good dog.' }] },
    ]);
    for (const date of ['yesterday', '2023-13', '2023-02-30', '12', '', '2023-05-07T99:00'])
      await expect(search(pool, ids, { query: 'max', from: date })).rejects.toMatchObject({
        type: 'Input.Invalid',
        path: 'from',
      });
  });

  it('puts rare words before common ones, and a message with both before one with either', async () => {
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'the order the order the order the order' },
      { role: 'user', content: 'a zeppelin' },
      ...talk(30),
      { role: 'user', content: 'the order came by zeppelin' },
      ...talk(30),
      ...Array.from({ length: 12 }, (): ChatMessage => ({ role: 'user', content: 'the order again' })),
    ]);
    expect((await best(ids, 'the order zeppelin')).slice(0, 2)).toEqual([33, 2]);
  });

  it('finds exact words and substrings in any case and script', async () => {
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'ПРИВЕТ, Über die Größe DÉPLOYÉ ΣΊΣΥΦΟΣ' },
      { role: 'user', content: 'Привет, über die GRÖßE: Déployé Σίσυφος' },
    ]);
    for (const word of ['привет', 'ÜBER DIE', 'größe', 'déployé', 'σίσυφος']) {
      expect((await seqs(ids, `"${word}"`)).sort()).toEqual([1, 2]);
      expect((await seqs(ids, { query: word, mode: 'substring' })).sort()).toEqual([1, 2]);
    }
    expect(await seqs(ids, `"${'ж(é)*'.repeat(400)}"`)).toEqual([]);
  });

  it('marks symbols that are not words at their position', async () => {
    const family = '\u{1F469}\u200d\u{1F469}\u200d\u{1F467}';
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'no family here, one \u{1F469} alone' },
      { role: 'user', content: `a family: ${family}!` },
    ]);
    const { hits } = await search(pool, ids, { query: family });
    expect(hits[0]).toMatchObject({ seq: 2, offset: 10, snippet: expect.stringContaining('«\u{1F469}»') });
    expect(hits[0]!.rank).toBeGreaterThan(hits[1]?.rank ?? 0);
  });

  it('puts exact identifiers first and marks them whole', async () => {
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'MTR 88213, MTR 88213, MTR: bring it back in the bin, part B' },
      { role: 'user', content: 'Part MTR-88213-B is in bin 4.' },
      { role: 'user', content: 'MTR-88213-C is not it' },
      { role: 'user', content: 'bring it back, bin it' },
    ]);
    const { hits } = await search(pool, ids, { query: 'MTR-88213-B' });
    expect(hits[0]).toMatchObject({ seq: 2, snippet: 'Part «MTR-88213-B» is in bin 4.', offset: 5 });
    expect(hits.map(({ seq }) => seq)).not.toContain(4);
    for (const { snippet } of hits) expect(snippet).not.toMatch(/«(?:bin|back|bring)»/);
  });

  it('points a quoted hit to the quoted words, not to one of them', async () => {
    const content = 'gate. The open gate was left. See the open door.';
    const ids = await sessionWith(pool, [{ role: 'user', content }]);
    const { hits } = await search(pool, ids, { query: '"the open door"' });
    expect(hits).toMatchObject([{ offset: content.indexOf('the open door') }]);
    expect(hits[0]!.snippet).toContain('See «the open door».');
  });

  it('filters by role, by tool in calls and results, and by range, and pages', async () => {
    const ids = await sessionWith(pool, mixed);
    expect(await seqs(ids, { query: 'getUserName', role: 'user' })).toEqual([2]);
    expect(await seqs(ids, { query: 'getUserName', tool: 'grep' })).toEqual([3, 4]);
    expect(await seqs(ids, { query: 'pool', tool: 'read_file' })).toEqual([]);
    expect(await seqs(ids, { query: 'getUserName', fromSeq: 3, throughSeq: 3 })).toEqual([3]);
    const first = await search(pool, ids, { query: 'getUserName', limit: 2 });
    expect(first.nextOffset).toBe(2);
    const second = await search(pool, ids, { query: 'getUserName', limit: 2, offset: 2 });
    expect(second.nextOffset).toBeNull();
    expect([...first.hits, ...second.hits].map(({ seq }) => seq).sort()).toEqual([2, 3, 4]);
  });

  it('marks the match in one line and gives its position', async () => {
    const ids = await sessionWith(pool, mixed);
    const { hits } = await search(pool, ids, { query: 'getUserName', tool: 'grep', role: 'tool' });
    expect(hits).toMatchObject([{ seq: 4, role: 'tool', tool: 'grep', offset: 38 }]);
    expect(hits[0]?.snippet).toBe('src/store/pool.ts:17: export function «getUserName»(id: string)');
  });
});

describe('search for a substring', () => {
  it('matches every character literally, ignoring case', async () => {
    const ids = await sessionWith(pool, mixed);
    const substring = (query: string) => seqs(ids, { query, mode: 'substring' });
    expect(await substring('ERNAM')).toEqual([2, 3, 4]);
    expect(await substring('100%')).toEqual([8]);
    expect(await substring('1%0')).toEqual([]);
    expect(await substring('3_000')).toEqual([8]);
    expect(await substring('C:\\temp "quoted" it\'s')).toEqual([8]);
    expect(await substring('🎉')).toEqual([5]);
    expect((await search(pool, ids, { query: '%' })).mode).toBe('substring');
    expect(await seqs(ids, '%')).toEqual([8]);
  });
});

describe('a long result', () => {
  const filler = 'lorem ipsum dolor sit amet\0 '.repeat(36_000);
  const text = `${filler}needle one \u0000 \ud800 ${filler}needle two`;

  it('is found in every part of it, NUL and half surrogates included, at the offset at which it can be read', async () => {
    const ids = await sessionWith(pool, [call('big', 'dump', {}), result('big', text)]);
    for (const [query, at] of [
      ['"needle one"', text.indexOf('needle one')],
      ['"needle two"', text.indexOf('needle two')],
    ] as const) {
      const { hits } = await search(pool, ids, { query });
      expect(hits).toMatchObject([{ seq: 2, tool: 'dump' }]);
      const page = await toolResponse(pool, ids, { callId: 'big', offset: hits[0]!.offset, limit: 6 });
      expect(page.content).toBe('needle');
      expect(hits[0]!.offset).toBe(at);
    }
    const within = await search(pool, ids, { query: 'needle', fromSeq: 2, throughSeq: 2 });
    expect(within.hits.map(({ offset }) => offset).sort((a, b) => a - b)).toEqual([
      text.indexOf('needle one'),
      text.indexOf('needle two'),
    ]);
  });

  it('is one hit for a match in two slices', async () => {
    const shared = `${'a '.repeat((sliceLength - sliceOverlap / 2) / 2)}needle ${'b '.repeat(sliceLength)}`;
    expect(slicesOf(shared).filter((slice) => slice.text.includes('needle'))).toHaveLength(2);
    const ids = await sessionWith(pool, [{ role: 'user', content: shared }]);
    const { hits } = await search(pool, ids, { query: 'needle', fromSeq: 1, throughSeq: 1 });
    expect(hits.map(({ offset }) => offset)).toEqual([shared.indexOf('needle')]);
  });

  it('of 20 MB is indexed and read exactly', async () => {
    const huge = `${'x1y2 \0 zebra\n'.repeat(1_600_000)}the very end`;
    const ids = await sessionWith(pool, [call('huge', 'dump', {}), result('huge', huge)]);
    expect(await seqs(ids, '"very end"')).toEqual([2]);
    expect(await seqs(ids, { query: 'ZEBRA\nTHE VERY', mode: 'substring' })).toEqual([2]);
    const last = await toolResponse(pool, ids, { callId: 'huge', offset: huge.length - 12 });
    expect(last).toMatchObject({ content: 'the very end', totalCharacters: huge.length, nextOffset: null });
  });
});

describe('slices', () => {
  it('cover the text, overlap, and never separate a surrogate pair', () => {
    const piece = fc.constantFrom('word ', 'x', '🎉', '日', '\n', '-'.repeat(300));
    fc.assert(
      fc.property(
        fc.array(piece, { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 1, max: 20_000 }),
        (pieces, times) => {
          const text = pieces
            .join('')
            .repeat(times)
            .slice(0, 5 * sliceLength)
            .replace(/[\ud800-\udbff]$/, '');
          const slices = slicesOf(text);
          let covered = 0;
          for (const { offset, text: slice } of slices) {
            expect(text.slice(offset, offset + slice.length)).toBe(slice);
            expect(slice.length).toBeLessThanOrEqual(sliceLength);
            expect(Buffer.from(slice).toString()).toBe(slice);
            expect(covered - offset).toBeGreaterThanOrEqual(offset === 0 ? 0 : sliceOverlap);
            covered = offset + slice.length;
          }
          expect(covered).toBe(text.length);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('have the words of a text at their positions', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        let before = 0;
        for (const { parts } of runsOf(text))
          for (const { from, to, word } of parts) {
            expect(from).toBeGreaterThanOrEqual(before);
            expect(to).toBeGreaterThan(from);
            expect(word).not.toBe('');
            before = to;
          }
      }),
    );
  });
});

describe('any query', () => {
  it('is answered, or refused with its path', async () => {
    const ids = await sessionWith(pool, mixed);
    const character = fc.constantFrom(
      '%',
      '_',
      '\\',
      "'",
      '"',
      ':',
      '*',
      '&',
      '|',
      '!',
      '(',
      ')',
      '<',
      '-',
      '>',
      '\0',
      '🎉',
      '\ud800',
      'a',
      'B',
      ' ',
      '日',
    );
    const query = fc.oneof(
      fc.string({ unit: character, maxLength: 40 }),
      fc.string({ unit: 'binary', maxLength: 40 }),
    );
    const mode = fc.constantFrom('words' as const, 'substring' as const);
    await fc.assert(
      fc.asyncProperty(query, mode, async (text, asked) => {
        if (text.trim() === '') {
          await expect(search(pool, ids, { query: text, mode: asked })).rejects.toMatchObject({
            type: 'Input.Invalid',
            path: 'query',
          });
          return;
        }
        const { hits } = await search(pool, ids, { query: text, mode: asked });
        expect(hits.length).toBeLessThanOrEqual(mixed.length);
      }),
      { numRuns: 150 },
    );
  });

  it('of 10,000 characters is served, a longer one refused', async () => {
    const ids = await sessionWith(pool, mixed);
    expect((await best(ids, 'pool module '.repeat(830)))[0]).toBe(5);
    const refused = { type: 'Input.Invalid', path: 'query' };
    await expect(search(pool, ids, { query: 'a'.repeat(10_001) })).rejects.toMatchObject(refused);
    await expect(search(pool, ids, { query: 'a'.repeat(2_001), mode: 'substring' })).rejects.toMatchObject(
      refused,
    );
  });

  it.each([
    ['equal parts', 'a-', 5_000],
    ['names in code', 'a.B_', 2_500],
    ['brackets', '(a', 5_000],
    ['phrases', '"a.', 3_333],
  ])('of one piece with thousands of %s is served', async (_, part, count) => {
    const query = part.repeat(count);
    const ids = await sessionWith(pool, [
      ...mixed,
      { role: 'user', content: `They say ${query}.` },
      { role: 'user', content: part.repeat(20) },
    ]);
    const { hits } = await search(pool, ids, { query });
    expect(hits.map(({ seq }) => seq)).toContain(mixed.length + 1);
  });

  it('has the same answer whether its parts repeat or not', async () => {
    const [one = '', two = ''] = ['ab_cd.ab_cd', 'ab_cd.ef_gh'];
    const ids = await sessionWith(pool, [...mixed, { role: 'user', content: `x ${one} y ${two} z` }]);
    const hits = await Promise.all([one, two].map((query) => search(pool, ids, { query })));
    expect(hits.map(({ hits: [hit] }) => hit?.snippet)).toEqual([
      `x «${one}» y ${two} z`,
      `x ${one} y «${two}» z`,
    ]);
  });

  it('made of words of a message finds that message', async () => {
    const ids = await sessionWith(pool, mixed);
    for (const [index, message] of mixed.entries()) {
      const words = [...runsOf(searchableText(message))].map(({ parts }) =>
        parts.map(({ word }) => word).join('_'),
      );
      expect(await seqs(ids, { query: words.join(' '), limit: 50 })).toContain(index + 1);
    }
  });
});

describe('the index', () => {
  it('is updated by each search, also by concurrent ones, and covers archive and tail', async () => {
    const ids = await sessionWith(pool, talk(1_200));
    await compactThrough(pool, ids, 700);
    const found = await Promise.all(
      Array.from({ length: 4 }, () => search(pool, ids, { query: '"number 3"', limit: 50 })),
    );
    for (const { hits } of found) expect(hits.map(({ seq }) => seq)).toEqual([3]);
    expect(await countRows(pool, 'message_texts', ids)).toBe(1_200);
    expect((await loadSession(pool, ids)).indexedThroughSeq).toBe(1_200);
    await appendTurn(pool, { ...ids, turnId: 'later', messages: [{ role: 'user', content: 'zanzibar' }] });
    expect(await seqs(ids, 'zanzibar')).toEqual([1_201]);
    expect(await seqs(ids, '"number 1200"')).toEqual([1_200]);
  });

  it('can be built in steps, and knows the tool of a result whose call came in an earlier step', async () => {
    const ids = await sessionWith(pool, mixed);
    await indexTexts(pool, ids, 3);
    expect((await loadSession(pool, ids)).indexedThroughSeq).toBe(3);
    await indexTexts(pool, ids);
    await indexTexts(pool, ids);
    expect(await seqs(ids, { query: 'pool', tool: 'grep' })).toEqual([3, 4]);
  });

  it('is of one session of one tenant', async () => {
    const ids = await sessionWith(pool, mixed, 'one');
    await sessionWith(pool, mixed, 'two');
    const { nextOffset, hits } = await search(pool, ids, { query: 'getUserName', limit: 50 });
    expect([hits.length, nextOffset]).toEqual([3, null]);
    await expect(search(pool, { ...ids, tenant: 'two' }, { query: 'x' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
    await expect(search(pool, newSession(), { query: 'x' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });
});

describe('a snippet', () => {
  it('shows the place with most of the words', () => {
    const text = `alpha ${'- '.repeat(300)} alpha beta gamma ${'- '.repeat(300)} beta`;
    const { snippet, offset } = snippetOf(text, parseQuery('gamma alpha beta'));
    expect(snippet).toContain('«alpha» beta gamma');
    expect(text.slice(offset, offset + 5)).toBe('alpha');
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  it('are searchable, malformed ones too: words of each message find it', async () => {
    let sessions = 0;
    let looked = 0;
    for await (const { line, number, dirty } of readTranscripts()) {
      if (!dirty && number % 12 !== 1) continue;
      const { messages } = JSON.parse(line) as { messages: ChatMessage[] };
      const ids = await sessionWith(pool, messages);
      sessions++;
      for (const [index, message] of messages.entries()) {
        if (index % Math.ceil(messages.length / 4) !== 0) continue;
        const text = searchableText(message).slice(0, 300).replace(/\w+$/, '');
        const words = [...runsOf(text)].flatMap(({ parts }) => parts.map(({ word }) => word)).slice(0, -1);
        if (words.length === 0) continue;
        const seq = index + 1;
        const own = { fromSeq: seq, throughSeq: seq, limit: 50 };
        const found = await search(pool, ids, { query: words.join(' '), ...own });
        expect(found.hits.map((hit) => hit.seq)).toContain(seq);
        const [exact] = text.match(/[^"]{4,}/) ?? [];
        if (exact === undefined || exact.trim() === '') continue;
        const { hits } = await search(pool, ids, { query: `"${exact}"`, ...own });
        expect(hits[0]).toMatchObject({ seq, offset: text.toLowerCase().indexOf(exact.toLowerCase()) });
        looked++;
      }
    }
    console.log(`${sessions} sessions, ${looked} messages looked for`);
    expect(looked).toBeGreaterThan(0);
  });
});
