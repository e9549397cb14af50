import { carriedWithin, mostCarried } from '../../context/reductions/newest-user.js';
import type { Head } from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Steps } from '../../steps.js';
import type { Snapshot } from '../../summary/answer/accept.js';
import { mayHaveMatched, MOST_MATCHES, pinnedTexts } from '../../summary/answer/pins.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { buildHead } from '../../summary/head.js';
import { exactValues } from '../../summary/journal/exact.js';
import { writtenIn } from '../../summary/journal/witness.js';
import { withoutSecrets } from '../../summary/redaction/withheld.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { draftSnapshot } from './draft.js';
import type { LayerText, RepairNeeded, ReplacementInput } from './input.js';
import { withRedactedAnswers } from './redacted-answers.js';

/** The head of a new generation: snapshot, exact values and pins; or a snapshot that needs a repair. */
export interface MadeHead {
  head: Head;
  snapshot: Snapshot;
  /** Lines of exact values for the next generation; '' in `journal` mode. */
  ledger: string;
  layers: KeptLayer[] | null;
  state: string | null;
  newLayers: LayerText[];
  /** All texts that the head carries word for word. */
  pinned: string[];
  /** Those of `pinned` that patterns found. */
  matched: string[];
  fallback: boolean;
}

/** The messages before and after the cut, without secrets. */
export interface Quotable {
  evicted: readonly LoggedMessage[];
  kept: readonly LoggedMessage[];
}

export function* newHead(
  given: ReplacementInput,
  { evicted, kept }: Quotable,
  exactTokens: number,
): Steps<MadeHead | RepairNeeded> {
  const input = yield* withRedactedAnswers(given);
  const { plan, policy, limits, parent, redact, source, counter } = input;
  const drafted = yield* draftSnapshot(input, evicted, kept, counter);
  if ('repair' in drafted) return drafted;
  const { snapshot, layers, state, method, newLayers } = drafted;
  const { pinned, matched } = yield* pinsFor(input, evicted);
  const original = messageOf(plan.carriedSeq, input);
  const carried =
    original && policy.redact !== null ? yield* carriedWithoutSecrets(original, input) : original;
  const common = {
    snapshot,
    state,
    pins: pinned,
    evicted: {
      fromSeq: plan.fromSeq,
      throughSeq: plan.throughSeq,
      resultSeq:
        evicted.findLast(({ message: { role } }) => role === 'tool' || role === 'function')?.seq ?? null,
    },
    method,
    carried: carried && carriedWithin(carried, mostCarried(policy, limits), counter, policy.recovery),
    acknowledgment: policy.summary.acknowledgment,
    form: policy.summary.form,
    recovery: policy.recovery,
  };
  const fallback = isFallback(input, layers);
  const made = { snapshot, state, layers, newLayers, pinned, matched, fallback };
  const bare = buildHead({ ...common, exact: '' }, counter);
  if (state !== null) return { ...made, head: bare, ledger: '' };
  const room =
    limits.headMax + Math.max(limits.pinTokens, pinTokens(pinned, counter)) - (bare.tokens[0] ?? 0);
  const found = exactValues({
    before: (parent.ledger ?? '').split('\n'),
    evicted,
    text: snapshot,
    // The next compaction evicts more, so these messages are visible only until then.
    visible: plan.partial ? '' : [...kept, ...input.referenced].flatMap(writtenIn).join('\n'),
    fixed: [...source.system.flatMap(writtenIn), ...pinned].join('\n'),
    maxTokens: Math.max(0, Math.min(exactTokens, room)),
    counter,
  });
  const exact = redact(found.exact);
  const ledger = [exact, redact(found.waiting)].filter((line) => line !== '').join('\n');
  return { ...made, head: buildHead({ ...common, exact }, counter), ledger };

  function messageOf(seq: number | null, { referenced }: ReplacementInput): LoggedMessage | null {
    if (seq === null) return null;
    return [...source.tail, ...referenced].find((logged) => logged.seq === seq) ?? null;
  }
}

/** The carried request as the head keeps it. */
function* carriedWithoutSecrets(
  original: LoggedMessage,
  { redact, counter }: ReplacementInput,
): Steps<LoggedMessage> {
  const [shown = original] = yield* withoutSecrets([original], redact);
  return { ...shown, tokens: countMessage(shown.message, counter) };
}

/** Whether a model should rewrite this summary once one is available. */
function isFallback(
  { plan, method, failed, chunksByRule, policy, parent }: ReplacementInput,
  layers: readonly KeptLayer[] | null,
): boolean {
  if (layers !== null) return layers.some(({ extractive }) => extractive === true);
  const leftOut = failed || (plan.withoutModel !== null && policy.summary.method === 'model');
  if (method !== 'model') return leftOut || parent.fallback;
  if (chunksByRule > 0) return true;
  // The messages were too many to read again, so the fallback's summary was merged unchanged.
  return parent.fallback && plan.foldGeneration === plan.baseGeneration;
}

interface Pinned {
  /** All texts that a head carries word for word. */
  pinned: string[];
  /** Those of `pinned` that patterns found. */
  matched: string[];
}

/**
 * The texts and messages that the policy names, of any size, and the newest matches of its patterns in this session, at most
 * {@link MOST_MATCHES} per pattern and within the available room.
 */
function* pinsFor(
  { policy, limits, counter, parent, referenced, source }: ReplacementInput,
  evicted: readonly LoggedMessage[],
): Steps<Pinned> {
  const patterns = policy.pins.filter(
    (pin): pin is { pattern: string } => typeof pin === 'object' && 'pattern' in pin,
  );
  const named = policy.pins.filter((pin) => !(typeof pin === 'object' && 'pattern' in pin));
  const texts = yield* pinnedTexts(named, [...referenced, ...source.system, ...source.tail]);
  const found = new Set(yield* pinnedTexts(patterns, evicted));
  const earlier: string[] = [];
  for (const text of parent.pinned) {
    yield;
    if (!found.has(text) && patterns.some(({ pattern }) => mayHaveMatched(pattern, text))) earlier.push(text);
  }
  const all = [...new Set(earlier), ...found];
  // Users write the matches of a pattern: they may take half of the kept size, like pinned texts.
  let room = Math.floor((limits.contextTarget - limits.headMax) / 2) - pinTokens(texts, counter);
  const beyond = all.findLastIndex((text) => (room -= pinTokens([text], counter)) < 0);
  const matched = all.slice(beyond + 1).slice(-MOST_MATCHES * patterns.length);
  return { pinned: [...new Set([...texts, ...matched])], matched };
}

function pinTokens(pinned: readonly string[], counter: TokenCounter): number {
  const listMark = 3;
  return pinned.reduce((sum, pin) => sum + counter.count(pin) + listMark, 0);
}
