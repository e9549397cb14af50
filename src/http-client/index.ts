/** What `palimpsest/http` exports. */
export { HttpPalimpsest, type HttpOptions } from './client.js';
export type * from '../contract/backfills.js';
export type * from '../contract/client.js';
export type { ContextEntry, SessionContext } from '../contract/context.js';
export type { Status } from '../contract/sessions.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from '../conversation/message.js';
export { failureTypes, isFailure, PalimpsestError, type FailureType } from '../errors.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
} from '../contract/recovery-tools.js';
