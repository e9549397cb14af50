/** For providers that require alternating turns, neighbours are joined, and nothing is lost, mutated or rewritten later. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { alternateRoles, wantsAlternation } from '../../../src/context/view/alternate.js';
import { buildView, type ViewItem } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import { plainTextOf } from '../../../src/summary/text/sentences.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';

const counter = counterFor('o200k_base');

const view = (messages: readonly ChatMessage[]): ViewItem[] =>
  buildView(
    {
      system: [],
      head: null,
      tail: messages.map((message, index) => ({
        seq: index + 1,
        message,
        tokens: countMessage(message, counter),
      })),
      reductions: [],
    },
    counter,
  );

const shown = (messages: readonly ChatMessage[]) =>
  alternateRoles(view(messages)).map(({ message }) => message);

const user = (content: ChatMessage['content'], name?: string): ChatMessage => ({
  role: 'user',
  content,
  ...(name ? { name } : {}),
});

const assistant = (content: ChatMessage['content'], id?: string): ChatMessage => ({
  role: 'assistant',
  content,
  ...(id ? { tool_calls: [{ id, type: 'function', function: { name: 'bash', arguments: '{}' } }] } : {}),
});

const result = (id: string): ChatMessage => ({ role: 'tool', tool_call_id: id, content: `result of ${id}` });

describe('neighbours of the same role', () => {
  test('users: texts with a blank line between', () => {
    expect(shown([user('A'), user('B'), assistant('C')])).toEqual([user('A\n\nB'), assistant('C')]);
  });

  test('texts and parts: parts, in order', () => {
    const image = { type: 'image_url', image_url: { url: 'https://x/y.png' } };
    expect(shown([user('A'), user([image]), user('C')])).toEqual([
      user([{ type: 'text', text: 'A' }, image, { type: 'text', text: 'C' }]),
    ]);
  });

  test('an assistant text precedes the calls that follow it, and their results stay after them', () => {
    const [first, call, answer, ...rest] = alternateRoles(
      view([
        user('A'),
        assistant('I look.'),
        assistant(null, 'c1'),
        result('c1'),
        assistant('Done'),
        assistant('Really.'),
      ]),
    );
    expect(first?.message).toEqual(user('A'));
    expect(call?.message).toEqual({ ...assistant(null, 'c1'), content: 'I look.' });
    expect(answer?.message).toEqual(result('c1'));
    expect(call?.group).toBe(answer?.group);
    expect([call?.fromSeq, call?.throughSeq]).toEqual([2, 3]);
    expect(rest.map(({ message }) => message)).toEqual([assistant('Done\n\nReally.')]);
  });

  test('reasoning and refusals are also joined', () => {
    const [, joined] = shown([
      user('A'),
      { role: 'assistant', content: 'x', reasoning_content: 'r1' },
      { role: 'assistant', content: 'y', reasoning_content: 'r2', refusal: 'no' },
    ]);
    expect(joined).toEqual({
      role: 'assistant',
      content: 'x\n\ny',
      reasoning_content: 'r1\n\nr2',
      refusal: 'no',
    });
  });

  test("another speaker's name precedes the text; the first speaker keeps the name field", () => {
    expect(shown([user('A', 'ann'), user('B', 'bob'), user('C', 'ann')])).toEqual([
      user('A\n\n[bob] B\n\nC', 'ann'),
    ]);
    expect(shown([user('A'), user('B', 'bob')])).toEqual([user('A\n\n[bob] B')]);
  });

  test('system messages stay as they are', () => {
    const system: ChatMessage = { role: 'system', content: 'S' };
    const items = view([user('A')]).map((item) => ({ ...item }));
    const leading = items.map((item) => ({ ...item, message: system, role: 'system' as const }));
    expect(alternateRoles([...leading, ...leading, ...items]).map(({ message }) => message)).toEqual([
      system,
      system,
      user('A'),
    ]);
  });
});

describe('the first turn', () => {
  test("is the user's: a placeholder precedes an assistant that begins", () => {
    const [opening, first] = alternateRoles(view([assistant('Hello, how can I help?'), user('A')]));
    expect(opening).toMatchObject({ source: 'synthetic', message: { role: 'user' } });
    expect(countMessage(opening!.message, counter)).toBeLessThanOrEqual(opening!.tokens);
    expect(first?.message).toEqual(assistant('Hello, how can I help?'));
  });

  test('an empty context stays empty', () => expect(alternateRoles([])).toEqual([]));
});

test('is decided by the policy, else by the provider of the model', () => {
  const wants = (model: string | null, roles: 'auto' | 'alternate' | 'free' = 'auto') =>
    wantsAlternation({ model, roles });
  for (const model of [
    'claude-sonnet-4-5',
    'anthropic/claude-3.5-haiku',
    'gemini-2.5-pro',
    'models/gemini-2.0-flash',
    'mistral-large-latest',
    'mistralai/Mixtral-8x7B',
    'google/gemma-3-27b',
    'us.anthropic.claude-v2',
    'llama2',
  ])
    expect(wants(model), model).toBe(true);
  for (const model of [null, 'gpt-4o', 'o3', 'deepseek-chat', 'llama-3.1-70b', 'qwen3'])
    expect(wants(model), String(model)).toBe(false);
  expect(wants('gpt-4o', 'alternate')).toBe(true);
  expect(wants('claude-3', 'free')).toBe(false);
});

const text = fc.string({ maxLength: 12 }).map((value) => `x${value}`);

const content = fc.oneof(
  text,
  fc.array(
    text.map((value) => ({ type: 'text', text: value })),
    { minLength: 1, maxLength: 3 },
  ),
);

const turn: fc.Arbitrary<ChatMessage[]> = fc.oneof(
  fc
    .tuple(content, fc.option(fc.constantFrom('ann', 'bob'), { nil: undefined }))
    .map(([value, name]) => [user(value, name)]),
  content.map((value) => [assistant(value)]),
  fc.tuple(fc.option(text), fc.uuid()).map(([value, id]) => [assistant(value, id), result(id)]),
  fc.uuid().map((id) => [assistant(null, id)]),
);

const conversation = fc.array(turn, { maxLength: 10 }).map((turns) => turns.flat());

describe('of any conversation', () => {
  test('user and assistant take turns, it begins with the user, and every text is there in order', () => {
    fc.assert(
      fc.property(conversation, (messages) => {
        const before = JSON.stringify(messages);
        const items = alternateRoles(view(messages));
        const roles = items.map(({ message }) => message.role);
        expect(JSON.stringify(messages)).toBe(before);
        expect(validateView(items.map(({ message }) => message))).toEqual([]);
        if (roles.length > 0) expect(roles[0]).toBe('user');
        roles.forEach((role, index) => {
          const next = roles[index + 1];
          if (role === 'user') expect(next).not.toBe('user');
          if (role === 'assistant' && !items[index]!.message.tool_calls) expect(next).not.toBe('assistant');
        });
        const all = items.map(({ message }) => plainTextOf(message)).join('\n');
        let at = 0;
        for (const item of view(messages)) {
          for (const line of plainTextOf(item.message).split('\n')) {
            const found = all.indexOf(line, at);
            expect(found).toBeGreaterThanOrEqual(at);
            at = found + line.length;
          }
        }
      }),
    );
  });

  test('tokens are never below the count of what is sent', () => {
    fc.assert(
      fc.property(conversation, (messages) => {
        for (const { message, tokens } of alternateRoles(view(messages)))
          expect(tokens).toBeGreaterThanOrEqual(countMessage(message, counter));
      }),
    );
  });

  test('what is appended later only adds to its end', () => {
    // Calls that wait are given their result in the view, so a turn is whole or not there.
    const whole = fc.array(turn, { maxLength: 8 });
    fc.assert(
      fc.property(whole, fc.nat(8), (turns, length) => {
        const flat = (some: ChatMessage[][]) =>
          shown(some.flat()).map((message) => [message.role, plainTextOf(message), message.name] as const);
        const earlier = flat(turns.slice(0, length));
        const later = flat(turns);
        earlier.forEach(([role, said, name], index) => {
          expect(later[index]?.[0]).toBe(role);
          expect(later[index]?.[1].startsWith(said)).toBe(true);
          expect(later[index]?.[2]).toBe(name);
        });
      }),
    );
  });
});
