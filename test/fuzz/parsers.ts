/** Every function that reads text or values from outside, with changed inputs: it returns, or throws a typed failure. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { ApplicationFailure } from '@temporalio/common';
import fc from 'fast-check';
import { APIConnectionError } from 'openai';
import { inlineMessages } from '../../activities/inline-turn.js';
import { readConfig } from '../../src/config/config.js';
import { parseSizes } from '../../src/config/policy-sources.js';
import { settings } from '../../src/config/schema.js';
import { parseYaml } from '../../src/config/yaml.js';
import { searchRequest } from '../../src/contract/archive.js';
import { checkId } from '../../src/contract/ids.js';
import { callRecoveryTool } from '../../src/contract/recovery-tools.js';
import { checked } from '../../src/contract/schema.js';
import { contextFormats, formatNames, type FormatName } from '../../src/conversation/format-names.js';
import { readInstant } from '../../src/conversation/instant.js';
import { checkPlainJson, parseExact } from '../../src/conversation/json.js';
import type { Json } from '../../src/conversation/message.js';
import { hasMatch, problemOfPattern } from '../../src/conversation/pattern.js';
import { failureTypes, isFailure } from '../../src/errors.js';
import { formatOf } from '../../src/formats/index.js';
import { readNative } from '../../src/formats/native.js';
import { readRecords } from '../../src/import/records.js';
import { limitsOf } from '../../src/limits/limits.js';
import { readAnswer } from '../../src/llm/answer.js';
import { EndpointRefusal } from '../../src/llm/refusal.js';
import { effectivePolicy, resolvePolicy } from '../../src/policy/layers.js';
import { parsePolicy } from '../../src/policy/schema.js';
import { presets } from '../../src/policy/presets.js';
import { parseQuery, snippetOf } from '../../src/store/search/query.js';
import { slicesOf, wordsVector } from '../../src/store/search/words.js';
import { unwrapped } from '../../src/summary/answer/accept.js';
import { resolveSections } from '../../src/summary/answer/sections.js';
import { parseSnapshot } from '../../src/summary/answer/snapshot.js';
import { readSummary } from '../../src/summary/answer/structured.js';
import { redactorFor } from '../../src/summary/redaction/redact.js';
import { payloadCodec } from '../../src/temporal/payload-codec.js';
import { counterFor, tokenizerNames } from '../../src/tokens/counter.js';
import { readUsage } from '../../src/tokens/reported-usage.js';
import type { Random } from '../chaos/random.js';
import { dialogue } from '../support/dialogue.js';
import { logged, shown } from '../support/formats.js';
import { histories } from '../support/histories.js';
import {
  langchainHistories,
  modelMessageHistories,
  uiMessageHistories,
} from '../support/library-histories.js';
import { anthropicHistories, geminiHistories } from '../support/native-histories.js';
import { policies } from '../support/random-sessions.js';
import { codexHistories, responsesHistories } from '../support/responses-histories.js';
import { Stopwatch } from './stopwatch.js';
import { bytesFor, mutated, mutatedText, oddText, oddValue, randomFor } from './mutate.js';

/** Reads one input made from `random`. */
type Target = (random: Random) => unknown;

const samples = <T>(arbitrary: fc.Arbitrary<T>, count = 40): Json[] =>
  fc.sample(arbitrary, { seed: 1, numRuns: count }) as unknown as Json[];

/** Small histories of each format. Formats of logs get the lines that a sample of their agent would write. */
const corpora: Partial<Record<FormatName, Json[]>> = {
  'openai-chat': samples(histories),
  anthropic: samples(anthropicHistories),
  'openai-responses': samples(responsesHistories),
  langchain: samples(langchainHistories),
  gemini: samples(geminiHistories),
  'ai-sdk': [...samples(modelMessageHistories, 20), ...samples(uiMessageHistories, 20)],
  codex: samples(codexHistories),
};

const at = '2026-03-02T09:00:00.000Z';
const text = { type: 'text', text: 'Where is my order 4711?' };
/** One file of each agent, as small as its format allows. */
const files: Json[] = [
  [
    {
      type: 'user',
      uuid: 'u1',
      parentUuid: null,
      sessionId: 's',
      timestamp: at,
      message: { role: 'user', content: 'hello' },
    },
    {
      type: 'assistant',
      uuid: 'u2',
      parentUuid: 'u1',
      sessionId: 's',
      timestamp: at,
      message: {
        role: 'assistant',
        id: 'm',
        content: [text, { type: 'tool_use', id: 't1', name: 'bash', input: { a: 1 } }],
      },
    },
    {
      type: 'user',
      uuid: 'u3',
      parentUuid: 'u2',
      sessionId: 's',
      timestamp: at,
      message: { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't1', content: 'ok' }] },
    },
    { type: 'summary', summary: 'short', leafUuid: 'u3' },
  ],
  [
    { timestamp: at, type: 'session_meta', payload: { id: 's', cwd: '/', originator: 'codex' } },
    {
      timestamp: at,
      type: 'response_item',
      payload: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hi' }] },
    },
    {
      timestamp: at,
      type: 'response_item',
      payload: { type: 'function_call', name: 'shell', arguments: '{}', call_id: 'c1' },
    },
    {
      timestamp: at,
      type: 'response_item',
      payload: { type: 'function_call_output', call_id: 'c1', output: 'ok' },
    },
  ],
  {
    sessionId: 's',
    projectHash: 'p',
    startTime: at,
    lastUpdated: at,
    messages: [
      { id: '1', timestamp: at, type: 'user', content: 'hi' },
      {
        id: '2',
        timestamp: at,
        type: 'gemini',
        content: 'ok',
        toolCalls: [
          {
            id: 'c',
            name: 'ls',
            args: {},
            result: [{ functionResponse: { id: 'c', name: 'ls', response: { output: 'x' } } }],
          },
        ],
      },
    ],
  },
  {
    title: 't',
    create_time: 1,
    update_time: 2,
    current_node: 'b',
    mapping: {
      a: {
        id: 'a',
        parent: null,
        children: ['b'],
        message: {
          id: 'a',
          author: { role: 'user' },
          create_time: 1,
          content: { content_type: 'text', parts: ['hi'] },
        },
      },
      b: {
        id: 'b',
        parent: 'a',
        children: [],
        message: { id: 'b', author: { role: 'assistant' }, content: { content_type: 'text', parts: ['ok'] } },
      },
    },
  },
  {
    id: 's',
    appName: 'a',
    userId: 'u',
    events: [
      { id: 'e', author: 'user', timestamp: 1, content: { role: 'user', parts: [{ text: 'hi' }] } },
      {
        id: 'f',
        author: 'agent',
        timestamp: 2,
        content: { role: 'model', parts: [{ functionCall: { id: 'c', name: 'f', args: {} } }] },
      },
    ],
  },
  [
    { ts: 1, role: 'user', content: [{ type: 'text', text: '<task>\nhi\n</task>' }] },
    { ts: 2, role: 'assistant', content: [text] },
  ],
  [
    { id: 0, timestamp: at, source: 'user', action: 'message', message: 'hi', args: { content: 'hi' } },
    { id: 1, timestamp: at, source: 'agent', action: 'run', args: { command: 'ls' } },
    { id: 2, timestamp: at, source: 'agent', observation: 'run', content: 'x', cause: 1, extras: {} },
  ],
  {
    trajectory: [{ action: 'ls', observation: 'x', response: 'r', thought: 't', state: '{}' }],
    history: [
      { role: 'system', content: 's', agent: 'main' },
      { role: 'user', content: 'hi', agent: 'main' },
      { role: 'assistant', content: 'ls', agent: 'main', thought: 't', action: 'ls' },
    ],
    info: {},
  },
  { messages: dialogue(2, 5).flat() as unknown as Json },
  { input: [{ role: 'user', content: 'hi' }], response: { output: [] } },
  ...Object.values(corpora).flatMap((items) => items.slice(0, 5)),
];

const answers: readonly string[] = [
  '## Goal\n- find the order [m1]\n\n## Progress\n- asked the depot [m2]\n',
  '```json\n{"facts": ["order 4711 [m3]"], "summary": "x"}\n```',
  '<summary>\n- line [m1]\n</summary>',
  'I cannot help with that.',
];

const yamls: readonly string[] = [
  'policy:\n  contextWindow: 128000\n  trigger: { fraction: 0.8 }\napi:\n  tokens:\n    - a:0123456789abcdef0123456789abcdef\n',
  'a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b]\nlogLevel: debug\n',
  'databaseUrl: postgres://u:p@localhost:5432/db\ntemporal:\n  address: localhost:7233\n  payloadKeys: []\n',
  '{"llm": {"baseUrl": "http://localhost:1/v1", "timeoutMs": 1000}, "worker": {"roles": ["model"]}}',
  '? complex\n: value\n"quoted\\n": |\n  block\n  text\nnull: ~\n',
];

const usages: readonly Json[] = [
  { prompt_tokens: 10, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 4 } },
  { input_tokens: 4, cache_read_input_tokens: 896, cache_creation_input_tokens: 0, output_tokens: 20 },
  { promptTokenCount: 1204, candidatesTokenCount: 87 },
  { inputTokens: 1204, outputTokens: 87, model: 'gpt-4o' },
];

const completion: Json = {
  choices: [
    { index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'ok', refusal: null } },
  ],
  usage: { prompt_tokens: 3, completion_tokens: 1 },
};

const nowhere: Parameters<typeof callRecoveryTool>[0] = {
  toolResponse: () => Promise.reject(new TypeError('the tool called the store')),
  search: () => Promise.reject(new TypeError('the tool called the store')),
  expand: () => Promise.reject(new TypeError('the tool called the store')),
};

const policyFor = (random: Random): Json =>
  mutated(
    random,
    random.pick(random.chance(0.3) ? (Object.values(presets) as unknown as Json[]) : policySamples),
  );
const policySamples = samples(policies, 60);
const codec = payloadCodec([{ id: 'k', key: Buffer.alloc(32, 1).toString('base64') }]);

/** `folder`: for configuration files. */
function targetsIn(folder: string): Record<string, Target> {
  return {
    json: (random) => {
      const given = mutatedText(random, JSON.stringify(mutated(random, random.pick(files))));
      const read = parseExact(given);
      // What is accepted is what any other parser reads.
      if (!isDeepStrictEqual(read, JSON.parse(given))) throw new Error('parseExact differs from JSON.parse');
    },
    'plain value': (random) => checkPlainJson(mutated(random, random.pick(files)), 'value'),
    yaml: (random) => {
      const given = parseYaml(mutatedText(random, random.pick(yamls)));
      return given.lineOf(random.pick(['policy.trigger.fraction', 'api.tokens[0]', '', oddText(random)]));
    },
    'configuration file': (random) => {
      const file = path.join(folder, 'palimpsest.yaml');
      writeFileSync(file, mutatedText(random, random.pick(yamls)));
      return readConfig({ PALIMPSEST_CONFIG: file }, folder);
    },
    'configuration variables': (random) => {
      const all = settings();
      const env: Record<string, string> = {};
      for (let left = random.between(1, 3); left > 0; left--)
        env[random.pick(all).variable] = random.chance(0.5)
          ? oddText(random)
          : mutatedText(
              random,
              random.pick([
                '8,000',
                'true',
                'a:0123456789abcdef0123456789abcdef',
                'http://x:1',
                '{"trigger":1}',
              ]),
            );
      // These two name files.
      for (const name of ['PALIMPSEST_POLICY_FILE', 'PALIMPSEST_CONFIG']) delete env[name];
      return readConfig(env, path.join(folder, 'none'));
    },
    policy: (random) => {
      const given = parsePolicy(policyFor(random));
      limitsOf(resolvePolicy(given));
      return effectivePolicy({ session: given, tenant: presets.adk });
    },
    sizes: (random) => parseSizes(mutatedText(random, '80%,12000,0.5'), 'PALIMPSEST_TRIGGER'),
    format: (random) => {
      const format = random.pick(formatNames);
      const items = random.pick(corpora[format] ?? files);
      const given = mutated(random, items);
      const log = logged([readNative(given, format) && (given as Json[])], format);
      // A history that is accepted can be shown in every format.
      const target = random.pick(contextFormats);
      const rendered = shown(log, target);
      // An original goes back to its own provider as it came.
      if (target === 'openai-chat' || target === formatOf(format).contextFormat) return;
      const violations = formatRules(target, rendered);
      if (violations.length > 0) throw new Error(`${format} as ${target}: ${violations[0]}`);
    },
    file: async (random) => {
      const value = mutated(random, random.pick(files));
      const lines = Array.isArray(value) && random.chance(0.7);
      const written = lines ? value.map((item) => JSON.stringify(item)).join('\n') : JSON.stringify(value);
      const bytes = bytesFor(random, random.chance(0.5) ? written : mutatedText(random, written));
      const cut = random.between(0, bytes.length);
      const format = random.chance(0.3) ? random.pick(formatNames) : undefined;
      for await (const record of readRecords(chunks([bytes.subarray(0, cut), bytes.subarray(cut)]), 'f', {
        format,
      }))
        if ('error' in record && !isFailure(record.error, 'Input.Invalid'))
          throw new Error('a record without a typed failure', { cause: record.error });
        else if ('items' in record) readNative(record.items, record.format);
    },
    instant: (random) => readInstant(random.chance(0.5) ? oddValue(random) : mutatedText(random, at)),
    id: (random) => checkId(oddValue(random), 'session', random.pick(['part', 'stored'])),
    usage: (random) => readUsage(mutated(random, random.pick(usages))),
    counter: (random) => {
      const given = mutatedText(random, oddText(random).repeat(random.between(1, 50)));
      const count = counterFor(random.pick(tokenizerNames)).count(given);
      if (!Number.isSafeInteger(count) || count < 0 || (given !== '' && count === 0))
        throw new Error(`counts ${count}`);
    },
    redaction: (random) => {
      const { redact } = resolvePolicy(
        parsePolicy({
          redact: { secrets: true, patterns: random.chance(0.5) ? [] : [mutatedText(random, 'ACME-\\d{4}')] },
        }),
      );
      const given = mutatedText(
        random,
        'key sk-abcdefghijklmnopqrstuvwx and password="hunter2" for ACME-1234 at AKIAABCDEFGHIJKLMNOP ',
      ).repeat(random.between(1, 20));
      return redactorFor(redact, 't')?.(given);
    },
    pattern: (random) => {
      const pattern = mutatedText(
        random,
        random.pick(['^a+b*(c|d)?$', '\\w{2,5}\\s', '[^\\]]+', '(?i)x', 'é|😀']),
      );
      if (problemOfPattern(pattern) === null) hasMatch(pattern, oddText(random).repeat(20));
    },
    'search query': (random) => {
      const said = mutatedText(
        random,
        'The order 4711 left /srv/app/main.ts on Monday, v1.2.3 (ID: 7f3a-99)',
      );
      const pattern = parseQuery(
        random.chance(0.5) ? oddText(random) : mutatedText(random, said),
        random.pick(['words', 'literal', 'regex'] as never[]),
      );
      snippetOf(said, pattern);
      wordsVector(said);
      return slicesOf(said);
    },
    'search request': (random) =>
      checked(
        searchRequest,
        mutated(random, { query: 'order', mode: 'words', limit: 5, offset: 0, role: 'user', from: at }),
      ),
    "model's answer": (random) => {
      const answer = mutatedText(random, random.pick(answers));
      parseSnapshot(unwrapped(answer));
      return readSummary(answer, { sections: resolveSections(null) });
    },
    'endpoint answer': async (random) => {
      const body = mutatedText(random, JSON.stringify(mutated(random, completion)));
      return readAnswer(
        new Response(body, {
          headers: { 'content-type': random.pick(['application/json', 'text/html', 'text/event-stream']) },
        }),
      );
    },
    'recovery tool': async (random) => {
      const given = mutated(
        random,
        random.pick<Json>([{ query: '' }, { seq: 0 }, { part: 'x' }, { call_id: 5 }]),
      );
      const called = callRecoveryTool(
        nowhere,
        's',
        random.pick(['get_tool_response', 'search_history', 'expand_history', 'x']),
        random.chance(0.5) ? given : mutatedText(random, JSON.stringify(given)),
      );
      await called.catch((error: unknown) => {
        if (!(error instanceof TypeError && error.message === 'the tool called the store')) throw error;
      });
    },
    'inline turn': (random) =>
      inlineMessages(
        {
          ...(mutated(random, { turnId: '1', messages: '[{"role":"user"}]', mac: 'ab' }) as object),
          tenant: 't',
          session: 's',
        } as never,
        { inlineTurnTenants: ['t'], inlineTurnKeys: random.chance(0.5) ? { t: 'f3a9c01be77d4c5e8a62' } : {} },
      ),
    payload: async (random) => {
      const [payload] = await codec.encode([
        { metadata: { encoding: Buffer.from('json/plain') }, data: Buffer.from('1') },
      ]);
      const data = bytesFor(random, mutatedText(random, Buffer.from(payload!.data!).toString('latin1')));
      await codec.decode([
        {
          metadata: {
            ...payload!.metadata,
            ...(random.chance(0.3) ? { 'encryption-key-id': Buffer.from(oddText(random)) } : {}),
          },
          data,
        },
      ]);
    },
  };
}

async function* chunks(pieces: Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces;
}

function formatRules(
  target: (typeof contextFormats)[number],
  rendered: { messages: Json[]; system?: Json },
): string[] {
  const format = formatOf(target) as unknown as { violations(of: object): string[] };
  return format.violations(rendered);
}

export interface Finding {
  target: string;
  index: number;
  problem: string;
}

export interface ParserReport {
  inputs: number;
  /** Per target: inputs that were accepted and refused, and the longest time of one input. Milliseconds. */
  targets: Record<string, { accepted: number; refused: number; longestMs: number }>;
  findings: Finding[];
}

/** Inputs that a run of parsers may take without another event, in milliseconds. */
export const longestStallMs = 2_000;

/** `at`: only this input of each target. */
export async function fuzzParsers({
  seed,
  inputs,
  only,
  at: one,
}: {
  seed: number;
  inputs: number;
  only?: string;
  at?: number;
}): Promise<ParserReport> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'palimpsest-fuzz-'));
  const report: ParserReport = { inputs: 0, targets: {}, findings: [] };
  try {
    const targets = Object.entries(targetsIn(folder)).filter(([name]) => only === undefined || name === only);
    const each = Math.ceil(inputs / targets.length);
    for (const [target, read] of targets) {
      const told = (report.targets[target] = { accepted: 0, refused: 0, longestMs: 0 });
      for (let index = one ?? 0; index < (one === undefined ? each : one + 1); index++) {
        report.inputs++;
        const watch = new Stopwatch();
        try {
          await read(randomFor(seed, target, index));
          told.accepted++;
        } catch (error) {
          told.refused++;
          if (!isTyped(error)) report.findings.push({ target, index, problem: trace(error) });
        }
        const took = watch.busyMs();
        told.longestMs = Math.max(told.longestMs, took);
        if (took > longestStallMs)
          report.findings.push({ target, index, problem: `took ${Math.round(took)} ms` });
        if (Object.hasOwn(Object.prototype, 'polluted') || 'polluted' in {})
          report.findings.push({ target, index, problem: 'changed Object.prototype' });
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  return report;
}

function isTyped(error: unknown): boolean {
  // The caller of `readAnswer` makes `Llm.Unavailable` and `Llm.Rejected` of them.
  if (error instanceof APIConnectionError || error instanceof EndpointRefusal) return true;
  if (error instanceof ApplicationFailure)
    return (failureTypes as readonly string[]).includes(error.type ?? '');
  return isFailure(error) && error.message !== '';
}

const trace = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message).split('\n').slice(0, 6).join('\n') : String(error);
