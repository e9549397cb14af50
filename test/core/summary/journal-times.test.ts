/** Sessions with times: marks of the record, keys of the answers, headings of the entries. */
import { describe, expect, test } from 'vitest';
import { Conversation, type Summarizer } from '../../../src/compaction/in-memory/index.js';
import type { LoggedMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { isLayerHeading, layeredSnapshot, layersOf } from '../../../src/summary/answer/sections.js';
import { recordOf } from '../../../src/summary/ask/record.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';

const logged = (times: (string | undefined)[]): LoggedMessage[] =>
  times.map((at, index) => ({
    ...{ seq: index + 1, tokens: 5, message: { role: 'user', content: `said ${index + 1}` } },
    ...(at === undefined ? {} : { at }),
  }));

const chunk = (fromSeq: number, throughSeq: number) => ({
  ...{ fromSeq, fromChar: 0, throughSeq, throughChar: null, tokens: 20 },
});

describe('the marks of a record', () => {
  const messages = logged([
    '2023-05-07T13:04:05.000Z',
    '2023-05-07T13:59:59.000Z',
    undefined,
    '2023-05-07T14:00:00.000Z',
    '2023-05-08T14:30:00.000Z',
    '2023-05-08T14:31:00.000Z',
  ]);
  const marks = (from: number, through: number) =>
    recordOf(chunk(from, through), messages, '<a1b2>')
      .split('\n')
      .filter((line) => line.startsWith('<a1b2>'));

  test('show each new hour, and the first one in every chunk', () => {
    expect(marks(1, 6)).toEqual([
      '<a1b2>1 user 2023-05-07 13h',
      '<a1b2>2 user',
      '<a1b2>3 user',
      '<a1b2>4 user 2023-05-07 14h',
      '<a1b2>5 user 2023-05-08 14h',
      '<a1b2>6 user',
    ]);
    expect(marks(2, 3)).toEqual(['<a1b2>2 user 2023-05-07 13h', '<a1b2>3 user']);
  });

  test('show none if the time is unknown', () => {
    expect(recordOf(chunk(1, 2), logged([undefined, undefined]), '<a1b2>')).toBe(
      '<a1b2>1 user\nsaid 1\n<a1b2>2 user\nsaid 2',
    );
  });
});

describe('the headings of entries', () => {
  test.each([
    [['2023-05-07', '2023-05-07'], '7 May 2023'],
    [['2023-05-07', '2023-05-09'], '7–9 May 2023'],
    [['2023-05-28', '2023-06-03'], '28 May – 3 June 2023'],
    [['2022-12-30', '2023-01-02'], '30 December 2022 – 2 January 2023'],
  ] as const)('%j: %s', (days, text) => {
    const shown = layeredSnapshot([{ fromSeq: 12, throughSeq: 58, days, text: '- Ann moved to Oslo [m12]' }]);
    expect(shown).toBe(`### Messages 12–58, ${text}\n- Ann moved to Oslo [m12]`);
    expect(isLayerHeading(shown.split('\n')[0]!)).toBe(true);
  });

  test('with days cannot be forged', () => {
    const text = '- one\n### Messages 1–9, 7–9 May 2023\n- two';
    const shown = layeredSnapshot([{ fromSeq: 1, throughSeq: 3, text }]);
    expect(layersOf(shown)).toEqual(['- one\nMessages 1–9, 7–9 May 2023\n- two']);
  });
});

describe('a session with a journal', () => {
  const policy: PolicyInput = { ...smallPolicy, summary: { ...smallPolicy.summary, mode: 'journal' } };

  /** Two turns a day from 7 May on, an hour apart, or said at no time. */
  async function played(hour: ((turn: number) => string) | null) {
    const conversation = new Conversation({ policy });
    const asked: string[] = [];
    const summarize: Summarizer = ({ messages }) => {
      const material = messages.at(-1)?.content ?? '';
      asked.push(material);
      const marked = [...material.matchAll(/^<\d{3}>(\d+) [^\n]*\n([^\n]{0,60})/gm)];
      const kept = material.split('\n').filter((line) => /^- .*\[m\d+\]$/.test(line));
      const lines =
        marked.length > 0 ? marked.slice(0, 4).map(([, seq, text]) => `- ${text} [m${seq}]`) : kept;
      return `## Notes\n${lines.join('\n')}\n## State\n- none`;
    };
    for (const [turn, messages] of dialogue(60).entries()) {
      conversation.append(messages, undefined, undefined, hour?.(turn));
      if (conversation.isDue()) await conversation.compact(summarize);
    }
    return { conversation, asked };
  }

  const day = (turn: number) => String(7 + Math.floor(turn / 6)).padStart(2, '0');
  const minutes = (minute: string) => (turn: number) => `2023-05-${day(turn)}T1${turn % 6}:${minute}:00Z`;
  const keysOf = (conversation: Conversation) =>
    conversation.generations.flatMap(({ layers }) => (layers ?? []).map(({ key }) => key));

  test('shows the model hours and its context days, which stay as they were committed', async () => {
    const { conversation, asked } = await played(minutes('15'));
    const earliest = asked.find((request) => /^<\d{3}>1 /m.test(request));
    expect(earliest).toMatch(/^<\d{3}>1 \w+ 2023-05-07 10h$/m);
    expect(earliest).toMatch(/^<\d{3}>2 \w+$/m);
    const { generations } = conversation;
    expect(generations.length).toBeGreaterThan(2);
    const [first] = generations;
    expect(first!.snapshot).toMatch(/^### Messages 1–\d+, 7(?:–\d+)? May 2023$/m);
    const standing = generations.filter(({ layers }) => layers?.[0]?.key === first!.layers![0]!.key);
    expect(standing.length).toBeGreaterThan(1);
    for (const { snapshot } of standing) expect(snapshot!.startsWith(first!.snapshot!)).toBe(true);
    for (const { layers } of generations)
      for (const { fromSeq, throughSeq, days } of layers ?? [])
        expect(days).toEqual([fromSeq, throughSeq].map((seq) => conversation.log[seq - 1]!.at!.slice(0, 10)));
    const restored = conversation.restore(1);
    expect(restored.snapshot).toBe(first!.snapshot);
  });

  test('makes the same request if the shown hours are equal, else a different one', async () => {
    const [one, same, other, none] = [
      await played(minutes('15')),
      await played(minutes('45')),
      await played((turn) => minutes('15')(turn).replace('2023', '2024')),
      await played(null),
    ];
    expect(keysOf(same.conversation)).toEqual(keysOf(one.conversation));
    // Concurrent requests have no order.
    expect(same.asked.toSorted()).toEqual(one.asked.toSorted());
    const known = new Set(keysOf(one.conversation));
    expect(keysOf(other.conversation).filter((key) => known.has(key))).toEqual([]);
    expect(keysOf(none.conversation).filter((key) => known.has(key))).toEqual([]);
    expect(none.conversation.generations.at(-1)!.snapshot).not.toContain('May');
    expect(none.asked.join('\n')).not.toMatch(/^<\d{3}>\d+ \w+ \d{4}-/m);
  });

  test('refuses an invalid time, and takes the time of a message', () => {
    const conversation = new Conversation({ policy });
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    expect(() => conversation.append(messages, undefined, undefined, 'noon')).toThrowError(
      expect.objectContaining({ type: 'Input.Invalid', path: 'said' }),
    );
    expect(conversation.log).toEqual([]);
    conversation.append(
      [...messages, { role: 'assistant', content: 'Hello', created_at: '2023-05-07T13:00:00Z' }],
      ...[undefined, undefined, '2023-05-07T12:00:00+02:00'],
    );
    expect(conversation.log.map(({ at }) => at)).toEqual([
      '2023-05-07T10:00:00.000Z',
      '2023-05-07T13:00:00.000Z',
    ]);
  });
});
