/** The exports of `palimpsest`. */
export { Palimpsest } from './library/palimpsest.js';
export type { PalimpsestOptions } from './library/connections.js';
export * from './contract/public.js';
export type { Readiness, ServerFailure } from './process/readiness.js';
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
export type { TenantLimits } from './policy/tenant-limits.js';
export { describePolicy, type PolicyRow } from './policy/describe.js';
export { limitsOf, type Limits, type SessionFacts } from './limits/limits.js';
export { parsePolicy, type PolicyInput } from './policy/schema.js';
export type { Policy } from './policy/defaults.js';
export { startWorker, type RunningWorker, type WorkerSettings } from './worker/worker.js';
export { migrate } from './store/connection/migrate.js';
export { readDeploymentPolicy } from './config/policy-sources.js';
export { payloadCodec } from './temporal/payload-codec.js';
export type { PayloadKey } from './config/payload-keys.js';
export { registerCounter, type Counters } from './tokens/counter.js';
