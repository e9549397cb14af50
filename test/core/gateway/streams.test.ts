/** Streams of every interface, however they are cut: the client sees the whole answer, and no call of a recovery tool. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { type Fields, isFields } from '../../../src/formats/content.js';
import { protocolOf } from '../../../src/gateway/protocols/index.js';
import type { Protocol } from '../../../src/gateway/protocols/protocol.js';
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
          if (path !== '/v1/messages') expect(seen.usage).toMatchObject(sum);
          else expect(seen.usage).toMatchObject({ output_tokens: sum.output_tokens });
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

test('events end with any line end, and keep comments and unknown fields', () => {
  const text = ': hello\n\nevent: a\r\ndata: {"x":1}\r\n\r\ndata: one\ndata: two\nid: 7\n\ndata: [DONE]';
  for (const sizes of [[], [1], [3], [7, 2]]) {
    const events = eventsIn(text, sizes);
    expect(events.map((event) => event.text).join('')).toBe(text);
    expect(events.map(({ data }) => data)).toEqual([null, '{"x":1}', 'one\ntwo', '[DONE]']);
  }
});
