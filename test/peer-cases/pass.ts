/** One compaction pass over a case: the history that it supposes, its messages, its scripted summarizer. */
import { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import { isTriggered } from '../../src/limits/limits.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import type { SummaryRequest } from '../../src/summary/ask/prompts.js';
import { counterFor } from '../../src/tokens/counter.js';
import { countMessage } from '../../src/tokens/message.js';
import { saidOf } from '../support/material.js';
import type { PeerCase, PeerMessage } from './case.js';
import { blank, type Asked, type Outcome } from './outcome.js';
import { LEADING, policyFor } from './policy.js';
import { caseTokens, scaleOf, weighing, type CountText } from './sizes.js';

/** Ids and marks of a case are about the message; they are no part of it. */
export function plain({
  id: _id,
  pinned: _pinned,
  compactionSummary: _summary,
  usage: _usage,
  ...message
}: PeerMessage): ChatMessage {
  return message;
}

const leading: ChatMessage[] = Array.from({ length: LEADING }, (_, number) => ({
  role: 'system',
  content: `${number + 1}.`,
}));

const plainCounter = counterFor('chars/4');
const leadingTokens = leading.reduce((sum, message) => sum + countMessage(message, plainCounter), 0);

const DEAD_AFTER = 3_600_000;

/** Whether calls without a result are still waited for in this case. */
function waits({ config, source }: PeerCase): boolean {
  return config.pendingCallIds !== undefined || /^(state-alchemists|google-gemini)\//.test(source);
}

export interface Pass {
  conversation: Conversation;
  offset: number;
  asked: Asked[];
}

export interface PassOptions {
  policy: PolicyInput;
  /** Messages before the case's own, which an earlier compaction has replaced by a summary of this text. */
  earlier?: { messages: ChatMessage[]; summary: string };
  count?: CountText;
}

/** The conversation up to where the case begins to ask. */
export async function passOf(peer: PeerCase, { policy, earlier, count }: PassOptions): Promise<Pass> {
  const scale = scaleOf(peer);
  const messages = peer.messages.map(plain);
  const before = earlier?.messages ?? [];
  const weighed = [...before, ...messages];
  const weightOf = (index: number) => {
    const own = peer.messages[index - before.length];
    // The first message gives way to the leading ones, so that the whole weighs what the case says to the token.
    const spare = index === 0 ? leadingTokens : 0;
    if (own) return caseTokens(peer, own) * scale - spare;
    return weighed[index]?.role === 'assistant' ? 30_000 : 10_000;
  };
  const counter = { name: 'chars/4' as const, count: count ?? weighing(weighed, weightOf) };
  const clock = { now: 0 };
  const conversation = new Conversation({ policy, counter, now: () => clock.now });
  conversation.append(leading);
  if (earlier) {
    const firstRequest = messages.findIndex(({ role }) => role === 'user');
    const kept = messages.slice(
      0,
      firstRequest > 0 ? firstRequest : (conversation.policy.keep?.messages ?? 2),
    );
    conversation.append([...before, ...kept]);
    const summary = earlier.summary;
    const compacted = await conversation.compact((request) => saidOf(summary, request), { force: true });
    if (compacted?.throughSeq !== LEADING + before.length)
      throw new Error(
        `the earlier summary should stand for ${before.length} messages, not for ${compacted?.throughSeq}`,
      );
    if (messages.length > kept.length) conversation.append(messages.slice(kept.length));
  } else if (messages.length > 0) {
    for (const message of messages) conversation.append([message]);
  }
  if (!waits(peer)) clock.now = DEAD_AFTER;
  return { conversation, offset: LEADING + before.length, asked: [] };
}

/** Answers as the case scripts it. */
export function scripted(peer: PeerCase, pass: Pass): Summarizer {
  const { summarizer = 'returns:- So far.', verifier, duringSummarize = [] } = peer.config;
  let late = duringSummarize;
  // What a case scripts stands for a summary of its messages: it is given words of them, without which it would be none.
  const about = (text: string, request: SummaryRequest) =>
    text.trim() === '' ? text : saidOf(text, request);
  return (request, { kind }) => {
    const { messages } = request;
    pass.asked.push({ kind, text: messages.map(({ content }) => content).join('\n') });
    if (late.length > 0) pass.conversation.append(late);
    late = [];
    if (kind === 'repair' && verifier !== undefined) return verifier.replace(/^returns:/, '');
    const fails = summarizer === 'throws-once' ? pass.asked.length === 1 : summarizer.startsWith('throws');
    if (fails) throw new Error(summarizer.split(':')[1] ?? 'the model is out of reach');
    if (summarizer === 'returns:inflated') return 'inflated '.repeat(20_000);
    const text = summarizer === 'throws-once' ? '- So far.' : summarizer.replace(/^returns:/, '');
    return about(text, request);
  };
}

export function isTriggeredNow({ conversation }: { conversation: Conversation }): boolean {
  const { items, tokens } = conversation.context(Infinity);
  return isTriggered(conversation.limits, { contextTokens: tokens, messages: items.length });
}

/**
 * One request and its answer, to be summarized as a whole: the peer's next request comes afterwards. Here it is part of
 * the log, and the newest user message is never summarized.
 */
function isWholeHistory({ messages: [request, answer, ...more] }: PeerCase): boolean {
  return request?.role === 'user' && answer?.role === 'assistant' && !answer.tool_calls && more.length === 0;
}

/** The pass that most cases ask for. */
export async function compactOnce(peer: PeerCase): Promise<Outcome> {
  const mapped = policyFor(peer);
  const { config } = peer;
  const asksTrigger =
    config.trigger !== undefined ||
    config.maxMessages !== undefined ||
    config.minProgressFraction !== undefined;
  const asking = await passOf(peer, { policy: mapped.refused ? mapped.triggerOnly : mapped.policy });
  const triggered = asksTrigger ? isTriggeredNow(asking) : null;
  const due = asking.conversation.isDue();
  const pass = await passOf(peer, { policy: mapped.refused ? mapped.keepOnly : mapped.policy });
  if (isWholeHistory(peer)) pass.conversation.append([{ role: 'user', content: 'Go on.' }]);
  const byHand = Boolean(config.force) || Boolean(config.manualRequest) || !asksTrigger;
  const force = byHand && config.fraction !== 0;
  const outcome = await compact(peer, pass, {
    force,
    extractive: config.mode === 'drop' || config.fallback !== undefined,
  });
  return { ...outcome, refused: mapped.refused, triggered, due };
}

export async function compact(
  peer: PeerCase,
  pass: Pass,
  { force, extractive = false }: { force: boolean; extractive?: boolean },
): Promise<Outcome> {
  const { conversation, offset, asked } = pass;
  const generations = conversation.generations.length;
  const before = conversation.context(Infinity).items;
  let failure: unknown = null;
  // Who must compact tries again; the service leaves that to Temporal.
  const attempts = peer.config.summarizer === 'throws-once' && force ? 2 : 1;
  for (let attempt = 0; attempt < attempts; attempt++) {
    try {
      failure = null;
      await conversation.compact(extractive ? null : scripted(peer, pass), { force });
      break;
    } catch (error) {
      failure = error;
    }
  }
  return {
    ...blank(peer),
    conversation,
    offset,
    asked,
    before,
    after: conversation.context(Infinity).items,
    generation: conversation.generations[generations] ?? null,
    failure,
  };
}
