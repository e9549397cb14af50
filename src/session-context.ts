import { createHash } from 'node:crypto';
import { fitContext } from './compaction/fit.js';
import type { ContextSource, Reduction, ViewItem } from './conversation/context.js';
import type { ChatMessage } from './conversation/message.js';
import { limitsOf } from './policy/limits.js';
import { policyOf } from './policy/layers.js';
import { factsOf } from './store/session-row.js';
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
  const policy = policyOf(session.policy);
  const limits = limitsOf(policy, factsOf(session));
  const { items, reductions } = fitContext(source, policy, limits, counterFor(limits.tokenizer));
  return { context: contextOf(name, session, items, limits), budget: limits.budget, reductions };
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
