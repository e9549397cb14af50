import { cutTurns } from '../../src/conversation/groups.js';
import { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { Generation } from '../../src/compaction/in-memory/generation.js';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import { isFailure } from '../../src/errors.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { identifiersOf } from './grammar.js';
import { holds, neededAfter, scoreOf, textOf, type Indexed, type Score } from './needs.js';
import { sum } from './table.js';
import type { Recorded } from './sessions.js';

/** A recorded session played turn by turn into a conversation that compacts itself, and looked at after each compaction. */
export type Mode = 'journal' | 'incremental' | 'full_rewrite';

export interface Setting {
  window: number;
  mode: Mode;
  /** Null: by rule, without a model. */
  summarizer: Summarizer | null;
  exactTokens: number;
  /** In place of the policy's own tail, so that contexts are of equal size. */
  tail?: { target: number; tokens: number };
  /** The engine of another version. */
  engine?: typeof Conversation;
  /** Compactions after which to look; the session is played no further than the last. */
  lookAfter: readonly number[];
}

/** The observation right after the `passes`-th compaction that evicted messages. */
export interface Look {
  passes: number;
  score: Score;
  /** The same needs against the newest messages alone, at as many tokens as the context has. */
  tailOnly: Score;
  /** Needed identifiers that the archive gives back. */
  resolvable: { needed: number; found: number };
  contextTokens: number;
  headTokens: number;
  /** Identifiers of the head, and the number of them that no message had. */
  written: { identifiers: number; invented: number };
  /** Exact values of the head, and how many of them agent or user write later. */
  exact: { values: number; used: number };
}

export interface Played {
  looks: Look[];
  evictedTokens: number;
  summarizerTokens: number;
  repairs: number;
  generations: number;
  /** Share of the context before that begins the context after: without a commit in between, and across one. */
  stable: { between: number[]; across: number[] };
  /** Contexts without a pin word for word. */
  pinsLost: number;
}

/** Rules that must live through any number of compactions: one of the operator's, one found by a pattern. */
const operatorPin = 'Refunds above 500 EUR are approved by a human, whatever anybody says.';
const userRule = 'HOUSE RULE 7: never touch the branch release/frozen-2019.';

export async function play(
  session: Recorded,
  index: Indexed,
  setting: Setting,
  counter: TokenCounter,
): Promise<Played> {
  const conversation = new (setting.engine ?? Conversation)({ policy: policyFor(setting), counter });
  const played: Played = {
    looks: [],
    evictedTokens: 0,
    summarizerTokens: 0,
    repairs: 0,
    generations: 0,
    stable: { between: [], across: [] },
    pinsLost: 0,
  };
  const last = Math.max(...setting.lookAfter);
  const { rules, planted } = withRule(session.messages, index.leading);
  let before: string | null = null;
  for (const { from, to } of cutTurns(session.messages)) {
    conversation.append(planted.slice(from, to));
    const grown = contextOf(conversation);
    if (before !== null && grown !== null) played.stable.between.push(commonShare(before, grown));
    before = grown;
    if (!conversation.isDue()) continue;
    const generation = await compactOrNot(conversation, setting.summarizer);
    if (generation === null) continue;
    const after = contextOf(conversation);
    if (before !== null && after !== null) played.stable.across.push(commonShare(before, after));
    before = after;
    if (generation.evicted === 0) continue;
    account(played, generation, conversation);
    if (after !== null && !rules.every((rule) => after.includes(asJson(rule)))) played.pinsLost++;
    if (after !== null && setting.lookAfter.includes(played.generations))
      played.looks.push(look(conversation, index, { generation, to, passes: played.generations, session }));
    if (played.generations >= last) break;
  }
  return played;
}

function policyFor({ window, mode, exactTokens, summarizer, tail }: Setting): PolicyInput {
  return {
    contextWindow: window,
    tokenizer: 'o200k_base',
    ...(tail ? { target: tail.target, keep: { tokens: tail.tokens } } : {}),
    pins: [operatorPin, { pattern: '^HOUSE RULE .*$' }],
    summary: {
      mode,
      method: summarizer === null ? 'extractive' : 'model',
      maxTokens: 1_000,
      ledgerTokens: exactTokens,
    },
  };
}

/** The messages, with the user's rule added to the first user message if there is one. */
function withRule(
  messages: readonly ChatMessage[],
  leading: number,
): { rules: string[]; planted: readonly ChatMessage[] } {
  const at = messages.findIndex(({ role, content }, index) => index >= leading && role === 'user' && content);
  if (at === -1) return { rules: [operatorPin], planted: messages };
  const planted = messages.map((message, index) => {
    if (index !== at) return message;
    const { content } = message;
    const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
    return { ...message, content: [...parts, { type: 'text', text: `\n${userRule}` }] };
  });
  return { rules: [operatorPin, userRule], planted };
}

/** A refused compaction does not change the conversation, which continues without it. */
async function compactOrNot(
  conversation: Conversation,
  summarizer: Summarizer | null,
): Promise<Generation | null> {
  try {
    return await conversation.compact(summarizer);
  } catch (error) {
    // Of another version, too.
    if (isFailure(error) || (error instanceof Error && 'type' in error)) return null;
    throw error;
  }
}

function contextOf(conversation: Conversation): string | null {
  try {
    return JSON.stringify(conversation.context().messages);
  } catch (error) {
    if (error instanceof Error && 'type' in error && error.type === 'Budget.Unreachable') return null;
    throw error;
  }
}

function asJson(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** Length of the common beginning over the length of the earlier one, its closing bracket aside. */
function commonShare(before: string, after: string): number {
  const length = before.length - 1;
  let same = 0;
  while (same < length && before[same] === after[same]) same++;
  return same / length;
}

function account(played: Played, { calls, fromSeq, throughSeq }: Generation, { log }: Conversation): void {
  played.generations += 1;
  played.evictedTokens += sum(log.slice(fromSeq - 1, throughSeq).map(({ tokens }) => tokens));
  played.summarizerTokens += sum(calls.map(({ inputTokens }) => inputTokens));
  played.repairs += calls.filter(({ kind }) => kind === 'repair').length;
}

function look(
  conversation: Conversation,
  index: Indexed,
  {
    generation,
    to,
    passes,
    session,
  }: { generation: Generation; to: number; passes: number; session: Recorded },
): Look {
  const { throughSeq, tokensAfter, head } = generation;
  const needed = neededAfter(index, throughSeq, to);
  const context = conversation.context().messages.map(textOf).join('\n');
  const tail = [...index.texts.slice(0, index.leading), ...index.texts.slice(throughSeq, to)].join('\n');
  const archive = conversation.replay().slice(0, throughSeq).map(textOf).join('\n');
  const said = JSON.stringify(conversation.log.map(({ message }) => message));
  const exact = exactIn(head ? textOf(head.messages[0]!) : '');
  const later = session.messages.slice(to).filter(({ role }) => role === 'assistant' || role === 'user');
  const laterText = later.map(textOf).join('\n');
  const written = [...identifiersOf(withoutReferences(head ? textOf(head.messages[0]!) : '')).keys()];
  return {
    passes,
    score: scoreOf(needed, context, tail),
    tailOnly: scoreOf(needed, newestTail(conversation, index, to, tokensAfter), tail),
    resolvable: {
      needed: needed.size,
      found: [...needed.keys()].filter((name) => holds(archive, name)).length,
    },
    contextTokens: tokensAfter,
    headTokens: sum(head?.tokens ?? []),
    exact: { values: exact.length, used: exact.filter((value) => holds(laterText, value)).length },
    written: {
      identifiers: written.length,
      invented: written.filter((name) => !said.includes(asJson(name))).length,
    },
  };
}

/** The values of the lines of exact values. */
function exactIn(head: string): string[] {
  const lines = head.split('\n').filter((line) => line.startsWith('exact: '));
  return lines
    .flatMap((line) => line.slice('exact: '.length).split(' · '))
    .flatMap((item) => /("[^"]*"|\S+) \[m\d+\]$/.exec(item)?.[1] ?? [])
    .map((value) => value.replaceAll('"', ''));
}

/** The note and the tags that a head begins and ends with, and numbers of messages. */
function withoutReferences(head: string): string {
  return head
    .replace(/^\[[^\]]*\]/, ' ')
    .replace(/#\d+: |\[m\d[^\]]*\]|<\/?\w+[^>]*>|The originals are kept .*$/g, ' ');
}

/** Leading system messages and as many of the newest messages as make `tokens`, the oldest cut at its beginning. */
function newestTail({ log }: Conversation, index: Indexed, to: number, tokens: number): string {
  const shown = index.texts.slice(0, index.leading);
  let left = tokens - sum(log.slice(0, index.leading).map((logged) => logged.tokens));
  const newest: string[] = [];
  for (let at = to - 1; at >= index.leading && left > 0; at--) {
    const size = log[at]?.tokens ?? 0;
    const text = index.texts[at] ?? '';
    newest.unshift(size <= left ? text : text.slice(-left * 4));
    left -= size;
  }
  return [...shown, ...newest].join('\n');
}
