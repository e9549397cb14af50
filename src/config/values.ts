/** Converts settings, as written in a variable or a file, into the types of their schema. A value that cannot be converted is returned unchanged. */
import { createHash } from 'node:crypto';
import { leastTokenBits, tokenBits } from './token-strength.js';

function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value.trim() : undefined;
}

/** `8`, `8,000`, `8_000`, `8e3`. */
export function numberOf(value: unknown): unknown {
  const digits = text(value)?.replaceAll(/[,_](?=\d{3}(?:\D|$))/g, '');
  return digits !== undefined && /^-?(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?$/i.test(digits)
    ? Number(digits)
    : value;
}

export function flagOf(value: unknown): unknown {
  const word = text(value)?.toLowerCase();
  if (word === '1' || word === 'true') return true;
  return word === '0' || word === 'false' ? false : value;
}

export function listOf(value: unknown): unknown {
  return (
    text(value)
      ?.split(',')
      .flatMap((entry) => entry.trim() || []) ?? value
  );
}

/** `name=value,…` as an object. Reports the names that have several values. */
export function pairsOf(value: unknown, repeated: (name: string) => void): unknown {
  if (text(value) === undefined) return value;
  const pairs = new Map<string, string>();
  for (const entry of listOf(value) as string[]) {
    const [, name = entry, given = ''] = /^([^=]*)=(.*)$/.exec(entry) ?? [];
    if (pairs.has(name)) repeated(name);
    pairs.set(name, given);
  }
  return Object.fromEntries(pairs);
}

/** An object of JSON. */
export function jsonOf(value: unknown): unknown {
  try {
    return JSON.parse(text(value) ?? '') as unknown;
  } catch {
    return value;
  }
}

export const lowerCase = (value: unknown): unknown => text(value)?.toLowerCase() ?? value;

/** Replaces the hash of a token that is too easy to guess. */
export const weakToken = 'weak';

/** `tenant:token`, `{tenant, token}` or `{tenant, sha256}`. Any other value becomes null. */
function tokenOf(entry: unknown): unknown {
  const hashed = (token: string): string =>
    tokenBits(token) < leastTokenBits ? weakToken : createHash('sha256').update(token).digest('hex');
  if (typeof entry === 'string') {
    const [, tenant, token] = /^([^:]+):(.+)$/.exec(entry.trim()) ?? [];
    return token === undefined ? null : { tenant, sha256: hashed(token) };
  }
  if (typeof entry !== 'object' || entry === null) return null;
  const { token, ...rest } = entry as Record<string, unknown>;
  if (token === undefined) return rest;
  return typeof token === 'string' && token !== '' ? { ...rest, sha256: hashed(token) } : null;
}

function tokensOf(value: unknown): unknown {
  const entries = listOf(value);
  return Array.isArray(entries) ? entries.map(tokenOf) : null;
}

/** `id:key,…`, or a list of `id:key` or `{id, key}`. Any other entry becomes null. */
function payloadKeysOf(value: unknown): unknown {
  const entries = listOf(value);
  if (!Array.isArray(entries)) return null;
  return entries.map((entry: unknown) => {
    if (typeof entry !== 'string') return typeof entry === 'object' ? entry : null;
    const [, id, key] = /^([^:]+):(.+)$/.exec(entry.trim()) ?? [];
    return id === undefined ? null : { id, key };
  });
}

/** `name:key,…`, or an object of keys by name. Any other text or list becomes null. */
function keysOf(value: unknown): unknown {
  const entries = listOf(value);
  if (typeof entries !== 'object' || entries === null) return entries;
  if (!Array.isArray(entries))
    return Object.fromEntries(Object.entries(entries).map(([name, key]) => [name, secretOf(key)]));
  const keys = entries.map((entry: unknown) => /^([^:]+):(.*)$/.exec(String(entry))?.slice(1));
  return keys.every((one) => one !== undefined) ? Object.fromEntries(keys) : null;
}

/** A file may have a number as a text without quotes. One that is not exact has lost digits. */
function secretOf(value: unknown): unknown {
  return Number.isSafeInteger(value) ? String(value) : value;
}

/** Settings that contain secrets, by their place, each with its conversion. No error repeats their values. */
export const secrets: Readonly<Record<string, (value: unknown) => unknown>> = {
  databaseUrl: secretOf,
  maintenanceUrl: secretOf,
  eraserUrl: secretOf,
  directUrl: secretOf,
  'rolePasswords.migrator': secretOf,
  'rolePasswords.app': secretOf,
  'rolePasswords.maintenance': secretOf,
  'rolePasswords.eraser': secretOf,
  'temporal.apiKey': secretOf,
  'temporal.payloadKeys': payloadKeysOf,
  'llm.apiKey': secretOf,
  'embeddings.apiKey': secretOf,
  'api.tokens': tokensOf,
  'gateway.keys': keysOf,
  inlineTurnKeys: keysOf,
};
