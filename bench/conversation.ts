/**
 * Conversations of a coding agent for measurements, made from a fixed seed, with the words, paths, numbers and tool calls that
 * matter for counts, exact values and groups.
 */
import type { ChatMessage } from '../src/conversation/message.js';

/** Messages of one turn: a request, two tool calls with their results, an answer. */
export const messagesPerTurn = 6;

/** `count` turns; every message has about `tokens` tokens. */
export function agentTurns(count: number, tokens: number, seed = 1): ChatMessage[][] {
  return Array.from({ length: count }, (_, index) => agentTurn(tokens, seed * 100_003 + index));
}

export function agentTurn(tokens: number, seed: number): ChatMessage[] {
  const words = wordsFrom(seed);
  const call = (n: number, name: string): ChatMessage => ({
    role: 'assistant',
    content: words(tokens - 30),
    tool_calls: [
      {
        id: `call_${seed}_${n}`,
        type: 'function',
        function: { name, arguments: JSON.stringify({ path: pathOf(seed + n) }) },
      },
    ],
  });
  const result = (n: number): ChatMessage => ({
    role: 'tool',
    tool_call_id: `call_${seed}_${n}`,
    content: `${pathOf(seed + n)}:${(seed % 900) + n}\n${words(tokens - 20)}`,
  });
  return [
    { role: 'user', content: `Please look at ${pathOf(seed)}. ${words(tokens - 12)}` },
    call(1, 'read_file'),
    result(1),
    call(2, 'run_tests'),
    result(2),
    { role: 'assistant', content: `Done with ${pathOf(seed)}. ${words(tokens - 12)}` },
  ];
}

function pathOf(seed: number): string {
  return `src/${vocabulary[seed % vocabulary.length]}/${vocabulary[(seed * 7) % vocabulary.length]}-${seed % 1_000}.ts`;
}

const vocabulary =
  `the a of to in and that it for with on as is this when not must only each from by over after before while because
ledger invoice retry queue commit branch schema window budget digest session message worker timer signal reader writer
returns throws expects reads stores counts closes opens waits fails passes changes keeps drops
integration throughput idempotent transaction serialization checkpoint migration deterministic concurrency
ERR_TIMEOUT v2.14.3 0x7f3a 4096 180ms 12.5%`.split(/\s+/);

/** Text of about `tokens` tokens (one in eight words takes two) from a linear congruential generator. */
function wordsFrom(seed: number): (tokens: number) => string {
  let state = (seed * 2_654_435_761) >>> 0;
  const next = () => (state = (state * 1_664_525 + 1_013_904_223) >>> 0);
  return (tokens) =>
    Array.from(
      { length: Math.max(1, Math.round(tokens / 1.35)) },
      () => vocabulary[(next() >>> 8) % vocabulary.length],
    ).join(' ');
}
