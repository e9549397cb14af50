import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { argumentsOf, nameOf } from '../../conversation/render.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { type SectionKey, sections } from '../answer/sections.js';
import { formatSnapshot, headingOf, oneLine, parseSnapshot } from '../answer/snapshot.js';
import { argumentValues } from '../journal/exact.js';
import { clip, clipMiddle, linesOf, plainTextOf, sentencesOf } from '../text/sentences.js';

interface ExtractiveInput {
  previous: string | null;
  messages: Iterable<LoggedMessage>;
  maxTokens: number;
  counter: TokenCounter;
}

/** Maximum size of the result as a share of the input, so that it is always smaller. */
const LARGEST_SHARE = 0.6;

/**
 * A snapshot without a model: the same sections, filled by rule. Every message is read once. The sections that a sentence may
 * enter depend on its speaker, so that tool output never becomes an intent or a rule. The snapshot has at most `maxTokens`, and
 * at most 60 % of the text that it replaces. Deterministic.
 */
export function extractiveSnapshot({ previous, messages, maxTokens, counter }: ExtractiveInput): string {
  const reading = new Reading();
  let tokens = previous === null ? 0 : counter.count(previous);
  for (const logged of messages) {
    reading.read(logged);
    tokens += logged.tokens;
  }
  const limit = Math.min(maxTokens, Math.floor(tokens * LARGEST_SHARE));
  return formatSnapshot(fillSections(reading.candidates(previous), limit, counter));
}

/**
 * One snapshot of at most `maxTokens` from snapshots by rule, oldest first. Every section gives up the same part. In each of them
 * the snapshots keep items in turn, newest first, so that none is lost to another; the first request of all has precedence.
 */
export function mergedSnapshots(
  snapshots: readonly string[],
  maxTokens: number,
  counter: TokenCounter,
): string {
  const parsed: Map<string, string[]>[] = snapshots.map((text) => parseSnapshot(text));
  const candidates = sections.map(({ key }): [SectionKey, Candidate[]] => {
    const members = parsed.map((items) => (items.get(key) ?? []).filter((text) => !coveredLine.test(text)));
    let order = 0;
    const lists = members.map((items) => items.map((text): Candidate => ({ text, order: order++ })));
    const [first] = lists.flat();
    const turns = Math.max(...lists.map(({ length }) => length));
    const inTurn = Array.from({ length: turns }, (_, turn) =>
      lists.flatMap((items) => items.at(-1 - turn) ?? []).reverse(),
    ).flat();
    return [key, distinct(key === 'intent' && first ? [first, ...inTurn] : inTurn)];
  });
  const sizes = new Map(candidates.map(([key, items]) => [key, counter.count(linesOfItems(items))]));
  const whole = [...sizes.values()].reduce((sum, tokens) => sum + tokens, 0);
  const shareOf = (key: SectionKey) => (sizes.get(key) ?? 0) / Math.max(1, whole);
  return formatSnapshot(fillSections(new Map(candidates), maxTokens, counter, shareOf));
}

function linesOfItems(items: readonly Candidate[]): string {
  return items.map(({ text }) => `- ${text}\n`).join('');
}

function distinct(candidates: readonly Candidate[]): Candidate[] {
  const byText = new Map<string, Candidate>();
  for (const candidate of candidates) if (!byText.has(candidate.text)) byText.set(candidate.text, candidate);
  return [...byText.values()];
}

/** Maximum characters of a quotation, except for the newest item of its kind. */
const QUOTE = 400;

/** Maximum characters of the newest request and answer, which are shortened to the available tokens later. */
const LONGEST = 40_000;

const decision =
  /\b(?:decid\w+|because|root cause|turns? out|instead of|rather than|cho(?:se|osing)|going with|will use|fix(?:ed|es)|implemented|confirmed|the (?:issue|problem|bug|cause|reason) (?:is|was)|found (?:that|the|a)|conclu\w+|agreed)\b/i;

const nextStep =
  /\b(?:next|todo|to-do|remaining|still (?:need|have|to)|then i(?:'ll| will)|i(?:'ll| will) (?:now|then)|let me (?:now|next)|need to|waiting for|would you like|please (?:confirm|provide|let me))\b/i;

const rule =
  /\b(?:must(?:n't)?|never|always|do not|don't|should(?:n't| not)|may not|only|at (?:most|least)|make sure|prefer(?:red)?|avoid|without|not allowed)\b/i;
const LONGEST_RULE = 240;

const reported =
  /(?:^|[\s:])(?:[A-Z]\w{0,60})?(?:error|exception|fatal|panic|failed)(?: [A-Z]{1,5}\d{1,6})?: |(?:: |^)(?:command not found|no such file|permission denied)/i;
/** Maximum characters of an error line, whose beginning identifies the error. */
const LONGEST_ERROR = 140;

/** Answers that belong to the present state; earlier ones are facts. */
const shownAnswers = 3;

const coveredLine = /^Covered by rule, without a model: /;

interface Entry {
  seq: number;
  text: string;
}

/** The last entries of a kind, in order, each text once at its last place. Memory is bounded for any session. */
class Latest {
  private readonly entries = new Map<string, Entry>();
  constructor(private readonly most: number) {}

  add(seq: number, text: string): void {
    if (text === '') return;
    this.entries.delete(text);
    this.entries.set(text, { seq, text });
    const oldest = this.entries.keys().next();
    if (this.entries.size > this.most && !oldest.done) this.entries.delete(oldest.value);
  }

  all(): Entry[] {
    return [...this.entries.values()];
  }
}

class Reading {
  private first = 0;
  private last = 0;
  private readonly counts = { user: 0, assistant: 0, system: 0, tool: 0 };
  private readonly toolNames = new Map<string, string>();
  private readonly toolUses = new Map<string, number>();
  private firstRequest: Entry | null = null;
  private readonly requests = new Latest(200);
  private readonly rules = new Latest(200);
  private readonly decisions = new Latest(200);
  private readonly touched = new Latest(300);
  private readonly commands = new Latest(60);
  private readonly errors = new Latest(60);
  private readonly results = new Latest(20);
  private readonly answers = new Latest(shownAnswers + 20);
  private nextSteps: Entry[] = [];

  read({ seq, message }: LoggedMessage): void {
    this.first ||= seq;
    this.last = seq;
    const text = plainTextOf(message);
    switch (message.role) {
      case 'user':
        this.counts.user += 1;
        this.readRequest(seq, text);
        break;
      case 'system':
      case 'developer':
        this.counts.system += 1;
        for (const rule of rulesIn(text)) this.rules.add(seq, rule);
        break;
      case 'assistant':
        this.counts.assistant += 1;
        this.readAnswer(seq, message, text);
        break;
      case 'tool':
      case 'function':
        this.counts.tool += 1;
        this.readResult(seq, message, text);
        break;
    }
  }

  private readRequest(seq: number, text: string): void {
    const request = { seq, text: oneLine(clipMiddle(text, LONGEST)) };
    if (request.text === '') return;
    this.firstRequest ??= { seq, text: clipMiddle(request.text, 4 * QUOTE) };
    this.requests.add(seq, request.text);
    for (const rule of rulesIn(text)) this.rules.add(seq, rule);
  }

  private readAnswer(seq: number, message: ChatMessage, text: string): void {
    const calls = [...(message.tool_calls ?? [])];
    for (const call of calls) this.readCall(seq, nameOf(call), argumentsOf(call), call.id);
    if (message.function_call)
      this.readCall(seq, message.function_call.name, message.function_call.arguments, null);
    if (text.trim() === '') return;
    this.answers.add(seq, oneLine(clipMiddle(text, LONGEST)));
    this.nextSteps = [];
    for (const sentence of sentencesOf(text)) {
      if (sentence.length < 12 || sentence.length > 2_000) continue;
      if (decision.test(sentence)) this.decisions.add(seq, clip(sentence, QUOTE));
      if (nextStep.test(sentence)) this.nextSteps.push({ seq, text: clip(sentence, QUOTE) });
    }
  }

  private readCall(seq: number, name: string, args: string, id: string | null): void {
    if (id) this.toolNames.set(id, name);
    this.toolUses.set(name, (this.toolUses.get(name) ?? 0) + 1);
    const command = commandIn(args);
    const line = command === null ? '' : clip(oneLine(command).replace(/^bash -l?c /, ''), 200);
    if (command !== null) this.commands.add(seq, `${name}: \`${line}\``);
    for (const [value] of argumentValues(args))
      if (!line.includes(value)) this.touched.add(seq, `${name}: ${value}`);
  }

  private readResult(seq: number, message: ChatMessage, text: string): void {
    const name = message.name ?? this.toolNames.get(message.tool_call_id ?? '');
    const origin = name ? `tool:${name}` : 'tool';
    for (const error of errorsIn(text)) this.errors.add(seq, `${origin} reported: ${error}`);
    const returned = clip(oneLine(text.slice(0, 1_000)), 200);
    if (returned !== '') this.results.add(seq, `${origin} returned: ${returned}`);
  }

  /** The candidates of each section, most important first. */
  candidates(previous: string | null): Map<SectionKey, Candidate[]> {
    const before: Map<string, string[]> = parseSnapshot((previous ?? '').replaceAll('\0', ''));
    const of = (key: SectionKey, ...groups: Entry[][]): [SectionKey, Candidate[]] => {
      const old = (before.get(key) ?? []).filter((text) => !coveredLine.test(text));
      return [
        key,
        ranked(
          old,
          groups.map((group) => group.map(quoted)),
        ),
      ];
    };
    const requests = this.requests.all();
    const newest = requests.pop();
    const answers = this.answers.all();
    const newestAnswers = answers.splice(-shownAnswers);
    const answer = newestAnswers.pop();
    const said = short(answers).map(({ seq, text }) => ({ seq, text: `the agent said: ${text}` }));
    const original = this.firstRequest && this.firstRequest.seq !== newest?.seq ? [this.firstRequest] : [];
    return new Map([
      of(
        'intent',
        newest ? [newest] : [],
        original,
        short(requests.filter(({ seq }) => seq !== this.firstRequest?.seq)),
      ),
      of('constraints', this.rules.all()),
      of('decisions', this.decisions.all()),
      of('artifacts', interleaved(this.touched.all(), this.commands.all())),
      of('facts', this.errors.all(), interleaved(this.results.all(), said)),
      of('state', [{ seq: 0, text: this.covered() }], answer ? [answer] : [], short(newestAnswers)),
      of('next', this.nextSteps),
    ]);
  }

  private covered(): string {
    const { user, assistant, system, tool } = this.counts;
    const uses = [...this.toolUses].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 8);
    const counts = [
      `${user} user`,
      `${assistant} assistant`,
      `${tool} tool results`,
      ...(system ? [`${system} system`] : []),
    ];
    const called =
      uses.length === 0
        ? ''
        : `; calls: ${uses.map(([name, times]) => `${clip(name, 60)} ×${times}`).join(', ')}`;
    return `Covered by rule, without a model: messages ${this.first}–${this.last} (${counts.join(', ')}${called}).`;
  }
}

/** Returns the groups in order, each with the newest candidate first, then the items of an earlier snapshot, last first. */
function ranked(old: readonly string[], groups: readonly Candidate[][]): Candidate[] {
  const fresh = groups.flatMap((group) => [...group].reverse());
  const said = new Set(fresh.map(({ text }) => text));
  const kept = old
    .map((text, index) => ({ text, order: index - old.length }))
    .filter(({ text }) => !said.has(text));
  return [...fresh, ...kept.reverse()];
}

function quoted({ seq, text }: Entry): Candidate {
  return { text: seq === 0 ? text : `${text} [m${seq}]`, order: seq };
}

function short(entries: readonly Entry[]): Entry[] {
  return entries.map(({ seq, text }) => ({ seq, text: clipMiddle(text, QUOTE) }));
}

/** Sentences in which a user or the system states a rule. */
function* rulesIn(text: string): Generator<string> {
  for (const sentence of sentencesOf(text))
    if (sentence.length >= 12 && rule.test(sentence.slice(0, LONGEST_RULE)))
      yield clip(sentence, LONGEST_RULE);
}

/** Lines in which a tool reports an error. */
function* errorsIn(text: string): Generator<string> {
  for (const line of linesOf(text))
    if (line.length >= 8 && line.length <= 2_000 && reported.test(line.slice(0, 300)))
      yield clip(oneLine(line), LONGEST_ERROR);
}

/** The command of a shell call: an argument of that name, a text or a list of words; null for other calls. */
function commandIn(args: string): string | null {
  if (!/"(?:command|cmd|script|code)"/.test(args.slice(0, 200))) return null;
  let fields: unknown;
  try {
    fields = JSON.parse(args);
  } catch {
    return null;
  }
  if (typeof fields !== 'object' || fields === null) return null;
  const { command, cmd, script, code } = fields as Record<string, unknown>;
  const found = command ?? cmd ?? script ?? code;
  if (Array.isArray(found)) return found.map(String).join(' ');
  return typeof found === 'string' ? found : null;
}

function interleaved(a: readonly Entry[], b: readonly Entry[]): Entry[] {
  return [...a, ...b].sort((x, y) => x.seq - y.seq);
}

/** A possible item of a section; `order` is its place among the others. */
interface Candidate {
  text: string;
  order: number;
}

/** Share of the snapshot for each section, before sections take the tokens that others left. */
const shares: Record<SectionKey, number> = {
  intent: 0.34,
  constraints: 0.13,
  decisions: 0.12,
  artifacts: 0.14,
  facts: 0.1,
  state: 0.13,
  next: 0.04,
};

/** Minimum tokens and characters of a shortened item; shorter items are useless. */
const SHORTEST = { tokens: 16, characters: 60 };

interface Placed extends Candidate {
  tokens: number;
  whole: boolean;
}

/**
 * Chooses items for each section, from candidates with the most important first, so that the formatted snapshot has at most
 * `limit` tokens. Every section first gets its share; the remaining tokens go to the sections in order. Items that do not fit
 * are shortened.
 */
function fillSections(
  candidates: ReadonlyMap<SectionKey, readonly Candidate[]>,
  limit: number,
  counter: TokenCounter,
  shareOf = (key: SectionKey) => shares[key],
): Map<SectionKey, string[]> {
  const placed = new Map<SectionKey, Map<Candidate, Placed>>(sections.map(({ key }) => [key, new Map()]));
  let left = limit;
  for (const round of ['share', 'rest'] as const) {
    for (const { key } of sections) {
      left -= place(key, round === 'share' ? Math.min(left, Math.floor(shareOf(key) * limit)) : left);
    }
  }
  return trimmed();

  /** Adds items of at most `room` tokens to a section. Returns their tokens. */
  function place(key: SectionKey, room: number): number {
    const chosen = placed.get(key)!;
    let spent = 0;
    let misses = 0;
    for (const candidate of candidates.get(key) ?? []) {
      const before = chosen.get(candidate);
      if (before?.whole || misses > 8) continue;
      const text = oneLine(candidate.text);
      const heading = chosen.size === 0 ? counter.count(headingOf(key)) + 2 : 0;
      const available = room - spent - heading + (before?.tokens ?? 0);
      const fitting = fit(text, available, counter);
      if (!fitting || (before && fitting.tokens <= before.tokens)) {
        misses++;
        continue;
      }
      chosen.set(candidate, { ...candidate, ...fitting });
      spent += fitting.tokens + heading - (before?.tokens ?? 0);
      if (!fitting.whole) misses++;
    }
    return spent;
  }

  /** Lines were counted one by one. If the whole text has more tokens, the least important lines are removed. */
  function trimmed(): Map<SectionKey, string[]> {
    for (;;) {
      const chosen = new Map([...placed].map(([key, items]) => [key, inOrder(items)]));
      if (counter.count(formatSnapshot(chosen)) <= limit) return chosen;
      const fullest = [...placed.values()].sort((a, b) => b.size - a.size)[0];
      const least = fullest && [...fullest.keys()].at(-1);
      if (!least) return new Map();
      fullest.delete(least);
    }
  }
}

function inOrder(items: ReadonlyMap<Candidate, Placed>): string[] {
  return [...items.values()].sort((a, b) => a.order - b.order).map(({ text }) => text);
}

/**
 * Returns the text as a line of at most `room` tokens, shortened if necessary; null if too little would be left, or if the text
 * is a `coveredLine`, which must stay whole.
 */
function fit(
  text: string,
  room: number,
  counter: TokenCounter,
): { text: string; tokens: number; whole: boolean } | null {
  const cost = (line: string) => counter.count(`- ${line}\n`) + 1;
  // A token rarely has more than 12 characters on average, so texts that are too long by this measure need no count.
  let shown = text.length > room * 12 ? clipMiddle(text, room * 12) : text;
  for (let tokens = cost(shown); ; tokens = cost(shown)) {
    if (tokens <= room) return { text: shown, tokens, whole: shown === text };
    const isTooShort = room < SHORTEST.tokens || shown.length < SHORTEST.characters;
    if (isTooShort || coveredLine.test(text)) return null;
    shown = clipMiddle(text, Math.max(1, Math.floor(shown.length * Math.min(0.95, (room / tokens) * 0.98))));
  }
}
