/** Sizes at which a session wants to be measured again, so that a quiet turn costs nothing. */
import { measureAt, type Limits } from './limits.js';
import type { Policy } from '../policy/resolve.js';

/** Context tokens and messages; null: never. */
export interface Marks {
  tokens: number | null;
  messages: number | null;
}

/** Of a session of this size: where arguments are to be truncated, if that lies ahead, else where a trigger fires. */
export function marksFor(limits: Limits, tokens: number): Marks {
  const marks = measureAt(limits);
  const { reduceAt } = limits;
  if (reduceAt === null || tokens >= reduceAt || marks.tokens === null) return marks;
  return { ...marks, tokens: Math.min(marks.tokens, reduceAt) };
}

/** Share of the budget that comes before the next try where the policy takes any gain: a few words are nothing compactable. */
const leastStep = 0.02;

/**
 * Where compacting cannot help a session of this size, or has missed its target (invariant 9): one `minGain` beyond the
 * size, whether a trigger is reached there already or not.
 */
export function marksBeyond(
  policy: Policy,
  limits: Limits,
  { tokens, messages }: { tokens: number; messages: number },
): Marks {
  const marks = measureAt(limits);
  const step = Math.max(leastStep, policy.summary.minGain);
  const beyond = (mark: number | null, size: number, whole: number) =>
    mark === null ? null : Math.max(mark, size + Math.max(2, Math.ceil(step * whole)));
  return {
    tokens: beyond(marks.tokens, tokens, limits.budget),
    messages: beyond(marks.messages, messages, messages),
  };
}

/** Share of the trigger from which the next compaction is written ahead: see docs/decisions.md for what it costs. */
const EAGER_FROM = 0.9;

/** The first size at which a session whose trigger lies there is written ahead. Context tokens. */
export function eagerFrom(trigger: number): number {
  return Math.floor(EAGER_FROM * trigger);
}

/** Context tokens from which, and below which, the next compaction is written ahead of its trigger; null: never. */
export function eagerSizes(policy: Policy, { triggers }: Limits): { from: number; trigger: number } | null {
  if (!isEager(policy)) return null;
  const sizes = triggers.flatMap(({ contextTokens, messages }) =>
    contextTokens !== null && messages === null ? [contextTokens] : [],
  );
  const trigger = Math.min(...sizes);
  return sizes.length === 0 ? null : { from: eagerFrom(trigger), trigger };
}

/** Only notes rest on their messages alone, so only they can be asked for before the rest of a compaction is known. */
export function isEager({ memory, summary }: Pick<Policy, 'memory' | 'summary'>): boolean {
  return memory.eager && summary.mode === 'journal' && summary.method === 'model';
}

/** After a commit. `missed`: its target was not reached, so another one has to wait for something compactable. */
export function marksAfter(
  policy: Policy,
  limits: Limits,
  { missed, ...size }: { missed: boolean; tokens: number; messages: number },
): Marks {
  return missed ? marksBeyond(policy, limits, size) : marksFor(limits, size.tokens);
}
