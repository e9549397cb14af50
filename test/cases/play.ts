/** Plays a case through the pure core. Returns a sentence for each expectation that fails. */
import { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { Generation } from '../../src/compaction/in-memory/generation.js';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import type { ViewItem } from '../../src/context/view/view.js';
import { validateView } from '../../src/context/view/validity.js';
import { isFailure, PalimpsestError } from '../../src/errors.js';
import { saidOf } from '../support/material.js';
import { messageOf, type Expectation, type OwnCase, type Script, type Step } from './format.js';

interface Played {
  failure: unknown;
  generation: Generation | null;
  asked: string[];
  before: readonly ViewItem[];
}

export async function play({ policy, steps }: OwnCase): Promise<string[]> {
  const clock = { now: 0 };
  const conversation = new Conversation({
    policy: {
      ...{ tokenizer: 'chars/4', contextWindow: 16_000, ...policy },
      summary: { mode: 'incremental', ...policy?.summary },
    },
    now: () => clock.now,
  });
  const faults: string[] = [];
  for (const [index, step] of steps.entries()) {
    clock.now += (step.wait ?? 0) * 60_000;
    const played = await take(conversation, step);
    const wrong = [...contradicted(step.expect ?? {}, played, conversation), ...broken(conversation, played)];
    faults.push(...wrong.map((fault) => `step ${index + 1}: ${fault}`));
  }
  return faults;
}

async function take(conversation: Conversation, step: Step): Promise<Played> {
  if (step.say) conversation.append(step.say.map(messageOf));
  const before = conversation.context(Infinity).items;
  const asked: string[] = [];
  const generations = conversation.generations.length;
  let failure: unknown = null;
  try {
    if (step.restore !== undefined) conversation.restore(step.restore);
    if (step.compact !== undefined) {
      const model = step.compact === 'rule' ? null : scripted(step.model ?? null, conversation, asked);
      await conversation.compact(model, { force: step.compact !== 'due' });
    }
  } catch (error) {
    failure = error;
  }
  return { failure, generation: conversation.generations[generations] ?? null, asked, before };
}

/** Without a script it answers with a summary of what it reads. */
function scripted(script: Script | null, conversation: Conversation, asked: string[]): Summarizer {
  let meanwhile = script?.meanwhile ?? [];
  return (request, { kind }) => {
    const { messages } = request;
    asked.push(messages.map(({ content }) => content).join('\n'));
    if (meanwhile.length > 0) conversation.append(meanwhile.map(messageOf));
    meanwhile = [];
    if (script === null) return saidOf('- So far.', request, 6);
    if (kind === 'repair' && script.repairs !== undefined) return script.repairs;
    if ('says' in script) return script.says;
    if ('inflates' in script) return `- ${'more and more '.repeat(60_000)}`;
    throw script.throws === 'Error' ? new Error('a bug') : new PalimpsestError(script.throws, 'as scripted');
  };
}

/** All text of a context, calls included. */
export function textOf(items: readonly ViewItem[]): string {
  return items
    .map(({ message }) => JSON.stringify(message))
    .join('\n')
    .replaceAll('\\n', '\n')
    .replaceAll('\\"', '"');
}

function contradicted(expect: Expectation, played: Played, conversation: Conversation): string[] {
  const { failure, generation, asked, before } = played;
  const { items, tokens } = conversation.context(Infinity);
  const [shown, read] = [textOf(items), asked.join('\n')];
  const evicts = generation !== null && generation.throughSeq >= generation.fromSeq;
  const found: Record<string, unknown> = {
    due: conversation.isDue(),
    commits: generation !== null,
    evictedThrough: evicts ? generation.throughSeq : null,
    carried: generation?.carriedSeq ?? null,
    fails: failure === null ? undefined : isFailure(failure) ? failure.type : 'Error',
    unchanged: JSON.stringify(items) === JSON.stringify(before),
    calls: items.flatMap(({ message }) => (message.tool_calls ?? []).map(({ id }) => id)),
    asked: asked.length,
    snapshot: conversation.generations.at(-1)?.snapshot,
  };
  const differing = Object.entries(found).flatMap(([key, value]) => {
    const wanted: unknown = expect[key as keyof Expectation];
    if (wanted === undefined && !(key === 'fails' && value !== undefined)) return [];
    return JSON.stringify(value) === JSON.stringify(wanted)
      ? []
      : [`${key} is ${JSON.stringify(value)}, not ${JSON.stringify(wanted)} (${String(failure)})`];
  });
  return [
    ...differing,
    ...(expect.shows ?? []).filter((text) => !shown.includes(text)).map((text) => `does not show ${text}`),
    ...(expect.hides ?? []).filter((text) => shown.includes(text)).map((text) => `shows ${text}`),
    ...(expect.reads ?? [])
      .filter((text) => !read.includes(text))
      .map((text) => `the summarizer has not read ${text}`),
    ...(expect.readsNot ?? [])
      .filter((text) => read.includes(text))
      .map((text) => `the summarizer has read ${text}`),
    ...(expect.tokens !== undefined && tokens > expect.tokens ? [`${tokens} tokens`] : []),
    ...fitted(expect, conversation),
  ];
}

function fitted({ unreachable, fits }: Expectation, conversation: Conversation): string[] {
  const faults: string[] = [];
  if (unreachable !== undefined) {
    try {
      conversation.context(unreachable);
      faults.push(`a context of ${unreachable} tokens can be had`);
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable')) faults.push(String(error));
    }
  }
  if (fits !== undefined) {
    const { items, tokens } = conversation.context(fits.budget);
    if (tokens > fits.budget) faults.push(`${tokens} tokens of ${fits.budget}`);
    faults.push(...validateView(items.map(({ message }) => message)));
    const longest = Math.max(
      0,
      ...items.map(({ message }) => (message.role === 'tool' ? String(message.content).length : 0)),
    );
    if (longest > (fits.longestResult ?? Infinity)) faults.push(`a result has ${longest} characters`);
  }
  return faults;
}

/** Expectations after every step of every case. */
function broken(conversation: Conversation, { failure, generation }: Played): string[] {
  const { items } = conversation.context(Infinity);
  const faults = validateView(items.map(({ message }) => message));
  const replayed = conversation.replay();
  if (JSON.stringify(replayed) !== JSON.stringify(conversation.log.map(({ message }) => message)))
    faults.push('replay is not the log');
  if (failure !== null && generation !== null) faults.push('a failure has committed something');
  const newest = conversation.log.findLast(({ message }) => message.role === 'user')?.message.content;
  if (newest !== undefined && !items.some(({ message }) => message.content === newest))
    faults.push('the newest user message is not shown');
  for (const { fromSeq, throughSeq, coverage, reason } of conversation.generations) {
    for (let seq = fromSeq; seq <= throughSeq && reason !== 'restore'; seq++)
      if (coverage.filter((range) => range.fromSeq <= seq && seq <= range.throughSeq).length !== 1)
        faults.push(`message ${seq} is evicted without saying how it was read`);
  }
  return faults;
}
