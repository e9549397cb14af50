/** A summary in any form is read as the Markdown of its sections, and half an answer is refused. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { acceptSnapshot } from '../../../src/summary/answer/accept.js';
import { promptSettings } from '../../../src/summary/ask/prompts.js';
import { resolveSections, sections } from '../../../src/summary/answer/sections.js';
import { formatSnapshot, parseSnapshot } from '../../../src/summary/answer/snapshot.js';
import { readSummary, schemaOf } from '../../../src/summary/answer/structured.js';
import { counterFor } from '../../../src/tokens/counter.js';

const settings = promptSettings({ prompt: null, sections: null, structured: 'auto' });
const read = (text: string) => readSummary(text, settings);
const expected = '## Session intent\n- Fix the login test (open)\n## Next steps\n- Run `npm test`';
const answer = { next: ['Run `npm test`'], intent: ['Fix the login test (open)'], constraints: [] };
const json = JSON.stringify(answer);

describe('a JSON answer becomes Markdown in section order', () => {
  const forms: [name: string, text: string][] = [
    ['bare', json],
    ['indented', JSON.stringify(answer, null, 2)],
    ['fenced', `\`\`\`json\n${json}\n\`\`\``],
    ['after thoughts', `<think>{"intent": ["no"]}</think>${json}`],
    ['with prose around', `Here is the summary:\n${json}\nLet me know if it helps.`],
    ['with prose and a fence around', `Here is the summary:\n\n\`\`\`json\n${json}\n\`\`\`\nDone.`],
    ['in an object of its own', JSON.stringify({ summary: answer })],
    ['in two', JSON.stringify({ result: { state_snapshot: answer } })],
    ['strings for arrays', '{"intent":"- Fix the login test (open)","next":"Run `npm test`","facts":""}'],
    ['titles for keys', JSON.stringify({ 'Session intent': answer.intent, 'Next steps': answer.next })],
    ['camel case', JSON.stringify({ sessionIntent: answer.intent, nextSteps: answer.next })],
    ['other words', JSON.stringify({ goals: answer.intent, remaining_work: answer.next })],
    ['upper case', JSON.stringify({ INTENT: answer.intent, NEXT: answer.next })],
    [
      'a list of sections',
      JSON.stringify([
        { section: 'intent', items: answer.intent },
        { title: 'Next steps', content: answer.next },
      ]),
    ],
    [
      'a list inside',
      JSON.stringify({
        sections: [
          { name: 'Session intent', bullets: answer.intent },
          { key: 'next', text: 'Run `npm test`' },
        ],
      }),
    ],
    ['commas too many', '{"intent": ["Fix the login test (open)",], "next": ["Run `npm test`"],}'],
    ['words for nothing', JSON.stringify({ ...answer, facts: ['None'], decisions: 'N/A', artifacts: null })],
    [
      'the beginning of the answer given',
      `{"intent":["Fix the login test (open)"],"next":["Run \`npm test\`"]} `,
    ],
  ];
  test.each(forms)('%s', (_name, text) => expect(read(text)).toBe(expected));

  test('entries of any shape are one bullet each', () => {
    const text = read(
      JSON.stringify({
        facts: [{ origin: 'tool:bash', fact: 'exit 1' }, ['a', 'b'], 42, true, null, 'two\nlines'],
        state: { build: 'green', tests: ['12 pass', '1 fails'] },
      }),
    );
    expect(text).toBe(
      '## Facts from tools\n- origin: tool:bash; fact: exit 1\n- a; b\n- 42\n- true\n- two lines\n' +
        '## Current state\n- build: green\n- tests: 12 pass; 1 fails',
    );
  });

  test('line ends inside strings are repaired', () => {
    expect(read('{"intent": ["Fix\nthe login test"]}')).toBe('## Session intent\n- Fix the login test');
  });

  test('fields that name no section are not lost', () => {
    expect(read('{"intent":["A"],"budget":"40 EUR"}')).toBe(
      '## Session intent\n- A\n## Current state\n- budget: 40 EUR',
    );
  });

  test('custom sections are read by key and by title', () => {
    const own = promptSettings({
      prompt: null,
      sections: [{ key: 'risks', title: 'Open risks' }, { key: 'intent' }],
      structured: 'auto',
    });
    expect(readSummary('{"intent":["A"],"risks":["B"]}', own)).toBe(
      '## Open risks\n- B\n## Session intent\n- A',
    );
    expect(readSummary('{"Open risks":"B"}', own)).toBe('## Open risks\n- B');
  });
});

describe('an answer that is not JSON stays unchanged', () => {
  test.each([
    ['Markdown', expected],
    ['Markdown that quotes JSON', `## Facts from tools\n- The body was {"intent": ["x"], "next": []}`],
    ['prose', 'The user wants the login test fixed.'],
    [
      'prose that quotes JSON',
      `The agent sent {"intent": "x"} to the server, which refused it. It said ${'more and '.repeat(9)}more.`,
    ],
    ['an error body', '{"error": {"message": "overloaded"}}'],
    ['an object without sections', '{"verdict": "healthy"}'],
    ['a sentence with a brace', 'The template {name} was missing.'],
  ])('%s', (_name, text) => expect(read(text)).toBe(text));
});

describe('half an answer is refused', () => {
  test.each([
    ['cut off in a string', json.slice(0, -12)],
    ['cut off between fields', json.slice(0, json.indexOf('"intent"'))],
    ['cut off in a fence', `\`\`\`json\n${json.slice(0, -3)}`],
    ['cut off after prose', `Here it is:\n${json.slice(0, -5)}`],
    ['broken', '{"intent": [unquoted], "next": []}'],
  ])('%s is Llm.BadOutput', (_name, text) => {
    expect(() => read(text)).toThrow(expect.objectContaining({ type: 'Llm.BadOutput' }));
  });

  test('every truncation of a valid answer is refused, or is not JSON', () => {
    for (let at = 2; at < json.length; at++) {
      const cut = json.slice(0, at);
      expect(() => {
        const text = read(cut);
        acceptSnapshot(text, { inputTokens: 10_000, maxTokens: 1_000, counter: counterFor('o200k_base') });
      }, cut).toThrow();
    }
  });

  test.each([
    ['empty sections', JSON.stringify({ intent: [], next: [] })],
    ['words for nothing', JSON.stringify({ intent: ['None'], next: 'N/A' })],
  ])('%s: acceptance refuses it', (_name, text) => {
    expect(() =>
      acceptSnapshot(read(text), {
        inputTokens: 10_000,
        maxTokens: 1_000,
        counter: counterFor('o200k_base'),
      }),
    ).toThrow(expect.objectContaining({ type: 'Llm.BadOutput' }));
  });
});

test('an answer filled into the schema is read back completely', () => {
  const item = fc
    .stringMatching(/^[A-Za-z][\w .,:{}"'\\[\]-]{3,40}\w$/)
    .filter((text) => !/^(none|null|nothing|empty)\.?$/i.test(text));
  const filled = fc.record(
    Object.fromEntries(
      sections.map(({ key }) => [key, fc.array(item, { minLength: key === 'state' ? 3 : 0, maxLength: 4 })]),
    ),
  );
  fc.assert(
    fc.property(filled, (given) => {
      const text = read(JSON.stringify(given));
      const back = parseSnapshot(text);
      for (const { key } of sections) {
        expect(back.get(key)).toEqual((given[key] ?? []).map((line) => line.replace(/\s+/g, ' ').trim()));
      }
      expect(formatSnapshot(back)).toBe(text);
    }),
  );
});

test('the schema fits strict mode: every property is required, others are forbidden', () => {
  const schema = schemaOf(
    resolveSections([{ key: 'risks', title: 'Risks', asks: 'what may go wrong' }, { key: 'state' }]),
  );
  expect(schema.required).toEqual(['risks', 'state']);
  expect(Object.keys(schema.properties)).toEqual(schema.required);
  expect(schema.properties['risks']).toEqual({
    type: 'array',
    description: 'Risks: what may go wrong',
    items: { type: 'string' },
  });
  expect(schema.additionalProperties).toBe(false);
});

test('an answer with many unclosed texts is read in one pass', () => {
  const text = `{"intent": ${'\\"'.repeat(300_000)}}`;
  expect(() => read(text)).toThrow(expect.objectContaining({ type: 'Llm.BadOutput' }));
});
