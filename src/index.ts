/** The npm package's public face. */
export * from './library/palimpsest.js';
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
} from './compaction/in-memory/index.js';
export { presetNames, presets, type PresetName } from './policy/presets.js';
export {
  effectivePolicy,
  type EffectivePolicy,
  type PolicyLayers,
  type PolicySource,
} from './policy/layers.js';
export { describePolicy, type PolicyRow } from './policy/describe.js';
export { limitsOf, type Limits, type SessionFacts } from './limits/limits.js';
export { parsePolicy, resolvePolicy, type Policy, type PolicyInput } from './policy/schema.js';
export { startWorker, type RunningWorker, type WorkerSettings } from './worker/worker.js';
export { migrate } from './store/connection/migrate.js';
export { readDeploymentPolicy, type DeploymentPolicy } from './config/policy-sources.js';
export { registerCounter, type Counters } from './tokens/counter.js';
export type { ReportedUsage, UsageReport } from './tokens/reported-usage.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
  type ToolDefinition,
} from './library/recovery-tools.js';
export type { Expansion, ExpandRequest } from './store/reading/expand.js';
export type { Forked, ForkRequest } from './store/compactions/fork.js';
export type { ArchivedTool, SessionRecords, SummaryRecord } from './store/reading/records.js';
export type { SearchHit, SearchRequest, SearchResult } from './store/search/search.js';
export type { SearchMode } from './store/search/query.js';
export type { Page, ResponseReference, ToolResponse } from './store/reading/tool-response.js';
