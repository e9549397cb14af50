import type { ContextBreakdown } from '../context/view/breakdown.js';
import type { Journal } from '../summary/journal/rewrites.js';
import type { Generation } from '../compaction/in-memory/generation.js';
import type { Limits } from '../limits/limits.js';
import type { Policy } from '../policy/resolve.js';
import type { CacheUse } from './cache.js';
import type { SummarizerUse } from './summarizer.js';

/** What a rehearsal tells of a session under one policy. */
export interface RehearsedTurn {
  /** From 1. */
  turn: number;
  /** Last seq of the log. */
  throughSeq: number;
  /** Overhead + context tokens of a request now; null where the context cannot fit. */
  tokens: number | null;
}

export interface RehearsedCompaction {
  generation: number;
  reason: Generation['reason'];
  /** Committed after this turn, from 1. */
  turn: number;
  /** Evicted range; empty (`throughSeq < fromSeq`) where only reductions were committed. */
  fromSeq: number;
  throughSeq: number;
  /** What the tail begins with: a user turn, an assistant message inside a run, anything else; null: nothing was evicted. */
  boundary: 'user' | 'assistant' | 'other' | null;
  evictedMessages: number;
  evictedTokens: number;
  /** Overhead + context tokens. */
  tokensBefore: number;
  tokensAfter: number;
  /** Of the context behind it, without overhead. */
  breakdown: ContextBreakdown;
  /** Overhead and what else the request behind it begins with as the one before did. */
  cachedTokens: number;
  summarizer: SummarizerUse;
}

export interface RehearsedFailure {
  type: string;
  message: string;
  /** What can be done. */
  hint?: string;
  /** First turn it happened at, and how many. */
  turn: number;
  turns: number;
}

export interface Rehearsal {
  policy: Policy;
  /** At the end: under an economic trigger they follow the session. */
  limits: Limits;
  /** Smallest size that triggers by tokens, overhead + context; null where none does. */
  threshold: number | null;
  turns: RehearsedTurn[];
  compactions: RehearsedCompaction[];
  failures: RehearsedFailure[];
  /** Largest request, overhead + context tokens. */
  largest: number;
  /** Every request left room for the answer. */
  fits: boolean;
  /** Tokens of the log. */
  rawTokens: number;
  evictedTokens: number;
  summarizer: SummarizerUse;
  /** Of the requests to the agent's model: one before each answer of the log, and one at the end. */
  agent: CacheUse & { requests: number };
  /** Money at the policy's prices; without prices in the policy, millions of uncached input tokens. */
  summarizerCost: number;
  agentCost: number;
  /** Both per token of the log, in the price of an uncached input token. */
  costPerToken: number;
  /** What stays at the end: log messages after the last cut, and the whole context (null where it cannot fit). */
  tail: { messages: number; tokens: number };
  context: { messages: number; tokens: number; breakdown: ContextBreakdown } | null;
  /** `journal` mode: its entries at the end. */
  journal: Journal | null;
}
