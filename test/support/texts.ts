/** Yields values one by one, like a stream of the store. */
export async function* each<Value>(values: Iterable<Value>): AsyncGenerator<Value> {
  for (const value of values) yield await Promise.resolve(value);
}

export async function joined(texts: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of texts) text += piece;
  return text;
}
