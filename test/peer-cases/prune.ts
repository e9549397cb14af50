/** Cases of reductions without a model: of tool results, call arguments and reasoning. */
import type { PolicyInput } from '../../src/policy/schema.js';
import { commitReductions } from '../../src/context/reductions/retention.js';
import { atOnce } from '../../src/steps.js';
import type { Retention } from '../../src/policy/reduce-schema.js';
import type { PeerCase } from './case.js';
import { blank, groupsOf, type Outcome } from './outcome.js';
import { isTriggeredNow, passOf, plain } from './pass.js';
import { caseTokens, weighing } from './sizes.js';

const plainCount = (text: string) => Math.ceil(text.length / 4);

/** Reductions as a commit makes them, by the policy alone: nothing is evicted. */
export async function pruned(peer: PeerCase): Promise<Outcome> {
  const { config } = peer;
  const weights = peer.messages.map((message) => caseTokens(peer, message));
  const total = Math.floor(weights.reduce((sum, tokens) => sum + tokens, 0));
  const { contextWindow = total, toolEvictionFraction = 1, reservedOutputTokens = 0 } = config;
  const trigger = toolEvictionFraction * ((contextWindow ?? total) - reservedOutputTokens);
  const scale = Math.max(1, Math.ceil(20_000 / trigger));
  const weighed = weighing(peer.messages.map(plain), (index) => (weights[index] ?? 0) * scale);
  const policy: PolicyInput = {
    contextWindow: 20 * total * scale,
    trigger: { tokens: Math.floor(trigger * scale) },
    reduce: { arguments: argumentsOf(peer), toolResults: toolResultsOf(peer, weights, scale) },
  };
  const count = config.toolResultTokenBudget === undefined ? weighed : plainCount;
  const { conversation, offset } = await passOf(peer, { policy, count });
  const due = isTriggeredNow({ conversation }) || config.trigger !== undefined || config.force;
  const before = conversation.context(Infinity).items;
  const { limits } = conversation;
  const counter = { name: 'chars/4' as const, count };
  const options = {
    policy: conversation.policy,
    limits,
    tokensBefore: total * scale,
    what: 'policy' as const,
  };
  const fit = atOnce(commitReductions(before, options, counter));
  return {
    ...blank(peer),
    conversation,
    offset,
    before,
    after: due ? fit.view : before,
    reduced: due ? fit.reductions.length : 0,
    reducedAgain: atOnce(commitReductions(fit.view, options, counter)).reductions.length,
    triggered: false,
  };
}

function argumentsOf({
  config: { truncateArgs },
}: PeerCase): NonNullable<PolicyInput['reduce']>['arguments'] {
  if (truncateArgs === undefined) return false;
  const { tools, maxLength, keep } = truncateArgs;
  return { tools, olderThan: keep.messages, longerThan: maxLength, from: 0.01 };
}

function toolResultsOf(
  peer: PeerCase,
  weights: readonly number[],
  scale: number,
): NonNullable<NonNullable<PolicyInput['reduce']>['toolResults']> {
  const { keepLastToolGroups, mode, toolCalls } = peer.config;
  if (typeof toolCalls === 'string')
    return { contextPolicy: 'drop', budget: budgetFor(peer, weights, windowOf(toolCalls)) * scale };
  if (toolCalls !== undefined) {
    const byTool = toolCalls.flatMap(({ type, tools }) =>
      tools.map((tool): [string, Retention] => [tool, type === 'all' ? 'drop' : 'keep_full']),
    );
    return { byTool: Object.fromEntries(byTool), budget: 0 };
  }
  if (peer.config.toolResultTokenBudget !== undefined) return { budget: peer.config.toolResultTokenBudget };
  if (keepLastToolGroups === undefined) return { contextPolicy: 'keep_full' };
  const groups = groupsOf(peer).filter((indexes) => indexes.length > 1);
  const newest = keepLastToolGroups === 0 ? [] : groups.slice(-keepLastToolGroups);
  const results = newest.flat().filter((index) => peer.messages[index]?.role === 'tool');
  const budget = results.reduce((sum, index) => sum + Math.ceil((weights[index] ?? 0) * scale), 0);
  return { contextPolicy: mode === 'drop' ? 'drop' : 'summarize_archive', budget };
}

/** `before-last-2-messages` → 2; everything → 0. */
function windowOf(toolCalls: string): number {
  return Number(
    /^before-last-(\d+)-messages?$/.exec(toolCalls)?.[1] ?? (toolCalls === 'before-last-message' ? 1 : 0),
  );
}

function budgetFor({ messages }: PeerCase, weights: readonly number[], newest: number): number {
  return weights.slice(Math.max(0, messages.length - newest)).reduce((sum, tokens) => sum + tokens, 0);
}
