/**
 * Failure leaves the context unchanged: no error text, empty string, placeholder or refusal can become a summary. A summary
 * that mentions errors or refusals is accepted.
 */
import { describe, expect, test } from 'vitest';
import { acceptDigest, acceptHead, acceptSnapshot, unwrapped } from '../../../src/summary/answer/accept.js';
import { Ground } from '../../../src/summary/answer/grounding.js';
import { atOnce } from '../../../src/steps.js';
import { counterFor } from '../../../src/tokens/counter.js';

const counter = counterFor('o200k_base');
const limits = { inputTokens: 5_000, maxTokens: 1_000, counter };

/** A record that says all of this, among other things. */
const about = (text: string) =>
  atOnce(
    Ground.reading(
      `user: please go on with the harvest of plums\nassistant: ${text}\nuser: good, the barn next`,
      '',
    ),
  );

const summary = `## Session intent
- Fix the login test in \`src/auth/login.test.ts\` (open)
## Facts from tools
- tool:bash: Error: connect ECONNREFUSED 127.0.0.1:5432`;

const empty = [
  '',
  '   \n\t ',
  '\u200B',
  '---',
  '```\n```',
  '<think>I should summarize',
  '<think>thoughts</think>',
  '\0\0',
  '## Session intent\n\n## Decisions\n-\n## Next steps',
];

const foreign = [
  "I'm sorry, but I can't help with that.",
  "<think>Is it safe?</think>I'm sorry, but I can't assist with that.",
  '```json\n{"error": "overloaded"}\n```',
  'Error generating summary: 429 Too Many Requests',
  '<html>\n<body>Gateway Time-out</body></html>',
  '## Session intent\n\n## Decisions\n- None\n## Next steps\n- N/A',
];

describe('answers that are not summaries', () => {
  test.each(empty)('nothing: %j', (text) => {
    const refusal = expect.objectContaining({ type: 'Llm.BadOutput' });
    expect(() => acceptDigest(text, { ...limits, ground: about(summary) })).toThrow(refusal);
    expect(() => acceptSnapshot(text, limits)).toThrow(refusal);
  });

  test.each(foreign)('nothing of the record: %j', (text) => {
    const refusal = expect.objectContaining({ type: 'Llm.BadOutput' });
    expect(() => acceptDigest(text, { ...limits, ground: about(summary) })).toThrow(refusal);
    expect(() => acceptSnapshot(text, limits, about(summary))).toThrow(refusal);
  });
});

describe('answers that are summaries', () => {
  test.each([
    summary,
    'User asked to fix the login test; agent edited src/auth/login.ts and all tests pass.',
    'The user wants a refund for order #W2378156. The agent replied "I cannot help with that" because the item was opened.',
    'I cannot reproduce the crash with node 20; the user runs node 18. Next: install node 18.',
    "I can't find config.yml; the user said it is in /etc/app. The agent looks there next.",
    'Error handling was refactored in src/errors.ts; Internal Server Error pages now show a request id.',
    'Rate limit handling was added to client.ts: it honours Retry-After.',
    'Internal server error in /checkout was traced to a null cart and fixed in cart.ts.',
    'Sorry-page of the shop was redesigned; user prefers blue (#0044cc).',
    '404 pages were counted: 12 of 90 links are broken, listed in report.md.',
    'As an AI researcher the user wants a survey of context compaction; three papers were read.',
    'The assistant apologized and then booked flight HAT001 for 2024-05-15. Nothing else is open.',
    "## Current state\n- The assistant answered: I'm sorry, but I can't assist with that.",
    '## Facts from tools\n- tool:curl returned 502 Bad Gateway twice',
    "**Session intent:**\n- User: summarize the report\n**Current state:**\n- Agent: I'm unable to open the PDF",
    '{"session_intent": "fix the build", "errors": ["TS2307"], "next": "run tests"}',
    `I'm sorry to report that the migration failed: ${'table orders was locked by job 17, '.repeat(40)}retry at night.`,
    'El usuario quiere cambiar su vuelo; se ofreció HAT083.',
    '用户要求修复登录测试；已修改 src/auth/login.ts。',
    'Tests pass now.',
    'TypeError: cart is null was fixed in cart.ts',
  ])('%j', (text) => {
    expect(acceptDigest(text, { ...limits, ground: about(text) })).toBe(text);
    expect(acceptSnapshot(text, limits, about(text))).toBe(text);
  });
});

describe('wrappers around an answer are removed', () => {
  test.each([
    ['a fence', `\`\`\`markdown\n${summary}\n\`\`\``],
    ['a bare fence', `\`\`\`\n${summary}\n\`\`\``],
    ['a tag', `<state_snapshot>\n${summary}\n</state_snapshot>`],
    ['an introduction and a tag', `Here is the summary:\n\n<state_snapshot>\n${summary}\n</state_snapshot>`],
    ['thoughts', `<think>The user wants…</think>\n\n${summary}`],
    ['thoughts without their beginning', `The user wants a summary.\n</think>\n${summary}`],
    [
      'thoughts, fence and tag',
      `<thinking>hm</thinking>\n\`\`\`xml\n<state_snapshot>\n${summary}\n</state_snapshot>\n\`\`\``,
    ],
    ['characters no database takes', `${summary.slice(0, 9)}\0${summary.slice(9)}`],
  ])('%s', (_what, answer) => {
    expect(acceptSnapshot(answer, limits)).toBe(summary);
    expect(unwrapped(unwrapped(answer))).toBe(unwrapped(answer));
  });

  test.each([
    ['a fence inside', `${summary}\n\`\`\`ts\nconst a = 1;\n\`\`\``],
    ['two blocks of code', '```ts\nconst a = 1;\n```\nwas replaced by\n```ts\nconst a = 2;\n```'],
    ['a quoted thought tag', `${summary}\n- The log ends with </think> and nothing after`],
    ['a quoted tag', `${summary}\n- The agent prints <summary>…</summary>`],
  ])('%s stays', (_what, answer) => {
    expect(acceptSnapshot(answer, limits)).toBe(answer);
  });

  test('an answer with an unclosed tag was truncated', () => {
    expect(() => acceptSnapshot(`<state_snapshot>\n${summary}`, limits)).toThrow(
      expect.objectContaining({ type: 'Llm.BadOutput' }),
    );
  });
});

describe('size', () => {
  const tokens = counter.count(summary);
  const ground = about(summary);

  test('as large as its source, or larger, is refused', () => {
    expect(acceptDigest(summary, { ...limits, ground, inputTokens: tokens + 1 })).toBe(summary);
    for (const inputTokens of [tokens, tokens - 1]) {
      expect(() => acceptDigest(summary, { ...limits, ground, inputTokens })).toThrow(
        expect.objectContaining({ type: 'Summary.NotSmaller' }),
      );
      expect(() => acceptSnapshot(summary, { ...limits, inputTokens })).toThrow(
        expect.objectContaining({ type: 'Summary.NotSmaller' }),
      );
    }
  });

  test('a snapshot above its limit is refused, never trimmed; a digest may overrun by half', () => {
    const tight = { ...limits, maxTokens: tokens - 1 };
    expect(() => acceptSnapshot(summary, tight)).toThrow(
      expect.objectContaining({ type: 'Summary.NotSmaller' }),
    );
    expect(acceptDigest(summary, { ...tight, ground })).toBe(summary);
    expect(() => acceptDigest(summary, { ...limits, ground, maxTokens: Math.floor(tokens / 2) })).toThrow(
      expect.objectContaining({ type: 'Summary.NotSmaller' }),
    );
  });

  test('a failure names numbers, never the text', () => {
    try {
      acceptSnapshot(summary, { ...limits, inputTokens: 3 });
      expect.unreachable();
    } catch (error) {
      expect(JSON.stringify(error) + String(error)).not.toContain('login');
      expect(error).toMatchObject({ details: { tokens, inputTokens: 3 } });
    }
  });
});

describe('the head', () => {
  const head = {
    tokensBefore: 1_000,
    tokensAfter: 500,
    minGain: 0.1,
    pins: ['Never use prod.', 'a\n  b'],
    head: 'x Never use prod. a\n  b y',
  };

  test('is accepted with its pins and enough gain', () => {
    expect(() => acceptHead(head)).not.toThrow();
    expect(() => acceptHead({ ...head, tokensAfter: 900 })).not.toThrow();
  });

  test.each([
    ['gain below the minimum', { tokensAfter: 901 }, 'Summary.NotSmaller'],
    ['no gain where none is asked for', { tokensAfter: 1_000, minGain: 0 }, 'Summary.NotSmaller'],
    ['growth', { tokensAfter: 1_200, minGain: 0 }, 'Summary.NotSmaller'],
    ['a changed pin', { head: 'Never use prod. a b' }, 'Summary.PinsLost'],
    ['a lost pin', { head: 'a\n  b' }, 'Summary.PinsLost'],
  ])('%s is refused', (_what, change, type) => {
    expect(() => acceptHead({ ...head, ...change })).toThrow(expect.objectContaining({ type }));
  });
});
