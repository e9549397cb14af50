/** Input and result of the replacement of a prefix. */
import type { ContextSource, Head, Reduction, ViewItem } from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Redact } from '../../summary/redaction/redact.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/resolve.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Coverage } from '../../summary/coverage.js';
import type { KeptLayer, Layer } from '../../summary/ask/layers.js';
import type { RepairProblem } from '../../summary/ask/repair.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { Method, Plan } from '../plan/plan-types.js';

/** The generation that is replaced. */
export interface Parent {
  snapshot: string | null;
  /** Lines of exact values; null or a ledger in generations of earlier versions; '' in `journal` mode. */
  ledger: string | null;
  /** `journal` mode. */
  state: string | null;
  /** Archive parts behind its head. */
  parts: number;
  layers: KeptLayer[] | null;
  /** Texts that patterns pinned so far. */
  pinned: readonly string[];
  fallback: boolean;
}

/** A layer and its text. */
export interface LayerText {
  layer: Layer;
  text: string;
}

/** The texts written by one or several models, references resolved. */
export interface Written {
  /** Null in `journal` mode, and where only messages were summarized. */
  snapshot: string | null;
  layers: LayerText[];
  /** `journal` mode: the answer that holds the changes of the state. */
  changes: string | null;
  messages: { seq: number; text: string }[];
  chunks: ChunkRef[];
}

export interface ReplacementInput {
  plan: Omit<Plan, 'chunks' | 'messages' | 'method'>;
  method: Method;
  /** Null: the method asks no model, or its part failed. */
  written: Written | null;
  /** `journal` mode: the entries that stand, where the rules have to add one; null in other modes. */
  standing: LayerText[] | null;
  /** The model was to write it and failed: a model may do it again. */
  failed: boolean;
  /** Chunks among those written whose digest the rules made because the model failed at them. */
  chunksByRule: number;
  policy: Policy;
  limits: Limits;
  counter: TokenCounter;
  /** The context as it stands, with the reductions committed with its head. */
  source: ContextSource;
  parent: Parent;
  /** The carried request and the pinned messages, where they are not in `source`. */
  referenced: readonly LoggedMessage[];
  redact: Redact;
  /** Asked for by hand: any gain will do. */
  force: boolean;
  /** The one repair has been made, or cannot be. */
  repaired: boolean;
}

export interface Replacement {
  head: Head | null;
  snapshot: string | null;
  ledger: string | null;
  state: string | null;
  layers: KeptLayer[] | null;
  /** A layer made by rule, to be stored with the rest. */
  newLayer: LayerText | null;
  pinned: string[];
  fallback: boolean;
  coverage: Coverage[];
  /** Every reduction in force from now on. */
  reductions: Reduction[];
  view: ViewItem[];
  tokensBefore: number;
  tokensAfter: number;
  /** Of the context, from its beginning on, as it was before: what a provider's prompt cache still serves. */
  cachedTokens: number;
  /** The target was not reached, and nothing came meanwhile for the next plan to make room with. */
  missed: boolean;
}

/** The snapshot must be asked for once more. */
export interface RepairNeeded {
  repair: RepairProblem;
  snapshot: string;
}
