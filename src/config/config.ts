import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { configSchema, settings } from './schema.js';
import { secrets } from './values.js';
import { isOfService, type UnknownVariable, unknownVariables } from './unknown-variables.js';
import { parseYaml } from './yaml.js';
import { invalid, isFailure, type PalimpsestError } from '../errors.js';
import { complain } from '../policy/issues.js';
import { readDeploymentPolicy } from './policy-sources.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import { defaultCacheDir } from '../runtime/cache-dir.js';
import { defaultDataDir } from '../runtime/home.js';

type Read = z.output<typeof configSchema>;

/** All settings of the environment and the configuration file, by their names in `schema.ts`. */
export interface Config extends Omit<Read, 'policy' | 'policyFile' | 'dataDir' | 'cacheDir'> {
  /** Policy layers below those of tenants and sessions. */
  policy: DeploymentPolicy;
  /** Absolute path of the embedded servers' data. */
  dataDir: string;
  /** Absolute path of downloaded or built programs, shared by all projects of the user. */
  cacheDir: string;
  /** The configuration file that was read, or null. */
  configFile: string | null;
  /** Variables of the environment that are no settings, and are ignored. */
  unknownVariables: UnknownVariable[];
}

/** The deployment's embedding settings; undefined if no embedding model is set. */
export function embeddingsOf({ embeddings, llm }: Pick<Config, 'embeddings' | 'llm'>) {
  const { model, baseUrl = llm.baseUrl, apiKey = llm.apiKey, ...rest } = embeddings;
  if (model === undefined) return undefined;
  return { ...rest, model, baseUrl, apiKey, tokensPerMinute: llm.tokensPerMinute };
}

/** The models that the operator names: for summaries, in limits, and in the deployment's policy. */
export function configuredModels({
  summary,
  limits,
  policy,
}: Pick<Config, 'summary' | 'limits' | 'policy'>): string[] {
  const policies = [policy.file, policy.environment];
  const named = [summary.model, ...(limits.models ?? [])];
  return [...named, ...policies.flatMap((one) => [one?.summary?.model, one?.model])].filter(
    (model) => model !== undefined,
  );
}

/** The identity provider of the API; undefined if none is set. */
export function identityOf({ identity }: Pick<Config, 'identity'>) {
  const { issuer, audience, jwksUrl, ...rest } = identity;
  if (issuer === undefined || audience === undefined || jwksUrl === undefined) return undefined;
  return { ...rest, issuer, audience, jwksUrl };
}

const fileVariable = 'PALIMPSEST_CONFIG';
const usualFiles = ['palimpsest.yaml', 'palimpsest.yml', 'palimpsest.json'];

/**
 * Reads the environment, the configuration file (which the environment overrides) and the policy file that either names.
 * An empty variable counts as unset. Throws `Input.Invalid` with the variable's name, or the setting's place in the file, as path.
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env, folder: string = process.cwd()): Config {
  const file = openFile(env, folder);
  const given = withoutEmpty(file?.settings ?? {});
  const fromEnvironment = new Map<string, string>();
  for (const { path: place, variable } of settings()) {
    const value = env[variable]?.trim();
    if (!value || isOfService(variable, value) || variable === 'PALIMPSEST_POLICY') continue;
    put(given, place, value);
    fromEnvironment.set(place.join('.'), variable);
  }
  for (const [name, read] of Object.entries(secrets)) change(given, name.split('.'), read);
  const parsed = configSchema.safeParse(given);
  if (!parsed.success) {
    const error = complain(parsed.error, configSchema, given, '', Object.keys(secrets));
    throw located(error, fromEnvironment, file);
  }
  const { policy, policyFile, dataDir, cacheDir, ...read } = parsed.data;
  /** Paths in the configuration file are relative to the file's folder. */
  const resolved = (name: string, value: string | undefined): string | undefined =>
    value === undefined || fromEnvironment.has(name) || file === null
      ? value
      : path.resolve(path.dirname(file.name), value);
  return {
    ...read,
    policy: deploymentPolicy(env, resolved('policyFile', policyFile), policy, file),
    dataDir: defaultDataDir({ PALIMPSEST_DATA: resolved('dataDir', dataDir) }),
    cacheDir: defaultCacheDir({ ...env, PALIMPSEST_CACHE: resolved('cacheDir', cacheDir) }),
    configFile: file?.name ?? null,
    unknownVariables: unknownVariables(env),
  };
}

function deploymentPolicy(
  env: NodeJS.ProcessEnv,
  policyFile: string | undefined,
  policy: Record<string, unknown> | undefined,
  file: ConfigFile | null,
): DeploymentPolicy {
  try {
    return readDeploymentPolicy(env, { file: policyFile, policy });
  } catch (error) {
    if (policy === undefined || !isFailure(error, 'Input.Invalid') || !error.path?.startsWith('policy.'))
      throw error;
    throw located(error, new Map(), file);
  }
}

/** The error with the variable's name in place of the setting's, or with file and line before its message. */
function located(
  error: PalimpsestError,
  fromEnvironment: Map<string, string>,
  file: ConfigFile | null,
): PalimpsestError {
  const { message, path: place = '', hint } = error;
  for (const [name, variable] of fromEnvironment) {
    const rest = place.startsWith(name) ? place.slice(name.length) : null;
    if (rest !== null && /^(?:[.[]|$)/.test(rest))
      return invalid(message.replace(place, `${variable}${rest}`), `${variable}${rest}`, hint);
  }
  if (file === null || / line \d+:/.test(message)) return error;
  return invalid(`${file.where(place)}: ${message}`, place, hint);
}

interface ConfigFile {
  name: string;
  settings: object;
  /** `palimpsest.yaml, line 4` for the place of a setting. */
  where(place: string): string;
}

function openFile(env: NodeJS.ProcessEnv, folder: string): ConfigFile | null {
  const named = env[fileVariable]?.trim();
  const name = named
    ? path.resolve(folder, named)
    : usualFiles.map((usual) => path.join(folder, usual)).find((usual) => existsSync(usual));
  if (name === undefined) return null;
  // JSON is also valid YAML.
  const { parsed, problem, lineOf } = parseYaml(textOf(name));
  if (problem !== undefined) throw invalid(`${name}, ${problem}`, fileVariable);
  const value = parsed ?? {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw invalid(
      `${name} contains no settings.`,
      fileVariable,
      'Write one setting per line, e.g. `logLevel: info`.',
    );
  }
  const where = (place: string): string => {
    const line = lineOf(place);
    return line === null ? name : `${name}, line ${line}`;
  };
  return { name, settings: value, where };
}

function textOf(name: string): string {
  try {
    return readFileSync(name, 'utf8').replace(/^\uFEFF/, '');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    throw invalid(
      code === 'ENOENT'
        ? `Configuration file ${name} not found.`
        : `Cannot read configuration file ${name}: ${code}.`,
      fileVariable,
      'Name a YAML or JSON file with settings, or unset the variable.',
    );
  }
}

/** Drops sections and settings without a value, as empty variables are ignored, and adds every missing section as an empty object. */
function withoutEmpty(value: object): Record<string, unknown> {
  const sections = Object.entries(configSchema.shape).filter(([, field]) => field instanceof z.ZodObject);
  const kept: Record<string, unknown> = Object.fromEntries(
    Object.entries(value).filter(([, inner]) => inner !== null),
  );
  for (const [name] of sections) {
    const section = kept[name];
    if (section === undefined) kept[name] = {};
    else if (isSection(section)) {
      kept[name] = Object.fromEntries(Object.entries(section).filter(([, inner]) => inner !== null));
    }
  }
  return kept;
}

function put(into: Record<string, unknown>, place: readonly string[], value: unknown): void {
  const [name = '', ...rest] = place;
  if (rest.length === 0) into[name] = value;
  else if (isSection(into[name])) put(into[name], rest, value);
}

function change(
  within: Record<string, unknown>,
  place: readonly string[],
  to: (value: unknown) => unknown,
): void {
  const [name = '', ...rest] = place;
  const value = within[name];
  if (rest.length === 0 && value !== undefined) within[name] = to(value);
  else if (isSection(value)) change(value, rest, to);
}

function isSection(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
