/** Refuses unknown options, which only TypeScript refuses otherwise. */
import { invalid } from '../errors.js';

/** The hint of a failure that names an option. */
export const knownOptions = (known: readonly string[]): string => `Known options: ${known.join(', ')}.`;

/** Throws `Input.Invalid` for anything but an object, and for an option that is not among the known ones. */
export function checkKnown(options: object, known: readonly string[]): void {
  const given: unknown = options;
  const hint = knownOptions(known);
  if (typeof given !== 'object' || given === null)
    throw invalid('the options must be an object', 'options', hint);
  for (const name of Object.keys(given))
    if (!known.includes(name)) throw invalid(`${name} is not a known option`, name, hint);
}
