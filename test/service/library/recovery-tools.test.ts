/** The agent can find and read evicted messages, and gets a hint for each mistake. */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
} from '../../../src/contract/recovery-tools.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { PalimpsestError } from '../../../src/errors.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { expand } from '../../../src/store/reading/replay.js';
import { openPool } from '../../support/pool.js';
import { search } from '../../../src/store/search/search.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { toolResponse } from '../../../src/store/reading/tool-response.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, sessionWith, talk } from '../../support/store.js';
import { calls, result } from '../../support/tool-messages.js';

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

/** The library's methods, without a workflow. */
function sourceOf(tenant: string): RecoverySource {
  const idsOf = (session: string) => ({ tenant, session });
  return {
    toolResponse: (of) => toolResponse(pool, idsOf(of.session), of),
    search: ({ session, ...request }) => search(pool, idsOf(session), request),
    expand: ({ session, ...request }) => expand(pool, idsOf(session), request),
  };
}

describe('the tools of the agent', () => {
  const ask = async (ids: SessionIds, name: string, args: string): Promise<Record<string, unknown>> =>
    JSON.parse(await callRecoveryTool(sourceOf(ids.tenant), ids.session, name, args));

  it('are valid definitions for a request', () => {
    expect(recoveryTools.map(({ function: { name } }) => name)).toEqual([
      'get_tool_response',
      'search_history',
      'expand_history',
    ]);
    for (const { type, function: definition } of recoveryTools) {
      expect(type).toBe('function');
      expect(definition.parameters).toMatchObject({ type: 'object', additionalProperties: false });
      expect(definition.parameters).not.toHaveProperty('$schema');
    }
  });

  it('lead from a search to the original', async () => {
    const ids = await sessionWith(pool, [
      calls(['a', 'run']),
      result('a', `${'x '.repeat(9_000)}the needle`),
      ...talk(9),
    ]);
    await compactThrough(pool, ids, 6);
    const found = await ask(ids, 'search_history', '{"query":"needle"}');
    expect(found).toMatchObject({
      hits: [{ message: 2, role: 'tool', tool: 'run', offset: 18_004 }],
      next_offset: null,
    });
    const read = await ask(ids, 'get_tool_response', '{"message":2,"offset":18004,"call_id":null}');
    expect(read).toMatchObject({
      content: 'needle',
      archive_part: 1,
      total_characters: 18_010,
      next_offset: null,
    });
    const first = await ask(ids, 'get_tool_response', '{"call_id":"a"}');
    expect(first).toMatchObject({ offset: 0, next_offset: 8_000 });
    const listed = await ask(ids, 'expand_history', '{"part":1,"limit":3}');
    expect(listed).toMatchObject({
      next_message: 4,
      messages: [
        { message: 1, calls: [{ id: 'a', name: 'run' }] },
        { message: 2, total_characters: 18_010 },
        { message: 3 },
      ],
    });
    expect(await ask(ids, 'search_history', '{"query":"nowhere","exact":true}')).toMatchObject({
      hits: [],
      hint: expect.any(String),
    });
  });

  it('find the original before earlier calls and results of the tools, and before the question', async () => {
    const question = (content: string): ChatMessage => ({ role: 'user', content });
    const ids = await sessionWith(pool, [
      question('Check shipment 7.'),
      calls(['a', 'look']),
      result('a', 'shipment 7 left under seal SL-55443'),
      ...talk(6),
    ]);
    const recall = async (id: string, name: string) => {
      const args = JSON.stringify({ query: 'seal of shipment 7' });
      const messages: ChatMessage[] = [
        question('Which seal was it?'),
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id, type: 'function', function: { name, arguments: args } }],
        },
      ];
      await appendTurn(pool, { ...ids, turnId: id, messages });
      const found = await ask(ids, 'search_history', args);
      const answered = [result(id, JSON.stringify(found))];
      await appendTurn(pool, { ...ids, turnId: `${id}-result`, messages: answered });
      return (found['hits'] as { message: number }[]).map(({ message }) => message);
    };
    expect(await recall('b', 'search_history')).toEqual([3, 1, 11, 10]);
    expect(await recall('c', 'mcp__palimpsest__search_history')).toEqual([3, 1, 10, 14, 12, 11, 13]);
    expect((await recall('d', 'search_history')).slice(0, 4)).toEqual([3, 1, 13, 10]);
    const exact = await ask(ids, 'search_history', '{"query":"SL-55443","exact":true}');
    expect(exact['hits']).toMatchObject([{ message: 3 }, { message: 18 }, { message: 15 }, { message: 12 }]);
    const own = await ask(ids, 'search_history', '{"query":"seal","tool":"search_history"}');
    expect(own).toMatchObject({ hits: [{ tool: 'search_history' }, {}, {}, {}] });
    // Without the option the search has no opinion about the tools.
    const [first] = (await search(pool, ids, { query: 'seal of shipment 7' })).hits;
    expect(first?.seq).toBeGreaterThan(3);
  });

  it('find by speaker and time in one call, with dates and replies', async () => {
    const ids = await sessionWith(pool, [
      { role: 'user', content: 'How is Max?', name: 'Joanna' },
      { role: 'assistant', content: 'He died.', name: 'Nate' },
      { role: 'user', content: 'Max of all dogs!', name: 'Ada' },
    ]);
    const today = new Date().toISOString().slice(0, 4);
    const args = { query: 'Max', speaker: 'Joanna', from: today, after: 1 };
    const found = await ask(ids, 'search_history', JSON.stringify(args));
    const date = expect.stringMatching(/^\d{4}-\d\d-\d\dT/);
    expect(found['hits']).toMatchObject([
      {
        message: 1,
        speaker: 'Joanna',
        date,
        following: [{ message: 2, speaker: 'Nate', date, text: 'He died.' }],
      },
    ]);
    expect(await ask(ids, 'search_history', '{"query":"Max","through":"2001"}')).toMatchObject({ hits: [] });
    expect(await ask(ids, 'search_history', '{"query":"Max","from_message":2}')).toMatchObject({
      hits: [{ message: 3 }],
    });
  });

  it('answer a mistake of the model with the next step, and throw other failures', async () => {
    const ids = await sessionWith(pool, talk(3));
    const mistakes: [string, string, RegExp][] = [
      ['nothing', '{}', /no tool "nothing"/],
      ['search_history', '{"query":', /no JSON/],
      ['search_history', '', /query/],
      ['search_history', '[]', /expected object/],
      ['search_history', '{"query":"x","colour":1}', /colour/],
      ['get_tool_response', '{}', /either call_id or message/],
      ['get_tool_response', '{"call_id":"none"}', /no call "none"/],
      ['get_tool_response', '{"message":99}', /no message 99/],
      ['search_history', '{"query":"x","from":"yesterday"}', /is not a date/],
      ['expand_history', '{"part":7}', /no archive part 7/],
      ['expand_history', '{"from_message":99}', /^from_message must be a whole number/],
    ];
    for (const [name, args, error] of mistakes) {
      const answer = await ask(ids, name, args);
      expect(answer).toEqual({ error: expect.stringMatching(error), hint: expect.any(String) });
      expect(JSON.stringify(answer)).not.toMatch(/seq\b|callId/i);
    }
    // The client's own hints are for a program that appends.
    const unknown = await ask({ ...ids, session: 'unknown' }, 'search_history', '{"query":"x"}');
    expect(unknown).toEqual({
      error: expect.stringMatching(/no session unknown/),
      hint: expect.stringMatching(/^Nothing is stored under this id/),
    });
    const large = new PalimpsestError('Input.TooLarge', 'The body has more than 9 bytes.', {
      hint: 'Send parts.',
    });
    const full: RecoverySource = { ...sourceOf(ids.tenant), search: () => Promise.reject(large) };
    const refused = await callRecoveryTool(full, ids.session, 'search_history', '{"query":"x"}');
    expect(JSON.parse(refused)).toEqual({ error: large.message, hint: 'Call again with shorter arguments.' });
    const away = openPool('postgresql://nobody@127.0.0.1:1/none');
    const broken: RecoverySource = { ...sourceOf(ids.tenant), search: (of) => search(away, ids, of) };
    await expect(
      callRecoveryTool(broken, ids.session, 'search_history', '{"query":"x"}'),
    ).rejects.toMatchObject({
      type: 'Store.Unavailable',
    });
    await away.end();
  });

  it('never throw for any arguments', async () => {
    const ids = await sessionWith(pool, talk(3));
    const args = fc.record(
      Object.fromEntries(
        [
          'call_id',
          'message',
          'query',
          'exact',
          'part',
          'from_message',
          'from',
          'through',
          'speaker',
          'through_message',
          'limit',
          'offset',
          'tool',
        ].map((key) => [
          key,
          fc.oneof(fc.integer({ min: -1, max: 5 }), fc.string({ unit: 'binary' }), fc.boolean()),
        ]),
      ),
      { requiredKeys: [] },
    );
    const name = fc.constantFrom('get_tool_response', 'search_history', 'expand_history');
    await fc.assert(
      fc.asyncProperty(name, args, async (tool, given) => {
        expect(typeof (await ask(ids, tool, JSON.stringify(given)))).toBe('object');
      }),
      { numRuns: 150 },
    );
  });
});
