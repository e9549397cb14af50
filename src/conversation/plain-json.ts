import { invalid, type PalimpsestError } from '../errors.js';
import { DEEPEST_NESTING, joinPath, type Step } from './json.js';
import type { Json } from './message.js';

/**
 * Asserts that a value handed over in memory is JSON that `JSON.stringify` writes without change. Refused with path:
 * NaN, infinities, -0, bigint, functions, symbols, instances of classes (Date, Map, …), anything with `toJSON`,
 * cycles, holes and undefined in arrays. A property that is undefined counts as absent.
 */
export function checkPlainJson(value: unknown, path: string): asserts value is Json {
  checkValue(value, path, [], new Set());
}

function checkValue(value: unknown, root: string, steps: Step[], above: Set<object>): void {
  const refuse = (problem: string): PalimpsestError => {
    const path = joinPath(root, steps);
    return invalid(`${path} ${problem}.`, path, 'Only what JSON can hold is stored exactly.');
  };
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return;
  if (typeof value === 'number') {
    if (Number.isFinite(value) && !Object.is(value, -0)) return;
    throw refuse(`is ${Object.is(value, -0) ? '-0' : value}, which JSON cannot keep`);
  }
  if (typeof value !== 'object')
    throw refuse(`is ${value === undefined ? 'undefined' : `a ${typeof value}`}`);
  if (above.has(value)) throw refuse('refers back to a value that contains it');
  if (steps.length >= DEEPEST_NESTING) throw refuse(`is nested deeper than ${DEEPEST_NESTING}`);
  if (typeof Reflect.get(value, 'toJSON') === 'function') throw refuse('has a toJSON method');
  if (Object.getOwnPropertySymbols(value).length > 0) throw refuse('has a symbol among its keys');
  above.add(value);
  const within = (step: Step, inner: unknown): void => {
    steps.push(step);
    checkValue(inner, root, steps, above);
    steps.pop();
  };
  if (Array.isArray(value)) {
    if (Object.keys(value).length !== value.length) throw refuse('has holes or keys that are no index');
    value.forEach((inner, index) => within(index, inner));
  } else {
    const kind: unknown = Object.getPrototypeOf(value);
    // An object of another realm has that realm's Object.prototype, whose own prototype is null as well.
    const plain = kind === null || Object.getPrototypeOf(kind) === null;
    if (!plain) throw refuse(`is an instance of ${value.constructor?.name || 'a class'}`);
    for (const [key, inner] of Object.entries(value)) if (inner !== undefined) within(key, inner);
  }
  above.delete(value);
}

/** As the key of a map, or in a sentence. */
export const asText = (value: Json | undefined): string =>
  typeof value === 'object' ? JSON.stringify(value) : String(value);
