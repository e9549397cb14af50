import type { PalimpsestClient } from '../../src/contract/client.js';
import { routes } from '../../src/contract/routes.js';
import type { FormatName } from '../../src/conversation/format-names.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import { dialogue, words } from '../support/dialogue.js';
import { all, failure, invalidAt, noSession, talked, type Case } from './case.js';

const ofTenant = ['configureTenant', 'startBackfill', 'estimateBackfill', 'createToken'] as const;
const ofJobs = [
  ...(['backfill', 'backfillItems', 'pauseBackfill', 'resumeBackfill'] as const),
  ...(['cancelBackfill', 'resizeBackfill', 'retryBackfill'] as const),
];
/** Every method that takes more than its client. */
const needing = [
  ...new Set(
    Object.keys(routes).map((id) => (id.startsWith('archive') ? 'archive' : id) as keyof PalimpsestClient),
  ),
].filter((name) => !['sessions', 'tenantPolicy', 'backfills', 'tokens'].includes(name));

const hello: ChatMessage[] = [{ role: 'user', content: 'Hello, \ud800 half, \u0000 NUL and 😀.' }];

const said = '2023-05-07T13:04:05.000Z';

const anthropic = [
  { role: 'user', content: [{ type: 'text', text: 'Look it up.' }] },
  { role: 'assistant', content: [{ type: 'tool_use', id: 'c1', name: 'look', input: { order: 4711 } }] },
  { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'shipped' }] },
];

const usage = {
  inputTokens: 150,
  inputTokenDetails: { cacheReadTokens: undefined },
  outputTokens: undefined,
};

export const turns: Case[] = [
  {
    name: 'the usage of the AI SDK is taken as it is',
    async run(client) {
      const session = 'ai-sdk-usage';
      const messages = dialogue(1)[0]!;
      const reported = await client.appendTurn({ session, turnId: 't-1', messages, usage });
      const silent = { ...usage, inputTokens: undefined };
      await client.appendTurn({ session, turnId: 't-2', messages, usage: silent });
      return [reported.due, (await client.status({ session })).calibration.samples];
    },
    expected: [false, 1],
  },
  {
    name: 'a call without a request names what it lacks',
    run: async (client) =>
      Object.fromEntries(
        await Promise.all(
          needing.map(async (name) => {
            const bare = client[name] as () => AsyncGenerator | Promise<unknown>;
            const called = async () => {
              const answer = bare.call(client);
              return Symbol.asyncIterator in answer ? all(answer) : answer;
            };
            return [name, await failure(called())] as const;
          }),
        ),
      ),
    expected: {
      ...Object.fromEntries(needing.map((name) => [name, invalidAt('session')])),
      ...Object.fromEntries(ofJobs.map((name) => [name, invalidAt('job')])),
      ...Object.fromEntries(ofTenant.map((name) => [name, invalidAt('request')])),
      revokeToken: invalidAt('id'),
    },
  },
  {
    name: 'of a list, what is new is stored, and the context is answered',
    async run(client) {
      const session = 'synced';
      const messages: ChatMessage[] = [...hello, { role: 'assistant', content: 'word '.repeat(30_000) }];
      const first = await client.sync({ session, messages: hello, policy: { contextWindow: 64_000 } });
      const second = await client.sync({
        session,
        messages,
        usage: { inputTokens: 20, outputTokens: 30_000 },
      });
      const { context } = await client.sync({ session, messages: [...second.context.messages, ...hello] });
      const edited = await failure(client.sync({ session, messages: messages.slice(1) }));
      const forked = await client.sync({ session, messages: messages.slice(0, 1), onEdit: 'fork' });
      return [first, second, context.messages, edited, forked.session, forked.stored];
    },
    expected: [
      { known: 0, stored: { fromSeq: 1, throughSeq: 1, repeated: false }, edited: null, session: 'synced' },
      { known: 1, stored: { fromSeq: 2, throughSeq: 2 } },
      [hello[0], { role: 'assistant' }, hello[0]],
      { type: 'Store.ListEdited', path: 'messages', details: { commonSeq: 0, lastSeq: 3 } },
      'synced~1',
      null,
    ],
  },
  {
    name: 'a list that is wrong names the field',
    async run(client) {
      const session = 'wrong-list';
      const wrong = (request: object) => failure(client.sync({ session, ...request } as never));
      return [
        await wrong({ onEdit: 'fork' }),
        await wrong({ messages: 'none' }),
        await wrong({ messages: [{ role: 'nobody', content: '' }] }),
        await wrong({ messages: hello, onEdit: 'merge' }),
        await wrong({ messages: [] }),
      ];
    },
    expected: [
      invalidAt('messages'),
      invalidAt('messages'),
      invalidAt('messages[0].role'),
      invalidAt('onEdit'),
      noSession,
    ],
  },
  {
    name: 'a turn is stored once, however often it is sent',
    async run(client) {
      const turn = { session: 'once', turnId: 't-1', messages: hello };
      return [await client.appendTurn(turn), await client.appendTurn(turn)];
    },
    expected: [
      { fromSeq: 1, throughSeq: 1, repeated: false, signalled: true, warnings: [] },
      { fromSeq: 1, throughSeq: 1, repeated: true },
    ],
  },
  {
    name: 'warnings about a turn have an index',
    run: (client) =>
      client.appendTurn({
        ...{ session: 'odd', turnId: 't-1' },
        messages: [...hello, { role: 'tool', content: 'x' }],
      }),
    expected: { warnings: [{ index: 1, type: 'result_without_id' }] },
  },
  {
    name: 'an invalid turn is refused with the path, and nothing is stored',
    async run(client) {
      await talked(client, 'refused', dialogue(2, 10));
      const turn = { session: 'refused', turnId: 'new', messages: hello };
      const wrong = (changes: object) => failure(client.appendTurn({ ...turn, ...changes }));
      return [
        await wrong({ turnId: 't-0' }),
        await wrong({ expectedSeq: 3 }),
        await wrong({ policy: { contextWindow: 9_000 } }),
        await wrong({ format: 'anthropic' }),
        await wrong({ messages: [] }),
        await wrong({ messages: [{ role: 'robot', content: 'x' }] }),
        await wrong({ messages: [{ role: 'user', content: 'x', score: NaN }] }),
        await wrong({ messages: [{ role: 'user', content: 'x', at: new Date() }] }),
        await wrong({ turnId: '' }),
        await wrong({ session: '' }),
        await wrong({ session: 'x'.repeat(300) }),
        await wrong({ session: 'half \ud800' }),
        await wrong({ turnId: 'NUL \u0000' }),
        await wrong({ session: 'new', policy: { contextWindw: 9_000 } }),
        await wrong({ session: 'new', format: 'morse' }),
        await wrong({ at: '2023-05-07' }),
        await wrong({ at: '1969-12-31T23:59:59Z' }),
        await wrong({ at: '2999-01-01T00:00:00Z' }),
        await wrong({ usage: { inputTokens: -1, outputTokens: 1 } }),
        await wrong({ usage: { input_tokens: 1, cache_read_input_tokens: 0.5 } }),
        (await client.status({ session: 'refused' })).messages,
        await failure(client.status({ session: 'new' })),
      ];
    },
    expected: [
      { type: 'Store.TurnConflict', path: 'turnId', details: { fromSeq: 1, throughSeq: 2 } },
      { type: 'Store.StaleAppend', path: 'expectedSeq', details: { lastSeq: 4, expectedSeq: 3 } },
      invalidAt('policy'),
      invalidAt('format'),
      invalidAt('messages'),
      invalidAt('messages[0].role'),
      invalidAt('messages[0].score'),
      invalidAt('messages[0].at'),
      invalidAt('turnId'),
      invalidAt('session'),
      invalidAt('session'),
      invalidAt('session'),
      invalidAt('turnId'),
      invalidAt('policy.contextWindw'),
      invalidAt('format'),
      invalidAt('at'),
      invalidAt('at'),
      invalidAt('at'),
      invalidAt('usage.inputTokens'),
      invalidAt('usage.cache_read_input_tokens'),
      4,
      noSession,
    ],
  },
  {
    name: 'the time of a turn is shown wherever its messages are read',
    async run(client) {
      const session = 'told';
      const at = '2023-05-07T15:04:05+02:00';
      await client.appendTurn({
        session,
        turnId: 't-1',
        messages: [{ role: 'user', content: 'lighthouse' }],
        at,
      });
      const text: string[] = [];
      for await (const piece of client.export({ session })) text.push(piece);
      const { hits } = await client.search({ session, query: 'lighthouse' });
      const { messages } = await client.expand({ session });
      const { turns } = await client.timeline({ session });
      const { first, last } = (await client.status({ session })).said;
      const [exported] = JSON.parse(text.join('')) as [{ at: string }];
      const told = [hits[0]?.at, messages[0]?.at, turns[0]?.saidAt, first, last, exported.at];
      return told.map((time) => time === said);
    },
    expected: [true, true, true, true, true, true],
  },
  {
    name: 'a context has the messages to send and their sizes, and stays the same without new turns',
    async run(client) {
      await talked(client, 'context');
      const [first, again] = [
        await client.context({ session: 'context' }),
        await client.context({ session: 'context' }),
      ];
      await client.appendTurn({ session: 'context', turnId: 'more', messages: hello });
      const grown = await client.context({ session: 'context' });
      return [first, again, first.etag === again.etag, first.etag === grown.etag, grown];
    },
    expected: [{ generation: 0, format: 'openai-chat' }, {}, true, false, { window: 8_000 }],
  },
  {
    name: 'a caller may change a returned context',
    async run(client) {
      await talked(client, 'own', dialogue(1, 10));
      const { messages } = await client.context({ session: 'own' });
      messages.push({ role: 'user', content: 'only here' });
      return (await client.context({ session: 'own' })).messages.length;
    },
    expected: 2,
  },
  {
    name: 'a context has the format of its session, or the requested one',
    async run(client) {
      const session = 'formats';
      const format: FormatName = 'anthropic';
      await client.appendTurn({ session, turnId: 't-1', messages: anthropic, format });
      return [
        await client.context({ session }),
        await client.context({ session, format: 'openai-chat' }),
        await failure(client.context({ session, format: 'morse' as 'anthropic' })),
        await failure(client.context({ session, format: 'codex' as 'anthropic' })),
      ];
    },
    expected: [
      { format: 'anthropic', messages: anthropic },
      { format: 'openai-chat', messages: [{ role: 'user' }, { role: 'assistant' }, { role: 'tool' }] },
      invalidAt('format'),
      invalidAt('format'),
    ],
  },
  {
    name: 'a context fits the requested budget, or fails with Budget.Unreachable',
    async run(client) {
      const session = 'budget';
      await talked(client, session);
      const small = await client.context({ session, budget: 900 });
      return [
        small,
        small.tokens <= 900,
        await failure(client.context({ session, budget: 20 })),
        await failure(client.context({ session, budget: 0 })),
        await failure(client.context({ session, budget: 1.5 })),
      ];
    },
    expected: [
      { budget: 900 },
      true,
      { type: 'Budget.Unreachable' },
      invalidAt('budget'),
      invalidAt('budget'),
    ],
  },
  {
    name: 'a context can be waited for until a compaction has ended',
    async run(client) {
      const session = 'waited';
      const long = [1, 2, 3].map((index): ChatMessage => ({ role: 'user', content: words(1_500, index) }));
      await client.appendTurn({ session, turnId: 't', messages: long, policy: { contextWindow: 4_000 } });
      const { generation } = await client.context({ session, waitMs: 30_000 });
      return [
        generation,
        await failure(client.context({ session, waitMs: -1 })),
        await failure(client.context({ session, waitMs: 10 ** 9 })),
        await failure(client.context({ session: 'nobody', waitMs: 100 })),
      ];
    },
    expected: [1, invalidAt('waitMs'), invalidAt('waitMs'), noSession],
  },
  {
    name: 'a context of an unknown session fails',
    run: (client) => failure(client.context({ session: 'nobody' })),
    expected: noSession,
  },
];
