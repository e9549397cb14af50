/** Lists every field of an effective policy with its value and source, for `status` and the command line. */
import { mergedObjects, type EffectivePolicy, type PolicySource } from './layers.js';
import type { Policy } from './defaults.js';
import { policySchema } from './schema.js';

export interface PolicyRow {
  /** Path in the policy as written, e.g. `summary.mode`. */
  path: string;
  /** null: derived from window and model; `limitsOf` has the number. */
  value: unknown;
  source: PolicySource;
  /** Set if the field was given but does not take effect as written. */
  warning?: string;
}

/** One row per field, in the order of the policy's documentation. */
export function describePolicy({ policy, preset, sources, warnings }: EffectivePolicy): PolicyRow[] {
  const given: Readonly<Record<string, unknown>> = { preset, ...asGiven(policy, sources) };
  return Object.keys(policySchema.shape)
    .flatMap((key) => rowsOf({ [key]: given[key] }, '', sources))
    .map((row) => (warnings[row.path] === undefined ? row : { ...row, warning: warnings[row.path] }));
}

function rowsOf(
  fields: Readonly<Record<string, unknown>>,
  prefix: string,
  sources: EffectivePolicy['sources'],
): PolicyRow[] {
  return Object.entries(fields).flatMap(([key, value]) => {
    const path = `${prefix}${key}`;
    if (mergedObjects.has(path) && typeof value === 'object' && value !== null)
      return rowsOf({ ...value }, `${path}.`, sources);
    return [{ path, value, source: sourceOf(path, sources) }];
  });
}

/** The source of the field, or of the nearest object that contains it. */
function sourceOf(path: string, sources: EffectivePolicy['sources']): PolicySource {
  for (let at = path; at !== ''; at = at.slice(0, Math.max(0, at.lastIndexOf('.')))) {
    const source = sources[at];
    if (source !== undefined) return source;
  }
  return 'default';
}

/** The policy in the form of its schema. */
function asGiven(policy: Policy, sources: EffectivePolicy['sources']): Readonly<Record<string, unknown>> {
  const { trigger, economic, idleTrigger, reduce, summary, redact, ...rest } = policy;
  const { retention: general, ...toolResults } = reduce.toolResults;
  const named = 'reduce.toolResults.defaultPolicy' in sources ? 'defaultPolicy' : 'contextPolicy';
  return {
    ...rest,
    trigger: [
      ...trigger,
      ...(economic ? [{ economic: true }] : []),
      ...(idleTrigger === null ? [] : [{ idle: idleTrigger }]),
    ],
    reduce: {
      ...reduce,
      arguments: reduce.arguments ?? false,
      toolResults: { ...toolResults, [named]: general },
      messages: reduce.messages ?? false,
    },
    summary: {
      ...summary,
      acknowledgment: summary.acknowledgment === '' ? false : summary.acknowledgment,
      integrityCheck: null,
    },
    redact: redact ?? false,
  };
}
