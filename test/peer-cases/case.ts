/** The recorded black-box cases of other systems: facts from public test suites, one object per case. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { ChatMessage } from '../../src/conversation/message.js';

/** A message of a case. Some have an id, a pin mark, or reported usage. */
export type PeerMessage = ChatMessage & {
  id?: string;
  pinned?: boolean;
  compactionSummary?: boolean;
  usage?: { provider: string; total_tokens: number };
};

export interface PeerClause {
  tokens?: number;
  messages?: number;
  fraction?: number;
  percent?: number;
}

interface PeerKeep {
  messages?: number;
  tokens?: number;
  fraction?: number;
}

interface PeerConfig {
  trigger?: PeerClause | PeerClause[] | null;
  keep?: PeerKeep;
  contextWindow?: number | null;
  reservedOutputTokens?: number;
  bufferFraction?: number;
  tokenCounter?: string;
  measure?: string;
  targetCutIndex?: number;
  checkCutIndex?: number;
  keepTokenBudget?: number;
  summarizeFraction?: number;
  preserveThinkingLoops?: boolean;
  repairBeforeSummarize?: boolean;
  summarizer?: string;
  verifier?: string;
  summarizerUsage?: { prompt_tokens: number; completion_tokens: number };
  summarizerInputTokens?: number | null;
  summarizerDelimiter?: string;
  previousSummary?: string;
  previousCutIndex?: number | null;
  summarizedIndices?: number[];
  summaryDeleted?: boolean;
  reportedPromptTokens?: number;
  lastMessageTokens?: number;
  profilePercent?: number | null;
  useReportedUsage?: boolean;
  provider?: string;
  force?: boolean;
  manualRequest?: boolean;
  maxMessages?: number;
  keepFirst?: number;
  minProgressFraction?: number;
  keepLastToolGroups?: number;
  keepLastGroups?: number;
  mode?: 'drop' | 'collapse';
  targetTokens?: number | string;
  targetMessages?: number;
  fallback?: 'truncate' | 'deterministic';
  fraction?: number;
  toolEvictionFraction?: number;
  truncateArgs?: { keep: { messages: number }; maxLength: number; tools: string[] };
  toolResultTokenBudget?: number;
  protectLatestToolTurn?: boolean;
  toolCalls?: string | { type: string; tools: string[] }[];
  reasoning?: string;
  pinPattern?: string;
  pendingCallIds?: string[];
  systemPromptTokens?: number;
  keptTailTokens?: number;
  duringSummarize?: ChatMessage[];
}

export interface PeerCase {
  index: number;
  source: string;
  name: string;
  kind: string;
  config: PeerConfig;
  messages: PeerMessage[];
  /** By key; `checks.ts` knows each. An unknown key fails its case. */
  expect: Record<string, unknown>;
}

const folder = process.env.PALIMPSEST_PEER_CASES;

/** Every case, or null (with a printed line) if the environment names no folder. */
export function readPeerCases(): PeerCase[] | null {
  if (folder === undefined) {
    process.stderr.write("PALIMPSEST_PEER_CASES is not set: the peers' cases did not run.\n");
    return null;
  }
  const cases = JSON.parse(readFileSync(path.join(folder, 'cases.json'), 'utf8')) as Omit<
    PeerCase,
    'index'
  >[];
  return cases.map((one, index) => ({ ...one, index }));
}
