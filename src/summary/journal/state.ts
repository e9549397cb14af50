/**
 * The state at the end of the evicted part: rules, requests in force, open questions, progress and next step. Code carries
 * every item on word for word; the model answers only with changes.
 */
import type { TokenCounter } from '../../tokens/counter.js';
import { spaced } from '../text/sentences.js';
import { referencesIn, withoutReferences, writtenReferences, type Reference } from './references.js';

type ItemKind = 'rule' | 'request' | 'open';

interface StateItem {
  kind: ItemKind;
  /** R1, T2, Q3: unique numbers within a state. */
  id: string;
  /** One line with its reference. */
  text: string;
}

export interface State {
  items: StateItem[];
  progress: string | null;
  next: string | null;
}

const titles: Record<ItemKind, { title: string; letter: string }> = {
  rule: { title: 'Rules and wishes in force', letter: 'R' },
  request: { title: 'Requests in force', letter: 'T' },
  open: { title: 'Open questions', letter: 'Q' },
};
const kinds = Object.keys(titles) as ItemKind[];
const kindOfLetter = new Map(kinds.map((kind) => [titles[kind].letter, kind]));

/** The stored form, which is also shown to the model; '' for an empty state. */
export function formatState({ items, progress, next }: State, withIds = true): string {
  const lists = kinds.flatMap((kind) => {
    const shown = items.filter((item) => item.kind === kind);
    return shown.length === 0
      ? []
      : [
          `${titles[kind].title}:`,
          ...shown.map(({ id, text }) => (withIds ? `- ${id} ${text}` : `- ${text}`)),
        ];
  });
  return [
    ...lists,
    ...(progress === null ? [] : [`Progress: ${progress}`]),
    ...(next === null ? [] : [`Next: ${next}`]),
  ].join('\n');
}

export function parseState(text: string): State {
  const state: State = { items: [], progress: null, next: null };
  for (const line of text.split('\n')) {
    const item = /^- ([RTQ])(\d{1,6}) (.+)$/.exec(line);
    const kind = kindOfLetter.get(item?.[1] ?? '');
    if (item && kind) state.items.push({ kind, id: `${item[1]}${item[2]}`, text: item[3]! });
    else if (line.startsWith('Progress: ')) state.progress = line.slice(10);
    else if (line.startsWith('Next: ')) state.next = line.slice(6);
  }
  return state;
}

/**
 * The form shown to the agent: without the ids by which a model changes items, without quotations from the carried message in
 * requests and rules, and without requests that rest on that message alone, since the message itself follows the state.
 */
export function shownState(text: string, carried: { seq: number; text: string } | null): string {
  const state = parseState(text);
  if (carried === null) return formatState(state, false);
  const below = spaced(carried.text);
  const items = state.items.flatMap((item) => {
    if (item.kind === 'open') return [item];
    const quoted = [...item.text.matchAll(quotation)].map(([whole]) => whole);
    const left = quoted.filter((one) => !below.includes(spaced(one.slice(1, -1))));
    if (left.length > 0 && left.length < quoted.length)
      return [{ ...item, text: `${left.join(' ')} ${writtenReferences(item.text)}`.trim() }];
    const references = referencesIn(item.text);
    const isOfIt = references.every(
      ({ fromSeq, throughSeq }) => fromSeq === carried.seq && throughSeq === carried.seq,
    );
    const isBelow = left.length === 0 && (item.kind === 'request' || quoted.length > 0);
    return isBelow && isOfIt && references.length > 0 ? [] : [item];
  });
  return formatState({ ...state, items }, false);
}

/** Checks by the cited messages whether a line may enter the state. */
export interface Witness {
  /** Whether the user said this. */
  said(references: readonly Reference[], claim: string): boolean;
  /** Whether the user said this word for word. */
  quoted(references: readonly Reference[], words: string): boolean;
  /** Whether the user mentioned the statement in a message after the messages in which it was made. */
  takenBack(references: readonly Reference[], statedIn: readonly Reference[]): boolean;
  /**
   * The speaker whose plan the claim is. Null if the claim repeats words that only tools used, or has too few words of people
   * and agent.
   */
  planned(references: readonly Reference[], claim: string): 'user' | 'agent' | 'notes' | null;
}

export interface Changed {
  state: State;
  /** Lines without a message that supports them. */
  unfounded: string[];
}

const quotation = /"[^"]{8,}"|“[^”]{8,}”/g;
const bullet = /^[ \t]*(?:[-*+•]|\d{1,2}[.)])[ \t]+/;
const ending =
  /^([RTQ]\d{1,6})\b[^\w\n]{0,4}(?:is |was |now )?(done|settled|answered|finished|resolved|withdrawn|dropped|superseded|obsolete|cancelled|canceled|replaced)\b/i;
const added =
  /^(?:new[ \t]+|\+[ \t]*)?(rule|wish|request|task|open(?:[ \t]+question)?|question)s?[ \t]*:[ \t]*(\S.*)$/i;
const restated = /^([RTQ]\d{1,6})\b[ \t:.)-]+(.*)$/;
const replaced = /^(progress|done so far|next(?:[ \t]+steps?)?)[ \t]*:[ \t]*(\S.*)$/i;
const nothing = /^(?:none|no changes?|nothing|unchanged|n\/a)\b[.\s]*$/i;

/** Whether a text has a line in the form of a change; refusals, error texts and placeholders have none. */
export function holdsChanges(text: string): boolean {
  const forms = [nothing, ending, added, restated, replaced];
  return linesOf(text).some((line) => forms.some((form) => form.test(line)));
}

function linesOf(changes: string): string[] {
  return changes.split('\n').map((line) => line.replace(bullet, '').replace(/\s+/g, ' ').trim());
}

/** Applies the changes of a model's answer. */
export function changed(before: State, changes: string, witness: Witness): Changed {
  const items = [...before.items];
  const unfounded: string[] = [];
  let { progress, next } = before;
  let newest = Math.max(0, ...items.map(({ id }) => Number(id.slice(1))));
  for (const line of linesOf(changes)) {
    if (line === '' || nothing.test(line) || line.startsWith('#')) continue;
    const end = ending.exec(line);
    const addition = added.exec(line);
    const replacement = replaced.exec(line);
    const restatement = restated.exec(line);
    if (end) remove(end[1]!.toUpperCase(), line);
    else if (addition) add(kindNamed(addition[1]!), addition[2]!);
    else if (replacement) replace(replacement[1]!, replacement[2]!);
    else if (restatement) restate(restatement[1]!.toUpperCase(), restatement[2]!);
    else progress = joined(progress === before.progress ? null : progress, line);
  }
  return { state: { items, progress, next }, unfounded };

  function remove(id: string, line: string): void {
    const at = items.findIndex((item) => item.id === id);
    if (at < 0) return;
    // Only the user can withdraw what the user stated.
    const { kind, text } = items[at]!;
    if (kind === 'rule' && !witness.takenBack(referencesIn(line), referencesIn(text))) return;
    items.splice(at, 1);
  }

  /** Statements of user and system stay word for word; a question may be reworded. */
  function restate(id: string, text: string): void {
    const at = items.findIndex((item) => item.id === id);
    if (items[at]?.kind === 'open' && text !== '') items[at] = { ...items[at], text };
  }

  function add(kind: ItemKind, text: string): void {
    const claim = withoutReferences(text);
    const isKnown = items.some(
      (item) => item.kind === kind && plain(withoutReferences(item.text)) === plain(claim),
    );
    if (isKnown) return;
    const isFounded = kind === 'open' || witness.said(referencesIn(text), claim);
    const founded = isFounded ? text : quotedOf(text);
    if (founded !== null) items.push({ kind, id: `${titles[kind].letter}${++newest}`, text: founded });
    else unfounded.push(text);
  }

  /** The verbatim quotations of a claim that goes beyond its source. */
  function quotedOf(text: string): string | null {
    const references = referencesIn(text);
    const quoted = [...text.matchAll(quotation)].map(([whole]) => whole);
    const said = quoted.filter((one) => witness.quoted(references, one.slice(1, -1)));
    return said.length === 0 ? null : `${said.join(' ')} ${writtenReferences(text)}`;
  }

  function replace(what: string, text: string): void {
    const isNext = /^next/i.test(what);
    if (/^(?:none|nothing|n\/a)\b/i.test(text)) {
      if (isNext) next = null;
    } else if (!isNext) progress = joined(progress === before.progress ? null : progress, text);
    else {
      const plan = text.replace(planner, '');
      const by = witness.planned(referencesIn(plan), withoutReferences(plan));
      next = by === null ? null : `${planners[by]}${plan}`;
    }
  }
}

/** Prefix of a plan as shown in the previous state. */
const planner = /^\((?:agent's plan|proposed by these notes)\) +/;
const planners = { user: '', agent: "(agent's plan) ", notes: '(proposed by these notes) ' };

function kindNamed(word: string): ItemKind {
  const name = word.toLowerCase();
  if (name === 'rule' || name === 'wish') return 'rule';
  return name === 'request' || name === 'task' ? 'request' : 'open';
}

function joined(before: string | null, more: string): string {
  return before === null ? more : `${before}; ${more}`;
}

function plain(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')
    .trim();
}

/**
 * The state within `maxTokens`: open questions are dropped first, oldest first, then progress, requests, the next step, and
 * rules last. The entries still contain dropped items.
 */
export function stateWithin(state: State, maxTokens: number, counter: TokenCounter): State {
  const fits = (one: State) => counter.count(formatState(one)) <= maxTokens;
  let kept = state;
  const without = (kind: ItemKind) => {
    while (!fits(kept)) {
      const at = kept.items.findIndex((item) => item.kind === kind);
      if (at < 0) return;
      kept = { ...kept, items: kept.items.toSpliced(at, 1) };
    }
  };
  without('open');
  if (!fits(kept)) kept = { ...kept, progress: null };
  without('request');
  if (!fits(kept)) kept = { ...kept, next: null };
  without('rule');
  return kept;
}
