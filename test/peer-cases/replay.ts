/** Runs the operation of a case and returns its result. */
import { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { PeerCase, PeerMessage } from './case.js';
import {
  chained,
  checkedCut,
  continued,
  fitted,
  late,
  repairedCut,
  reported,
  safeCutsOf,
  summaryIn,
  validated,
} from './operations.js';
import { blank, type Outcome } from './outcome.js';
import { compactOnce, plain } from './pass.js';
import { pruned } from './prune.js';

export async function replay(peer: PeerCase): Promise<Outcome> {
  const { config, kind } = peer;
  if (kind === 'validation') return validated(peer);
  if (config.targetCutIndex !== undefined) return repairedCut(peer);
  if (config.checkCutIndex !== undefined) return checkedCut(peer);
  if (config.preserveThinkingLoops) return { ...blank(peer), safeCuts: safeCutsOf(peer) };
  if (config.reportedPromptTokens !== undefined || config.useReportedUsage) return reported(peer);
  if (config.previousCutIndex !== undefined) return chained(peer);
  if (config.previousSummary !== undefined || summaryIn(peer) !== null) return continued(peer);
  if (config.summarizedIndices !== undefined) return late(peer);
  if (isAboutBudget(peer)) return fitted(peer);
  if (isAboutReductions(peer)) return pruned(peer);
  if (config.repairBeforeSummarize || Object.keys(config).length === 0) return asItIs(peer);
  return compactOnce(attacking(peer));
}

/** A forged end of a peer's delimiter attacks nobody here: the text forges ours. */
function attacking(peer: PeerCase): PeerCase {
  const { summarizerDelimiter } = peer.config;
  if (summarizerDelimiter === undefined) return peer;
  const forge = (content: PeerMessage['content']) =>
    typeof content === 'string' ? content.replaceAll(summarizerDelimiter, 'transcript') : content;
  return { ...peer, messages: peer.messages.map((one) => ({ ...one, content: forge(one.content) })) };
}

function isAboutBudget({ config, kind }: PeerCase): boolean {
  if (config.systemPromptTokens !== undefined || config.fallback === 'deterministic') return true;
  return kind === 'split-in-turn' && config.contextWindow === 500;
}

function isAboutReductions({ config }: PeerCase): boolean {
  return [
    config.keepLastToolGroups,
    config.toolCalls,
    config.reasoning,
    config.truncateArgs,
    config.toolEvictionFraction,
    config.toolResultTokenBudget,
  ].some((key) => key !== undefined);
}

/** The context before any compaction. */
function asItIs(peer: PeerCase): Outcome {
  const conversation = new Conversation({ policy: { contextWindow: 1_000_000 } });
  conversation.append(peer.messages.map(plain));
  const { items } = conversation.context(Infinity);
  return { ...blank(peer), conversation, before: items, after: items };
}
