/** The common exports of `palimpsest` and `palimpsest/http`: requests, answers, failures and recovery tools. */
export { failureTypes, isFailure, PalimpsestError, type FailureType } from '../errors.js';
export type { ContextBreakdown } from '../context/view/breakdown.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from '../conversation/message.js';
export type { Journal, JournalEntry } from '../summary/journal/rewrites.js';
export type { ReportedUsage, UsageReport } from '../tokens/reported-usage.js';
export type {
  ArchivePart,
  Expansion,
  ExpandRequest,
  Page,
  ResponseReference,
  SearchHit,
  SearchMode,
  SearchRequest,
  SearchResult,
  ToolResponse,
} from './archive.js';
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
} from './backfills.js';
export type {
  Asked,
  CompactRequest,
  ContextRequest,
  OfJob,
  OfSession,
  OfToken,
  PalimpsestClient,
  ReadContext,
  Sync,
} from './client.js';
export type { CompactionOutcome, Forked, ForkRequest, Timeline } from './compactions.js';
export type { ContextEntry, SessionContext } from './context.js';
export type { EraseMessagesRequest, FoundMessages, MessagesErased } from './erasing.js';
export type { AnthropicSystem, GeminiSystem, NativeMessage, SentMessage } from './native.js';
export type { Pins, PolicyRequest, PolicyVersion, SessionPolicy } from './policies.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
  type ToolDefinition,
  type ToolParameters,
} from './recovery-tools.js';
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
} from './sessions.js';
export type { Scope } from './routes.js';
export type { Synced, SyncRequest } from './sync.js';
export type { ApiToken, CreatedToken, TokenRequest } from './tokens.js';
export type { AppendedTurn, Turn } from './turns.js';
