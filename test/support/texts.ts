import { leftOut } from '../../src/summary/answer/sections.js';

/** Yields values one by one, like a stream of the store. */
export async function* each<Value>(values: Iterable<Value>): AsyncGenerator<Value> {
  for (const value of values) yield await Promise.resolve(value);
}

export async function joined(texts: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of texts) text += piece;
  return text;
}

/** The line in place of a layer of the journal that a head leaves out. */
export const leftOutLine = leftOut({ fromSeq: 1, throughSeq: 2 }).split('\n')[1]!;
