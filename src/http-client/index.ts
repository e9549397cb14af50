/** What `palimpsest/http` exports. */
export { HttpPalimpsest, type HttpOptions } from './client.js';
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
} from '../contract/archive.js';
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
} from '../contract/backfills.js';
export type {
  Asked,
  CompactRequest,
  ContextRequest,
  OfJob,
  OfSession,
  PalimpsestClient,
  ReadContext,
} from '../contract/client.js';
export type { CompactionOutcome, Forked, ForkRequest, Timeline } from '../contract/compactions.js';
export type { AnthropicSystem, GeminiSystem, NativeMessage, SentMessage } from '../contract/native.js';
export type { ContextEntry, SessionContext } from '../contract/context.js';
export type { Pins, PolicyRequest, PolicyVersion, SessionPolicy } from '../contract/policies.js';
export type { Erased, ListRequest, SessionList, SessionSummary, Status } from '../contract/sessions.js';
export type { AppendedTurn, Turn } from '../contract/turns.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from '../conversation/message.js';
export { failureTypes, isFailure, PalimpsestError, type FailureType } from '../errors.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
  type ToolDefinition,
  type ToolParameters,
} from '../contract/recovery-tools.js';
