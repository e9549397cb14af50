import { createHash } from 'node:crypto';
import { fitting } from '../context/fit.js';
import { arrangeNative } from '../context/view/arrange.js';
import type { ContextSource, Reduction, ViewItem } from '../context/view/view.js';
import type { ChatMessage, Json, LoggedMessage } from '../conversation/message.js';
import { limitsOf } from '../limits/limits.js';
import { contextFormatOf, formatOf, type ContextFormat } from '../formats/index.js';
import { shownUnits } from '../formats/native.js';
import { policyOf } from '../policy/layers.js';
import { factsOf } from '../store/sessions/session-row.js';
import type { SessionRow } from '../store/sessions/sessions.js';
import type { Steps } from '../steps.js';
import { counterFor } from '../tokens/counter.js';

export interface ContextEntry {
  /** Message of the log this entry shows; null for the summary turn, its acknowledgment and synthetic results. */
  seq: number | null;
  source: ViewItem['source'];
  tokens: number;
}

/** `Message`: the messages of its format; chat messages unless it says otherwise. */
export interface SessionContext<Message = ChatMessage> {
  session: string;
  generation: number;
  format: ContextFormat;
  /** What to send to the model: valid for its provider, within `budget`. */
  messages: Message[];
  /** The instructions, in formats whose provider wants them apart from the messages. */
  system?: Json;
  /** One entry for each message as it is logged and counted: for each of `messages` in the format `openai-chat`. */
  entries: ContextEntry[];
  /** Tokens of `messages`, request overhead not included. */
  tokens: number;
  budget: number;
  window: number;
  /** Changes whenever anything above does. */
  etag: string;
}

export interface ContextShape {
  /** @default the session's own, for logs of agents that of their provider */
  format?: ContextFormat;
  /** Context tokens at most. @default what the session's policy allows */
  budget?: number;
}

/**
 * The context within its budget, and the reductions that this takes beyond those already stored. In steps: 100,000 messages
 * take seconds.
 */
export function* fitted(
  name: string,
  { session, source }: { session: SessionRow; source: ContextSource },
  { format = formatOf(session.format).contextFormat, budget: own }: ContextShape = {},
): Steps<{ context: SessionContext; budget: number; reductions: Reduction[] }> {
  const policy = policyOf(session.policy);
  const limits = limitsOf(policy, factsOf(session));
  const budget = own ?? limits.budget;
  const counter = counterFor(limits.tokenizer);
  const logged = new Map<number, LoggedMessage>(
    [...source.system, ...source.tail].map((message) => [message.seq, message]),
  );
  // Other formats join neighbours of one role themselves, so that the originals within stay what they are.
  const arrange = (view: readonly ViewItem[]) => arrangeNative(view, logged, format, counter);
  const fit = yield* fitting(source, policy, limits, counter, {
    budget,
    ...(format === 'openai-chat' ? {} : { arrange }),
  });
  const context = contextOf(name, session, fit.items, { budget, window: limits.window });
  // The row's own budget is the key under which its reductions are stored and read.
  const key = own ?? session.budget;
  return {
    context: yield* inFormat(context, fit.items, logged, format),
    budget: key,
    reductions: fit.reductions,
  };
}

function* inFormat(
  context: Omit<SessionContext, 'etag'>,
  items: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: ContextFormat,
): Steps<SessionContext> {
  const rendered =
    format === 'openai-chat'
      ? { messages: context.messages }
      : contextFormatOf(format).render(shownUnits(items, logged, format));
  yield;
  const shown = { ...context, format, ...(rendered as { messages: ChatMessage[]; system?: Json }) };
  return { ...shown, etag: createHash('sha256').update(JSON.stringify(shown)).digest('hex').slice(0, 32) };
}

function contextOf(
  session: string,
  { generation }: SessionRow,
  view: readonly ViewItem[],
  { budget, window }: { budget: number; window: number },
): Omit<SessionContext, 'etag'> {
  const messages = view.map(({ message }) => message);
  const tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  return {
    session,
    generation,
    format: 'openai-chat',
    messages,
    entries: view.map(({ fromSeq, source, tokens: size }) => ({
      seq: fromSeq === 0 ? null : fromSeq,
      source,
      tokens: size,
    })),
    tokens,
    budget,
    window,
  };
}
