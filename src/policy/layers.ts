import { presets } from './presets.js';
import type { PolicyInput, PresetName } from './schema.js';
import { withDefaults, type Policy } from './resolve.js';

/** From the first that is asked to the last. @internal A test tries every pair of layers. */
export const policyLayers = ['session', 'tenant', 'file', 'environment', 'begun'] as const;
type PolicyLayer = (typeof policyLayers)[number];

/**
 * The policies as given, by who gave them; every one checked by `parsePolicy`. Stored with the session. `begun`: defaults
 * of an earlier version under which the session began; they hold until its policy is replaced.
 */
export type PolicyLayers = Partial<Record<PolicyLayer, PolicyInput>>;

/** Where the value of a field came from; `tenant (preset adk)` where a preset named in that layer set it. */
export type PolicySource = PolicyLayer | 'default' | `${PolicyLayer} (preset ${string})`;

/** Where a session's policy comes from: what the session says goes before its tenant, the file, the environment and the defaults. */
export interface EffectivePolicy {
  policy: Policy;
  /** The preset that counts; null: none. */
  preset: PresetName | null;
  /** By path (`trigger`, `summary.mode`, `reduce.toolResults.critical`); a path that is missing has its default. */
  sources: Record<string, PolicySource>;
  /** By path: fields that were given and do not do what they say. */
  warnings: Record<string, string>;
}

/** Objects of the policy whose fields are merged one by one; everything else is replaced as a whole. */
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

/** What is merged so far, and who said it. */
interface Merged {
  input: Record<string, unknown>;
  sources: Record<string, PolicySource>;
}

/**
 * The effective policy of a session. Of several presets only that of the highest layer counts, in its place among the
 * layers: two of them mixed would be neither system.
 */
export function effectivePolicy(layers: PolicyLayers): EffectivePolicy {
  const merged: Merged = { input: {}, sources: {} };
  const presetLayer = policyLayers.find((layer) => layers[layer]?.preset !== undefined);
  for (const layer of policyLayers.toReversed()) {
    const given = layers[layer];
    if (given === undefined) continue;
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
  return { policy: withDefaults(input), preset, sources: merged.sources, warnings: warningsOf(input) };
}

function warningsOf({ summary }: PolicyInput): Record<string, string> {
  return {
    ...(summary?.mode === 'layered'
      ? {
          'summary.mode':
            '`layered` is no longer a mode: the session keeps a journal, its layers are entries',
        }
      : {}),
    ...(summary?.integrityCheck === undefined
      ? {}
      : { 'summary.integrityCheck': 'has no effect: exact values stand behind every snapshot' }),
  };
}

/** The effective policy alone. */
export function policyOf(layers: PolicyLayers): Policy {
  return effectivePolicy(layers).policy;
}

/** One policy with its preset and its defaults, without any layer below it. */
export function resolvePolicy(input: PolicyInput): Policy {
  return policyOf({ session: input });
}

/** Window and tokenizer that a lower layer gave together with its model describe that model, not the one put in its place. */
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
      // Over anything but an object, such as `false`, it stands alone.
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

/** The layers with the worker's own summarizer as the lowest of them: it serves where nothing else names one. */
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

/** What the process that serves a session says of its policy: below the session's and the tenant's own. */
export type DeploymentPolicy = Pick<PolicyLayers, 'file' | 'environment'>;
