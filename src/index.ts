/** The npm package's public face. */
export * from './palimpsest.js';
export { PalimpsestError, failureTypes, isFailure, type FailureType } from './errors.js';
export type { ChatMessage, ContentPart, LoggedMessage, Role, ToolCall } from './conversation/message.js';
export type { CompactionOutcome } from '../activities/commit.js';
export type { Policy, PolicyInput } from './policy/schema.js';
export { startWorker, type RunningWorker, type WorkerSettings } from './worker.js';
export { migrate } from './store/migrate.js';
