import type { ContextSource } from '../../context/view/view.js';
import type { LoggedMessage, MessageMeta } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/resolve.js';
import type { Redact } from '../../summary/redaction/redact.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ChainLink, CompactionReason, SummarizerSettings } from './plan-types.js';

/** A session as planning sees it: sizes and links, no text. */
export interface PlanState {
  generation: number;
  policyVersion: number;
  /** Last seq that the head replaces. */
  throughSeq: number;
  /** Context tokens and messages. */
  liveTokens: number;
  liveMessages: number;
  /** No further turns are expected. */
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

/** The reads of planning beyond the state. Ranges are inclusive. */
export interface PlanReads {
  /** Sizes and links of archived messages. */
  metas(fromSeq: number, throughSeq: number): Promise<MessageMeta[]>;
  messages(fromSeq: number, throughSeq: number): Promise<LoggedMessage[]>;
  /** The context with the reductions committed with its head. */
  source(): Promise<ContextSource>;
}

export interface PlanRequest {
  reason: CompactionReason;
  /** Requested by an operator: no trigger, no minimum gain, no exhausted mark. */
  force: boolean;
  /** Plans what the trigger to come will need of a model, before it is met. @default false */
  eager?: boolean;
  /** Last message of what was written ahead; null or absent: nothing was. */
  writtenThroughSeq?: number | null;
  /** The reason why no model may be asked; null where one may. */
  withoutModel: string | null;
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
  /** A trigger of the policy fires, or none is needed. */
  triggered: boolean;
}

/** Last message that this plan takes into account; later ones belong to the next plan. */
export function seenThrough({ tail, throughSeq }: PlanState): number {
  return tail.at(-1)?.seq ?? throughSeq;
}
