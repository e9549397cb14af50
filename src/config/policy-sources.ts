import { readFileSync } from 'node:fs';
import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { limitsOf } from '../limits/limits.js';
import { type DeploymentPolicy, policyOf } from '../policy/layers.js';
import { parsePolicy, type PolicyInput } from '../policy/schema.js';
import { flagOf, numberOf } from './values.js';
import { parseYaml } from './yaml.js';

/**
 * The policy of a deployment comes from a file and the environment, below the layers of tenants and sessions. A process
 * writes its deployment policy into each session that it creates or configures, so that every worker compacts the session
 * alike. An existing session keeps its policy until it is configured again.
 */
const fileVariable = 'PALIMPSEST_POLICY_FILE';
const policyVariable = 'PALIMPSEST_POLICY';

/** The value for the policy's schema, which refuses a text that could not be converted. */
type Read = (text: string, variable: string) => unknown;

const word: Read = (text) => text;

/** Variables of single policy fields; each overrides `PALIMPSEST_POLICY`. The table of docs/configuration.md is generated from it. */
export const policyVariables: Readonly<Record<string, { path: readonly string[]; read: Read }>> = {
  PALIMPSEST_PRESET: { path: ['preset'], read: word },
  PALIMPSEST_ENABLED: { path: ['enabled'], read: flagOf },
  PALIMPSEST_MODEL: { path: ['model'], read: word },
  PALIMPSEST_CONTEXT_WINDOW: { path: ['contextWindow'], read: numberOf },
  PALIMPSEST_RESERVED_OUTPUT_TOKENS: { path: ['reservedOutputTokens'], read: numberOf },
  PALIMPSEST_OVERHEAD: { path: ['overhead'], read: numberOf },
  PALIMPSEST_TOKENIZER: { path: ['tokenizer'], read: word },
  PALIMPSEST_TRIGGER: { path: ['trigger'], read: parseSizes },
  PALIMPSEST_TARGET: { path: ['target'], read: numberOf },
  PALIMPSEST_KEEP: { path: ['keep'], read: parseSizes },
  PALIMPSEST_SUMMARY_MODE: { path: ['summary', 'mode'], read: word },
  PALIMPSEST_SUMMARY_METHOD: { path: ['summary', 'method'], read: word },
  PALIMPSEST_SUMMARY_MAX_TOKENS: { path: ['summary', 'maxTokens'], read: numberOf },
  PALIMPSEST_SUMMARY_FALLBACK: { path: ['summary', 'fallback'], read: word },
};

/**
 * Reads `PALIMPSEST_POLICY_FILE`, `PALIMPSEST_POLICY` and the variables of {@link policyVariables}; an empty variable
 * counts as unset. `configured` has the configuration file's values of the first two, which the variables override.
 * Throws `Input.Invalid` naming the variable, or file, line and field.
 */
export function readDeploymentPolicy(
  env: NodeJS.ProcessEnv = process.env,
  configured: { file?: string; policy?: unknown } = {},
): DeploymentPolicy {
  const given = (variable: string): string | undefined => env[variable]?.trim() || undefined;
  const file = given(fileVariable) ?? configured.file;
  const json = given(policyVariable);
  let environment =
    json === undefined ? parsePolicy(configured.policy ?? {}) : parsed(json, policyVariable, policyVariable);
  for (const [variable, { path, read }] of Object.entries(policyVariables)) {
    const text = given(variable);
    if (text !== undefined) environment = merged(environment, single(variable, path, read(text, variable)));
  }
  return {
    ...(file === undefined ? {} : { file: parsed(readPolicyFile(file), file, fileVariable) }),
    ...(Object.keys(environment).length === 0 ? {} : { environment }),
  };
}

/** Checks a deployment policy that a program gives, including the sizes of a session without a policy. */
export function checkedDeployment(policy: DeploymentPolicy | undefined): DeploymentPolicy | undefined {
  if (policy === undefined) return undefined;
  const { file, environment } = policy;
  const checked = {
    ...(file === undefined ? {} : { file: parsePolicy(file) }),
    ...(environment === undefined ? {} : { environment: parsePolicy(environment) }),
  };
  limitsOf(policyOf(checked));
  return checked;
}

function single(variable: string, path: readonly string[], value: unknown): PolicyInput {
  const nested = path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value);
  try {
    return parsePolicy(nested);
  } catch (error) {
    if (!isFailure(error, 'Input.Invalid')) throw error;
    throw invalid(`${variable}: ${error.message}`, variable, error.hint);
  }
}

function merged(below: PolicyInput, above: PolicyInput): PolicyInput {
  if (below.summary === undefined || above.summary === undefined) return { ...below, ...above };
  return { ...below, ...above, summary: { ...below.summary, ...above.summary } };
}

function readPolicyFile(file: string): string {
  try {
    return readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    throw invalid(
      code === 'ENOENT' ? `Policy file ${file} not found.` : `Cannot read policy file ${file}: ${code}.`,
      fileVariable,
      'Name a JSON file with a policy, or unset the variable.',
    );
  }
}

/** `source` is the file or variable that contains the text. */
function parsed(text: string, source: string, variable: string): PolicyInput {
  try {
    const value = parseExact(text);
    if (value === null || typeof value !== 'object' || Array.isArray(value)) {
      throw invalid('Line 1: a policy must be a JSON object.');
    }
    return parsePolicy(value);
  } catch (error) {
    if (!isFailure(error, 'Input.Invalid')) throw error;
    const { message, path, hint } = error;
    const line = message.startsWith('Line ')
      ? null
      : parseYaml(text).lineOf(path?.replace(/^policy/, '') ?? '');
    const where = line === null ? source : `${source}, line ${line}`;
    throw new PalimpsestError('Input.Invalid', `${where}: ${message}`, { path: path ?? variable, hint });
  }
}

/**
 * Parses the short form of sizes for `trigger` and `keep`: `0.85` (share of the window), `6000` (tokens; below 100:
 * messages), `tokens=6000,messages=40`, `economic`, `idle=300000`, or JSON as in a policy. `name` is the flag or variable.
 * Throws `Input.Invalid`.
 */
export function parseSizes(spec: string, name: string): Json {
  const text = spec.trim();
  if (/^[[{]/.test(text)) return parseExact(text, { path: name });
  if (/^\d+$/.test(text)) return Number(text) < 100 ? { messages: Number(text) } : { tokens: Number(text) };
  if (/^\d*\.\d+$/.test(text)) return { fraction: Number(text) };
  if (text === 'economic') return { economic: true };
  const sizes: Record<string, number> = {};
  for (const pair of text.split(',')) {
    const [, size, value] = /^\s*([A-Za-z]+)\s*=\s*(\d*\.?\d+)\s*$/.exec(pair) ?? [];
    if (size === undefined || value === undefined) {
      throw invalid(
        `${name} ${JSON.stringify(spec)} is not a size.`,
        name,
        'Write 0.85 (share of the window), 6000 (tokens), tokens=6000,messages=40, or JSON.',
      );
    }
    sizes[size] = Number(value);
  }
  return sizes;
}
