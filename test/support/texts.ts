/** Values one by one, as a stream of the store gives them, and texts that come in pieces. */
export async function* each<Value>(values: Iterable<Value>): AsyncGenerator<Value> {
  for (const value of values) yield await Promise.resolve(value);
}

export async function joined(texts: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const piece of texts) text += piece;
  return text;
}
