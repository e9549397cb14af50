/** Parts of random histories in other formats. */
import fc from 'fast-check';
import type { Json } from '../../src/conversation/message.js';
import { texts } from './histories.js';

export type Item = Record<string, Json>;

export const callIds = fc.constantFrom('call_1', 'call_2', 'a', 'b', '');
export const itemIds = fc.option(fc.constantFrom('id_1', 'id_2', 'id_3', 'id_4', 'id_5', 'id_6'), {
  nil: undefined,
  freq: 3,
});
export const names = fc.constantFrom('bash', 'read_file', 'web_search');
export const inputs: fc.Arbitrary<Item> = fc.oneof(
  fc.constant({}),
  texts.map((text) => ({ path: '/tmp/a', content: text, nested: { n: [1, null] } })),
);
export const anyText = fc.oneof(
  { weight: 8, arbitrary: texts },
  { weight: 1, arbitrary: fc.constantFrom('', ' \n', 'ends  ') },
);
export const png = 'iVBORw0KGgo=';
export const clean = (value: unknown): Item => JSON.parse(JSON.stringify(value)) as Item;
export const record = (fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Item> =>
  fc.record(fields).map(clean);
export const type = (name: string) => fc.constant(name);

export const flat = (turns: fc.Arbitrary<Item[]>): fc.Arbitrary<Item[]> =>
  fc.array(turns, { maxLength: 10 }).map((all) => all.flat());

/** Decides which calls are answered, and whether the answers come in the order of the calls. */
export const answering = fc.record({
  answered: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
  reversed: fc.boolean(),
});
export function answers<T>(
  calls: readonly T[],
  { answered, reversed }: { answered: boolean[]; reversed: boolean },
): T[] {
  const kept = calls.filter((_, index) => answered[index] || index > 1);
  return reversed ? kept.reverse() : kept;
}
