import { counterFor } from '../tokens/counter.js';
import { resolveWindow } from '../tokens/windows.js';
import { PROMPT_TOKENS } from './economics.js';
import type { Policy } from '../policy/resolve.js';
import { contradiction, formatTokens } from './thresholds.js';

/** Sizes of summarizer requests and answers, tokens. */
export interface SummarizerLimits {
  window: number;
  /** Transcript in one request. */
  chunkTokens: number;
  /** Longest snapshot or digest asked for. */
  maxTokens: number;
  /** Kept free for the answer, a reasoning model's thoughts included; never below `maxTokens`. */
  reservedOutput: number;
  /** Planned for instructions and delimiters of one request. */
  promptTokens: number;
}

/** Shares of a head, tokens: they add up to `headMax` at most. */
export interface HeadShares {
  snapshot: number;
  exact: number;
  note: number;
}

/** A section below this holds its heading and one line. Tokens. */
const SMALLEST_SECTION = 24;

/** Largest share of a head's ceiling that the note with its pointer and the acknowledgment are given. */
const NOTE_TOKENS = 200;

/** Share of the summarizer's window planned with; the rest absorbs counts that differ from its provider's. */
const COUNT_MARGIN = 0.95;
/** Tokens of one chunk; what is evicted at once from a window of 128,000 is one in `journal` mode, which asks for notes and state together. */
const LARGEST_CHUNK = { journal: 48_000, other: 32_000 };
/** Tokens of the state, the end of the notes before, and the beginnings of what follows, beside a chunk. */
const AROUND_NOTES = 700;
const SMALLEST_CHUNK = 256;

/**
 * The note takes up to 200 tokens; snapshot and exact values share the rest as 2,000 : 1,000 (or as given), and are never
 * longer than asked for. With a window of 8,000 (`headMax` 1,400): 800 + 400 + 200.
 */
export function headShares(policy: Policy, headMax: number): HeadShares {
  const note = Math.min(NOTE_TOKENS, Math.floor(headMax / 2));
  const { maxTokens, ledgerTokens, mode } = policy.summary;
  if (mode === 'journal') return { snapshot: headMax - note, exact: 0, note };
  const scale = Math.min(1, (headMax - note) / (maxTokens + ledgerTokens));
  return { snapshot: Math.floor(maxTokens * scale), exact: Math.floor(ledgerTokens * scale), note };
}

/** Sections of one's own need room for a line each in the snapshot. Throws `Input.Invalid`. */
export function refuseCrowdedSections({ summary: { sections } }: Policy, snapshot: number): void {
  if (sections === null || sections.length * SMALLEST_SECTION <= snapshot) return;
  throw contradiction(
    'policy.summary.sections',
    `${sections.length} sections do not fit a snapshot of ${formatTokens(snapshot)} tokens: each takes at least ${SMALLEST_SECTION}.`,
    `Ask for at most ${Math.max(1, Math.floor(snapshot / SMALLEST_SECTION))} sections, a smaller ledgerTokens, or a larger trigger or window.`,
    { sections: sections.length, snapshot, section: SMALLEST_SECTION },
  );
}

/** Instructions of one's own, and the wording of sections, may be longer than what is planned for the built-in ones. */
function promptTokensOf({ tokenizer, summary: { prompt, sections } }: Policy): number {
  if (prompt === null && sections === null) return PROMPT_TOKENS;
  const counter = counterFor(tokenizer);
  const wording = (sections ?? []).reduce(
    (sum, { key, title = key, asks = '' }) => sum + counter.count(title) + counter.count(asks) + 8,
    0,
  );
  // What is always said around them: that the record is data, delimiters, the nonce.
  const around = PROMPT_TOKENS / 2;
  return Math.max(PROMPT_TOKENS, around + wording + (prompt === null ? 0 : counter.count(prompt)));
}

function summarizerWindow(policy: Policy, agentWindow: number): number {
  const { contextWindow, model } = policy.summary;
  if (contextWindow === null && model === null) return agentWindow;
  return resolveWindow({ contextWindow, model, fallbackContextWindow: policy.fallbackContextWindow }).tokens;
}

/**
 * Room for prompt, previous snapshot, one chunk and the answer in the summarizer's own window.
 * Throws `Input.Invalid` where that window is too small, unless no model is ever asked (`method: 'extractive'`).
 */
export function summarizerLimits(
  policy: Policy,
  agentWindow: number,
  snapshotTokens: number,
): SummarizerLimits {
  const { summary } = policy;
  const window = summarizerWindow(policy, agentWindow);
  // Notes and changes of a state are short; the journal itself is never read again as a whole.
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
  // At most windows all that one compaction evicts is then one chunk.
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
      `The summarizer's window of ${formatTokens(window)} tokens leaves no room for a transcript beside the prompt ` +
        `(${formatTokens(promptTokens)}), the previous snapshot (${formatTokens(longest)}) and its answer (${formatTokens(reservedOutput)}).`,
      "Use a summarizer with a larger window, a smaller summary.reservedOutputTokens, or summary.method: 'extractive'.",
      { window, prompt: promptTokens, snapshot: longest, reservedOutput },
    );
  }
  if (summary.chunkTokens !== null && summary.chunkTokens > room) {
    throw contradiction(
      'policy.summary.chunkTokens',
      `Chunks of ${formatTokens(summary.chunkTokens)} tokens do not fit the summarizer's window of ${formatTokens(window)}.`,
      `At most ${formatTokens(room)} leave room for the prompt, the previous snapshot and the answer.`,
      { chunkTokens: summary.chunkTokens, window, room },
    );
  }
  return { ...limits, chunkTokens: summary.chunkTokens ?? Math.min(byDefault, room) };
}
