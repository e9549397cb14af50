import type { ChatMessage, Json } from '../../src/conversation/message.js';
import { dialogue } from '../support/dialogue.js';
import { all, compacted, failure, invalidAt, noSession, talked, type Case } from './case.js';

const called: ChatMessage[] = [
  { role: 'user', content: 'Where is order 4711?' },
  {
    role: 'assistant',
    content: null,
    tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_order', arguments: '{}' } }],
  },
  { role: 'tool', tool_call_id: 'call_1', content: 'Order 4711 is on its way: 😀 '.repeat(20) },
  { role: 'assistant', content: 'It is on its way.' },
];

export const archive: Case[] = [
  {
    name: 'evicted messages can be read by part, and all messages in order',
    async run(client) {
      const session = 'archive';
      await compacted(client, session);
      const replayed = await all(client.replay({ session }));
      return [
        await client.archive({ session }),
        await client.archive({ session, part: 1 }),
        replayed,
        replayed.length,
        await client.timeline({ session }),
        await failure(client.archive({ session, part: 2 })),
        await failure(client.archive({ session, part: 0 })),
        await failure(client.archive({ session: 'nobody', part: 1 })),
        await failure(client.archive({ session: 'nobody' })),
        await failure(client.compactions({ session: 'nobody' })),
        await failure(client.timeline({ session: 'nobody' })),
        await failure(all(client.replay({ session: 'nobody' }))),
      ];
    },
    expected: [
      [{ part: 1, generation: 1, fromSeq: 1, createdAt: '<date>' }],
      [{ seq: 1, message: { role: 'user' } }],
      [],
      20,
      { turns: { length: 10 }, compactions: [{ generation: 1, turn: 10, part: 1 }] },
      invalidAt('part'),
      invalidAt('part'),
      noSession,
      noSession,
      noSession,
      noSession,
      noSession,
    ].map((each) => (Array.isArray(each) ? {} : each)),
  },
  {
    name: 'every character is returned unchanged',
    async run(client) {
      const message = {
        ...{
          role: 'user',
          content: 'half \ud800, NUL \u0000, lines\n\r\n\u2028, 😀',
          own: { b: 1, a: [2.5] },
        },
        ...{ ['__proto__x']: null, 1: 'first' },
      } as ChatMessage;
      await talked(client, 'exact', [[message]]);
      const [logged] = await all(client.replay({ session: 'exact' }));
      return [JSON.stringify(logged?.message) === JSON.stringify(message), logged];
    },
    expected: [true, { seq: 1 }],
  },
  {
    name: 'a session is exported as the list of its messages, or as the imported file',
    async run(client) {
      await compacted(client, 'exported');
      const file: Json[] = [
        { 'palimpsest.document': { layout: 'lines' } },
        { role: 'user', content: 'half \ud800, NUL \u0000', own: { b: 1, a: [2.5] } },
        { role: 'assistant', content: 'Noted.' },
      ];
      await client.appendTurn({ session: 'exported lines', turnId: '1', messages: file });
      return [
        JSON.parse((await all(client.export({ session: 'exported' }))).join('')),
        (await all(client.export({ session: 'exported lines' }))).join('') ===
          `${JSON.stringify(file[1])}\n${JSON.stringify(file[2])}\n`,
        await failure(all(client.export({ session: 'nobody' }))),
      ];
    },
    expected: [dialogue(10).flat(), true, noSession],
  },
  {
    name: 'the history is written as Markdown',
    async run(client) {
      await compacted(client, 'history');
      const text = (await all(client.historyLog({ session: 'history' }))).join('');
      return [
        text.includes('## Summarized at'),
        text.length > 1_000,
        await failure(all(client.historyLog({ session: 'nobody' }))),
      ];
    },
    expected: [true, true, noSession],
  },
  {
    name: 'words and substrings are found in archive and tail',
    async run(client) {
      const session = 'search';
      await talked(client, session, [called, ...dialogue(3, 10)]);
      return [
        await client.search({ session, query: 'order 4711' }),
        await client.search({ session, query: 'on its way: 😀', mode: 'substring', limit: 1 }),
        await client.search({ session, query: 'order', role: 'tool', tool: 'get_order', fromSeq: 2 }),
        await client.search({
          session,
          query: 'order',
          speaker: 'nobody',
          from: '2001',
          through: '2999-12-31',
        }),
        await failure(client.search({ session, query: 'order', from: 'yesterday' })),
        await failure(client.search({ session, query: '' })),
        await failure(client.search({ session, query: 'x', limit: 51 })),
        await failure(client.search({ session: 'nobody', query: 'x' })),
      ];
    },
    expected: [
      { mode: 'words' },
      { mode: 'substring' },
      { hits: [{ seq: 3, tool: 'get_order' }] },
      { hits: [] },
      invalidAt('from'),
      invalidAt('query'),
      invalidAt('limit'),
      noSession,
    ],
  },
  {
    name: 'a result is read by its call, or any message by its number, page by page',
    async run(client) {
      const session = 'results';
      await talked(client, session, [called]);
      return [
        await client.toolResponse({ session, callId: 'call_1' }),
        await client.toolResponse({ session, seq: 1, offset: 6, limit: 4 }),
        await failure(client.toolResponse({ session, callId: 'call_9' })),
        await failure(client.toolResponse({ session, seq: 9 })),
        await failure(client.toolResponse({ session, seq: 1, limit: 0 })),
        await failure(client.toolResponse({ session: 'nobody', seq: 1 })),
      ];
    },
    expected: [
      { seq: 3, callId: 'call_1', tool: 'get_order', format: 'text' },
      { content: 'is o'.slice(0, 4), offset: 6, nextOffset: 10 },
      invalidAt('callId'),
      invalidAt('seq'),
      invalidAt('limit'),
      noSession,
    ],
  },
  {
    name: 'originals are read a page at a time',
    async run(client) {
      const session = 'expand';
      await compacted(client, session);
      return [
        await client.expand({ session, fromSeq: 3, limit: 2 }),
        await client.expand({ session, part: 1, maxCharacters: 10 }),
        await failure(client.expand({ session, part: 7 })),
        await failure(client.expand({ session, fromSeq: 99 })),
        await failure(client.expand({ session, limit: 0 })),
        await failure(client.expand({ session: 'nobody' })),
      ];
    },
    expected: [
      { part: null, messages: [{ seq: 3 }, { seq: 4 }], nextSeq: 5 },
      { part: 1, messages: [{ seq: 1 }], nextSeq: 2 },
      invalidAt('part'),
      invalidAt('fromSeq'),
      invalidAt('limit'),
      noSession,
    ],
  },
  {
    name: 'an earlier generation is restored as a new one',
    async run(client) {
      const session = 'restore';
      await compacted(client, session);
      return [
        await client.restore({ session, generation: 0 }),
        (await client.context({ session })).messages.length,
        await failure(client.restore({ session, generation: 9 })),
        await failure(client.restore({ session, generation: 2 ** 40 })),
        await failure(client.restore({ session, generation: -1 })),
        await failure(client.restore({ session: 'nobody', generation: 0 })),
      ];
    },
    expected: [
      { generation: 2, reason: 'restore' },
      20,
      invalidAt('generation'),
      invalidAt('generation'),
      invalidAt('generation'),
      noSession,
    ],
  },
  {
    name: 'a fork is made once',
    async run(client) {
      const session = 'forked';
      await talked(client, session);
      const fork = { session, to: 'the fork/of it', throughSeq: 4 };
      return [
        await client.fork(fork),
        await client.fork(fork),
        (await all(client.replay({ session: fork.to }))).length,
        await failure(client.fork({ ...fork, throughSeq: 6 })),
        await failure(client.fork({ ...fork, to: '' })),
        await failure(client.fork({ ...fork, to: 'x', throughSeq: 99 })),
        await failure(client.fork({ ...fork, to: 'x', throughSeq: -1 })),
        await failure(client.fork({ ...fork, session: 'nobody' })),
      ];
    },
    expected: [
      { session: 'the fork/of it', messages: 4, generation: 0, repeated: false },
      { repeated: true },
      4,
      invalidAt('to'),
      invalidAt('to'),
      invalidAt('throughSeq'),
      invalidAt('throughSeq'),
      noSession,
    ],
  },
];
