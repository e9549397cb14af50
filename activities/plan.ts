import type { MessageMeta } from '../src/conversation/message.js';
import { buildView } from '../src/conversation/context.js';
import { boundedCut, chooseCut, type CutChoice } from '../src/policy/cut.js';
import { limitsOf, type Limits } from '../src/policy/limits.js';
import { reduceToFit } from '../src/policy/reduce.js';
import { PROMPT_TOKENS } from '../src/policy/summarizer.js';
import { resolvePolicy, withSummarizer, type Policy } from '../src/policy/schema.js';
import { renderMessage } from '../src/conversation/render.js';
import { cutChunks, MESSAGE_LABEL_TOKENS, type ChunkRef } from '../src/summary/chunk.js';
import { readContextSource } from '../src/store/context.js';
import { readTailMetas } from '../src/store/compactions.js';
import { readMessages } from '../src/store/messages.js';
import { setExhausted, type SessionRow } from '../src/store/sessions.js';
import type { SessionIds } from '../src/temporal/names.js';
import { counterFor, type TokenizerName } from '../src/tokens/counter.js';
import type { Dependencies } from './dependencies.js';
import { runStep } from './run.js';

/** Why a compaction runs. `reduce` holds deterministic reductions only and has no archive part. */
export type CompactionReason = 'trigger' | 'manual' | 'reduce';

/** What one compaction asks of the summarizer; frozen at planning so that every call of it is made alike. */
export interface SummarizerSettings {
  model: string;
  tokenizer: TokenizerName;
  /** Tokens the summarizer reads and writes in one request. */
  window: number;
  chunkTokens: number;
  /** Most tokens of one chunk's digest. */
  digestTokens: number;
  /** Tokens asked of the consolidated snapshot, and the most that is accepted: models overrun a limit given in words. */
  snapshotTokens: number;
  snapshotCeiling: number;
  /** Tokens of digests and previous snapshot that one consolidation may read. */
  foldTokens: number;
  concurrency: number;
  depthLimit: number;
  deadlineMs: number;
}

export interface PlanInput extends SessionIds {
  reason: CompactionReason;
  /** Asked for by hand: no trigger, no minimum gain, no exhausted mark, no waiting after a failure. */
  force: boolean;
}

/** References and sizes of one compaction; no text. */
export interface Plan {
  baseGeneration: number;
  reason: CompactionReason;
  method: 'model' | 'extractive' | 'none';
  /** Last evicted message; the base's own where nothing is evicted. */
  throughSeq: number;
  fromSeq: number;
  /** User message of the run the cut lies in, carried verbatim; null at a user boundary. */
  carriedSeq: number | null;
  chunks: ChunkRef[];
  /** Tokens of the previous snapshot, 0 without one. */
  previousTokens: number;
  tokensBefore: number;
  evictedMessages: number;
  evictedTokens: number;
  /** More could be evicted than one compaction takes: the next one goes on, and the target is not this one's. */
  partial: boolean;
  summarizer: SummarizerSettings;
  fallback: 'extractive' | 'none';
}

export interface NothingToDo {
  nothing: string;
}

/** Asked where neither policy nor environment names a model. */
const defaultModel = 'gpt-4o-mini';
/** Share of the summarizer's window planned with; the rest absorbs counts that differ from its provider's. */
const countMargin = 0.95;
/**
 * Evicted by one compaction at most, in tokens and in full chunks (half full ones are twice as many): its history, its
 * payloads, and the time for which a commit keeps the worker from anything else, heartbeats included, follow from them.
 */
const mostEvicted = { tokens: 2_000_000, chunks: 500 };

export function plan({ pool, model, summarizer, now }: Dependencies) {
  return (input: PlanInput): Promise<Plan | NothingToDo> =>
    runStep('plan', async () => {
      const { session: row, head, tail } = await readTailMetas(pool, input);
      const policy = resolvePolicy(withSummarizer(row.policy, summarizer));
      const limits = limitsOf(policy);
      if (!policy.enabled && !input.force) return { nothing: 'the policy is switched off' };

      const settings = settingsOf(policy, limits);
      const backingOff = row.retryAt !== null && row.retryAt.getTime() > now() && !input.force;
      const useModel = policy.summary.method === 'model' && model.available && !backingOff;
      const base = {
        baseGeneration: row.generation,
        fromSeq: row.throughSeq + 1,
        previousTokens: head?.snapshotTokens ?? 0,
        tokensBefore: row.liveTokens,
        summarizer: settings,
        fallback: policy.summary.fallback,
      };

      const options = {
        keep: { messages: limits.keepMessages, tokens: limits.keepTokens },
        now: now(),
        deadCallAfterMs: policy.deadCallAfter,
        closed: row.closedAt !== null,
        previousCarriedSeq: head?.carriedSeq ?? null,
        force: input.force,
      };
      const whole = chooseCut(tail, options);
      if (whole && (input.force || worthEvicting(whole, row, head, limits, policy))) {
        const cut = boundedCut(tail, options, whole, mostTokens(whole));
        const evicted = tail.filter(({ seq }) => seq <= cut.throughSeq);
        return {
          ...base,
          reason: input.reason,
          method: useModel ? 'model' : 'extractive',
          throughSeq: cut.throughSeq,
          carriedSeq: cut.carriedSeq,
          chunks: useModel ? await chunksOf(evicted) : [],
          evictedMessages: evicted.length,
          evictedTokens: cut.evictedTokens,
          partial: cut.throughSeq < whole.throughSeq,
        };
      }
      if (await worthReducing()) {
        return {
          ...base,
          reason: 'reduce',
          method: 'none',
          throughSeq: row.throughSeq,
          carriedSeq: head?.carriedSeq ?? null,
          chunks: [],
          evictedMessages: 0,
          evictedTokens: 0,
          partial: false,
        };
      }
      if (!input.force) {
        const reason = whole ? 'evicting what may go would save too little' : 'nothing may be evicted';
        await setExhausted(pool, input, { atSeq: row.nextSeq - 1, tokens: row.liveTokens, reason }, row);
      }
      return { nothing: 'nothing compactable' };

      function mostTokens({ evictedTokens, evictedMessages }: CutChoice): number {
        const labelled = evictedTokens + evictedMessages * MESSAGE_LABEL_TOKENS;
        const readable = mostEvicted.chunks * settings.chunkTokens * (evictedTokens / labelled);
        return Math.min(mostEvicted.tokens, Math.floor(readable));
      }

      async function chunksOf(evicted: readonly MessageMeta[]): Promise<ChunkRef[]> {
        const counter = counterFor(limits.tokenizer);
        const large = evicted.filter(({ tokens }) => tokens > settings.chunkTokens / 2);
        const texts = new Map<number, string>();
        for (const { seq } of large) {
          const [logged] = await readMessages(pool, input, seq, seq);
          if (logged) texts.set(seq, renderMessage(logged));
        }
        return cutChunks(
          evicted.map(({ seq, tokens }) => ({ seq, tokens, text: () => texts.get(seq) ?? '' })),
          settings.chunkTokens,
          counter,
        );
      }

      async function worthReducing(): Promise<boolean> {
        const counter = counterFor(limits.tokenizer);
        const { source } = await readContextSource(pool, input, 0);
        const view = buildView({ ...source, reductions: [] }, counter);
        const before = buildView(source, counter).reduce((sum, item) => sum + item.tokens, 0);
        const { tokens } = reduceToFit(
          view,
          { limit: limits.contextTarget, target: limits.contextTarget, commit: true },
          counter,
        );
        return before - tokens >= policy.summary.minGain * before;
      }
    });
}

/** The share saved, with the new head at its largest, must reach the policy's `minGain`. */
function worthEvicting(
  cut: CutChoice,
  row: SessionRow,
  head: { tokens: number } | null,
  limits: Limits,
  policy: Policy,
): boolean {
  const newHead = Math.min(limits.headMax, Math.ceil(cut.evictedTokens / 2)) + cut.carriedTokens;
  const saved = cut.evictedTokens + (head?.tokens ?? 0) - newHead;
  return saved >= policy.summary.minGain * row.liveTokens;
}

function settingsOf(policy: Policy, limits: Limits): SummarizerSettings {
  const { window, chunkTokens, maxTokens, reservedOutput } = limits.summarizer;
  return {
    model: policy.summary.model ?? policy.model ?? defaultModel,
    tokenizer: limits.tokenizer,
    window,
    chunkTokens,
    digestTokens: Math.min(maxTokens, Math.max(128, Math.floor(chunkTokens / 4))),
    snapshotTokens: maxTokens,
    snapshotCeiling: Math.max(maxTokens, limits.headMax - limits.noteTokens),
    foldTokens: Math.max(chunkTokens, Math.floor(window * countMargin) - reservedOutput - PROMPT_TOKENS),
    concurrency: policy.summary.concurrency,
    depthLimit: policy.summary.depthLimit,
    deadlineMs: policy.summary.deadline,
  };
}
