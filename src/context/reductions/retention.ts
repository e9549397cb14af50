import type { ChatMessage, ToolCall } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import { type Reduce, retentionOf } from '../../policy/reduce-schema.js';
import type { Policy } from '../../policy/defaults.js';
import type { Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { isBlank } from '../view/projection.js';
import { sizeBeyond, type ViewItem } from '../view/view.js';
import { excerptSteps, isJson, mapStrings, startOf } from './excerpt.js';
import { layoutOf } from './layout.js';
import { shortenNewest } from './newest-user.js';
import { type Fit, type Run, StandIns } from './stand-ins.js';
import { shrinkOld } from './to-fit.js';

interface CommitOptions {
  policy: Policy;
  limits: Limits;
  /** Context tokens before this commit. This size decides whether arguments are truncated. */
  tokensBefore: number;
  /**
   * `policy`: only the reductions of the policy. `all`: every possible reduction, if the policy's reductions leave more than the
   * target. @default 'all'
   */
  what?: 'policy' | 'all';
  /** Seq of the last message that counts against the target. @default all messages count */
  seenThroughSeq?: number;
}

/** Maximum tokens of the excerpt of a result beyond the budget; short excerpts are used if long ones leave more than the target. */
const longExcerpt = 500;
const shortExcerpt = 120;

/**
 * The steps except the last one, which leaves a pointer alone. To reach a target, every message keeps some words; only to fit
 * the budget may a message lose them all.
 */
const readableSteps = excerptSteps.filter((tokens) => tokens > 0);

/**
 * Makes the reductions of a commit, before the summarizer is asked. All are made at once, because a commit changes the beginning
 * of the context anyway: between two commits the beginning stays unchanged, and the provider's cache stays valid.
 * Truncates old arguments, then reduces the results beyond the budget by their retention, then (`all`) shortens other old
 * messages until the target is reached, and last the newest user message if the policy allows it. Results kept in full, the
 * latest tool batch, head and leading system messages stay unchanged. The result may exceed the target; nothing is thrown.
 */
export function* commitReductions(
  view: readonly ViewItem[],
  { policy, limits, tokensBefore, what = 'all', seenThroughSeq = Infinity }: CommitOptions,
  counter: TokenCounter,
): Steps<Fit> {
  const work = new StandIns(view, counter, policy.recovery);
  const truncation = truncationFrom(tokensBefore, policy, limits);
  if (truncation !== null) yield* truncateOldArguments(work, truncation);
  const isExcerpted = yield* reduceByRetention(work, policy.reduce, limits.resultBudget, counter);
  const target = () => limits.contextTarget + sizeBeyond(seenThroughSeq, work.view());
  function* shrinkRest(): Steps<void> {
    if (what === 'all') yield* shrinkOld(work, target(), (item) => sparesResult(item, policy), readableSteps);
  }
  // If excerpts cannot reach the target, all old messages are shortened at once, so that no excerpt is made twice.
  if (sizeWith(work, isExcerpted, shortExcerpt) > target()) yield* shrinkRest();
  yield* excerptResults(work, isExcerpted, target());
  yield* shrinkRest();
  const newest = layoutOf(work.view()).newest?.fromSeq ?? Infinity;
  const mayShorten = what === 'all' && policy.reduce.newestUserMessage && newest <= seenThroughSeq;
  if (mayShorten && work.tokens > target()) shortenNewest(work, { limit: target(), target: target() });
  return work.fit();
}

/**
 * Lower bound of the view's tokens after `what: 'policy'`. It counts no text, so that callers can avoid making a thousand excerpts of
 * a large session in vain.
 */
export function leastAfterPolicy(
  view: readonly ViewItem[],
  { policy, limits, tokensBefore }: Omit<CommitOptions, 'what'>,
): number {
  const { reduce } = policy;
  const beyond = beyondBudget(view, reduce, limits.resultBudget);
  const truncated = truncationFrom(tokensBefore, policy, limits)?.tools ?? [];
  const shortens = ({ message }: ViewItem) =>
    calledTools(message).some(
      (tool) => (tool !== null && truncated.includes(tool)) || retentionOf(reduce, tool) === 'drop',
    );
  return view.reduce((sum, item) => sum + (beyond.has(item) || shortens(item) ? 0 : item.tokens), 0);
}

function calledTools({ tool_calls: calls = [], function_call: legacy }: ChatMessage): (string | null)[] {
  return [...calls.map((call) => call.function?.name ?? null), ...(legacy ? [legacy.name] : [])];
}

/** Null if the policy truncates no arguments, or not at this size. */
function truncationFrom(
  tokensBefore: number,
  { reduce }: Policy,
  { overhead, window }: Limits,
): ArgumentTruncation | null {
  if (reduce.arguments === null) return null;
  return tokensBefore + overhead >= Math.floor(reduce.arguments.from * window) ? reduce.arguments : null;
}

/** Whether an item is a result that the policy keeps in full, because its tool is critical or by its retention. */
export function sparesResult(item: ViewItem, { reduce }: Pick<Policy, 'reduce'>): boolean {
  return isResult(item) && retentionOf(reduce, item.tool) === 'keep_full';
}

function isResult({ role }: ViewItem): boolean {
  return role === 'tool' || role === 'function';
}

function* truncateOldArguments(work: StandIns, truncation: ArgumentTruncation): Steps<void> {
  const old = work.entries.slice(0, Math.max(0, work.entries.length - truncation.olderThan));
  for (const entry of old) {
    if (entry.item.source !== 'log') continue;
    const shorter = withTruncatedArguments(entry.item.message, truncation);
    if (shorter !== null) work.put(entry, shorter, 'arguments');
    yield;
  }
}

/** Applies `drop` and `archive`; returns a test for the results that become excerpts. */
function* reduceByRetention(
  work: StandIns,
  reduce: Reduce,
  budget: number,
  counter: TokenCounter,
): Steps<(item: ViewItem) => boolean> {
  const view = work.view();
  const beyond = beyondBudget(view, reduce, budget);
  const dropped = droppedRuns(view, reduce, beyond);
  for (const run of dropped.toReversed()) leaveOut(work, run, counter);
  const seqs = { archive: new Set<number>(), summarize_archive: new Set<number>() };
  for (const { fromSeq, tool } of beyond) {
    const isExcerpted = retentionOf(reduce, tool) === 'summarize_archive';
    seqs[isExcerpted ? 'summarize_archive' : 'archive'].add(fromSeq);
  }
  yield* work.shrinking('tool_result', (item) => isResult(item) && seqs.archive.has(item.fromSeq), -1, [0]);
  return (item) => isResult(item) && seqs.summarize_archive.has(item.fromSeq);
}

/** Makes long excerpts of all results, then short excerpts of the largest results, if short excerpts can reach the target. */
function* excerptResults(work: StandIns, accepts: (item: ViewItem) => boolean, target: number): Steps<void> {
  const reachable = sizeWith(work, accepts, shortExcerpt) <= target;
  yield* work.shrinking('tool_result', accepts, -1, [longExcerpt]);
  if (reachable) yield* work.shrinking('tool_result', accepts, target, [shortExcerpt]);
}

/** Tokens of the view if each of these items had at most `most` tokens. */
function sizeWith(work: StandIns, accepts: (item: ViewItem) => boolean, most: number): number {
  return work.entries.reduce(
    (size, { item }) => size - (accepts(item) ? Math.max(0, item.tokens - most) : 0),
    work.tokens,
  );
}

/** Results beyond the budget, which is counted from the newest result. Results kept in full do not count. */
function beyondBudget(view: readonly ViewItem[], reduce: Reduce, budget: number): Set<ViewItem> {
  const { latestGroup } = layoutOf(view);
  let used = 0;
  const newestFirst = view
    .filter((item) => isResult(item) && item.source !== 'synthetic')
    .filter((item) => retentionOf(reduce, item.tool) !== 'keep_full')
    .sort((one, other) => other.throughSeq - one.throughSeq);
  const beyond = newestFirst.filter((item) => {
    used += item.tokens;
    return used > budget && item.group !== latestGroup;
  });
  return new Set(beyond);
}

/**
 * Groups that leave the context: all their results are beyond the budget and have retention `drop`, no call is unanswered, and no message
 * of another group was recorded between the messages of the group. If the group must stay, the result becomes a pointer instead.
 */
function droppedRuns(view: readonly ViewItem[], reduce: Reduce, beyond: ReadonlySet<ViewItem>): Run[] {
  const dropped: Run[] = [];
  for (let first = 0, end = 0; first < view.length; first = end) {
    const { group } = view[first]!;
    end = first + 1;
    while (end < view.length && view[end]!.group === group) end += 1;
    const items = view.slice(first, end);
    const { throughSeq } = rangeOf(items);
    const results = items.filter(isResult);
    const goes = results.every((item) => beyond.has(item) && retentionOf(reduce, item.tool) === 'drop');
    if (results.length > 0 && goes && throughSeq < (view[end]?.group ?? Infinity))
      dropped.push({ first, items });
  }
  return dropped;
}

/** Removes a group from the view. The assistant's text in the message with the calls is not tool output: it stays, without the calls. */
function leaveOut(work: StandIns, run: Run, counter: TokenCounter): void {
  const caller = run.items[0]!;
  const range = rangeOf(run.items);
  const { content, name } = caller.message;
  if (caller.role !== 'assistant' || isBlank(content)) return work.leaveOut(run, range);
  const message = { role: 'assistant' as const, ...(name !== undefined && { name }), content };
  const tokens = countMessage(message, counter);
  work.replace(run, [{ ...caller, ...range, message, tokens, source: 'omitted', tool: null }]);
}

/** First and last seq of a group's items. */
function rangeOf(items: readonly ViewItem[]): { fromSeq: number; throughSeq: number } {
  const throughSeq = items.reduce((last, item) => Math.max(last, item.throughSeq), 0);
  return { fromSeq: items[0]!.group, throughSeq };
}

type ArgumentTruncation = NonNullable<Reduce['arguments']>;

/** The message with the long arguments of the listed tools truncated; null if nothing changes. */
function withTruncatedArguments(message: ChatMessage, truncation: ArgumentTruncation): ChatMessage | null {
  const { tool_calls: calls, function_call: legacy } = message;
  const shorterCalls = calls?.map((call) => truncatedCall(call, truncation));
  const shorterLegacy = legacy && {
    ...legacy,
    arguments: shorter(legacy.name, legacy.arguments, truncation),
  };
  const changed =
    shorterCalls?.some((call, number) => call !== calls?.[number]) ||
    shorterLegacy?.arguments !== legacy?.arguments;
  if (!changed) return null;
  return {
    ...message,
    ...(shorterCalls && { tool_calls: shorterCalls }),
    ...(shorterLegacy && { function_call: shorterLegacy }),
  };
}

function truncatedCall(call: ToolCall, truncation: ArgumentTruncation): ToolCall {
  if (!call.function) return call;
  const { name, arguments: given } = call.function;
  const truncated = shorter(name, given, truncation);
  return truncated === given ? call : { ...call, function: { ...call.function, arguments: truncated } };
}

function shorter(tool: string, json: string, truncation: ArgumentTruncation): string {
  return truncation.tools.includes(tool) ? truncateArguments(json, truncation) : json;
}

/**
 * Cuts every string value longer than `longerThan` characters to its first `prefix` characters and `text`. Arguments that are not JSON
 * become `{"truncated": "…"}`, so that truncated arguments are always valid JSON.
 * @internal Tests call it with arguments of every shape.
 */
export function truncateArguments(
  json: string,
  { longerThan, prefix, text }: Pick<ArgumentTruncation, 'longerThan' | 'prefix' | 'text'>,
): string {
  if (json.length <= longerThan) return json;
  const cut = (value: string) => startOf(value, prefix) + text;
  if (!isJson(json)) return JSON.stringify({ truncated: cut(json) });
  return mapStrings(json, longerThan, (literal) => {
    const value = JSON.parse(literal) as string;
    return value.length > longerThan ? JSON.stringify(cut(value)) : literal;
  });
}
