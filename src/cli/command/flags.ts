import { existsSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { parseExact } from '../../conversation/json.js';
import type { Json } from '../../conversation/message.js';
import { invalid } from '../../errors.js';
import { parseSizes } from '../../config/policy-sources.js';
import { limitsOf } from '../../limits/limits.js';
import { parsePolicy, type PolicyInput } from '../../policy/schema.js';
import { resolvePolicy } from '../../policy/layers.js';

/** What the command line says about the policy, as typed. */
export interface PolicyFlags {
  window?: string;
  trigger?: string[];
  keep?: string;
  policy?: string;
}

/**
 * The policy that the flags describe, checked down to its numbers: throws `Input.Invalid` with the field's path also
 * where the window leaves nothing after overhead and reserved output. `defaults` stand where the flags say nothing.
 */
export function policyFromFlags(flags: PolicyFlags, defaults: PolicyInput = {}): PolicyInput {
  const policy: Record<string, unknown> = {
    ...defaults,
    ...(flags.policy === undefined ? {} : readPolicy(flags.policy)),
  };
  if (flags.window !== undefined) policy.contextWindow = wholeNumber(flags.window, '--window');
  if (flags.trigger?.length) {
    const clauses = flags.trigger.map((spec) => parseSizes(spec, '--trigger')).flat();
    policy.trigger = clauses;
  }
  if (flags.keep !== undefined) policy.keep = parseSizes(flags.keep, '--keep');
  const parsed = parsePolicy(policy);
  limitsOf(resolvePolicy(parsed));
  return parsed;
}

/** `--policy`: JSON, or a file that holds it. */
function readPolicy(text: string): Record<string, Json> {
  const source = text.trim().startsWith('{') ? text : readPolicyFile(text);
  const value = parseExact(source, { path: '--policy' });
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw invalid('--policy must be a JSON object.', '--policy');
  }
  return value;
}

function readPolicyFile(file: string): string {
  if (!existsSync(file) || !statSync(file).isFile()) {
    throw invalid(
      `There is no such policy file: ${file}`,
      '--policy',
      'Give JSON, or the name of a file that holds it.',
    );
  }
  return readFileSync(file, 'utf8');
}

function wholeNumber(text: string, flag: string): number {
  const digits = text.trim().replaceAll(/[,_](?=\d{3}(\D|$))/g, '');
  if (!/^\d+$/.test(digits))
    throw invalid(
      `${flag} must be a number of tokens, not ${JSON.stringify(text)}.`,
      flag,
      'e.g. --window 32000',
    );
  return Number(digits);
}

/** Refuses a file that could not be written, before any work is done. */
export function checkOutFile(file: string, option: string): void {
  const folder = path.dirname(path.resolve(file));
  if (!existsSync(folder) || !statSync(folder).isDirectory()) {
    throw invalid(`${option}: there is no folder ${folder}`, option);
  }
  if (existsSync(file) && statSync(file).isDirectory())
    throw invalid(`${option}: ${file} is a folder`, option);
}
