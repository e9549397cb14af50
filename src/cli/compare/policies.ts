import { existsSync } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parseExact } from '../../conversation/json.js';
import type { Json } from '../../conversation/message.js';
import { invalid, isFailure } from '../../errors.js';
import { policyOf } from '../../policy/layers.js';
import { limitsOf } from '../../limits/limits.js';
import { presets } from '../../policy/presets.js';
import { parsePolicy, type PolicyInput, type PresetName, presetNames } from '../../policy/schema.js';
import { policyFromFlags, type PolicyFlags } from '../command/flags.js';

/** The flags of `palimpsest plan` that name policies. */
export interface PlanPolicyFlags extends Omit<PolicyFlags, 'policy'> {
  /** `FILE`, JSON, or either with a prefix `name=`. */
  policy?: string[];
  /** Names separated by commas, or `none`. */
  preset?: string;
  prices?: string;
}

export interface NamedPolicy {
  name: string;
  input: PolicyInput;
}

/** The baseline that every policy is compared with. */
export const baseline = 'no compaction';

/**
 * Returns the policies that `palimpsest plan` compares: no compaction, the default, `economic`, the chosen presets, the policy
 * of `--trigger` and `--keep`, then each `--policy`. Throws `Input.Invalid` for invalid flags. The default, `economic` and
 * each preset are omitted and reported to `leftOut` if they are invalid together with the given window or prices.
 */
export function policiesFromFlags(
  flags: PlanPolicyFlags,
  leftOut: (name: string, why: string) => void = () => {},
): NamedPolicy[] {
  const { window } = flags;
  const common = policyFromFlags(window === undefined ? {} : { window });
  const prices = flags.prices === undefined ? {} : { prices: parsePrices(flags.prices) };
  const all: NamedPolicy[] = [];
  const add = (name: string, given: PolicyInput) => {
    const input = parsePolicy({ ...given, ...common, ...(given.prices ? {} : prices) });
    limitsOf(policyOf({ session: input }));
    all.push({ name: unused(name, all), input });
  };
  const offer = (name: string, given: PolicyInput) => {
    try {
      add(name, given);
    } catch (error) {
      if (!isFailure(error, 'Input.Invalid')) throw error;
      leftOut(name, error.message);
    }
  };

  add(baseline, { enabled: false });
  offer('default', {});
  offer('economic', { trigger: { economic: true } });
  for (const preset of chosenPresets(flags.preset)) offer(preset, { preset });
  const { trigger, keep } = flags;
  if (trigger?.length || keep !== undefined) {
    add(
      'flags',
      policyFromFlags({
        ...(trigger ? { trigger } : {}),
        ...(keep === undefined ? {} : { keep }),
        ...(window === undefined ? {} : { window }),
      }),
    );
  }
  for (const [index, spec] of (flags.policy ?? []).entries()) {
    const { name, policy } = nameOf(spec, index + 1);
    add(name, policyFromFlags({ policy, ...(window === undefined ? {} : { window }) }));
  }
  return all;
}

function unused(name: string, all: readonly NamedPolicy[]): string {
  const taken = (candidate: string) => all.some((one) => one.name === candidate);
  if (!taken(name)) return name;
  let number = 2;
  while (taken(`${name} ${number}`)) number++;
  return `${name} ${number}`;
}

/** Returns the presets that the flag names; without the flag, all presets, with one name for each system. Throws `Input.Invalid`. */
function chosenPresets(flag: string | undefined): PresetName[] {
  if (flag === undefined) {
    return presetNames.filter(
      (name, index) =>
        !presetNames
          .slice(0, index)
          .some(
            (other) =>
              isDeepStrictEqual(presets[other], presets[name]) && Object.keys(presets[name]).length > 0,
          ),
    );
  }
  const given = flag.split(',').map((name) => name.trim());
  return given
    .filter((name) => name !== 'none' && name !== '')
    .map((name) => {
      const preset = presetNames.find((known) => known === name);
      if (preset !== undefined) return preset;
      throw invalid(
        `The preset ${JSON.stringify(name)} does not exist.`,
        '--preset',
        `The presets are ${presetNames.join(', ')}. \`none\` compares no preset.`,
      );
    });
}

/** `name=FILE`, `name={…}`, `FILE` (named after the file) or `{…}`. */
function nameOf(spec: string, number: number): { name: string; policy: string } {
  const [, name, rest] = /^([\p{L}\p{N}][\p{L}\p{N} ._-]{0,29})=(.+)$/su.exec(spec) ?? [];
  if (name !== undefined && rest !== undefined && !existsSync(spec)) return { name, policy: rest };
  if (spec.trim().startsWith('{')) return { name: `policy ${number}`, policy: spec };
  return { name: path.basename(spec).replace(/\.json$/i, ''), policy: spec };
}

/** Parses `3` (input), `input=3,output=15`, or JSON as in a policy; prices per million tokens. */
function parsePrices(spec: string): Json {
  const text = spec.trim();
  if (text.startsWith('{')) return parseExact(text, { path: '--prices' });
  if (/^(?:\d*\.)?\d+$/.test(text)) return { input: Number(text) };
  const prices: Record<string, Json> = {};
  for (const pair of text.split(',')) {
    const [, name, value] = /^\s*([A-Za-z]+)\s*=\s*(\S+)\s*$/.exec(pair) ?? [];
    if (name === undefined || value === undefined) {
      throw invalid(
        `--prices ${JSON.stringify(spec)} is not a valid list of prices.`,
        '--prices',
        'Write 3 (input per million tokens), input=3,cachedInput=0.3,output=15, or JSON.',
      );
    }
    prices[name] = /^(?:\d*\.)?\d+$/.test(value) ? Number(value) : value;
  }
  return prices;
}
