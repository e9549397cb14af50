/** Input and result of replacing a prefix. */
import type { ContextSource, Head, Reduction, ViewItem } from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Redact } from '../../summary/redaction/redact.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Coverage } from '../../summary/coverage.js';
import type { KeptLayer, Layer } from '../../summary/ask/layers.js';
import type { RepairProblem } from '../../summary/ask/repair.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { Method, Plan } from '../plan/plan-types.js';

/** The generation that is replaced. */
export interface Parent {
  snapshot: string | null;
  /** Lines of exact values; '' in `journal` mode. Generations of earlier versions have null, or exact values in an older form. */
  ledger: string | null;
  /** `journal` mode. */
  state: string | null;
  /** Number of archive parts that the head replaces. */
  parts: number;
  layers: KeptLayer[] | null;
  /** Texts pinned by patterns so far. */
  pinned: readonly string[];
  fallback: boolean;
}

/** An entry of the journal and its text. */
export interface LayerText {
  layer: Layer;
  text: string;
}

/** The texts written by models, with references resolved. */
export interface Written {
  /** Null in `journal` mode, and if only messages were summarized. */
  snapshot: string | null;
  layers: LayerText[];
  /** `journal` mode: the answer with the changes of the state. */
  changes: string | null;
  messages: { seq: number; text: string }[];
  chunks: ChunkRef[];
}

export interface ReplacementInput {
  plan: Omit<Plan, 'chunks' | 'messages' | 'method'>;
  method: Method;
  /** Null if the method uses no model, or if the model failed. */
  written: Written | null;
  /** `journal` mode without a model: the existing entries, which precede the entry written by rule. Otherwise null. */
  standing: LayerText[] | null;
  /** Whether the model failed; a model may rewrite the summary later. */
  failed: boolean;
  /** Number of texts (digests of chunks, merged digests, summaries of messages) that the rules wrote because the model failed at them. */
  chunksByRule: number;
  policy: Policy;
  limits: Limits;
  counter: TokenCounter;
  /** The current context, with the reductions committed with its head. */
  source: ContextSource;
  parent: Parent;
  /** The carried request and the pinned messages that are not in `source`. */
  referenced: readonly LoggedMessage[];
  redact: Redact;
  /** Whether an operator requested the compaction: if so, any gain is accepted. */
  force: boolean;
  /** Whether the single repair was made or is impossible. */
  repaired: boolean;
}

export interface Replacement {
  head: Head | null;
  snapshot: string | null;
  ledger: string | null;
  state: string | null;
  layers: KeptLayer[] | null;
  /** Entries written by rule that are not stored yet; the commit stores them. */
  newLayers: LayerText[];
  pinned: string[];
  fallback: boolean;
  coverage: Coverage[];
  /** All reductions in force after the commit. */
  reductions: Reduction[];
  view: ViewItem[];
  tokensBefore: number;
  tokensAfter: number;
  /** Tokens of the unchanged beginning of the context, which a provider's prompt cache still contains. */
  cachedTokens: number;
  /** True if the target was missed and no message that the next plan could evict has arrived meanwhile. */
  missed: boolean;
}

/** The snapshot needs a repair. */
export interface RepairNeeded {
  repair: RepairProblem;
  snapshot: string;
}
