import { counterFor } from '../tokens/counter.js';
import { resolveWindow } from '../tokens/windows.js';
import { PROMPT_TOKENS } from './economics.js';
import type { Policy } from '../policy/defaults.js';
import { contradiction, formatTokens } from './thresholds.js';

/** Sizes of summarizer requests and answers in tokens. */
export interface SummarizerLimits {
  window: number;
  /** Maximum transcript in one request. */
  chunkTokens: number;
  /** Maximum length of a snapshot or digest. */
  maxTokens: number;
  /** Reserved for the answer, including a model's reasoning; never below `maxTokens`. */
  reservedOutput: number;
  /** Reserved for instructions and delimiters of one request. */
  promptTokens: number;
}

/** Parts of a head in tokens; their sum is at most `headMax`. */
export interface HeadShares {
  snapshot: number;
  exact: number;
  note: number;
}

/** Minimum tokens of a section: its heading and one line. */
const SMALLEST_SECTION = 24;

/** Maximum tokens for the note with its pointer and the acknowledgment. */
const NOTE_TOKENS = 200;

/** Share of the summarizer's window that plans use; the rest absorbs differences from the provider's counts. */
const COUNT_MARGIN = 0.95;
/** Maximum tokens of one chunk. In `journal` mode, one eviction from a window of 128,000 is one chunk, and notes and state are requested together. */
const LARGEST_CHUNK = { journal: 48_000, other: 32_000 };
/** Tokens of the state, the end of the previous notes and the beginnings of the following messages, in addition to a chunk. */
const AROUND_NOTES = 700;
const SMALLEST_CHUNK = 256;

/**
 * The note takes up to 200 tokens. Snapshot and exact values share the rest in the ratio 2,000 : 1,000, or in the ratio of
 * their given lengths, which they never exceed. With a window of 8,000 (`headMax` 1,400): 800 + 400 + 200.
 */
export function headShares(policy: Policy, headMax: number): HeadShares {
  const note = Math.min(NOTE_TOKENS, Math.floor(headMax / 2));
  const { maxTokens, ledgerTokens, mode } = policy.summary;
  if (mode === 'journal') return { snapshot: headMax - note, exact: 0, note };
  const scale = Math.min(1, (headMax - note) / (maxTokens + ledgerTokens));
  return { snapshot: Math.floor(maxTokens * scale), exact: Math.floor(ledgerTokens * scale), note };
}

/** Throws `Input.Invalid` if the snapshot has no room for a line of each custom section. */
export function refuseCrowdedSections({ summary: { sections } }: Policy, snapshot: number): void {
  if (sections === null || sections.length * SMALLEST_SECTION <= snapshot) return;
  throw contradiction(
    'policy.summary.sections',
    `${sections.length} sections do not fit a snapshot of ${formatTokens(snapshot)} tokens: each takes at least ${SMALLEST_SECTION}.`,
    `Give at most ${Math.max(1, Math.floor(snapshot / SMALLEST_SECTION))} sections, a smaller ledgerTokens, or a larger trigger or window.`,
    { sections: sections.length, snapshot, section: SMALLEST_SECTION },
  );
}

/** Custom instructions and the wording of sections may need more room than the built-in ones. */
function promptTokensOf({ tokenizer, summary: { prompt, sections } }: Policy): number {
  if (prompt === null && sections === null) return PROMPT_TOKENS;
  const counter = counterFor(tokenizer);
  const wording = (sections ?? []).reduce(
    (sum, { key, title = key, asks = '' }) => sum + counter.count(title) + counter.count(asks) + 8,
    0,
  );
  // The fixed text around prompt and sections: the notice that the record is data, delimiters, the nonce.
  const around = PROMPT_TOKENS / 2;
  return Math.max(PROMPT_TOKENS, around + wording + (prompt === null ? 0 : counter.count(prompt)));
}

function summarizerWindow(policy: Policy, agentWindow: number): number {
  const { contextWindow, model } = policy.summary;
  if (contextWindow === null && model === null) return agentWindow;
  return resolveWindow({ contextWindow, model, fallbackContextWindow: policy.fallbackContextWindow }).tokens;
}

/**
 * Room for prompt, previous snapshot, one chunk and the answer in the summarizer's window.
 * Throws `Input.Invalid` if that window is too small, unless no model is used (`method: 'extractive'`).
 */
export function summarizerLimits(
  policy: Policy,
  agentWindow: number,
  snapshotTokens: number,
): SummarizerLimits {
  const { summary } = policy;
  const window = summarizerWindow(policy, agentWindow);
  // Notes and changes of a state are short, and the whole journal is never read again.
  const isJournal = summary.mode === 'journal';
  const part = isJournal ? 6 : 4;
  const longest = Math.min(
    snapshotTokens,
    Math.floor(window / part),
    summary.reservedOutputTokens ?? Infinity,
  );
  const reservedOutput =
    summary.reservedOutputTokens ?? Math.max(longest, Math.min(4_096, Math.floor(window / 8)));
  const promptTokens = promptTokensOf(policy);
  const before = isJournal ? Math.min(longest, AROUND_NOTES) : longest;
  const room = Math.floor(window * COUNT_MARGIN) - promptTokens - before - reservedOutput;
  const limits = { window, maxTokens: longest, reservedOutput, promptTokens };
  // With most windows, one compaction then evicts a single chunk.
  const byDefault = isJournal
    ? Math.min(LARGEST_CHUNK.journal, Math.floor(0.6 * window))
    : Math.min(LARGEST_CHUNK.other, Math.floor(window / 2));
  if (summary.method === 'extractive') {
    return {
      ...limits,
      chunkTokens: summary.chunkTokens ?? Math.max(SMALLEST_CHUNK, Math.min(byDefault, room)),
    };
  }
  if (room < SMALLEST_CHUNK) {
    throw contradiction(
      summary.reservedOutputTokens === null
        ? 'policy.summary.contextWindow'
        : 'policy.summary.reservedOutputTokens',
      `The summarizer's window of ${formatTokens(window)} tokens leaves no room for a transcript in addition to the prompt ` +
        `(${formatTokens(promptTokens)}), the previous snapshot (${formatTokens(longest)}) and its answer (${formatTokens(reservedOutput)}).`,
      "Use a summarizer with a larger window, a smaller summary.reservedOutputTokens, or summary.method: 'extractive'.",
      { window, prompt: promptTokens, snapshot: longest, reservedOutput },
    );
  }
  if (summary.chunkTokens !== null && summary.chunkTokens > room) {
    throw contradiction(
      'policy.summary.chunkTokens',
      `Chunks of ${formatTokens(summary.chunkTokens)} tokens do not fit the summarizer's window of ${formatTokens(window)}.`,
      `Give at most ${formatTokens(room)}, to leave room for the prompt, the previous snapshot and the answer.`,
      { chunkTokens: summary.chunkTokens, window, room },
    );
  }
  return { ...limits, chunkTokens: summary.chunkTokens ?? Math.min(byDefault, room) };
}
