/** The npm package's public face. */
export { Palimpsest } from './library/palimpsest.js';
export type { PalimpsestOptions } from './library/connections.js';
export type { Readiness, ServerFailure } from './process/readiness.js';
export { PalimpsestError, failureTypes, isFailure, type FailureType } from './errors.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from './conversation/message.js';
export type {
  Asked,
  CompactRequest,
  ContextRequest,
  OfJob,
  OfSession,
  PalimpsestClient,
  ReadContext,
} from './contract/client.js';
export type { AppendedTurn, Turn } from './contract/turns.js';
export type {
  Backfill,
  BackfillEstimate,
  BackfillItem,
  BackfillItemList,
  BackfillItemRequest,
  BackfillItemState,
  BackfillRequest,
  BackfillSelection,
  BackfillState,
  EstimateRequest,
} from './contract/backfills.js';
export type { ContextBreakdown } from './context/view/breakdown.js';
export type { AnthropicSystem, GeminiSystem, NativeMessage, SentMessage } from './contract/native.js';
export type { ContextEntry, SessionContext } from './contract/context.js';
export type { CompactionOutcome, Forked, ForkRequest, Timeline } from './contract/compactions.js';
export type { Pins, PolicyRequest, PolicyVersion, SessionPolicy } from './contract/policies.js';
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
export type { Policy } from './policy/defaults.js';
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
  type ToolParameters,
} from './contract/recovery-tools.js';
export type {
  ArchivePart,
  Expansion,
  ExpandRequest,
  Page,
  ResponseReference,
  ToolResponse,
} from './contract/archive.js';
export type {
  ArchivedTool,
  Erased,
  ListRequest,
  SessionList,
  SessionMemory,
  SessionRecords,
  SessionSummary,
  Status,
  SummaryRecord,
} from './contract/sessions.js';
export type { Journal, JournalEntry } from './summary/journal/rewrites.js';
export type { SearchHit, SearchMode, SearchRequest, SearchResult } from './contract/archive.js';
