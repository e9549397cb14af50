import type { ContextSource } from '../../context/view/view.js';
import type { LoggedMessage, MessageMeta } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import type { Redact } from '../../summary/redaction/redact.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ChainLink, CompactionReason, SummarizerSettings } from './plan-types.js';

/** The input of planning about a session: sizes and links, no text. */
export interface PlanState {
  generation: number;
  policyVersion: number;
  /** Last seq that the head replaces. */
  throughSeq: number;
  /** Context tokens and messages. */
  liveTokens: number;
  liveMessages: number;
  /** Whether the session is closed: no further turns are expected. */
  closed: boolean;
  /** Leading system messages. */
  system: MessageMeta[];
  tail: MessageMeta[];
  head: { tokens: number; carriedSeq: number | null } | null;
  /** Newest first, the genesis last. */
  chain: ChainLink[];
  /** Money spent on summaries of this session so far. */
  spent: number;
}

/** Further reads of planning. Ranges are inclusive. */
export interface PlanReads {
  /** Sizes and links of archived messages. */
  metas(fromSeq: number, throughSeq: number): Promise<MessageMeta[]>;
  messages(fromSeq: number, throughSeq: number): Promise<LoggedMessage[]>;
  /** The context with the reductions committed with its head. */
  source(): Promise<ContextSource>;
}

export interface PlanRequest {
  reason: CompactionReason;
  /** Whether an operator requested the plan: trigger, minimum gain and exhausted mark are ignored. */
  force: boolean;
  /** Plans the model calls of the next compaction before its trigger is met. @default false */
  eager?: boolean;
  /** Last message covered by a compaction written ahead; null or absent if none was. */
  writtenThroughSeq?: number | null;
  /** The reason why no model may be asked, or null. */
  withoutModel: string | null;
  /**
   * The reason why the operator's limits forbid to ask a model, or null. `estimate` returns the cost of the compaction at prices
   * per million tokens. @default no limits
   */
  beyondLimits?: (estimate: (prices: { input: number; output: number }) => number) => string | null;
  /** Unix milliseconds. */
  now: number;
  counter: TokenCounter;
  redact: Redact;
}

/** The inputs that every step of planning reads. */
export interface Planning extends PlanRequest {
  state: PlanState;
  policy: Policy;
  limits: Limits;
  reads: PlanReads;
  settings: SummarizerSettings;
  /** Whether a trigger of the policy is met, or no trigger is needed. */
  triggered: boolean;
}

/** Last message that this plan takes into account; later ones belong to the next plan. */
export function seenThrough({ tail, throughSeq }: PlanState): number {
  return tail.at(-1)?.seq ?? throughSeq;
}
