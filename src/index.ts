/** The npm package's public face. */
export { Palimpsest } from './library/palimpsest.js';
export type { PalimpsestOptions } from './library/connections.js';
export type { Readiness, ServerFailure } from './process/readiness.js';
export { PalimpsestError, failureTypes, isFailure, type FailureType } from './errors.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from './conversation/message.js';
export type * from './contract/client.js';
export type * from './contract/backfills.js';
export type { ContextBreakdown } from './context/view/breakdown.js';
export type { ContextEntry, SessionContext } from './contract/context.js';
export type { CompactionOutcome } from './contract/workflows.js';
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
export { presetNames, type PresetName } from './policy/schema.js';
export { presets } from './policy/presets.js';
export {
  effectivePolicy,
  resolvePolicy,
  type DeploymentPolicy,
  type EffectivePolicy,
  type PolicyLayers,
  type PolicySource,
} from './policy/layers.js';
export { describePolicy, type PolicyRow } from './policy/describe.js';
export { limitsOf, type Limits, type SessionFacts } from './limits/limits.js';
export { parsePolicy, type PolicyInput } from './policy/schema.js';
export type { Policy } from './policy/resolve.js';
export { startWorker, type RunningWorker, type WorkerSettings } from './worker/worker.js';
export { migrate } from './store/connection/migrate.js';
export { readDeploymentPolicy } from './config/policy-sources.js';
export { registerCounter, type Counters } from './tokens/counter.js';
export type { ReportedUsage, UsageReport } from './tokens/reported-usage.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
  type ToolDefinition,
} from './contract/recovery-tools.js';
export type { Expansion, ExpandRequest, Page, ResponseReference, ToolResponse } from './contract/archive.js';
export type { Forked, ForkRequest } from './contract/sessions.js';
export type {
  ArchivedTool,
  SessionMemory,
  SessionRecords,
  Status,
  SummaryRecord,
} from './contract/sessions.js';
export type { Journal, JournalEntry } from './summary/journal/rewrites.js';
export type { SearchHit, SearchMode, SearchRequest, SearchResult } from './contract/archive.js';
