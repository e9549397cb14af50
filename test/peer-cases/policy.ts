import { isFailure, type PalimpsestError } from '../../src/errors.js';
import { policyOf } from '../../src/policy/layers.js';
import { limitsOf } from '../../src/limits/limits.js';
import {
  type KeepCeilings,
  parsePolicy,
  type PolicyInput,
  type TriggerClause,
} from '../../src/policy/schema.js';
import type { PeerCase, PeerClause } from './case.js';
import { caseTokens, clausesOf, scaleOf } from './sizes.js';

/**
 * Short leading system messages that every replay begins with. Our message counts are those of the whole context, of
 * which a head takes up to three, and a trigger must leave room for one more; peers count without a head. So a peer's
 * count of n is n + 4 here.
 */
export const LEADING = 4;

/**
 * A peer's configuration in our words. What a peer calls off (no trigger, an empty list) is `enabled: false`; what it leaves out stays out of
 * the way; a tail of 0 messages is the smallest that there is, because the newest user message always stays.
 */
export interface PeerPolicy {
  policy: PolicyInput;
  /** Why the configuration as it stands is refused at the door; then the trigger is asked of one policy and the cut made with another. */
  refused: PalimpsestError | null;
  /** Without what the peer keeps. */
  triggerOnly: PolicyInput;
  /** With a trigger that is always met and a window that any tail leaves room in. */
  keepOnly: PolicyInput;
}

export function policyFor(peer: PeerCase, base: PolicyInput = {}): PeerPolicy {
  const trigger = triggerOf(peer);
  const keep = keepOf(peer);
  const rest: PolicyInput = { ...frameOf(peer), ...base };
  const whole: PolicyInput = { ...rest, ...trigger, ...(keep && { keep }) };
  const refused = refusalOf(whole);
  return {
    policy: whole,
    refused,
    triggerOnly: { ...rest, ...trigger },
    keepOnly: keptAlone(rest, keep),
  };
}

function keptAlone(rest: PolicyInput, keep: KeepCeilings | null): PolicyInput {
  const window = rest.contextWindow ?? 0;
  const { fraction, ...ceilings } = keep ?? {};
  const tokens = fraction === undefined ? {} : { tokens: Math.floor(fraction * window) };
  return {
    ...rest,
    contextWindow: 100_000_000,
    trigger: { messages: LEADING + 1 },
    ...(keep && { keep: { ...ceilings, ...tokens } }),
  };
}

export function refusalOf(policy: PolicyInput): PalimpsestError | null {
  try {
    limitsOf(policyOf({ session: parsePolicy(policy) }));
    return null;
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return error;
    throw error;
  }
}

function frameOf(peer: PeerCase): PolicyInput {
  const { contextWindow, reservedOutputTokens = 0, summarizerInputTokens, minProgressFraction } = peer.config;
  const scale = scaleOf(peer);
  return {
    contextWindow: contextWindow ? contextWindow * scale : 20_000_000,
    reservedOutputTokens: reservedOutputTokens * scale,
    // The highest that is taken: what a target would shorten besides is no question of these cases.
    target: 0.9,
    reduce: { arguments: false, messages: false, toolResults: { contextPolicy: 'keep_full' } },
    pins: pinsOf(peer),
    summary: {
      mode: 'incremental',
      fallback: 'none',
      minGain: minProgressFraction ?? 0.01,
      contextWindow: 100_000_000,
      chunkTokens: summarizerInputTokens ? Math.max(256, summarizerInputTokens * scale) : 40_000_000,
    },
  };
}

function pinsOf({ config, messages }: PeerCase): NonNullable<PolicyInput['pins']> {
  const first = Array.from({ length: config.keepFirst ?? 0 }, (_, index) => ({ seq: LEADING + index + 1 }));
  const marked = messages.flatMap(({ pinned }, index) => (pinned ? [{ seq: LEADING + index + 1 }] : []));
  return [...first, ...marked, ...(config.pinPattern ? [{ pattern: config.pinPattern }] : [])];
}

function triggerOf(peer: PeerCase): PolicyInput {
  const { config } = peer;
  const scale = scaleOf(peer);
  if (config.maxMessages !== undefined && config.trigger === undefined)
    return { trigger: { messages: LEADING + config.maxMessages + 1 } };
  if (typeof config.targetTokens === 'number' && config.trigger !== undefined)
    return {
      trigger: clausesOf(peer).map((clause) => clauseOf(clause, null, scale)),
      target: config.targetTokens * scale,
    };
  if (config.bufferFraction !== undefined && config.trigger === undefined) {
    const limit =
      (config.contextWindow ?? 0) * (1 - config.bufferFraction) - (config.reservedOutputTokens ?? 0);
    return { trigger: { tokens: limit * scale + 1 } };
  }
  if (config.minProgressFraction !== undefined)
    return { trigger: { messages: LEADING + peer.messages.length } };
  const clauses = clausesOf(peer);
  if (config.trigger === null || (Array.isArray(config.trigger) && clauses.length === 0))
    return { enabled: false };
  return clauses.length === 0
    ? {}
    : { trigger: clauses.map((clause) => clauseOf(clause, config.profilePercent, scale)) };
}

function clauseOf(clause: PeerClause, profile: number | null | undefined, scale: number): TriggerClause {
  const percent = profile !== undefined && profile !== null && profile >= 0 ? profile : clause.percent;
  return {
    ...(clause.tokens !== undefined && { tokens: clause.tokens * scale }),
    ...(clause.messages !== undefined && { messages: clause.messages + LEADING }),
    ...(clause.fraction !== undefined && { fraction: clause.fraction }),
    ...(percent !== undefined && { fraction: percent / 100 }),
  };
}

function keepOf(peer: PeerCase): KeepCeilings | null {
  const { config, messages } = peer;
  const scale = scaleOf(peer);
  const total = messages.reduce((sum, message) => sum + caseTokens(peer, message), 0) * scale;
  const tokens = (size: number) => Math.max(1, Math.floor(size));
  if (config.maxMessages !== undefined && config.targetMessages === undefined) {
    const half = Math.floor(config.maxMessages / 2) - (config.keepFirst ?? 0) - 1;
    return { messages: Math.max(1, half) };
  }
  if (config.targetMessages !== undefined) return { messages: config.targetMessages - 1 };
  if (config.minProgressFraction !== undefined) return { messages: messages.length - 2 };
  if (config.summarizeFraction !== undefined)
    return { tokens: tokens((1 - config.summarizeFraction) * total) };
  if (config.fraction !== undefined)
    return { messages: Math.max(1, messages.length - Math.floor(config.fraction * messages.length)) };
  if (typeof config.targetTokens === 'number' && config.mode === 'drop' && config.trigger === undefined)
    return { tokens: tokens(config.targetTokens * scale) };
  const { keep, keepTokenBudget } = config;
  if (keep === undefined && keepTokenBudget === undefined) return null;
  const size = keep?.tokens ?? keepTokenBudget;
  return {
    ...(keep?.messages !== undefined && { messages: Math.max(1, keep.messages) }),
    ...(size !== undefined && { tokens: tokens(size * scale) }),
    ...(keep?.fraction !== undefined && { fraction: keep.fraction }),
  };
}
