import type { Steps } from '../../steps.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { PalimpsestError } from '../../errors.js';
import {
  acceptLayered,
  acceptSnapshot,
  type Acceptance,
  type Snapshot,
} from '../../summary/answer/accept.js';
import { extractiveSnapshot } from '../../summary/extractive/extractive.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { resolveSections } from '../../summary/answer/sections.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { LayerText, RepairNeeded, ReplacementInput } from './input.js';
import { memoryByModel, memoryByRule, type Memory } from './journal.js';

/** The snapshot of a compaction by a model or the rules: accepted, or in need of a repair. */
export interface Drafted {
  snapshot: Snapshot;
  method: 'model' | 'extractive';
  layers: KeptLayer[] | null;
  /** `journal` mode. */
  state: string | null;
  /** Entries written by rule that are not stored yet. */
  newLayers: LayerText[];
}

export function* draftSnapshot(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  kept: readonly LoggedMessage[],
  counter: TokenCounter,
): Steps<Drafted | RepairNeeded> {
  const { plan, method, written, parent } = input;
  const before = parent.snapshot === null ? 0 : counter.count(parent.snapshot);
  const inputTokens = evicted.reduce((sum, { tokens }) => sum + tokens, before);
  const sections = resolveSections(input.policy.summary.sections);
  const acceptance = { inputTokens, maxTokens: plan.summarizer.snapshotCeiling, counter, sections };
  if (plan.mode === 'journal' || plan.mode === 'layered') {
    const model = method === 'model' && written !== null;
    const memory = model
      ? yield* memoryByModel(input, evicted, kept, counter)
      : memoryByRule(input, evicted, counter);
    return remembered(memory, model ? 'model' : 'extractive', acceptance);
  }
  if (method !== 'model' || written === null) return byRule(input, evicted, acceptance);
  if (written.snapshot === null) throw new PalimpsestError('Store.Corrupt', 'the plan has no snapshot');
  return byModel(input, written.snapshot, acceptance);
}

function remembered(
  { text, layers, state, newLayers }: Memory,
  method: Drafted['method'],
  acceptance: Acceptance,
): Drafted {
  const room = Math.max(acceptance.maxTokens, acceptance.counter.count(text));
  const snapshot = acceptLayered(text, { ...acceptance, inputTokens: Infinity, maxTokens: room });
  return { snapshot, layers, state, method, newLayers };
}

function byModel(
  { plan, repaired }: ReplacementInput,
  draft: string,
  acceptance: Acceptance,
): Drafted | RepairNeeded {
  if (!repaired && acceptance.counter.count(draft) > acceptance.maxTokens)
    return { repair: 'too long', snapshot: draft };
  // More messages were read than are evicted now.
  const readAgain = plan.readFromSeq < plan.fromSeq;
  const snapshot = acceptSnapshot(draft, readAgain ? { ...acceptance, inputTokens: Infinity } : acceptance);
  return { snapshot, method: 'model', layers: null, state: null, newLayers: [] };
}

function byRule(
  { plan, parent, redact }: ReplacementInput,
  evicted: readonly LoggedMessage[],
  acceptance: Acceptance,
): Drafted {
  const { counter } = acceptance;
  const maxTokens = plan.summarizer.snapshotTokens;
  const text = redact(
    extractiveSnapshot({ previous: parent.snapshot, messages: evicted, maxTokens, counter }),
  );
  return {
    snapshot: accepted(text, acceptance),
    method: 'extractive',
    layers: null,
    state: null,
    newLayers: [],
  };
}

function accepted(text: string, acceptance: Acceptance): Snapshot {
  if (/\S/.test(text)) return acceptSnapshot(text, acceptance);
  throw new PalimpsestError(
    'Summary.NotSmaller',
    `${acceptance.inputTokens} tokens are too few for a summary that would be smaller`,
  );
}
