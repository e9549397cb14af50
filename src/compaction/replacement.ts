/** What replaces the planned prefix of a context: accepted head, ledger and reductions, or why they are refused. */
import {
  buildView,
  sizeBeyond,
  sizeOf,
  type ContextSource,
  type Head,
  type Reduction,
  type ViewItem,
} from '../conversation/context.js';
import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
import type { Redact } from '../conversation/redact.js';
import { isFailure, type PalimpsestError } from '../errors.js';
import { assertReachable } from '../policy/floor.js';
import type { Limits } from '../policy/limits.js';
import { carriedWithin, mostCarried } from '../policy/newest-user.js';
import type { Policy } from '../policy/schema.js';
import { acceptHead, type Snapshot } from '../summary/accept.js';
import { coverageOf, type ChunkRef, type Coverage } from '../summary/chunk.js';
import { buildHead } from '../summary/head.js';
import { droppedAtoms } from '../summary/integrity.js';
import type { Layer } from '../summary/layers.js';
import { buildLedger, rankedAtoms } from '../summary/ledger.js';
import type { RepairProblem } from '../summary/repair.js';
import type { Steps } from '../steps.js';
import { draftSnapshot } from './draft.js';
import { pinsFor, pinTokens } from './pinned.js';
import { reductionsFor } from './reductions.js';
import type { TokenCounter } from '../tokens/counter.js';
import { isMedia } from '../tokens/message.js';
import type { Method, Plan } from './plan-types.js';
import { mentionsWithoutSecrets, withoutSecrets, redactedIn } from './secrets.js';

/** What the generation that is replaced has left. */
export interface Parent {
  snapshot: string | null;
  ledger: string | null;
  /** Archive parts behind its head. */
  parts: number;
  layers: Layer[] | null;
  /** Texts that patterns pinned so far. */
  pinned: readonly string[];
  fallback: boolean;
}

/** A layer and its text. */
export interface LayerText {
  layer: Layer;
  text: string;
}

/** What a model, or several, have written; references resolved to texts. */
export interface Written {
  /** Null in `layered` mode, and where only messages were summarized. */
  snapshot: string | null;
  layers: LayerText[];
  messages: { seq: number; text: string }[];
  chunks: ChunkRef[];
}

export interface ReplacementInput {
  plan: Omit<Plan, 'chunks' | 'messages' | 'method'>;
  method: Method;
  /** Null: the method asks no model, or its part failed. */
  written: Written | null;
  /** `layered` mode: the layers that stand, where the rules have to add one; null in other modes. */
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
  layers: Layer[] | null;
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
  /** The target was not reached, and nothing came meanwhile for the next plan to make room with. */
  missed: boolean;
}

/** The snapshot must be asked for once more; `missing` is what it dropped. */
export interface RepairNeeded {
  repair: RepairProblem;
  snapshot: string;
  missing: string[];
}

/** Most dropped atoms that one repair is told. */
const mostMissing = 40;

/**
 * Throws `Summary.NotSmaller`, `Summary.PinsLost` or `Llm.BadOutput` where the result is refused, `Budget.Unreachable` where
 * no reduction could make the context fit with this head, though it can without; nothing has changed then.
 */
export function* makeReplacement(input: ReplacementInput): Steps<Replacement | RepairNeeded> {
  const { plan, method, policy, limits, source, parent, counter } = input;
  const evicts = plan.throughSeq >= plan.fromSeq;
  const kept = source.tail.filter(({ seq }) => seq > plan.throughSeq);
  const evicted = [...source.system, ...source.tail].filter(
    ({ seq }) => seq >= plan.fromSeq && seq <= plan.throughSeq,
  );
  const replacesHead = evicts || plan.reason === 'resummarize';
  const tokensBefore = sizeOf(buildView(source, counter));
  const lenient = input.force || plan.partial || plan.reason === 'resummarize';
  const minGain = lenient ? 0 : policy.summary.minGain;

  const first = yield* attempt(input, limits.ledgerTokens);
  if ('repair' in first) return first;
  const over = excess(first);
  // The ledger is ours: it gives way before a summary is refused for what comes with it.
  const ledgerTokens = counter.count(first.made?.ledger ?? '');
  const room = Math.max(0, ledgerTokens - over);
  const second = over > 0 && ledgerTokens > 0 ? yield* attempt({ ...input, repaired: true }, room) : first;
  if ('repair' in second) return second;
  const { made, head, fit, tokensAfter, later } = excess(second) > 0 ? first : second;
  if (plan.reason !== 'resummarize') {
    acceptHead({
      tokensBefore: tokensBefore - later,
      tokensAfter: tokensAfter - later,
      minGain,
      // A head that stays may be older than the pins, and where there is none they have no place.
      pins: made?.pinned ?? [],
      head: head ? firstText(head.messages) : '',
    });
  }
  if (made) assertFits(fit.view, input);
  const chunks = input.written?.chunks ?? [];
  return {
    head,
    snapshot: made?.snapshot ?? parent.snapshot,
    ledger: made?.ledger ?? parent.ledger,
    layers: made ? made.layers : parent.layers,
    newLayer: made?.newLayer ?? null,
    pinned: made?.matched ?? [...parent.pinned],
    fallback: made ? made.fallback : parent.fallback,
    coverage: evicts ? yield* coverage(input, evicted, method === 'model' ? chunks : []) : [],
    reductions: fit.reductions,
    view: fit.view,
    tokensBefore,
    tokensAfter,
    missed: !plan.partial && later === 0 && tokensAfter > limits.contextTarget,
  };

  /** The new head, if there is to be one, with a ledger of at most so many tokens, and the context with it. */
  function* attempt(given: ReplacementInput, ledgerTokens: number): Steps<Attempted | RepairNeeded> {
    const made = replacesHead ? yield* newHead(given, evicted, kept, ledgerTokens) : null;
    if (made && 'repair' in made) return made;
    const head = made?.head ?? source.head;
    const fit = reductionsFor(given, kept, head, tokensBefore);
    // What came since it was planned is no part of what it was to make smaller.
    const later = sizeBeyond(plan.seenThroughSeq ?? Infinity, fit.view);
    return { made, head, fit, tokensAfter: sizeOf(fit.view), later };
  }

  /** Tokens above what the smallest gain and the target allow. */
  function excess({ tokensAfter, later }: { tokensAfter: number; later: number }): number {
    const before = tokensBefore - later;
    const beyondGain = tokensAfter - later - Math.min(before - 1, Math.floor((1 - minGain) * before));
    const beyondTarget = plan.partial || later > 0 ? 0 : tokensAfter - limits.contextTarget;
    return Math.max(beyondGain, beyondTarget);
  }
}

/** What a new head would make of the context. */
interface Attempted {
  made: MadeHead | null;
  head: Head | null;
  fit: ReturnType<typeof reductionsFor>;
  tokensAfter: number;
  /** Tokens of it that came after the plan. */
  later: number;
}

/** A head is never reduced: one that fills the window, by what it carries word for word, must not take the place of what still fits. */
function assertFits(
  view: readonly ViewItem[],
  { source, policy, limits, counter }: Pick<ReplacementInput, 'source' | 'policy' | 'limits' | 'counter'>,
): void {
  const { newestUserMessage } = policy.reduce;
  const failure = (shown: readonly ViewItem[]) =>
    failureOf(() => assertReachable(shown, limits.budget, counter, newestUserMessage));
  const unreachable = failure(view);
  const before = () => failure(buildView(source, counter));
  if (unreachable !== null && before() === null) throw unreachable;
}

function failureOf(check: () => void): PalimpsestError | null {
  try {
    check();
    return null;
  } catch (error) {
    if (isFailure(error)) return error;
    throw error;
  }
}

interface MadeHead {
  head: Head;
  snapshot: Snapshot;
  ledger: string;
  layers: Layer[] | null;
  newLayer: LayerText | null;
  /** Everything the head holds word for word / what of it patterns found. */
  pinned: string[];
  matched: string[];
  fallback: boolean;
}

function* newHead(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  kept: readonly LoggedMessage[],
  ledgerTokens: number,
): Steps<MadeHead | RepairNeeded> {
  const { plan, policy, limits, parent, redact, source, counter } = input;
  const quotable = policy.redact === null ? evicted : yield* withoutSecrets(evicted, redact);
  const drafted = draftSnapshot(input, quotable, counter);
  if ('repair' in drafted) return drafted;
  const { snapshot, layers, method, newLayer } = drafted;
  const { pinned, matched } = yield* pinsFor(input, evicted);
  const carried = messageOf(plan.carriedSeq, input);
  const common = {
    snapshot,
    pins: pinned,
    archive: { parts: parent.parts + (plan.throughSeq >= plan.fromSeq ? 1 : 0), throughSeq: plan.throughSeq },
    method,
    carried: carried && carriedWithin(carried, mostCarried(policy, limits), counter),
    acknowledgment: policy.summary.acknowledgment,
    form: policy.summary.form,
  };
  const bare = buildHead({ ...common, ledger: '' }, counter);
  const room =
    limits.headMax + Math.max(limits.pinTokens, pinTokens(pinned, counter)) - (bare.tokens[0] ?? 0);
  const mentions = yield* mentionsWithoutSecrets(input, { previousSnapshot: parent.snapshot, evicted, kept });
  // What is evicted next is visible no longer than until then.
  const seen = { ...mentions, previous: parent.ledger, kept: plan.partial ? [] : mentions.kept };
  const atoms = rankedAtoms(seen);
  const ledger = redact(
    buildLedger({
      ...seen,
      atoms,
      snapshot,
      maxTokens: Math.max(0, Math.min(ledgerTokens, room)),
      counter,
    }),
  );
  if (policy.summary.integrityCheck && method === 'model' && !input.repaired && layers === null) {
    const missing = droppedAtoms({
      ...mentions,
      previous: mentions.previousSnapshot,
      snapshot,
      ledger,
      atoms,
      limit: mostMissing,
    });
    if (missing.length > 0) return { repair: 'dropped', snapshot, missing: missing.map(redact) };
  }
  return {
    head: buildHead({ ...common, ledger }, counter),
    snapshot,
    ledger,
    layers,
    newLayer,
    pinned,
    matched,
    fallback: isFallback(input, layers),
  };

  function messageOf(seq: number | null, { referenced }: ReplacementInput): LoggedMessage | null {
    if (seq === null) return null;
    return [...source.tail, ...referenced].find((logged) => logged.seq === seq) ?? null;
  }
}

/** Whether a model should write this summary anew once one answers. */
function isFallback(
  { plan, method, failed, chunksByRule, policy, parent }: ReplacementInput,
  layers: Layer[] | null,
): boolean {
  if (layers !== null) return layers.some(({ extractive }) => extractive === true);
  const leftOut = failed || (plan.withoutModel !== null && policy.summary.method === 'model');
  if (method !== 'model') return leftOut || parent.fallback;
  if (chunksByRule > 0) return true;
  // Too much to read anew: what the fallback wrote was folded as it stood.
  return parent.fallback && plan.foldGeneration === plan.baseGeneration;
}

function* coverage(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  chunks: ChunkRef[],
): Steps<Coverage[]> {
  const first = evicted[0]?.seq ?? 1;
  const inContext = input.source.system
    .filter(({ seq }) => seq >= first)
    .map(({ seq }) => ({ seq, reason: 'in context' }));
  const withMedia = evicted
    .filter(({ message: { content } }) => Array.isArray(content) && content.some(isMedia))
    .map(({ seq }) => ({ seq, reason: 'media withheld' }));
  const redacted = (yield* redactedIn(evicted, input)).map(({ seq }) => ({ seq, reason: 'redacted' }));
  return coverageOf(chunks, {
    messages: evicted.map(({ seq }) => seq),
    excluded: inContext,
    partly: [...withMedia, ...redacted],
  });
}

function firstText(messages: readonly ChatMessage[]): string {
  const content = messages[0]?.content;
  return typeof content === 'string' ? content : '';
}
