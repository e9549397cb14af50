import { type ChatMessage, isMedia } from '../../src/conversation/message.js';
import { countMessage } from '../../src/tokens/message.js';
import type { PeerCase, PeerClause, PeerMessage } from './case.js';

/** Smallest size that a case's triggers and its whole history are brought to, tokens. */
const SMALLEST_TRIGGER = 20_000;

/** Largest window that a policy takes, tokens. */
const LARGEST_WINDOW = 100_000_000;

/** Weight of a message where a case names no counter and no token size. */
const PLAIN_WEIGHT = 2_000;

/**
 * Sizes of a case. Peers test with windows of 10 tokens, in which no summary has room; here every size of a case is
 * multiplied alike, so that proportions and arithmetic stay, and summaries and notes weigh what they really do.
 */
export type CountText = (text: string) => number;

export const clausesOf = ({ config }: PeerCase): PeerClause[] => [config.trigger ?? []].flat();

/** What every token size of the case is multiplied with. */
export function scaleOf(peer: PeerCase): number {
  const { config } = peer;
  const window = config.contextWindow ?? null;
  const sizes = clausesOf(peer).flatMap(({ tokens, fraction, percent }) => [
    ...(tokens === undefined ? [] : [tokens]),
    ...(fraction === undefined || window === null ? [] : [fraction * window]),
    ...(percent === undefined || window === null ? [] : [(percent / 100) * window]),
  ]);
  const total = peer.messages.reduce((sum, message) => sum + caseTokens(peer, message), 0);
  if (total > 0) sizes.push(total);
  const most = Math.floor(LARGEST_WINDOW / (window ?? 1));
  return sizes.length === 0 ? 1 : Math.min(most, Math.ceil(SMALLEST_TRIGGER / Math.min(...sizes)));
}

/** Tokens of a message by the case's own counter, before scaling. */
export function caseTokens(peer: PeerCase, message: PeerMessage): number {
  const counter =
    peer.config.tokenCounter ?? (peer.config.measure === 'json_chars' ? 'json_chars/4' : undefined);
  const tokenSizes =
    clausesOf(peer).some(({ tokens, fraction }) => tokens ?? fraction) ||
    peer.config.keep?.tokens !== undefined;
  const [, perMessage] = /^([\d.]+)_per_message$/.exec(counter ?? '') ?? [];
  const [, fixed] = /^fixed:(\d+)$/.exec(counter ?? '') ?? [];
  if (perMessage !== undefined) return Number(perMessage);
  if (fixed !== undefined) return Number(fixed) / peer.messages.length;
  if (counter === 'words') return textsOf(message).join(' ').split(/\s+/).length;
  if (counter === 'chars') return textsOf(message).join('').length;
  if (counter === 'json_chars/4') return JSON.stringify({ ...message, id: undefined }).length / 4;
  if (counter === 'chars/4' || tokenSizes) return textsOf(message).join('').length / 4;
  return PLAIN_WEIGHT;
}

function textsOf({ content, tool_calls: calls = [] }: ChatMessage): string[] {
  const parts = typeof content === 'string' ? [content] : (content ?? []).map(({ text }) => text ?? '');
  return [
    ...parts,
    ...calls.flatMap(({ function: called }) => [called?.name ?? '', called?.arguments ?? '']),
  ];
}

/**
 * A counter by which each of these messages weighs exactly what is asked, framing included; any other text (a note, a
 * summary) weighs a quarter of its characters.
 */
export function weighing(messages: readonly ChatMessage[], weightOf: (index: number) => number): CountText {
  const weights = new Map<string, number>();
  const count: CountText = (text) => weights.get(text) ?? Math.ceil(text.length / 4);
  messages.forEach((message, index) => {
    if (Array.isArray(message.content) && message.content.some(isMedia)) return;
    const texts = textsOf(message).filter((text) => text !== '');
    // The longest text of a message carries its weight; names of tools and texts that others carry add nothing.
    for (const text of texts) if (!weights.has(text)) weights.set(text, 0);
    const carrier = texts.toSorted((a, b) => b.length - a.length)[0];
    if (carrier === undefined) return;
    const rest = countMessage(message, { name: 'chars/4', count }) - (weights.get(carrier) ?? 0);
    if ((weights.get(carrier) ?? 0) === 0)
      weights.set(carrier, Math.max(1, Math.round(weightOf(index)) - rest));
  });
  return count;
}
