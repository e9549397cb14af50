import { plainTextOf, spaced } from '../text/sentences.js';
import { wordsOf } from '../origins/wording.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { argumentsOf } from '../../conversation/render.js';
import type { Reference } from './references.js';
import type { Witness } from './state.js';

/** Minimum share of a claim's words in the cited message, in the same or another form. */
const SHARE_SAID = 0.5;
/** Maximum share of a claim's words that only tools used: enough for a file name, not for an instruction. */
const PLANTED = 1 / 8;
/** Minimum share of a plan's words used by people or agent: a plan translated or decoded from tool output has none. */
const SHARE_KNOWN = 1 / 3;
/** A shorter cited message, such as "yes, do that", confirms the message that it answers. */
const CONFIRMATION_WORDS = 12;

/**
 * A claim counts as said by the user (or system, or developer) if a cited message of one of them has half of the claim's words;
 * a short answer counts together with the message that it answers. A plan may use other words, but neither a plan nor a user's
 * claim may have words that only tools used.
 */
export function witnessIn(messages: readonly LoggedMessage[]): Witness {
  const bySeq = new Map(messages.map((logged) => [logged.seq, logged]));
  const places = new Map(messages.map(({ seq }, index) => [seq, index]));
  let spoken: { people: Set<string>; tools: Set<string> } | undefined;
  return {
    said: (references, claim) => isSaid(citedBy(references), claim),
    quoted: (references, words) =>
      citedBy(references).some(
        (logged) => sideOf(logged) === 'user' && spaced(plainTextOf(logged.message)).includes(spaced(words)),
      ) && isOwn(words, 0),
    takenBack(references, statedIn) {
      const stated = Math.max(0, ...statedIn.map(({ throughSeq }) => throughSeq));
      return citedBy(references).some((logged) => sideOf(logged) === 'user' && logged.seq > stated);
    },
    planned(references, claim) {
      if (contentWords(claim).length === 0 || !isOwn(claim, SHARE_KNOWN)) return null;
      const cited = citedBy(references);
      if (isSaid(cited, claim)) return 'user';
      return cited.some((logged) => sideOf(logged) !== 'tool') ? 'agent' : 'notes';
    },
  };

  function isSaid(cited: readonly LoggedMessage[], claim: string): boolean {
    return cited.some((logged) => sideOf(logged) === 'user' && carries(logged, claim)) && isOwn(claim, 0);
  }

  /** Whether people and agent used at least this share of the claim's words, and tools alone at most the share `PLANTED`. */
  function isOwn(claim: string, shareKnown: number): boolean {
    const { people, tools } = (spoken ??= spokenIn(messages));
    const words = contentWords(claim);
    const known = words.filter((word) => people.has(word)).length;
    const planted = words.filter((word) => tools.has(word) && !people.has(word)).length;
    return planted <= PLANTED * words.length && known >= shareKnown * words.length;
  }

  function citedBy(references: readonly Reference[]): LoggedMessage[] {
    return references.flatMap(({ fromSeq, throughSeq }) => messagesBetween(fromSeq, throughSeq));
  }

  function messagesBetween(fromSeq: number, throughSeq: number): LoggedMessage[] {
    const found: LoggedMessage[] = [];
    for (let seq = fromSeq; seq <= throughSeq && seq < fromSeq + 400; seq++) {
      const logged = bySeq.get(seq);
      if (logged) found.push(logged);
    }
    return found;
  }

  function carries(logged: LoggedMessage, claim: string): boolean {
    const claimed = contentWords(claim);
    const text = plainTextOf(logged.message);
    if (claimed.length === 0) return text.includes(claim);
    const isConfirmation = wordsOf(text).length < CONFIRMATION_WORDS;
    const answered = isConfirmation ? messages[(places.get(logged.seq) ?? 0) - 1] : undefined;
    const isOfAgent = answered !== undefined && sideOf(answered) === 'agent';
    const said = new Set(contentWords(isOfAgent ? `${text}\n${plainTextOf(answered.message)}` : text));
    const found = claimed.filter((word) => said.has(word)).length;
    return found >= SHARE_SAID * claimed.length;
  }
}

/** Words of people and agent, and of tools. Reading them takes time, so callers do it only if needed. */
function spokenIn(messages: readonly LoggedMessage[]): { people: Set<string>; tools: Set<string> } {
  const spoken = { people: new Set<string>(), tools: new Set<string>() };
  for (const logged of messages) {
    const words = spoken[sideOf(logged) === 'tool' ? 'tools' : 'people'];
    for (const word of writtenIn(logged).flatMap(contentWords)) words.add(word);
  }
  return spoken;
}

/** Text and arguments of a message. */
export function writtenIn({ message }: LoggedMessage): string[] {
  return [plainTextOf(message), ...(message.tool_calls ?? []).map(argumentsOf)];
}

function sideOf({ message: { role } }: LoggedMessage): 'user' | 'agent' | 'tool' {
  if (role === 'assistant') return 'agent';
  return role === 'tool' || role === 'function' ? 'tool' : 'user';
}

const wordless = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]$/u;

/** Beginnings of the content words; in scripts without spaces, pairs of characters. */
function contentWords(text: string): string[] {
  const words = wordsOf(text).map((word) => word.text);
  return words.flatMap((word, index) => {
    const next = words[index + 1];
    if (wordless.test(word)) return next !== undefined && wordless.test(next) ? [word + next] : [];
    return word.length >= 4 || /\p{N}/u.test(word)
      ? [word.slice(0, Math.max(4, Math.ceil(word.length * 0.65)))]
      : [];
  });
}
