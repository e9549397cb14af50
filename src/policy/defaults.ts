/** The complete policy and its defaults. */
import { tokenizerForModel, type TokenizerName } from '../tokens/counter.js';
import { isKnownAnthropicModel } from '../tokens/windows.js';
import {
  type KeepCeilings,
  type Overhead,
  type Pin,
  type PolicyInput,
  type Prices,
  resolvePrices,
  type Spend,
  type TriggerClause,
} from './schema.js';
import { resolveReduce, type Reduce } from './reduce-schema.js';
import type { SectionInput } from './summary-schema.js';

/** A policy with every default filled in. A field is null if `limitsOf` derives it from the window. */
export interface Policy {
  enabled: boolean;
  model: string | null;
  contextWindow: number | null;
  fallbackContextWindow: number;
  reservedOutputTokens: number | null;
  overhead: Overhead;
  tokenizer: TokenizerName;
  calibration: boolean;
  roles: 'auto' | 'alternate' | 'free';
  /** The triggers that name sizes, in the order given; empty if only `economic` or `idle` were given. */
  trigger: TriggerClause[];
  economic: boolean;
  /** Idle milliseconds after which the cache is cold and the trigger fires; null: never. */
  idleTrigger: number | null;
  target: number;
  keep: KeepCeilings | null;
  reduce: Reduce;
  summary: {
    method: 'model' | 'extractive';
    mode: 'journal' | 'incremental' | 'full_rewrite';
    prompt: string | null;
    sections: SectionInput[] | null;
    structured: 'auto' | 'off';
    form: 'restoration' | 'plain';
    model: string | null;
    contextWindow: number | null;
    maxTokens: number;
    ledgerTokens: number;
    chunkTokens: number | null;
    concurrency: number;
    depthLimit: number;
    reservedOutputTokens: number | null;
    deadline: number;
    retryAfterFailure: number;
    /** '' stands for no acknowledgment. */
    acknowledgment: string;
    minGain: number;
    fallback: 'extractive' | 'none';
  };
  /** Whether the agent has tools that read originals. */
  recovery: 'tools' | 'none';
  memory: {
    /** Share of the budget for journal and state in `journal` mode. */
    share: number;
    /** Whether the next compaction is written ahead. */
    eager: boolean;
  };
  pins: Pin[];
  prices: Prices;
  spend: Spend;
  /** null: redaction is off. */
  redact: { secrets: boolean; patterns: string[] } | null;
  retention: { digests: number };
  deadCallAfter: number;
  debounceMs: number;
  idleAfter: number;
  signal: 'due' | 'always';
}

/** Decides whether the head and the reductions may name the recovery tools. */
export type Recovery = Policy['recovery'];

/** @internal Exported for a test, which checks that this is the default of `summary.acknowledgment`. */
export const DEFAULT_ACKNOWLEDGMENT =
  'Understood. I have the earlier work as summarized above and continue from there.';

/** Fills in every default. Presets have been merged before. */
export function withDefaults(input: PolicyInput): Policy {
  const { summary = {} } = input;
  const { mode: named = 'journal' } = summary;
  const mode = named === 'layered' ? 'journal' : named;
  const triggers = [input.trigger ?? { fraction: 0.85 }].flat();
  const idle = triggers.flatMap((one) => ('idle' in one ? [one.idle] : []));
  return {
    enabled: input.enabled ?? true,
    model: input.model ?? null,
    contextWindow: input.contextWindow ?? null,
    fallbackContextWindow: input.fallbackContextWindow ?? 32_768,
    reservedOutputTokens: input.reservedOutputTokens ?? null,
    overhead: input.overhead ?? 0,
    tokenizer: tokenizerOf(input),
    calibration: input.calibration ?? true,
    roles: input.roles ?? 'auto',
    trigger: triggers.flatMap((one) => ('economic' in one || 'idle' in one ? [] : [one])),
    economic: triggers.some((one) => 'economic' in one),
    idleTrigger: idle.length === 0 ? null : Math.min(...idle),
    target: input.target ?? (mode === 'journal' ? 0.75 : 0.6),
    keep: input.keep ?? null,
    reduce: resolveReduce(input.reduce),
    summary: {
      method: summary.method ?? 'model',
      mode,
      prompt: summary.prompt ?? null,
      sections: summary.sections ?? null,
      structured: summary.structured ?? 'auto',
      form: summary.form ?? 'restoration',
      model: summary.model ?? null,
      contextWindow: summary.contextWindow ?? null,
      maxTokens: summary.maxTokens ?? 2_000,
      ledgerTokens: summary.ledgerTokens ?? 1_000,
      chunkTokens: summary.chunkTokens ?? null,
      concurrency: summary.concurrency ?? 4,
      depthLimit: summary.depthLimit ?? 5,
      reservedOutputTokens: summary.reservedOutputTokens ?? null,
      deadline: summary.deadline ?? 600_000,
      retryAfterFailure: summary.retryAfterFailure ?? 60_000,
      acknowledgment:
        summary.acknowledgment === false ? '' : (summary.acknowledgment ?? DEFAULT_ACKNOWLEDGMENT),
      minGain: summary.minGain ?? 0.1,
      fallback: summary.fallback ?? 'extractive',
    },
    recovery: input.recovery ?? 'tools',
    memory: { share: input.memory?.share ?? 0.6, eager: input.memory?.eager ?? true },
    pins: input.pins ?? [],
    prices: resolvePrices(input.prices),
    spend: {
      perCompaction: input.spend?.perCompaction ?? null,
      perSession: input.spend?.perSession ?? null,
    },
    redact:
      input.redact === false
        ? null
        : { secrets: input.redact?.secrets ?? true, patterns: input.redact?.patterns ?? [] },
    retention: { digests: input.retention?.digests ?? 30 * 24 * 3_600_000 },
    deadCallAfter: input.deadCallAfter ?? 600_000,
    debounceMs: input.debounceMs ?? 0,
    idleAfter: input.idleAfter ?? 3_600_000,
    signal: input.signal ?? 'due',
  };
}

function tokenizerOf({ tokenizer, model }: PolicyInput): TokenizerName {
  if (tokenizer === undefined) return tokenizerForModel(model);
  if (tokenizer !== 'chars') return tokenizer;
  return model !== undefined && isKnownAnthropicModel(model) ? 'chars/3.3' : 'chars/4';
}
