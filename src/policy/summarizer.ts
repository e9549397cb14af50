import { resolveWindow } from '../tokens/windows.js';
import type { Policy } from './schema.js';
import { contradiction, inWords } from './thresholds.js';

/** Sizes of summarizer requests and answers, tokens. */
export interface SummarizerLimits {
  window: number;
  /** Transcript in one request. */
  chunkTokens: number;
  /** Longest snapshot or digest asked for. */
  maxTokens: number;
  /** Kept free for the answer, a reasoning model's thoughts included; never below `maxTokens`. */
  reservedOutput: number;
}

/** Shares of a head, tokens: they add up to `headMax` at most. */
export interface HeadShares {
  snapshot: number;
  ledger: number;
  note: number;
}

/** Ceiling for instructions and delimiters of one summarizer request, tokens. */
export const PROMPT_TOKENS = 1_000;
/** Largest share of a head's ceiling that the note with its pointer and the acknowledgment are given. */
const NOTE_TOKENS = 200;
/** Share of the summarizer's window planned with; the rest absorbs counts that differ from its provider's. */
const COUNT_MARGIN = 0.95;
const LARGEST_CHUNK = 32_000;
const SMALLEST_CHUNK = 256;

/**
 * The note takes up to 200 tokens; snapshot and ledger share the rest as 2,000 : 1,000 (or as given), and are never
 * longer than asked for. With a window of 8,000 (`headMax` 1,400): 800 + 400 + 200.
 */
export function headShares(policy: Policy, headMax: number): HeadShares {
  const note = Math.min(NOTE_TOKENS, Math.floor(headMax / 2));
  const { maxTokens, ledgerTokens } = policy.summary;
  const scale = Math.min(1, (headMax - note) / (maxTokens + ledgerTokens));
  return { snapshot: Math.floor(maxTokens * scale), ledger: Math.floor(ledgerTokens * scale), note };
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
  const longest = Math.min(snapshotTokens, Math.floor(window / 4), summary.reservedOutputTokens ?? Infinity);
  const reservedOutput =
    summary.reservedOutputTokens ?? Math.max(longest, Math.min(4_096, Math.floor(window / 8)));
  const room = Math.floor(window * COUNT_MARGIN) - PROMPT_TOKENS - longest - reservedOutput;
  const limits = { window, maxTokens: longest, reservedOutput };
  const byDefault = Math.min(LARGEST_CHUNK, Math.floor(window / 2));
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
      `The summarizer's window of ${inWords(window)} tokens leaves no room for a transcript beside the prompt ` +
        `(${inWords(PROMPT_TOKENS)}), the previous snapshot (${inWords(longest)}) and its answer (${inWords(reservedOutput)}).`,
      "Use a summarizer with a larger window, a smaller summary.reservedOutputTokens, or summary.method: 'extractive'.",
      { window, prompt: PROMPT_TOKENS, snapshot: longest, reservedOutput },
    );
  }
  if (summary.chunkTokens !== null && summary.chunkTokens > room) {
    throw contradiction(
      'policy.summary.chunkTokens',
      `Chunks of ${inWords(summary.chunkTokens)} tokens do not fit the summarizer's window of ${inWords(window)}.`,
      `At most ${inWords(room)} leave room for the prompt, the previous snapshot and the answer.`,
      { chunkTokens: summary.chunkTokens, window, room },
    );
  }
  return { ...limits, chunkTokens: summary.chunkTokens ?? Math.min(byDefault, room) };
}
