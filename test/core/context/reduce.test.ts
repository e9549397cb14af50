/**
 * Invariant 8, the context always fits: reductions are deterministic, in the order of the design, and stop only at the
 * irreducible floor. Also invariant 7: every reduced context is valid. Also invariant 10: reductions stay, and the context
 * grows at its end.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  buildView,
  type ContextSource,
  type Reduction,
  viewing,
  type ViewItem,
} from '../../../src/context/view/view.js';
import type { ChatMessage, LoggedMessage } from '../../../src/conversation/message.js';
import { linkViolations } from '../../../src/context/view/validity.js';
import { isFailure, type PalimpsestError } from '../../../src/errors.js';
import { reducing } from '../../../src/context/reductions/to-fit.js';
import { counterFor, type TokenCounter } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { atOnce } from '../../../src/steps.js';
import { histories, logOf, sourceOf } from '../../support/histories.js';
import { sized } from '../../support/size.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const reduceToFit = (...given: Parameters<typeof reducing>) => atOnce(reducing(...given));

const counter = counterFor('chars/4');
const user = (content: string): ChatMessage => ({ role: 'user', content });
const says = (content: string): ChatMessage => ({ role: 'assistant', content });

const calls = (ids: string[], args = '{}'): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'bash', arguments: args } })),
});

const result = (id: string, content: ChatMessage['content'] = 'ok'): ChatMessage => ({
  role: 'tool',
  tool_call_id: id,
  content,
});

const words = (count: number) => 'word '.repeat(count).trim();

const messagesOf = (view: readonly ViewItem[]) => view.map(({ message }) => message);

const sizeOf = (messages: readonly ChatMessage[], by: TokenCounter = counter) =>
  messages.reduce((sum, message) => sum + countMessage(message, by), 0);

const viewOf = (messages: ChatMessage[]) => buildView(sourceOf(logOf(messages, counter)), counter);

const fit = (messages: ChatMessage[], limit: number, target = limit) =>
  reduceToFit(viewOf(messages), { limit, target }, counter);

const contentOf = (view: readonly ViewItem[], seq: number) =>
  String(view.find(({ fromSeq }) => fromSeq === seq)?.message.content);

function unreachable(run: () => unknown): PalimpsestError | null {
  try {
    run();
    return null;
  } catch (error) {
    if (isFailure(error, 'Budget.Unreachable')) return error;
    throw error;
  }
}

describe('a view that fits', () => {
  test('stays unchanged', () => {
    const view = viewOf([user('x'), says(words(50))]);
    expect(reduceToFit(view, { limit: 1_000, target: 10 }, counter)).toEqual({
      reductions: [],
      view,
      tokens: sizeOf(messagesOf(view)),
    });
  });
});

describe('the order of reductions', () => {
  const run = [
    user('first'),
    calls(['a'], JSON.stringify({ path: '/tmp/f', content: words(1_000) })),
    result('a', words(2_000)),
    says(words(1_500)),
    calls(['b']),
    result('b', words(900)),
    user('second'),
    calls(['c']),
    result('c', words(300)),
  ];
  const kindsAt = (limit: number) => fit(run, limit).reductions.map(({ fromSeq, kind }) => [fromSeq, kind]);

  test('the largest tool result', () => expect(kindsAt(7_000)).toEqual([[3, 'tool_result']]));
  test('then the others', () =>
    expect(kindsAt(4_300)).toEqual([
      [3, 'tool_result'],
      [6, 'tool_result'],
    ]));
  test('then arguments', () =>
    expect(kindsAt(3_000)).toEqual([
      [2, 'arguments'],
      [3, 'tool_result'],
      [6, 'tool_result'],
    ]));
  test('then messages', () =>
    expect(kindsAt(1_500)).toEqual([
      [2, 'arguments'],
      [3, 'tool_result'],
      [4, 'message'],
      [6, 'tool_result'],
    ]));
  test('then the oldest groups, replaced by one note', () => {
    const { reductions, view } = fit(run, 450);
    expect(reductions.map(({ kind }) => kind)).toContain('omitted');
    expect(contentOf(view, 9)).toBe(words(300));
  });
  test('the latest tool batch last', () => {
    const { view, tokens } = fit(run, 200);
    expect(contentOf(view, 9)).toContain('left out; message 9 is kept in full: get_tool_response("c")]');
    expect(tokens).toBeLessThanOrEqual(200);
    expect(linkViolations(messagesOf(view))).toEqual([]);
  });
  test('the newest user message never', () => {
    for (const limit of [7_000, 1_500, 450, 200])
      expect(messagesOf(fit(run, limit).view)).toContainEqual(user('second'));
  });

  test('a batch that cannot fit is cut before all other messages are dropped for it', () => {
    const { view, tokens } = fit(
      [
        user('first'),
        says(words(200)),
        user('go'),
        calls(['a', 'b']),
        result('a', words(9_000)),
        result('b', words(9_000)),
      ],
      3_000,
      2_000,
    );
    expect(contentOf(view, 2)).toBe(words(200));
    expect(tokens).toBeLessThanOrEqual(2_000);
  });

  test('the newest answer stays whole as long as older messages can give way', () => {
    const talk = [user('a'), says(words(900)), user('b'), says(words(300)), user('c')];
    const { view } = fit(talk, 600);
    expect(contentOf(view, 2)).toContain('message 2');
    expect(contentOf(view, 4)).toBe(words(300));
    expect(fit(talk, 200).tokens).toBeLessThanOrEqual(200);
  });

  test('reduces to the target, so that the next turns fit', () => {
    expect(fit(run, 5_000, 2_000).tokens).toBeLessThanOrEqual(2_000);
  });
});

describe('reduced texts', () => {
  test('have beginning and end of the text, and say how much is left out and where it is', () => {
    const text = `HEAD ${words(4_000)} TAIL`;
    const { view } = fit(
      [user('x'), calls(['call_abc']), result('call_abc', text), says('y'), calls(['z']), result('z')],
      2_200,
    );
    const shown = contentOf(view, 3);
    const [, leftOut] =
      /\n\[… ([\d,]+) characters left out; message 3 is kept in full: get_tool_response\("call_abc"\)\]\n/.exec(
        shown,
      )!;
    expect(shown.startsWith('HEAD word')).toBe(true);
    expect(shown.endsWith('word TAIL')).toBe(true);
    const pointer = shown.split('\n')[1]!;
    expect(Number(leftOut!.replaceAll(',', ''))).toBe(text.length - (shown.length - pointer.length - 2));
  });

  test('shrink in steps to the pointer alone', () => {
    const run = [user('x'), calls(['a']), result('a', words(20_000)), says('y'), calls(['z']), result('z')];
    const sizes = [3_000, 1_000, 300, 90].map((limit) =>
      countMessage(fit(run, limit).view[2]!.message, counter),
    );
    expect(sizes[0]).toBeGreaterThan(1_500);
    expect(sizes[1]).toBeGreaterThan(400);
    expect(sizes[2]).toBeGreaterThan(90);
    expect(sizes[3]).toBeLessThan(40);
  });

  test('are never cut inside a surrogate pair', () => {
    for (const shift of ['', 'x', 'xy', 'xyz']) {
      const { view } = fit(
        [
          user('q'),
          calls(['a']),
          result('a', shift + '😀'.repeat(5_000)),
          says('y'),
          calls(['z']),
          result('z'),
        ],
        900,
      );
      expect(contentOf(view, 3)).toContain('left out');
      expect(Buffer.from(contentOf(view, 3)).toString()).toBe(contentOf(view, 3));
    }
  });

  test('name no tool if the agent has none, down to the smallest view', () => {
    const run = [
      user(`q ${words(900)}`),
      calls(['a'], JSON.stringify({ path: '/a', content: words(900) })),
      result('a', words(900)),
      user('go on'),
      calls(['z']),
      result('z', words(900)),
    ];
    const shown = (recovery: 'tools' | 'none', limit: number) =>
      reduceToFit(viewOf(run), { limit, target: limit, recovery }, counter);
    for (const limit of [900, 200, 90]) {
      expect(JSON.stringify(shown('tools', limit).view)).toMatch(/get_tool_response|expand_history/);
      const { view, tokens } = shown('none', limit);
      expect(JSON.stringify(view)).not.toMatch(/get_tool_response|search_history|expand_history/);
      expect(tokens).toBeLessThanOrEqual(limit);
    }
    const failure = unreachable(() => shown('none', 1));
    const floor = Number(failure?.details?.['floor']);
    expect(shown('none', floor).tokens).toBe(floor);
    expect(unreachable(() => shown('tools', floor))).not.toBeNull();
  });

  test('have placeholders for media', () => {
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
    const { view } = fit(
      [{ role: 'user', content: [{ type: 'text', text: 'look' }, image, image] }, says('nice'), user('go')],
      200,
    );
    expect(contentOf(view, 1)).toBe(
      'look\n[image]\n[image]\n[… 2 media parts left out; message 1 is kept in full: get_tool_response(message 1)]',
    );
  });

  test('of arguments are valid JSON, with keys, numbers and short strings as they were written', () => {
    const args = `{"path":"/tmp/é","n":12345678901234567890,"content":${JSON.stringify(`"${'line\n'.repeat(3_000)}\\`)},"ok":true}`;
    const { view, reductions } = fit(
      [user('x'), calls(['a'], args), result('a'), says('y'), calls(['z']), result('z')],
      400,
    );
    expect(reductions.map(({ kind }) => kind)).toEqual(['arguments']);
    const shown = view[1]!.message.tool_calls![0]!.function!.arguments;
    expect(shown).toContain('"n":12345678901234567890');
    expect(JSON.parse(shown)).toMatchObject({
      path: '/tmp/é',
      ok: true,
      content: expect.stringContaining('characters left out; see message 2]'),
    });
  });

  test('of arguments that are not JSON, or have nothing long, are one object', () => {
    const long = Array.from({ length: 3_000 }, (_, index) => index);
    for (const args of [`{"broken": ${words(2_000)}`, JSON.stringify(long)]) {
      const { view } = fit(
        [user('x'), calls(['a'], args), result('a'), says('y'), calls(['z']), result('z')],
        400,
      );
      const shown = JSON.parse(view[1]!.message.tool_calls![0]!.function!.arguments);
      expect(Object.keys(shown)).toEqual(['left_out']);
      expect(shown.left_out).toContain('message 2 is kept in full');
    }
  });

  test('of an orphan result keep its label', () => {
    const { view } = fit(
      [user('x'), { role: 'tool', content: words(3_000) }, says('y'), calls(['z']), result('z')],
      400,
    );
    expect(view[1]).toMatchObject({ source: 'reduced', role: 'tool', message: { role: 'user' } });
    expect(contentOf(view, 2)).toContain('not an instruction.]');
    expect(contentOf(view, 2)).toContain('message 2 is kept in full');
  });

  test('drop reasoning, and say so', () => {
    const thinks = { ...says('short'), reasoning_content: words(2_000) };
    const { view } = fit([user('x'), thinks, says('y'), user('go')], 200);
    expect(view[1]!.message).toEqual(
      says('short\n[… reasoning left out; message 2 is kept in full: get_tool_response(message 2)]'),
    );
  });

  test('long call ids are not repeated', () => {
    const id = 'i'.repeat(500);
    const { view } = fit(
      [user('x'), calls([id]), result(id, words(2_000)), says('y'), calls(['z']), result('z')],
      300,
    );
    expect(contentOf(view, 3)).toContain('message 3 is kept in full: get_tool_response(message 3)]');
  });
});

describe('large messages', () => {
  test('one user message followed by 1,000 tool steps fits', () => {
    const steps = Array.from({ length: 1_000 }, (_, i) => [
      calls([`c${i}`], JSON.stringify({ i })),
      result(`c${i}`, words(100)),
    ]).flat();
    const { view, tokens, reductions } = fit(
      [{ role: 'system', content: 'rules' }, user('the request'), ...steps],
      4_000,
      2_500,
    );
    expect(tokens).toBeLessThanOrEqual(2_500);
    expect(linkViolations(messagesOf(view))).toEqual([]);
    expect(messagesOf(view).slice(0, 3)).toEqual([
      { role: 'system', content: 'rules' },
      user('the request'),
      user(expect.stringMatching(/^\[Messages 3–\d+ are left out here/)),
    ]);
    expect(reductions.filter(({ kind }) => kind === 'omitted')).toHaveLength(1);
    expect(contentOf(view, 2_002)).toBe(words(100));
  });

  test('a batch of 50 parallel results fits', () => {
    const ids = Array.from({ length: 50 }, (_, i) => `c${i}`);
    const { view, tokens } = fit(
      [user('go'), calls(ids), ...ids.map((id) => result(id, words(2_000)))],
      8_000,
      6_000,
    );
    expect(tokens).toBeLessThanOrEqual(6_000);
    expect(messagesOf(view).filter(({ role }) => role === 'tool')).toHaveLength(50);
    expect(linkViolations(messagesOf(view))).toEqual([]);
  });

  test('a result after the newest user message is dropped with its call if nothing else fits', () => {
    const run = [
      user('first'),
      calls(['a', 'b']),
      user('stop'),
      result('b', words(50)),
      says(words(50)),
      result('a', words(50)),
    ];
    const { view, reductions } = fit(run, 70);
    expect(messagesOf(view)).toMatchObject([
      user(expect.stringContaining('[Messages 1–2 are left out')),
      user('stop'),
      user(expect.stringContaining('[Messages 4–6 are left out')),
    ]);
    expect(buildView(sourceOf(logOf(run, counter), reductions), counter)).toEqual(view);
    expect(messagesOf(fit(run, 150).view)[1]).toEqual(calls(['a', 'b']));
  });

  test('5,000 messages are reduced with few counts of little text', () => {
    const steps = Array.from({ length: 1_666 }, (_, i) => [
      user(words(200)),
      calls([`c${i}`]),
      result(`c${i}`, words(400)),
    ]).flat();
    const view = viewOf(steps);
    let counted = 0;
    const counting: TokenCounter = {
      name: counter.name,
      count: (text) => ((counted += text.length), counter.count(text)),
    };
    const { tokens } = reduceToFit(view, { limit: 20_000, target: 12_000 }, counting);
    expect(tokens).toBeLessThanOrEqual(12_000);
    const total = JSON.stringify(messagesOf(view)).length;
    expect(counted).toBeLessThan(3 * total);
  });
});

describe('Budget.Unreachable', () => {
  test('when the newest user message does not fit, with the numbers', () => {
    const error = unreachable(() =>
      fit([{ role: 'system', content: words(100) }, user('old'), says('a'), user(words(1_000))], 500),
    );
    expect(error?.details).toEqual({
      floor: 1_254 + 129 + 10,
      budget: 500,
      system: 129,
      head: 0,
      newestUser: 1_254,
      rest: 10,
    });
    expect(error?.message).toContain('1393');
  });

  test('when the leading system messages do not fit', () => {
    expect(unreachable(() => fit([{ role: 'system', content: words(1_000) }], 500))?.details).toMatchObject({
      system: 1_254,
      rest: 0,
    });
  });

  test('counts the carried request as the newest user message if the tail has none', () => {
    const head = { messages: [user('summary'), user(words(500))], tokens: [6, 629], carriedSeq: 1 };
    const source: ContextSource = { system: [], head, tail: logOf([says('x')], counter), reductions: [] };
    expect(
      unreachable(() => reduceToFit(buildView(source, counter), { limit: 100, target: 100 }, counter))
        ?.details,
    ).toMatchObject({
      head: 6,
      newestUser: 629,
    });
  });
});

describe('inside a compaction', () => {
  const run = [
    user('x'),
    calls(['a']),
    result('a', words(2_000)),
    says('y'),
    calls(['b']),
    result('b', words(2_000)),
  ];
  test('the latest tool batch and every group stay, and no error is thrown', () => {
    const { reductions, view } = reduceToFit(viewOf(run), { limit: 50, target: 50, commit: true }, counter);
    expect(reductions.map(({ fromSeq }) => fromSeq)).toEqual([3]);
    expect(contentOf(view, 6)).toBe(words(2_000));
    expect(view).toHaveLength(6);
  });
});

/** Independent of the code under test: the tokens of protected messages, and of the rest if each side of them is one note. */
function floorOf(log: readonly LoggedMessage[], source: ContextSource, view: readonly ViewItem[]) {
  const newest = source.tail.findLast(
    ({ message, seq }) => message.role === 'user' && view.some(({ fromSeq }) => fromSeq === seq),
  );
  const fixed = sizeOf(
    [...source.system.map(({ message }) => message), ...(newest ? [newest.message] : [])].filter(
      ({ content }) => String(content ?? '').trim() !== '',
    ),
  );
  const others = view.filter(({ source, fromSeq }) => source !== 'system' && fromSeq !== newest?.seq);
  const seqs = others.filter(({ fromSeq }) => fromSeq > 0).map(({ fromSeq }) => fromSeq);
  const sides = newest
    ? [seqs.some((seq) => seq < newest.seq), seqs.some((seq) => seq > newest.seq)]
    : [seqs.length > 0];
  const note = Math.max(
    ...[1, log.length].map((seq) =>
      countMessage(
        user(
          `[Messages ${seq}–${log.length} are left out here to fit the context window; kept in full: use expand_history]`,
        ),
        counter,
      ),
    ),
  );
  return {
    newest,
    fixed,
    most:
      fixed +
      Math.min(
        sides.filter(Boolean).length * note,
        others.reduce((sum, { tokens }) => sum + tokens, 0),
      ),
  };
}

test('8. any history, any budget: the context is valid and fits, or its floor exceeds the budget', () => {
  fc.assert(
    fc.property(histories, fc.integer({ min: 0, max: 1_500 }), fc.nat(100), (messages, limit, percent) => {
      const log = logOf(messages, counter);
      const source = sourceOf(log);
      const view = buildView(source, counter);
      const before = JSON.stringify(view);
      const { newest, fixed, most } = floorOf(log, source, view);
      const options = { limit, target: Math.floor((limit * percent) / 100) };
      const error = unreachable(() => reduceToFit(view, options, counter));
      expect(JSON.stringify(view)).toBe(before);
      if (error) {
        const { floor, budget, system, head, newestUser, rest } = error.details as Record<string, number>;
        expect(budget).toBe(limit);
        expect(floor).toBeGreaterThan(limit);
        expect(floor).toBe(system! + head! + newestUser! + rest!);
        expect(system! + newestUser!).toBe(fixed);
        expect(floor).toBeLessThanOrEqual(most);
        const atFloor = reduceToFit(view, { limit: floor!, target: floor! }, counter);
        expect(atFloor.tokens).toBeLessThanOrEqual(floor!);
        expect(linkViolations(messagesOf(atFloor.view))).toEqual([]);
        return;
      }
      const fitted = reduceToFit(view, options, counter);
      expect(linkViolations(messagesOf(fitted.view))).toEqual([]);
      expect(fitted.tokens).toBeLessThanOrEqual(limit);
      expect(fitted.tokens).toBe(sizeOf(messagesOf(fitted.view)));
      if (newest) expect(messagesOf(fitted.view)).toContainEqual(newest.message);
      expect(fitted.view.filter(({ source }) => source === 'system')).toEqual(
        view.filter(({ source }) => source === 'system'),
      );

      expect(reduceToFit(view, options, counter)).toEqual(fitted);
      expect(reduceToFit(fitted.view, options, counter)).toEqual({ ...fitted, reductions: [] });
      expect(buildView({ ...source, reductions: fitted.reductions }, counter)).toEqual(fitted.view);
    }),
    { numRuns: 1_000 },
  );
});

test('8. any history: every reduced text is smaller than its original, and a group stays or is dropped as a whole', () => {
  fc.assert(
    fc.property(histories, fc.integer({ min: 0, max: 1_500 }), fc.boolean(), (messages, limit, commit) => {
      const view = viewOf(messages);
      let fitted;
      try {
        fitted = reduceToFit(view, { limit, target: limit, commit }, counter);
      } catch (error) {
        if (isFailure(error, 'Budget.Unreachable')) return;
        throw error;
      }
      const kept = fitted.view.filter(({ source }) => source !== 'omitted');
      for (const { fromSeq, kind, tokens, body } of fitted.reductions) {
        expect(tokens).toBe(countMessage(JSON.parse(body), counter));
        if (kind !== 'omitted')
          expect(tokens).toBeLessThan(view.find((item) => item.fromSeq === fromSeq)!.tokens);
      }
      for (const group of new Set(view.map(({ group }) => group))) {
        const size = (items: ViewItem[]) => items.filter((item) => item.group === group).length;
        expect([0, size(view)]).toContain(size(kept));
      }
      const tokensOf = (items: ViewItem[]) => items.reduce((sum, { tokens }) => sum + tokens, 0);
      const gone = view.filter(({ group }) => !kept.some((item) => item.group === group));
      const notes = fitted.view.filter(({ source }) => source === 'omitted');
      if (notes.length > 0) expect(tokensOf(notes)).toBeLessThan(tokensOf(gone));
      if (commit) expect(gone).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

test('10. any history, read after every message: reductions stay, and between them the context only grows at its end', () => {
  fc.assert(
    fc.property(histories, fc.integer({ min: 150, max: 900 }), (messages, limit) => {
      const log = logOf(messages, counter);
      const leading = sourceOf(log).system.length;
      let reductions: Reduction[] = [];
      let earlier: ViewItem[] = [];
      for (let length = leading; length <= log.length; length += 1) {
        const view = buildView(sourceOf(log.slice(0, length), reductions), counter);
        earlier.forEach((item, index) => {
          if (item.source === 'synthetic' && view[index]?.source === 'log')
            expect(view[index]?.fromSeq).toBe(length);
          else expect(view[index]).toEqual(item);
        });
        let fitted;
        try {
          fitted = reduceToFit(view, { limit, target: Math.floor(limit * 0.6) }, counter);
        } catch (error) {
          if (isFailure(error, 'Budget.Unreachable')) return;
          throw error;
        }
        for (const { message, fromSeq } of view.filter(
          ({ source }) => source === 'reduced' || source === 'omitted',
        )) {
          const stays = fitted.view.some(
            (item) => item.fromSeq === fromSeq && JSON.stringify(item.message) === JSON.stringify(message),
          );
          const covered = fitted.reductions.some(
            (other) => other.kind === 'omitted' && other.fromSeq <= fromSeq && fromSeq <= other.throughSeq,
          );
          expect(stays || covered).toBe(true);
        }
        expect(linkViolations(messagesOf(fitted.view))).toEqual([]);
        reductions = [...reductions, ...fitted.reductions];
        earlier = fitted.view;
      }
    }),
    { numRuns: 200 },
  );
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test.each([7_000, 28_000])(
    'each fits %i tokens in a valid form, or its smallest context exceeds them',
    async (limit) => {
      const bpe = counterFor('o200k_base');
      const beyond: string[] = [];
      let sessions = 0;
      for await (const { line } of readTranscripts(sized(4, 1))) {
        const { id, messages } = JSON.parse(line) as { id: string; messages: ChatMessage[] };
        sessions += 1;
        const source = sourceOf(logOf(messages, bpe));
        const view = buildView(source, bpe);
        expect(linkViolations(messagesOf(view)), id).toEqual([]);
        const newest = source.tail.findLast(
          ({ message }) => message.role === 'user' && String(message.content ?? '').trim() !== '',
        );
        const fixed = sizeOf(
          [...source.system.map(({ message }) => message), ...(newest ? [newest.message] : [])],
          bpe,
        );
        try {
          const fitted = reduceToFit(view, { limit, target: 0.6 * limit }, bpe);
          expect(linkViolations(messagesOf(fitted.view)), id).toEqual([]);
          expect(sizeOf(messagesOf(fitted.view), bpe), id).toBe(fitted.tokens);
          expect(fitted.tokens, id).toBeLessThanOrEqual(limit);
          if (newest) expect(messagesOf(fitted.view), id).toContainEqual(newest.message);
          expect(buildView({ ...source, reductions: fitted.reductions }, bpe), id).toEqual(fitted.view);
        } catch (error) {
          if (!isFailure(error, 'Budget.Unreachable')) throw error;
          expect(fixed + 100, id).toBeGreaterThan(limit);
          beyond.push(id);
        }
      }
      console.log(`${sessions} sessions at ${limit}; floor beyond it: ${beyond.join(', ') || 'none'}`);
      expect(sessions).toBeGreaterThan(0);
    },
  );
});

test('8. a session far beyond its budget: only messages that can stay are shortened, the rest is dropped at once', () => {
  let counted = 0;
  const counting: TokenCounter = { ...counter, count: (text) => (counted++, counter.count(text)) };
  const log = logOf(
    Array.from({ length: 20_000 }, (_, index): ChatMessage => ({
      role: index % 2 === 0 ? 'user' : 'assistant',
      content: `message ${index} ${'of many words '.repeat(20)}`,
    })),
    counter,
  );
  const view = buildView({ system: [], head: null, tail: log, reductions: [] }, counter);
  const fit = reduceToFit(view, { limit: 8_000, target: 4_800 }, counting);
  expect(fit.tokens).toBeLessThanOrEqual(4_800);
  expect(fit.view.at(-2)).toEqual(view.at(-2));
  expect(fit.view[0]).toMatchObject({ source: 'omitted', fromSeq: 1 });
  // Each shortened message is counted a few times; the 19,000 others not at all.
  expect(counted).toBeLessThan(10_000);
});

describe('a long history is reduced in steps, between which other work runs', () => {
  const turns = Array.from({ length: 500 }, (_, number) => [
    user(`question ${number} ${words(20)}`),
    calls([`c${number}`], JSON.stringify({ path: `/f/${number}`, content: words(40) })),
    result(`c${number}`, words(60)),
    says(`answer ${number} ${words(30)}`),
  ]).flat();
  /** Of the texts counted between two steps. */
  function mostCounted(limit: number, spared: (item: ViewItem) => boolean): number {
    let counted = 0;
    const watched: TokenCounter = { ...counter, count: (text) => (counted++, counter.count(text)) };
    const source = sourceOf(logOf(turns, counter));
    let most = 0;
    const steps = (function* () {
      const view = yield* viewing(source, watched);
      return yield* reducing(view, { limit, target: limit / 2, spared }, watched);
    })();
    try {
      for (let step = steps.next(); !step.done; step = steps.next(), counted = 0)
        most = Math.max(most, counted);
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable')) throw error;
    }
    return Math.max(most, counted);
  }
  test.each([
    ['everything may be shortened', 40_000, () => false],
    ['nearly all of it goes', 400, () => false],
    ['each turn holds a result that stays', 50_000, ({ tool }: ViewItem) => tool === 'bash'],
    ['nothing fits', 20, () => false],
  ])('where %s', (_name, limit, spared) => expect(mostCounted(limit, spared)).toBeLessThan(60));
});
