/** Cases of operations other than one compaction: a cut, a size, a repair, an earlier generation, a smaller context. */
import { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import { isFailure } from '../../src/errors.js';
import { safeCuts } from '../support/cuts.js';
import { policyOf } from '../../src/policy/layers.js';
import { isTriggered, limitsOf } from '../../src/limits/limits.js';
import { parsePolicy } from '../../src/policy/schema.js';
import type { PeerCase } from './case.js';
import { blank, metasOf, type Outcome } from './outcome.js';
import { compact, isTriggeredNow, passOf, plain, scripted } from './pass.js';
import { LEADING, policyFor, refusalOf } from './policy.js';
import { caseTokens, scaleOf } from './sizes.js';

/** A caller still waits for the result. */
const waiting = { now: 0, deadCallAfterMs: 600_000, closed: false };

/** Indexes of the first message kept; all is kept at 0. */
export function safeCutsOf(peer: PeerCase): number[] {
  return safeCuts(metasOf(peer), waiting);
}

/** The cut-repair question: the nearest safe cut that evicts no more than was wanted. */
export function repairedCut(peer: PeerCase): Outcome {
  const safe = safeCutsOf(peer);
  const target = peer.config.targetCutIndex ?? 0;
  const cut = safe.findLast((index) => index <= target) ?? 0;
  return { ...viewedFrom(peer, cut), cut, safeCuts: safe };
}

export function checkedCut(peer: PeerCase): Outcome {
  const safe = safeCutsOf(peer);
  return { ...blank(peer), safe: safe.includes(peer.config.checkCutIndex ?? -1), safeCuts: safe };
}

/** The context as it would be with everything before `cut` gone. */
function viewedFrom(peer: PeerCase, cut: number): Outcome {
  const conversation = new Conversation({ policy: { contextWindow: 1_000_000 } });
  conversation.append(peer.messages.slice(cut).map(plain));
  const { items } = conversation.context(Infinity);
  return { ...blank(peer), offset: -cut, before: items, after: items };
}

/** What is refused at construction: the configuration as the peer writes it, without anything of ours. */
export function validated(peer: PeerCase): Outcome {
  const { trigger, keep, contextWindow, maxMessages, keepFirst } = peer.config;
  const given = {
    contextWindow: contextWindow ?? undefined,
    trigger: maxMessages === undefined ? trigger : { messages: maxMessages + 1 },
    keep: keepFirst === undefined ? keep : { messages: keepFirst },
  };
  const unset = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  try {
    const refused = refusalOf(parsePolicy(unset));
    return { ...blank(peer), failure: refused };
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return { ...blank(peer), failure: error };
    throw error;
  }
}

/**
 * Sizes as a provider reported them. Our own counter is made to count twice as much, and the session's factor is what
 * report and count make of each other.
 */
export async function reported(peer: PeerCase): Promise<Outcome> {
  const { policy } = policyFor(peer);
  const scale = scaleOf(peer);
  const { contextTokens, factor } = sizesReported(peer);
  const limits = limitsOf(policyOf({ session: parsePolicy(policy) }), { factor });
  const messages = LEADING + peer.messages.length;
  const triggered = isTriggered(limits, { contextTokens: contextTokens * scale, messages });
  const outcome =
    peer.config.summarizer === undefined
      ? blank(peer)
      : await compact(peer, await passOf(peer, { policy }), { force: true });
  return { ...outcome, triggered };
}

/** Context tokens by a count of ours, and the provider's tokens for one of ours. */
function sizesReported({ config, messages }: PeerCase): { contextTokens: number; factor: number } {
  const factor = 0.5;
  if (config.reportedPromptTokens !== undefined) {
    const pending = config.lastMessageTokens ?? 0;
    return { contextTokens: (config.reportedPromptTokens + pending) / factor, factor };
  }
  // Each message counts alike; the newest report of the agent's own provider says what the context up to it really was.
  const at = messages.findLastIndex(({ usage }) => usage?.provider === config.provider);
  const total = messages[at]?.usage?.total_tokens ?? 0;
  return { contextTokens: (messages.length * total) / Math.max(1, at + 1), factor: 1 };
}

/** Consecutive compactions, each after its turn. */
export async function chained(peer: PeerCase): Promise<Outcome> {
  const { policy, refused } = policyFor(peer);
  const first = { ...peer, messages: peer.messages.slice(0, 8) };
  const pass = await passOf(first, { policy });
  for (let length = 8; length < peer.messages.length; length += 6) {
    await pass.conversation.compact(scripted(peer, pass));
    pass.conversation.append(peer.messages.slice(length, length + 6).map(plain));
  }
  const reached = (pass.conversation.generations.at(-1)?.throughSeq ?? pass.offset) - pass.offset;
  if (reached !== (peer.config.previousCutIndex ?? 0)) throw new Error(`the earlier cut is ${reached}`);
  pass.asked.length = 0;
  const triggered = isTriggeredNow(pass);
  return { ...(await compact(peer, pass, { force: false })), refused, triggered };
}

/** Where the case gives an earlier summary as its first message: the text of it. */
export function summaryIn({ messages: [first] }: PeerCase): string | null {
  const text = typeof first?.content === 'string' ? first.content : '';
  if (first?.compactionSummary) return text;
  return /^<state_snapshot>([^]*)<\/state_snapshot>$/.exec(text)?.[1] ?? null;
}

/**
 * With a summary that an earlier pass has left, which the case gives apart or as its first message. What is pinned at
 * its beginning was there at that pass.
 */
export async function continued(peer: PeerCase): Promise<Outcome> {
  const given = summaryIn(peer);
  const pinned = peer.messages.findIndex(({ pinned: marked }) => !marked);
  const earlier = given === null ? pinned : 1;
  const rest = { ...peer, messages: peer.messages.slice(earlier) };
  const messages = rest.messages.flatMap((_, index): ChatMessage[] => [
    { role: 'user', content: `Earlier request ${index + 1}: the harbour ledger.` },
    { role: 'assistant', content: `Earlier answer ${index + 1}: shipments balanced.` },
  ]);
  if (given === null) messages.push(...peer.messages.slice(0, earlier).map(plain));
  const mapped = policyFor(rest);
  const pass = await passOf(rest, {
    earlier: { messages, summary: given ?? peer.config.previousSummary ?? '' },
    policy: {
      keep: { tokens: 25_000 },
      ...(mapped.refused ? mapped.triggerOnly : mapped.policy),
      ...(given === null && { pins: pinsBehind(messages, earlier) }),
    },
  });
  const triggered = isTriggeredNow(pass);
  const outcome = await compact(rest, pass, { force: !triggered });
  return { ...outcome, peer, offset: pass.offset - earlier, refused: mapped.refused, triggered };
}

/** The pinned messages are the last of those that the earlier pass evicted. */
function pinsBehind(messages: readonly ChatMessage[], count: number): { seq: number }[] {
  return Array.from({ length: count }, (_, index) => ({
    seq: LEADING + messages.length - count + index + 1,
  }));
}

/** A result that comes after its call was evicted. */
export async function late(peer: PeerCase): Promise<Outcome> {
  const { summarizedIndices = [], summaryDeleted } = peer.config;
  const evicted = (summarizedIndices.at(-1) ?? 0) + 1;
  const isLate = (index: number) => index >= evicted && peer.messages[index]?.role === 'tool';
  const known = peer.messages.filter((_, index) => !isLate(index));
  const after = peer.messages.filter((_, index) => isLate(index));
  // Something has to be newer than what is evicted; where the case has nothing, a further request.
  const further: ChatMessage[] =
    known.length > evicted || summaryDeleted ? [] : [{ role: 'user', content: 'Go on.' }];
  const early = { ...peer, messages: [...known, ...further] };
  const pass = await passOf(early, { policy: { ...policyFor(peer).policy, keep: { messages: 1 } } });
  await pass.conversation.compact(scripted(peer, pass), { force: true });
  const generation = pass.conversation.generations.at(-1) ?? null;
  if (generation === null) throw new Error('nothing was evicted');
  if (summaryDeleted) pass.conversation.restore(0);
  else if (after.length > 0) pass.conversation.append(after.map(plain));
  const { items } = pass.conversation.context(Infinity);
  const order = summaryDeleted ? peer : { ...peer, messages: [...known, ...after] };
  return {
    ...blank(order),
    conversation: pass.conversation,
    offset: pass.offset,
    before: items,
    after: items,
    generation,
  };
}

/** A context that must fit a budget now, without a model. */
export async function fitted(peer: PeerCase): Promise<Outcome> {
  const { config, messages } = peer;
  const scale = config.contextWindow === 500 ? 20 : 1;
  const count = (text: string) => Math.ceil((text.length / 4) * scale);
  if (config.systemPromptTokens !== undefined) return irreducible(peer);
  const policy = { contextWindow: 1_000_000, reservedOutputTokens: 0, trigger: { fraction: 0.9 } };
  const pass = await passOf(peer, { policy, count });
  const before = pass.conversation.context(Infinity);
  const weight = (index: number) => Math.ceil(caseTokens(peer, messages[index]!) * scale);
  const budget =
    config.contextWindow !== undefined && config.contextWindow !== null
      ? config.contextWindow * scale
      : typeof config.targetTokens === 'string'
        ? before.tokens - weight(2) + 10 * scale
        : (config.targetTokens ?? 0);
  const outcome = {
    ...blank(peer),
    conversation: pass.conversation,
    offset: pass.offset,
    before: before.items,
  };
  try {
    return { ...outcome, after: pass.conversation.context(budget).items };
  } catch (failure) {
    return { ...outcome, after: before.items, failure };
  }
}

/** System prompt, newest message and reserved output leave no room whatever is done. */
async function irreducible(peer: PeerCase): Promise<Outcome> {
  const { contextWindow, reservedOutputTokens, systemPromptTokens = 0, keptTailTokens = 0 } = peer.config;
  const policy = {
    contextWindow: contextWindow ?? undefined,
    reservedOutputTokens,
    overhead: systemPromptTokens,
  };
  const texts = new Map([[String(peer.messages[0]?.content), keptTailTokens]]);
  const pass = await passOf(peer, { policy, count: (text) => texts.get(text) ?? Math.ceil(text.length / 4) });
  const outcome = await compact(peer, pass, { force: false });
  try {
    pass.conversation.context();
    return outcome;
  } catch (failure) {
    return { ...outcome, failure };
  }
}
