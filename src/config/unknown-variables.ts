import { nearest } from '../nearest.js';
import { policyVariables } from './policy-sources.js';
import { settings } from './schema.js';

/** A variable with the prefix of the settings that is none of them. */
export interface UnknownVariable {
  variable: string;
  /** The setting with the most similar name. */
  nearest: string;
}

const prefix = 'PALIMPSEST_';

/** Variables of clients and of the configuration file's place. */
const besides = ['PALIMPSEST_CONFIG', 'PALIMPSEST_URL', 'PALIMPSEST_TOKEN'];

/** Variables of tests and benchmarks (docs/testing.md). */
const ofTests = ['PALIMPSEST_TRANSCRIPTS', 'PALIMPSEST_PEER_CASES', 'PALIMPSEST_NATIVE_DATA'];

const ofService = /_SERVICE_(?:HOST|PORT)|_PORT_\d+_(?:TCP|UDP|SCTP)/;
const serviceAddress = /^(?:tcp|udp|sctp):\/\/\S+:\d+$/;

/**
 * Whether Kubernetes set the variable, as it does in every container beside a service with the name `palimpsest` or
 * `palimpsest-…`. Beside `palimpsest-api`, `PALIMPSEST_API_PORT` is an address.
 */
export function isOfService(name: string, value: string): boolean {
  return ofService.test(name) || (name.endsWith('_PORT') && serviceAddress.test(value));
}

/** The variables that are probably misspelt settings, in alphabetical order. An empty variable counts as unset. */
export function unknownVariables(env: NodeJS.ProcessEnv): UnknownVariable[] {
  const known = [
    ...settings().map(({ variable }) => variable),
    ...Object.keys(policyVariables),
    ...besides,
  ].filter((name) => name.startsWith(prefix));
  const expected = new Set([...known, ...ofTests]);
  return Object.entries(env)
    .filter(
      ([name, value = '']) =>
        name.startsWith(prefix) && !expected.has(name) && value.trim() !== '' && !isOfService(name, value),
    )
    .map(([variable]) => ({ variable, nearest: nearest(variable, known)[0] ?? '' }))
    .sort((a, b) => (a.variable < b.variable ? -1 : 1));
}
