import fc from 'fast-check';
import type { ChatMessage } from '../../src/conversation/message.js';
import { isFailure } from '../../src/errors.js';
import { limitsOf } from '../../src/limits/limits.js';
import { parsePolicy, type PolicyInput } from '../../src/policy/schema.js';
import { resolvePolicy } from '../../src/policy/layers.js';
import { histories } from './histories.js';

/**
 * Whole sessions for property tests. Their turns contain long autonomous runs, ids that are used again, parallel, pending and
 * late calls, orphans, images, empty and enormous messages, and roles in every order. The policies vary
 * the settings that shape the context.
 */
export type Turn = ChatMessage[];

const alphabets = [
  'The file src/app/main.ts was read and the build passed. ',
  'Fehler in Zeile 42: Größe unbekannt 😀 – später mehr. ',
  '{"path":"/tmp/données.json","size":48210,"ok":true}\n',
  '漢字とかな、確認しました。',
  'commit 3f2a9c1b7d8e: rename getUserName to loadProfile\n',
  '\u0000\ud83d broken <state_snapshot> text </message> ',
] as const;

/** Returns a deterministic text of exactly this many UTF-16 code units. Texts longer than one sentence differ for every `kind`. */
function textOf(kind: number, length: number): string {
  const unit = `${alphabets[kind % alphabets.length]}#${kind} `;
  return unit.repeat(Math.ceil(length / unit.length)).slice(0, length);
}

/** Sizes of texts in UTF-16 code units: mostly short, some long, few enormous. */
const sizes = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 1, max: 200 }) },
  { weight: 4, arbitrary: fc.integer({ min: 200, max: 3_000 }) },
  { weight: 2, arbitrary: fc.integer({ min: 3_000, max: 20_000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 20_000, max: 200_000 }) },
);

const sizedTexts = fc.tuple(fc.nat(40), sizes).map(([kind, size]) => textOf(kind, size));

const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } };
const tools = fc.constantFrom('bash', 'read_file', 'write_file', 'manage_todo_list');

interface Step {
  tool: string;
  parallel: number;
  text: string;
  /** `open`: number of calls that get no result in the step. `late`: whether their results come at the end of the run. */
  open: number;
  late: boolean;
  speaks: boolean;
  withImage: boolean;
}

const step: fc.Arbitrary<Step> = fc.record({
  tool: tools,
  parallel: fc.oneof(
    { weight: 5, arbitrary: fc.constant(1) },
    { weight: 1, arbitrary: fc.integer({ min: 2, max: 5 }) },
  ),
  text: sizedTexts,
  open: fc.oneof({ weight: 8, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.constant(1) }),
  late: fc.boolean(),
  speaks: fc.boolean(),
  withImage: fc.oneof(
    { weight: 9, arbitrary: fc.constant(false) },
    { weight: 1, arbitrary: fc.constant(true) },
  ),
});

/** One run of an agent. `reuse`: its calls have the same ids as those of every other such run. */
const run = fc
  .record({
    request: fc.option(sizedTexts),
    steps: fc.array(step, { minLength: 1, maxLength: 8 }),
    reuse: fc.boolean(),
    number: fc.nat(1_000_000),
  })
  .map(({ request, steps, reuse, number }): Turn => {
    const late: ChatMessage[] = [];
    const taken = steps.flatMap((one, at): ChatMessage[] => {
      const ids = Array.from(
        { length: one.parallel },
        (_, call) => `call_${reuse ? '' : `${number}_`}${at}_${call}`,
      );
      const results = ids.map((id, call) => resultOf(id, one, call));
      const answered = results.slice(one.open);
      if (one.late) late.push(...results.slice(0, one.open));
      return [callerOf(ids, one), ...answered];
    });
    return [...(request === null ? [] : [{ role: 'user' as const, content: request }]), ...taken, ...late];
  });

function callerOf(ids: readonly string[], { tool, text, speaks }: Step): ChatMessage {
  const written = tool === 'write_file' ? { path: '/tmp/a.ts', content: text } : { path: text.slice(0, 30) };
  return {
    role: 'assistant',
    content: speaks ? `Next I use ${tool}.` : null,
    tool_calls: ids.map((id) => ({
      id,
      type: 'function',
      function: { name: tool, arguments: JSON.stringify(written) },
    })),
  };
}

function resultOf(id: string, { tool, text, withImage }: Step, call: number): ChatMessage {
  const content = tool === 'write_file' ? 'written' : `${call}: ${text}`;
  return {
    role: 'tool',
    tool_call_id: id,
    content: withImage ? [{ type: 'text', text: content }, image] : content,
  };
}

const talk = fc.tuple(sizedTexts, sizedTexts).map(([question, answer]): Turn => [
  { role: 'user', content: question },
  { role: 'assistant', content: answer },
]);

const alone = fc
  .tuple(fc.constantFrom('user' as const, 'assistant' as const, 'system' as const), sizedTexts)
  .map(([role, content]): Turn => [{ role, content }]);

/** One turn of a platform. Some turns are short histories with all defects of recorded transcripts. */
const turn: fc.Arbitrary<Turn> = fc.oneof(
  { weight: 4, arbitrary: talk },
  { weight: 5, arbitrary: run },
  { weight: 1, arbitrary: alone },
  { weight: 2, arbitrary: histories.filter((messages) => messages.length > 0) },
);

/** The turns of a session in the order of their appends. The first turn may be a single system message. */
export const sessions: fc.Arbitrary<Turn[]> = fc
  .tuple(
    fc.option(sizedTexts.map((text) => text.slice(0, 1_000)).filter((text) => text.trim() !== '')),
    fc.array(turn, { minLength: 1, maxLength: 16 }),
  )
  .map(([rules, turns]) => (rules === null ? turns : [[{ role: 'system', content: rules }], ...turns]));

const retention = fc.constantFrom(
  'keep_full' as const,
  'summarize_archive' as const,
  'archive' as const,
  'drop' as const,
);

const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const reduce = fc.record({
  arguments: maybe(
    fc.oneof(
      fc.constant(false as const),
      fc.record({
        olderThan: fc.nat(12),
        longerThan: fc.integer({ min: 10, max: 2_000 }),
        prefix: fc.nat(30),
        from: fc.constantFrom(0.1, 0.4, 0.7),
      }),
    ),
  ),
  toolResults: maybe(
    fc.record({
      byTool: maybe(fc.record({ bash: retention, read_file: retention })),
      defaultPolicy: maybe(retention),
      contextPolicy: maybe(retention),
      critical: maybe(fc.subarray(['read_file', 'write_file'])),
      budget: maybe(fc.nat(3_000)),
    }),
  ),
  messages: maybe(fc.oneof(fc.constant(false as const), fc.constantFrom(0.1, 0.3, 0.5))),
});

const summary = fc.record({
  mode: maybe(fc.constantFrom('incremental', 'full_rewrite', 'journal')),
  method: maybe(fc.constantFrom('model' as const, 'extractive' as const)),
  fallback: maybe(fc.constantFrom('extractive' as const, 'none' as const)),
  maxTokens: maybe(fc.integer({ min: 200, max: 1_500 })),
  ledgerTokens: maybe(fc.nat(500)),
  chunkTokens: maybe(fc.integer({ min: 500, max: 4_000 })),
  minGain: maybe(fc.constantFrom(0.05, 0.1, 0.3)),
  acknowledgment: maybe(fc.oneof(fc.constant(false as const), fc.constant('Understood.'))),
  form: maybe(fc.constantFrom('restoration' as const, 'plain' as const)),
});

const trigger = fc.oneof(
  fc.record({ fraction: fc.constantFrom(0.5, 0.7, 0.85) }),
  fc.record({ tokens: fc.integer({ min: 1_500, max: 8_000 }) }),
  fc.record({ messages: fc.integer({ min: 12, max: 40 }), tokens: fc.constant(1_000) }),
  fc.record({ messages: fc.integer({ min: 12, max: 40 }) }),
  fc.record({ economic: fc.constant(true as const) }),
);

/** Policies that `limitsOf` accepts, for windows of 4,000 to 40,000 tokens. They count tokens by characters, which is fast. */
export const policies: fc.Arbitrary<PolicyInput> = fc
  .record({
    contextWindow: fc.integer({ min: 4_000, max: 40_000 }),
    tokenizer: fc.constantFrom('chars/4' as const, 'chars/3.3' as const),
    reservedOutputTokens: maybe(fc.constantFrom(0, 500)),
    overhead: maybe(fc.constantFrom(0, 300)),
    roles: maybe(fc.constantFrom('alternate' as const, 'free' as const)),
    trigger: maybe(fc.oneof(trigger, fc.array(trigger, { minLength: 1, maxLength: 3 }))),
    target: maybe(fc.constantFrom(0.3, 0.6, 0.8)),
    keep: maybe(
      fc.record({
        messages: maybe(fc.integer({ min: 1, max: 12 })),
        fraction: fc.constantFrom(0.05, 0.1, 0.25),
      }),
    ),
    pins: maybe(
      fc.array(fc.constantFrom('Never delete data.', { seq: 1 }, { pattern: 'rename \\w+' }), {
        maxLength: 2,
      }),
    ),
    redact: maybe(fc.constantFrom(false as const, { secrets: true })),
    deadCallAfter: maybe(fc.constantFrom(0, 600_000)),
    reduce: maybe(reduce),
    summary,
  })
  .map((policy): PolicyInput => JSON.parse(JSON.stringify(policy)))
  .filter(isConsistent);

function isConsistent(policy: PolicyInput): boolean {
  try {
    limitsOf(resolvePolicy(parsePolicy(policy)));
    return true;
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return false;
    throw error;
  }
}
