/** What `palimpsest/http` exports. */
export { HttpPalimpsest, type HttpOptions } from './client.js';
export type * from '../client.js';
export type { ContextEntry, SessionContext } from '../session-context.js';
export type { Status } from '../session-status.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from '../conversation/message.js';
export { failureTypes, isFailure, PalimpsestError, type FailureType } from '../errors.js';
export {
  callRecoveryTool,
  recoveryTools,
  type RecoverySource,
  type RecoveryToolName,
} from '../recovery-tools.js';
