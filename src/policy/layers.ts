import { presets } from './presets.js';
import type { PolicyInput, PresetName } from './schema.js';
import { withDefaults, type Policy } from './defaults.js';
import { narrowed, type TenantLimits, withoutForbiddenModel } from './tenant-limits.js';

/** Highest precedence first. @internal A test tries every pair of layers. */
export const policyLayers = ['session', 'tenant', 'file', 'environment', 'begun'] as const;
type PolicyLayer = (typeof policyLayers)[number];

/**
 * The policies as given, by layer, each checked by `parsePolicy`. Stored with the session. `begun` holds defaults of the
 * earlier version that began the session, if they differ from today's; they apply until the session's policy is replaced.
 */
export type PolicyLayers = Partial<Record<PolicyLayer, PolicyInput>> & {
  /** The operator's limits in force, which narrow the merged policy. Not stored with the session. */
  limits?: TenantLimits;
};

/** The layer that set a field; `tenant (preset adk)` if a preset named in that layer set it. */
export type PolicySource = PolicyLayer | 'default' | `${PolicyLayer} (preset ${string})`;

/** A session's policy, merged from all layers: session over tenant, file, environment and defaults. */
export interface EffectivePolicy {
  policy: Policy;
  /** The preset that applies, or null. */
  preset: PresetName | null;
  /**
   * The source of each given field, by path (`trigger`, `summary.mode`, `reduce.toolResults.critical`). A field without an
   * entry has its default.
   */
  sources: Record<string, PolicySource>;
  /** A warning for each field that was given but does not take effect as written, by path. */
  warnings: Record<string, string>;
}

/** Objects of the policy whose fields are merged one by one. Every other value is replaced as a whole. */
export const mergedObjects: ReadonlySet<string> = new Set([
  'summary',
  'memory',
  'reduce',
  'reduce.arguments',
  'reduce.toolResults',
  'prices',
  'spend',
  'retention',
]);

/** The fields merged so far and the source of each. */
interface Merged {
  input: Record<string, unknown>;
  sources: Record<string, PolicySource>;
}

/**
 * The effective policy of a session. If several layers name a preset, only that of the highest layer applies, with the
 * precedence of that layer: each preset reproduces one other product, and a mixture of two would match neither.
 */
export function effectivePolicy(layers: PolicyLayers): EffectivePolicy {
  const merged: Merged = { input: {}, sources: {} };
  const modelWarning: Record<string, string> = {};
  const presetLayer = policyLayers.find((layer) => layers[layer]?.preset !== undefined);
  for (const layer of policyLayers.toReversed()) {
    const own = layers[layer];
    if (own === undefined) continue;
    // The other layers are the operator's.
    const { given, warning } =
      layer === 'session' || layer === 'tenant'
        ? withoutForbiddenModel(own, layers.limits)
        : { given: own, warning: undefined };
    if (warning !== undefined) modelWarning['summary.model'] = warning;
    const { preset, ...fields } = given;
    if (given.model !== undefined) forgetModel(merged, given.model);
    if (preset !== undefined && layer === presetLayer) {
      overlay(merged.input, presets[preset], '', merged.sources, `${layer} (preset ${preset})`);
      merged.sources.preset = layer;
    }
    overlay(merged.input, fields, '', merged.sources, layer);
  }
  const preset = (presetLayer && layers[presetLayer]?.preset) ?? null;
  const input: PolicyInput = merged.input;
  const { policy, warnings } = narrowed(withDefaults(input), layers.limits);
  return {
    policy,
    preset,
    sources: merged.sources,
    warnings: { ...warningsOf(input), ...modelWarning, ...warnings },
  };
}

function warningsOf({ summary }: PolicyInput): Record<string, string> {
  return {
    ...(summary?.mode === 'layered'
      ? {
          'summary.mode':
            '`layered` is no longer a mode: the session keeps a journal, and its layers became entries',
        }
      : {}),
    ...(summary?.integrityCheck === undefined
      ? {}
      : { 'summary.integrityCheck': 'has no effect: exact values follow every snapshot' }),
  };
}

/** The effective policy without its sources. */
export function policyOf(layers: PolicyLayers): Policy {
  return effectivePolicy(layers).policy;
}

/** A single policy with its preset and defaults, without other layers. */
export function resolvePolicy(input: PolicyInput): Policy {
  return policyOf({ session: input });
}

/** Drops the window and tokenizer that a lower layer gave with its model: they do not describe the model that replaces it. */
function forgetModel({ input, sources }: Merged, model: string): void {
  if (sources.model === undefined || input.model === model) return;
  for (const key of ['contextWindow', 'tokenizer']) {
    if (sources[key] !== sources.model) continue;
    delete input[key];
    delete sources[key];
  }
}

function overlay(
  target: Record<string, unknown>,
  given: Readonly<Record<string, unknown>>,
  path: string,
  sources: Record<string, PolicySource>,
  source: PolicySource,
): void {
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const at = path === '' ? key : `${path}.${key}`;
    const below = target[key];
    if (mergedObjects.has(at) && isRecord(value)) {
      // An object replaces a lower value that is not an object, such as `false`.
      if (!isRecord(below)) delete sources[at];
      const inner = isRecord(below) ? { ...below } : {};
      overlay(inner, value, at, sources, source);
      target[key] = inner;
      continue;
    }
    for (const known of Object.keys(sources)) if (known.startsWith(`${at}.`)) delete sources[known];
    target[key] = value;
    sources[at] = source;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Adds the worker's summarizer to the environment layer, below the fields that this layer sets itself. Does nothing if a layer
 * names a summarizer model.
 */
export function withSummarizer(
  layers: PolicyLayers,
  { model, contextWindow }: { model?: string; contextWindow?: number },
): PolicyLayers {
  if (model === undefined && contextWindow === undefined) return layers;
  if (policyOf(layers).summary.model !== null) return layers;
  const { environment = {} } = layers;
  const summary = {
    ...(model === undefined ? {} : { model }),
    ...(contextWindow === undefined ? {} : { contextWindow }),
    ...environment.summary,
  };
  return { ...layers, environment: { ...environment, summary } };
}

/** The layers as they are stored. */
export function withoutLimits({ limits: _limits, ...layers }: PolicyLayers): PolicyLayers {
  return layers;
}

/** The policy layers of the process that serves a session, below those of the session and the tenant. */
export type DeploymentPolicy = Pick<PolicyLayers, 'file' | 'environment'>;
