/** The npm package's public face. */
export * from './palimpsest.js';
export { PalimpsestError, failureTypes, isFailure, type FailureType } from './errors.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from './conversation/message.js';
export type { CompactionOutcome } from '../activities/commit.js';
export {
  applyCompaction,
  Conversation,
  planCompaction,
  type CompactedHistory,
  type CompactionOptions,
  type CompactionReason,
  type ConversationOptions,
  type Generation,
  type NothingToDo,
  type Plan,
  type Summarizer,
} from './compaction/index.js';
export { presetNames, presets, type PresetName } from './policy/presets.js';
export {
  effectivePolicy,
  type EffectivePolicy,
  type PolicyLayers,
  type PolicySource,
} from './policy/layers.js';
export { describePolicy, type PolicyRow } from './policy/describe.js';
export { limitsOf, type Limits, type SessionFacts } from './policy/limits.js';
export { parsePolicy, resolvePolicy, type Policy, type PolicyInput } from './policy/schema.js';
export { startWorker, type RunningWorker, type WorkerSettings } from './worker.js';
export { migrate } from './store/migrate.js';
export { readDeploymentPolicy, type DeploymentPolicy } from './policy-sources.js';
export { registerCounter, type Counters } from './tokens/counter.js';
export type { ReportedUsage, UsageReport } from './tokens/reported-usage.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
  type ToolDefinition,
} from './recovery-tools.js';
export type { Expansion, ExpandRequest } from './store/expand.js';
export type { Forked, ForkRequest } from './store/fork.js';
export type { ArchivedTool, SessionRecords, SummaryRecord } from './store/records.js';
export type { SearchHit, SearchRequest, SearchResult } from './store/search.js';
export type { SearchMode } from './store/search-query.js';
export type { Page, ResponseReference, ToolResponse } from './store/tool-response.js';
