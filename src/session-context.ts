import { createHash } from 'node:crypto';
import { buildView, type ContextSource, type Reduction, type ViewItem } from './conversation/context.js';
import type { ChatMessage } from './conversation/message.js';
import { limitsOf } from './policy/limits.js';
import { reduceToFit } from './policy/reduce.js';
import { resolvePolicy } from './policy/schema.js';
import type { SessionRow } from './store/sessions.js';
import { counterFor } from './tokens/counter.js';

export interface ContextEntry {
  /** Message of the log this entry shows; null for the summary turn, its acknowledgment and synthetic results. */
  seq: number | null;
  source: ViewItem['source'];
  tokens: number;
}

export interface SessionContext {
  session: string;
  generation: number;
  /** What to send to the model: valid for its provider, within `budget`. */
  messages: ChatMessage[];
  /** One entry for each message. */
  entries: ContextEntry[];
  /** Tokens of `messages`, request overhead not included. */
  tokens: number;
  budget: number;
  window: number;
  /** Changes whenever `messages` change. */
  etag: string;
}

/** The context within its budget, and the reductions that this takes beyond those already stored. */
export function fitted(
  name: string,
  { session, source }: { session: SessionRow; source: ContextSource },
): { context: SessionContext; budget: number; reductions: Reduction[] } {
  const policy = resolvePolicy(session.policy);
  const limits = limitsOf(policy);
  const { budget, contextTarget } = limits;
  const counter = counterFor(limits.tokenizer);
  const view = buildView(source, counter);
  if (!policy.enabled) return { context: contextOf(name, session, view, limits), budget, reductions: [] };
  const fit = reduceToFit(view, { limit: budget, target: Math.min(contextTarget, budget) }, counter);
  return { context: contextOf(name, session, fit.view, limits), budget, reductions: fit.reductions };
}

function contextOf(
  session: string,
  { generation }: SessionRow,
  view: readonly ViewItem[],
  { budget, window }: { budget: number; window: number },
): SessionContext {
  const messages = view.map(({ message }) => message);
  const tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  return {
    session,
    generation,
    messages,
    entries: view.map(({ fromSeq, source, tokens: size }) => ({
      seq: fromSeq === 0 ? null : fromSeq,
      source,
      tokens: size,
    })),
    tokens,
    budget,
    window,
    etag: createHash('sha256')
      .update(`${generation}\n${JSON.stringify(messages)}`)
      .digest('hex')
      .slice(0, 32),
  };
}
