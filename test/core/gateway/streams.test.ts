/** Streams of every interface, however they are cut: the client sees the whole answer, and no call of a recovery tool. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { type Fields, isFields } from '../../../src/formats/content.js';
import { chat } from '../../../src/gateway/protocols/chat.js';
import { protocolOf } from '../../../src/gateway/protocols/index.js';
import { messages } from '../../../src/gateway/protocols/messages.js';
import type { Answer, Protocol } from '../../../src/gateway/protocols/protocol.js';
import { responses } from '../../../src/gateway/protocols/responses.js';
import { isRecoveryTool, sumOfUsage } from '../../../src/gateway/protocols/tools.js';
import { EventSplitter, jsonIn, type SseEvent } from '../../../src/gateway/sse.js';
import { answerAt, type Said } from '../../support/upstream.js';

const paths = ['/v1/chat/completions', '/v1/messages', '/v1/responses'];

const protocolAt = (path: string): Protocol => {
  const protocol = protocolOf('POST', path);
  if (protocol === null) throw new Error(path);
  return protocol;
};

/** The events in a stream whose bytes come in pieces. */
function eventsIn(text: string, sizes: readonly number[]): SseEvent[] {
  const bytes = Buffer.from(text);
  const splitter = new EventSplitter(1_000_000);
  const events: SseEvent[] = [];
  for (let at = 0, piece = 0; at < bytes.length; piece++) {
    const size = sizes.length === 0 ? bytes.length : (sizes[piece % sizes.length] ?? 1);
    events.push(...splitter.take(bytes.subarray(at, at + size)));
    at += size;
  }
  const last = splitter.end();
  return last ? [...events, last] : events;
}

const call = fc.record({
  name: fc.constantFrom('look', 'search_history', 'expand_history', 'write'),
  args: fc.dictionary(fc.constantFrom('query', 'n'), fc.oneof(fc.string({ unit: 'grapheme' }), fc.integer())),
});
const said = fc.record({
  text: fc.string({ unit: 'grapheme', maxLength: 60 }),
  calls: fc.array(call, { maxLength: 4 }),
});

let ids = 0;
const withIds = ({ text, calls }: { text: string; calls: { name: string; args: object }[] }): Said => ({
  ...{ text: text.trim() === '' ? 'Well.' : text },
  calls: calls.map((one) => ({ ...one, id: `call-${++ids}` })),
});

const frame = (number: number) => ({
  input: 10 * number,
  output: number,
  model: 'm',
  id: `answer-${number}`,
});

/** What an answer says, without what differs between a stream and a whole. */
function gist(items: readonly Json[]): unknown {
  return JSON.parse(
    JSON.stringify(items, (name, value: unknown) =>
      ['refusal', 'annotations', 'logprobs', 'status', 'id'].includes(name) && typeof value !== 'string'
        ? undefined
        : value,
    ),
  );
}

describe.each(paths)('%s', (path) => {
  const protocol = protocolAt(path);

  test('a stream has the same answer as the whole', () => {
    fc.assert(
      fc.property(said, fc.array(fc.integer({ min: 1, max: 90 })), (given, sizes) => {
        const { whole, events } = answerAt(path, withIds(given), frame(1));
        const collector = protocol.collector();
        for (const event of eventsIn(events.join(''), sizes)) {
          const data = jsonIn(event);
          if (isFields(data)) collector.take(data);
        }
        const [streamed, one] = [collector.answer(), protocol.answer(whole as Fields)];
        expect({ ...streamed, items: gist(streamed.items), calls: [] }).toEqual({
          ...one,
          items: gist(one.items),
          calls: [],
        });
        const parsed = ({ calls }: typeof one) =>
          calls.map(({ arguments: args, ...rest }) => ({
            ...rest,
            args: typeof args === 'string' ? JSON.parse(args) : args,
          }));
        expect(parsed(streamed)).toEqual(parsed(one));
      }),
    );
  });

  test('a client sees all of an answer in several streams but our calls', () => {
    fc.assert(
      fc.property(
        fc.array(said, { minLength: 1, maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 90 })),
        (given, sizes) => {
          // Every stream but the last one calls recovery tools only.
          const rounds = given.map(({ text, calls }, index) =>
            withIds({
              text,
              calls:
                index === given.length - 1
                  ? calls
                  : [
                      { name: 'search_history', args: { query: 'x' } },
                      ...calls.filter(({ name }) => isRecoveryTool(name)),
                    ],
            }),
          );
          const editor = protocol.editor(isRecoveryTool);
          let shown = '';
          rounds.forEach((one, index) => {
            const { events } = answerAt(path, one, frame(index + 1));
            for (const event of eventsIn(events.join(''), sizes)) shown += editor.edit(event).join('');
            if (index < rounds.length - 1) editor.goOn();
          });
          shown += editor.end().join('');
          expect(shown).not.toMatch(/search_history|expand_history/);

          const collector = protocol.collector();
          const events = eventsIn(shown, []);
          for (const event of events) {
            const data = jsonIn(event);
            if (isFields(data)) collector.take(data);
          }
          const seen = collector.answer();
          expect(seen.complete).toBe(true);
          const calls = rounds.flatMap((one) => one.calls ?? []).filter(({ name }) => !isRecoveryTool(name));
          expect(seen.calls.map(({ id }) => id)).toEqual(calls.map(({ id }) => id));
          const text = JSON.stringify(seen.items);
          for (const one of rounds)
            for (const word of (one.text ?? '').split(/\s+/))
              expect(text).toContain(JSON.stringify(word).slice(1, -1));
          // The client pays for all requests.
          const usage = rounds.map(
            (_, index) =>
              protocol.answer(answerAt(path, { text: 'x' }, frame(index + 1)).whole as Fields).usage,
          );
          const { model: _model, ...sum } = usage.reduce<Fields>(
            (total, one) => sumOfUsage(total, one as Fields) as Fields,
            {},
          );
          expect(seen.usage).toMatchObject(sum);
          // A single stream without our calls passes as it came.
          const first = rounds[0]!;
          if (rounds.length === 1 && calls.length === first.calls?.length && path !== '/v1/chat/completions')
            expect(shown).toBe(answerAt(path, first, frame(1)).events.join(''));
        },
      ),
    );
  });

  test('the places of what the client sees have no gaps', () => {
    const calls = ['search_history', 'look', 'get_tool_response', 'write'].map((name, index) => ({
      id: `c${index}`,
      name,
      args: {},
    }));
    const editor = protocol.editor(isRecoveryTool);
    const { events } = answerAt(path, { text: 'Well.', calls }, frame(1));
    const shown = [
      ...eventsIn(events.join(''), []).flatMap((event) => editor.edit(event)),
      ...editor.end(),
    ].join('');
    const places = [...shown.matchAll(/"(?:output_index|index)":(\d+)/g)].map(([, place]) => Number(place));
    expect([...new Set(places)].sort()).toEqual(path === '/v1/chat/completions' ? [0, 1] : [0, 1, 2]);
    const numbers = [...shown.matchAll(/"sequence_number":(\d+)/g)].map(([, number]) => Number(number));
    expect(numbers).toEqual(numbers.map((_, index) => index));
  });
});

/** The data of what a client gets of several streams, each a list of data, without our calls. */
function shownOf(protocol: Protocol, ...streams: readonly object[][]): Fields[] {
  const editor = protocol.editor(isRecoveryTool);
  const textOf = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const shown = streams.flatMap((stream, index) => {
    if (index > 0) editor.goOn();
    return eventsIn(stream.map(textOf).join(''), []).flatMap((event) => editor.edit(event));
  });
  return eventsIn([...shown, ...editor.end()].join(''), [])
    .map(jsonIn)
    .filter(isFields);
}

function answerOf(protocol: Protocol, data: readonly object[]): Answer {
  const collector = protocol.collector();
  for (const one of data) collector.take(one as Fields);
  return collector.answer();
}

const delta = (inner: object, more: object = {}) => ({
  id: 'c',
  choices: [{ index: 0, delta: inner, finish_reason: null }],
  ...more,
});
const calls = (...made: object[]) => delta({ tool_calls: made });
const finish = (reason: string, more: object = {}) => ({
  id: 'c',
  choices: [{ index: 0, delta: {}, finish_reason: reason }],
  ...more,
});

describe('a stream of chat completions', () => {
  test('that begins with a chunk without a choice, as Azure’s, passes as it comes', () => {
    const first = { id: '', choices: [], prompt_filter_results: [] };
    const editor = chat.editor(isRecoveryTool);
    const passed = (data: object) =>
      eventsIn(`data: ${JSON.stringify(data)}\n\n`, []).flatMap((event) => editor.edit(event)).length;
    expect([first, delta({ role: 'assistant', content: 'A' }), delta({ content: 'B' })].map(passed)).toEqual([
      1, 1, 1,
    ]);
    const search = calls({ index: 0, id: 'x', function: { name: 'search_history', arguments: '{}' } });
    const shown = shownOf(
      chat,
      [first, delta({ content: 'One. ' }), search, finish('tool_calls')],
      [first, delta({ content: 'Two.' }), finish('stop')],
    );
    expect(answerOf(chat, shown)).toMatchObject({ items: [{ content: 'One. Two.' }], calls: [] });
    expect(shown.map(({ id }) => id)).toEqual(['', 'c', 'c', 'c']);
  });

  test('may tell the name of a call after its id', () => {
    const named = (index: number, name: string) => [
      calls({ index, id: `call-${index}`, type: 'function' }),
      calls({ index, function: { name, arguments: '' } }),
      calls({ index, function: { arguments: '{}' } }),
    ];
    const shown = shownOf(chat, [...named(0, 'search_history'), ...named(1, 'look'), finish('tool_calls')]);
    expect(JSON.stringify(shown)).not.toMatch(/search_history|call-0/);
    expect(answerOf(chat, shown).calls).toEqual([{ id: 'call-1', name: 'look', arguments: '{}' }]);
  });

  test('may mix the pieces of parallel calls', () => {
    const shown = shownOf(chat, [
      calls(
        { index: 0, id: 'ours', function: { name: 'search_history', arguments: '' } },
        { index: 1, id: 'theirs', function: { name: 'look', arguments: '' } },
      ),
      calls({ index: 1, function: { arguments: '{"n"' } }, { index: 0, function: { arguments: '{"query"' } }),
      calls({ index: 0, function: { arguments: ':"x"}' } }),
      calls({ index: 1, function: { arguments: ':1}' } }),
      finish('tool_calls'),
    ]);
    expect(JSON.stringify(shown)).not.toMatch(/search_history|query/);
    expect(answerOf(chat, shown)).toMatchObject({
      complete: true,
      calls: [{ id: 'theirs', name: 'look', arguments: '{"n":1}' }],
    });
  });

  test('that reports its usage with every chunk is counted once', () => {
    const usage = { prompt_tokens: 10, completion_tokens: 1 };
    const search = { index: 0, id: 'x', function: { name: 'search_history', arguments: '{}' } };
    const stream = (inner: object, reason: string) => [
      delta(inner, { usage }),
      finish(reason, { usage }),
      { id: 'c', choices: [], usage },
    ];
    const shown = shownOf(
      chat,
      stream({ tool_calls: [search] }, 'tool_calls'),
      stream({ content: 'A' }, 'stop'),
    );
    expect(shown.at(-1)).toMatchObject({ usage: { prompt_tokens: 20, completion_tokens: 2 } });
  });

  test('may number its calls as it likes', () => {
    const call = calls({ index: 4_294_967_294, id: 'x', function: { name: 'look', arguments: '{}' } });
    expect(answerOf(chat, [call, finish('tool_calls')]).calls).toHaveLength(1);
  });
});

test('messages: each report of usage includes those before it', () => {
  const block = { type: 'tool_use', id: 'x', name: 'search_history', input: {} };
  const stream = (content: object, reason: string) => [
    { type: 'message_start', message: { usage: { input_tokens: 10, output_tokens: 1 } } },
    { type: 'content_block_start', index: 4_294_967_294, content_block: content },
    { type: 'message_delta', delta: {}, usage: { output_tokens: 2 } },
    { type: 'message_delta', delta: { stop_reason: reason }, usage: { output_tokens: 3 } },
    { type: 'message_stop' },
  ];
  const shown = shownOf(messages, stream(block, 'tool_use'), stream({ type: 'text', text: 'A' }, 'end_turn'));
  expect(answerOf(messages, shown)).toMatchObject({
    complete: true,
    usage: { input_tokens: 20, output_tokens: 6 },
  });
});

describe('reasoning of responses', () => {
  const item = (kind: string): Fields => {
    const [type = '', id = ''] = kind.split(' ');
    if (type === 'reasoning') return { type, id, summary: [] };
    if (type === 'message') return { type, id, role: 'assistant', content: [] };
    return { type: 'function_call', id, call_id: id, name: type, arguments: '{}' };
  };
  const streamOf = (output: readonly object[]) => [
    ...output.flatMap((one, index) => [
      { type: 'response.output_item.added', output_index: index, item: one },
      { type: 'response.delta', output_index: index },
      { type: 'response.output_item.done', output_index: index, item: one },
    ]),
    { type: 'response.completed', response: { status: 'completed', output } },
  ];
  const idsOf = (items: readonly Json[]) => items.map((one) => (isFields(one) ? one.id : null)).join(' ');

  test.each([
    ['that leads to our call', ['reasoning r', 'search_history s'], ''],
    ['that leads to the client’s call', ['reasoning r', 'look l', 'search_history s'], 'r l'],
    ['that leads to both', ['reasoning r', 'search_history s', 'look l'], 'r l'],
    ['for each call', ['reasoning r', 'search_history s', 'reasoning q', 'look l'], 'q l'],
    ['in two items', ['reasoning r', 'reasoning q', 'search_history s'], ''],
    ['in two items before a message', ['reasoning r', 'reasoning q', 'message m'], 'r q m'],
    ['that was cut off', ['message m', 'reasoning r'], 'm r'],
  ])('%s is shown together with what follows it', (_, kinds, ids) => {
    const output = kinds.map(item);
    expect(idsOf(responses.shown({ output }, isRecoveryTool, null).output as Json[])).toBe(ids);
    const shown = shownOf(responses, streamOf(output));
    expect(idsOf((shown.at(-1)!.response as Fields).output as Json[])).toBe(ids);
    const told = (type: string) => shown.filter((one) => one.type === type);
    const places = ids === '' ? [] : ids.split(' ').map((__, index) => index);
    for (const type of ['response.output_item.added', 'response.delta', 'response.output_item.done'])
      expect(told(type).map(({ output_index: place }) => place)).toEqual(places);
    expect(idsOf(told('response.output_item.done').map(({ item: one }) => one ?? null))).toBe(ids);
  });

  test('before our call is not in the stream that goes on', () => {
    const first = ['reasoning r', 'message m', 'reasoning q', 'search_history s'].map(item);
    const second = ['reasoning p', 'message n'].map(item);
    const shown = shownOf(responses, streamOf(first), streamOf(second));
    expect(idsOf((shown.at(-1)!.response as Fields).output as Json[])).toBe('r m p n');
  });
});

test('responses: the end of a stream need not repeat its items', () => {
  const item = { type: 'function_call', call_id: 'x', name: 'look', arguments: '{}' };
  const end = { type: 'response.completed', response: { status: 'completed', output: [] } };
  const data = [{ type: 'response.output_item.done', output_index: 0, item }, end];
  expect(answerOf(responses, data)).toMatchObject({ complete: true, items: [item], calls: [{ id: 'x' }] });
});

test('an event that is too long to be read passes in parts', () => {
  const splitter = new EventSplitter(1_000);
  const text = `data: {"x":"${'ü'.repeat(2_000)}"}\n\ndata: {"y":1}\n\n`;
  const bytes = Buffer.from(text);
  const events: SseEvent[] = [];
  for (let at = 0; at < bytes.length; at += 333) events.push(...splitter.take(bytes.subarray(at, at + 333)));
  expect(events.map((event) => event.text).join('')).toBe(text);
  expect(events.map(jsonIn).filter(isFields)).toEqual([{ y: 1 }]);
  expect(splitter.end()).toBeNull();
});

test('events end with any line end, and keep comments and unknown fields', () => {
  const text = ': hello\n\nevent: a\r\ndata: {"x":1}\r\n\r\ndata: one\ndata: two\nid: 7\n\ndata: [DONE]';
  for (const sizes of [[], [1], [3], [7, 2]]) {
    const events = eventsIn(text, sizes);
    expect(events.map((event) => event.text).join('')).toBe(text);
    expect(events.map(({ data }) => data)).toEqual([null, '{"x":1}', 'one\ntwo', '[DONE]']);
  }
});

test.each([
  ['tool_use', 'search_history', true],
  ['max_tokens', 'search_history', false],
  ['tool_use', 'look', false],
])('an unreadable call of Anthropic that ends with %s (%s)', (reason, name, complete) => {
  const collector = messages.collector();
  const block = { type: 'tool_use', id: 'call', name, input: {} };
  collector.take({ type: 'content_block_start', index: 0, content_block: block });
  const delta = { type: 'input_json_delta', partial_json: '{"query"' };
  collector.take({ type: 'content_block_delta', index: 0, delta });
  collector.take({ type: 'content_block_stop', index: 0 });
  collector.take({ type: 'message_delta', delta: { stop_reason: reason } });
  expect(collector.answer()).toMatchObject({
    items: [{ role: 'assistant', content: [block] }],
    calls: [{ id: 'call', name, arguments: '{"query"' }],
    complete,
  });
});
