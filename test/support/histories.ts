import fc from 'fast-check';
import type { ContextSource } from '../../src/context/view/view.js';
import type { ChatMessage, LoggedMessage, MessageMeta, ToolCall } from '../../src/conversation/message.js';
import { metaOf } from '../../src/conversation/validate.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { countMessage } from '../../src/tokens/message.js';

const callIds = fc.constantFrom('a', 'b', 'a-3', 'call_1', '');
const toolNames = fc.constantFrom('bash', 'read_file');

/** Short and long texts, with characters outside the basic plane, so that a text may be cut inside a surrogate pair. */
export const texts = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .string({ unit: 'grapheme', minLength: 1, maxLength: 40 })
      .filter((text) => text.trim() !== ''),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        fc.constantFrom('lorem ipsum ', '😀', '{"a":1}\n', '漢字', 'x'),
        fc.integer({ min: 1, max: 600 }),
      )
      .map(([unit, times]) => unit.repeat(times)),
  },
);

const blank = fc.constantFrom('', ' \n', null);

const content = fc.oneof(
  { weight: 6, arbitrary: texts },
  { weight: 1, arbitrary: texts.map((text) => [{ type: 'text', text }]) },
  {
    weight: 1,
    arbitrary: texts.map((text) => [
      { type: 'text', text },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
    ]),
  },
);

const callArguments = fc.oneof(
  fc.constant('{}'),
  texts.map((text) => JSON.stringify({ path: '/tmp/a', content: text, n: 1 })),
  texts.map((text) => `{"broken": ${text}`),
);

const toolCall: fc.Arbitrary<ToolCall> = fc.record({
  id: callIds,
  type: fc.constant('function'),
  function: fc.record({ name: toolNames, arguments: callArguments }),
});

const user = content.map((content): ChatMessage => ({ role: 'user', content }));
const answer = texts.map((content): ChatMessage => ({ role: 'assistant', content }));

const result = (id: string, content: ChatMessage['content']): ChatMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});

const resultContent = fc.oneof({ weight: 5, arbitrary: content }, { weight: 1, arbitrary: blank });

/** Parallel calls with their answers in any order; some calls have no answer. */
const batch = fc
  .record({
    content: fc.oneof(texts, blank),
    calls: fc.array(fc.tuple(toolCall, resultContent, fc.integer({ min: 0, max: 9 })), {
      minLength: 1,
      maxLength: 4,
    }),
  })
  .map(({ content, calls }): ChatMessage[] => [
    { role: 'assistant', content, tool_calls: calls.map(([call]) => call) },
    ...calls
      .filter(([, , order]) => order > 1)
      .sort(([, , one], [, , other]) => one - other)
      .map(([call, content]) => result(call.id, content)),
  ]);

const legacy = fc
  .record({
    name: toolNames,
    text: callArguments,
    content: resultContent,
    answered: fc.boolean(),
    mixed: fc.option(toolCall),
  })
  .map(({ name, text, content, answered, mixed }): ChatMessage[] => [
    {
      role: 'assistant',
      content: null,
      function_call: { name, arguments: text },
      ...(mixed && { tool_calls: [mixed] }),
    },
    ...(answered ? [{ role: 'function' as const, name, content }] : []),
  ]);

/** Returns the message with optional fields as null and calls without their type, as an SDK may write it. */
function asWrittenBySdk(message: ChatMessage): ChatMessage {
  const calls = message.tool_calls?.map(({ type: _type, ...call }) => call) ?? null;
  return JSON.parse(
    JSON.stringify({ ...message, name: null, function_call: null, tool_calls: calls, refusal: null }),
  );
}

const oddity: fc.Arbitrary<ChatMessage[]> = fc.oneof(
  fc.tuple(callIds, resultContent).map(([id, content]) => [result(id, content)]),
  resultContent.map((content): ChatMessage[] => [{ role: 'tool', content }]),
  fc
    .tuple(toolNames, resultContent)
    .map(([name, content]): ChatMessage[] => [{ role: 'function', name, content }]),
  fc
    .tuple(fc.constantFrom('user' as const, 'assistant' as const, 'system' as const), blank)
    .map(([role, content]) => [{ role, content }]),
  answer.map((message): ChatMessage[] => [{ ...message, tool_calls: [] }]),
  answer.map((message) => [asWrittenBySdk(message)]),
  batch.map((messages) => messages.map(asWrittenBySdk)),
  fc
    .tuple(fc.constantFrom('system' as const, 'developer' as const), texts)
    .map(([role, content]) => [{ role, content }]),
);

/**
 * Histories for property tests, which may begin with system messages. Correct agent runs are mixed with the defects of recorded
 * transcripts: results that are late, repeated, missing or without an id, ids used again within and across turns, legacy calls,
 * empty turns, queued user messages, system messages in the middle.
 */
export const histories: fc.Arbitrary<ChatMessage[]> = fc
  .tuple(
    fc.array(fc.tuple(fc.constantFrom('system' as const, 'developer' as const), texts), { maxLength: 2 }),
    fc.array(
      fc.oneof(
        { weight: 3, arbitrary: user.map((message) => [message]) },
        { weight: 2, arbitrary: answer.map((message) => [message]) },
        { weight: 5, arbitrary: batch },
        { weight: 1, arbitrary: legacy },
        { weight: 2, arbitrary: oddity },
      ),
      { maxLength: 14 },
    ),
  )
  .map(([system, rest]) => [
    ...system.map(([role, content]): ChatMessage => ({ role, content })),
    ...rest.flat(),
  ]);

/** Returns a history as a log, with numbered messages and their tokens. */
export function logOf(messages: readonly ChatMessage[], counter: TokenCounter): LoggedMessage[] {
  return messages.map((message, index) => ({
    seq: index + 1,
    message,
    tokens: countMessage(message, counter),
  }));
}

export function metasOf(log: readonly LoggedMessage[], at = 0): MessageMeta[] {
  return log.map(({ seq, message, tokens }) => ({ seq, tokens, at, ...metaOf(message) }));
}

/** Returns the context of a session that was never compacted. */
export function sourceOf(log: LoggedMessage[], reductions: ContextSource['reductions'] = []): ContextSource {
  const body = log.findIndex(({ message: { role } }) => role !== 'system' && role !== 'developer');
  const first = body === -1 ? log.length : body;
  return { system: log.slice(0, first), head: null, tail: log.slice(first), reductions };
}
